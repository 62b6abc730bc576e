"""The tables that a view reads: each at one version, as long as it is the same table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from deltaplane import telemetry
from deltaplane.errors import (
    DEPARTED,
    DeltaplaneError,
    LedgerUnavailable,
    ReadPointExpired,
    TransactionConflict,
    VersionNotFound,
)
from deltaplane.ledger.context import Context
from deltaplane.ledger.foreign import notice_foreign_commits
from deltaplane.ledger.load import read_listing
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.publish import publish_pending
from deltaplane.log.listing import bases
from deltaplane.spark.views import TransactionView, View

__all__ = ["pinned_version", "replaced", "with_outsiders"]


def pinned_version(ctx: Context, seen: View, root: str) -> int:
    """The version at which a view reads one of its tables.

    Raises:
        TransactionConflict, ReadPointExpired: It is not that table any more, or its log does not hold the
            version.
    """
    seen.used.add(root)
    current = _still_there(ctx, seen, seen.pins[root])
    if root not in seen.checked:
        with seen.guard:
            if root not in seen.checked:
                if isinstance(seen, TransactionView) and current is not None:
                    seen.pins[root] = _as_of_begin(ctx, seen, seen.pins[root], current)
                _check_log(ctx, seen, seen.pins[root])
                seen.checked.add(root)
    return seen.pins[root].head_version


def _still_there(ctx: Context, seen: View, pinned: ManagedTable) -> ManagedTable | None:
    """The table as it is now; None where nobody knows, because the database is away.

    Raises:
        TransactionConflict, ReadPointExpired: Somebody else dropped it, or made another one in its place,
            whose rows would be read.
    """
    try:
        current = ctx.find_location(pinned.location)
    except LedgerUnavailable as error:
        # The end of the block asks again, and what is published can be read meanwhile.
        telemetry.LOGGER.warning("%s: read as it is published, because of: %s", pinned.label, error)
        return None
    if current is not None and current.table_id == pinned.table_id:
        return current
    if isinstance(seen, TransactionView):
        raise TransactionConflict(pinned.label, pinned.head_version + 1, "somebody else", DEPARTED)
    raise replaced(pinned.label)


def replaced(table: str) -> ReadPointExpired:
    """What is told of a table of a read point that somebody else ended while it was read."""
    return ReadPointExpired(
        f"{table}: while this block read it, somebody else {DEPARTED}. What was read of it may be of the "
        f"other one: do not use it. Take a new point, and read again."
    )


def _as_of_begin(
    ctx: Context, seen: TransactionView, pinned: ManagedTable, current: ManagedTable
) -> ManagedTable:
    """The table with the commits of outside writers that lay in its log when the transaction began.

    Nobody told the ledger of them, and to look into the logs of all tables at the begin would take long.
    """
    try:
        notice_foreign_commits(ctx, current)
        with ctx.store.glance() as session:
            later = session.rows("sources_since", table_id=pinned.table_id, version=pinned.head_version)
    except (DeltaplaneError, OSError) as error:
        # Whoever writes to the table is told; its versions up to the pin can be read.
        telemetry.LOGGER.debug("%s: commits of outside writers are left alone: %s", pinned.label, error)
        return pinned
    version = with_outsiders(pinned.head_version, later, int(seen.begun_at * 1000))
    return (
        pinned
        if version == pinned.head_version
        else replace(ctx.by_id(pinned.table_id), head_version=version)
    )


def with_outsiders(version: int, later: Iterable[tuple[int, str, int]], moment: int) -> int:
    """The version of a table at a moment, when the ledger had not heard of outside writers by then.

    Args:
        version: What the ledger knew.
        later: The versions after it, oldest first: number, source, time.
        moment: In milliseconds since 1970.
    """
    for number, source, written in later:
        if source != "foreign" or written > moment:
            break
        version = number
    return version


def _check_log(ctx: Context, seen: View, pinned: ManagedTable) -> None:
    """See that the log holds the version that the view is to read.

    Raises:
        ReadPointExpired: It has been cleaned up.
    """
    if pinned.published_version < pinned.head_version:
        publish_pending(ctx, ctx.by_id(pinned.table_id))
    if isinstance(seen, TransactionView):
        return
    try:
        bases(read_listing(ctx.storage(pinned.location)), pinned.head_version)
    except VersionNotFound as error:
        raise ReadPointExpired(
            f"{pinned.label}: the log does not hold version {pinned.head_version} of the read point any "
            f"more. Nothing was read. Take a newer point; keep more history with "
            f"delta.logRetentionDuration. {error}"
        ) from None
