"""Release: a table leaves as easily as it came (invariant 9)."""

from __future__ import annotations

from dataclasses import dataclass

from deltaplane import telemetry
from deltaplane.errors import DeltaplaneError, LedgerError, TableFrozen
from deltaplane.ledger.context import Context
from deltaplane.ledger.erase import erase_rows
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.publish import publish_pending
from deltaplane.ledger.staged import STAGED_FOLDER, clear_staged

__all__ = ["Released", "forget_table", "release_table"]


@dataclass(frozen=True)
class Released:
    """A table that is an ordinary Delta table again.

    Attributes:
        location: Where it lies.
        version: Its newest version, published.
    """

    location: str
    version: int


def release_table(
    ctx: Context, table: ManagedTable, author: str | None, discard_unpublished: bool = False
) -> Released:
    """Publish what is pending, then forget the table. Its folder is what it was.

    Raises:
        TableFrozen: The log contradicts the ledger; that must be decided first.
        StorageError: What is pending cannot be published. The table stays managed.
    """
    if discard_unpublished:
        if not _forgotten(ctx, table, author):
            raise LedgerError(f"{table.label}: somebody committed meanwhile. Nothing was changed. Try again.")
        _tidy(ctx, table)
        return Released(table.location, table.published_version)
    if table.state == "frozen":
        raise TableFrozen(
            f"{table.label} cannot be released while it is frozen: {table.frozen_reason}. Decide with: "
            f"deltaplane ledger repair {table.label} --keep ledger|log"
        )
    with telemetry.span("ledger.release", table=table.label):
        while True:
            current = ctx.by_id(table.table_id)
            if current.published_version < current.head_version:
                publish_pending(ctx, current)
            if _forgotten(ctx, current, author):
                _tidy(ctx, current)
                telemetry.step("release.done", table=table.label)
                return Released(current.location, current.head_version)


def _tidy(ctx: Context, table: ManagedTable) -> None:
    """Take away what transactions staged: from now on nobody else comes to do it."""
    try:
        clear_staged(ctx, table)
    except (DeltaplaneError, OSError) as error:
        telemetry.LOGGER.warning("%s: files in %s are left behind: %s", table.label, STAGED_FOLDER, error)


def forget_table(ctx: Context, table: ManagedTable, reason: str, author: str | None = None) -> None:
    """Forget a table of which nothing is left to publish: it was deleted, or never came in."""
    with ctx.store.writing() as session:
        if session.rows("lock_tables", keys=session.keys([table.table_id])):
            erase_rows(session, table.table_id)
            session.run("delete_table", table_id=table.table_id)
            ctx.audit(
                session, "release", table.location, author, f"at version {table.head_version}: {reason}"
            )


def _forgotten(ctx: Context, table: ManagedTable, author: str | None) -> bool:
    """Forget it unless somebody committed after the publication."""
    with ctx.store.writing() as session:
        rows = session.rows("lock_tables", keys=session.keys([table.table_id]))
        if not rows:
            raise LedgerError(f"{table.label}: somebody else has released the table meanwhile.")
        if ManagedTable.from_row(rows[0]).head_version != table.head_version:
            return False
        erase_rows(session, table.table_id)
        session.run("delete_table", table_id=table.table_id)
        ctx.audit(session, "release", table.location, author, f"at version {table.head_version}")
    return True
