"""Large versions: ratified bare, with their bytes and what others must know; the rows of their files follow.

The rows of a hundred thousand files take longer than everything else about a commit, and nobody needs them to
read the log. So whoever commits does not wait for them. They are written right behind it by the same process,
or by whoever needs them first: the next commit to the table, a reader of the ledger, the reconciler. Only the
newest version of a table is ever bare.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from deltaplane import telemetry
from deltaplane.errors import LedgerError
from deltaplane.ledger.bulk import without_collections
from deltaplane.ledger.context import Context
from deltaplane.ledger.file_rows import Totals, write_files
from deltaplane.ledger.head import Head, read_head
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.names import commit_path
from deltaplane.ledger.prepare import Prepared, prepare_bytes, text_fault
from deltaplane.ledger.pruning import pruning_columns_of
from deltaplane.ledger.ratify import Version, decompress
from deltaplane.ledger.stores.base import MayNotWrite, Session
from deltaplane.log.order_keys import INT64_MAX
from deltaplane.log.properties import checkpoint_interval

__all__ = [
    "Lacking",
    "complete_behind",
    "complete_table",
    "completed",
    "ensure_complete",
    "is_large",
    "may_be_bare",
]

LARGE = 10_000
"""From so many files on a version is ratified bare."""
_PATIENCE_SECONDS = 60.0
_GLANCE_SECONDS = 0.1
_HEAD_START_SECONDS = 0.2
"""Whoever committed has something to do right afterwards, and waits for it."""


@dataclass(frozen=True)
class Lacking:
    """A table whose newest version may lack the rows of its files.

    Attributes:
        table: The table.
        newest: That version, where it is at hand.
    """

    table: ManagedTable
    newest: Version | None = field(default=None, repr=False)


def is_large(prepared: Prepared) -> bool:
    """Whether a version has very many files."""
    return prepared.facts.adds + prepared.facts.removes >= LARGE


def may_be_bare(prepared: Prepared, head: Head, version: int, asks_for_checkpoints: bool) -> bool:
    """Whether the rows of a version may follow it.

    It must be large, nothing may be found wrong with it when its rows are written, and no checkpoint be due
    with it, which takes the rows; unless whoever commits asks for the checkpoint later.
    """
    if not is_large(prepared):
        return False
    if _checkpoint_is_due(prepared, head, version) and not asks_for_checkpoints:
        return False
    adds = prepared.adds() if prepared.facts.adds else []
    texts_fit = all(_fits(action.stats) and _fits(action.clustering_provider) for action in adds)
    return texts_fit and head.totals.size_bytes + sum(action.size for action in adds) <= INT64_MAX


def _checkpoint_is_due(prepared: Prepared, head: Head, version: int) -> bool:
    metadata = prepared.metadata or head.metadata
    return version > 0 and metadata is not None and version % checkpoint_interval(metadata) == 0


def _fits(text: str | None) -> bool:
    """Whether every database can keep a text that the writer may fill as it likes."""
    return text is None or (text.isascii() and "\0" not in text) or text_fault(text) is None


def completed(session: Session, head: Head) -> Head:
    """The head of a table, which is locked, with the rows of its files; they are written if they lack."""
    if not head.bare:
        return head
    _complete(session, head.table, None)
    row = session.row("table_by_id", table_id=head.table.table_id)
    assert row is not None, "it is locked"
    return read_head(session, ManagedTable.from_row(row))


def complete_table(ctx: Context, lacking: Lacking) -> bool:
    """Write the rows that the newest version of a table lacks, in a transaction of its own.

    What it writes may be lost in a power failure: it can be found out again.

    Returns:
        Whether there were any.
    """
    table_id = lacking.table.table_id
    with without_collections(), ctx.store.relaxed() as session:
        locked = session.rows("lock_tables", keys=session.keys([table_id]))
        bare = session.row("bare_head", table_id=table_id)
        if not locked or bare is None:
            return False
        table = ManagedTable.from_row(locked[0])
        _complete(session, table, _known(session, table, lacking))
        telemetry.step("complete.rows_written", table=table.label, version=table.head_version)
    telemetry.step("complete.done", table=table.label, version=table.head_version)
    return True


def _known(session: Session, table: ManagedTable, lacking: Lacking) -> Prepared | None:
    """What the version does, if it is the one that is at hand: somebody else may have gone on meanwhile."""
    if lacking.newest is None:
        return None
    told = session.rows("commit_hashes", table_id=table.table_id, first=table.head_version)
    same = [row[1] for row in told] == [hashlib.sha256(lacking.newest.content).hexdigest()]
    return lacking.newest.prepared if same else None


def _complete(session: Session, table: ManagedTable, prepared: Prepared | None) -> None:
    number = table.head_version
    place = {"table_id": table.table_id, "version": number}
    if prepared is None:
        row = session.row("content", **place)
        assert row is not None, "a version has its bytes"
        prepared = prepare_bytes(decompress(row[0], row[1]), f"{table.location}/{commit_path(number)}")
    before = Totals()
    if number > table.base_version:
        sums = session.row("commit_totals", table_id=table.table_id, version=number - 1)
        assert sums is not None, "only the newest version is bare"
        before = Totals(*sums[1:4])
    columns = pruning_columns_of(session, table.table_id)

    def sums_and_ids(totals: Totals, next_file_id: int) -> tuple[tuple[str, dict[str, int]], ...]:
        return (
            ("set_totals", {**place, **totals.__dict__}),
            ("advance_head", {**place, "next_file_id": next_file_id}),
        )

    write_files(session, table, number, prepared, before, columns, None, sums_and_ids)


def complete_behind(ctx: Context, bare: Sequence[Lacking]) -> None:
    """Write the rows that versions lack, while whoever committed them goes on.

    Should it fail, whoever needs the rows next writes them.
    """

    def work() -> None:
        ctx.wait_behind(_HEAD_START_SECONDS)
        for lacking in bare:
            try:
                _completed_patiently(ctx, lacking)
            except Exception as error:
                _still_lacking(lacking, error)

    try:
        # Not a daemon: at the end of the process the transaction is finished, and not cut off.
        ctx.start_behind(threading.Thread(target=work, name="deltaplane rows"))
    except Exception as error:
        # The process ends, or may have no more threads. The commit holds all the same.
        for lacking in bare:
            _still_lacking(lacking, error)


def _completed_patiently(ctx: Context, lacking: Lacking) -> bool:
    what = f"Writing the rows of {lacking.table.label}"
    return ctx.repeated(lambda: complete_table(ctx, lacking), what)


def _still_lacking(lacking: Lacking, error: Exception) -> None:
    label = lacking.table.label
    telemetry.LOGGER.warning("%s: the rows of its newest version are still to be written: %s", label, error)


def ensure_complete(ctx: Context, table: ManagedTable, version: int) -> None:
    """See that a version has the rows of its files.

    Raises:
        LedgerError: It has not, this user may not write them, and nobody else does.
    """
    if not _is_bare(ctx, table, version):
        return
    try:
        _completed_patiently(ctx, Lacking(table))
    except MayNotWrite as error:
        _wait(ctx, table, version, error)


def _is_bare(ctx: Context, table: ManagedTable, version: int) -> bool:
    with ctx.store.glance() as session:
        row = session.row("bare_head", table_id=table.table_id)
    return row is not None and row[0] == version


def _wait(ctx: Context, table: ManagedTable, version: int, denied: LedgerError) -> None:
    """Whoever may only read waits for whoever committed."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while _is_bare(ctx, table, version):
        if time.monotonic() > deadline:
            raise LedgerError(
                f"{table.label}: version {version} is committed, and the rows of its files are not in the "
                f"ledger yet: whoever committed it has not finished, or died. Nothing was "
                f"read. Read the table's log, or let somebody who may write run: deltaplane ledger "
                f"reconcile"
            ) from denied
        time.sleep(_GLANCE_SECONDS)
