"""Taking a table's rows out of the ledger, wholly or from a version on. The table's files are not touched."""

from __future__ import annotations

from deltaplane.ledger.context import Context
from deltaplane.ledger.stores.base import Session

__all__ = ["end_segment", "erase_rows", "erase_table", "erase_versions"]

_HISTORIES = ("publications", "protocols", "metadata", "app_transactions", "domains", "commits")


def erase_table(ctx: Context, table_id: int, *, keep_entry: bool = False) -> None:
    """Forget everything about a table.

    Args:
        ctx: The ledger.
        table_id: Which table.
        keep_entry: Keep the table itself, empty, as at the begin of an adoption.
    """
    with ctx.store.writing() as session:
        erase_rows(session, table_id)
        if keep_entry:
            session.run("reset_table", table_id=table_id)
        else:
            session.run("delete_table", table_id=table_id)


def erase_rows(session: Session, table_id: int) -> None:
    """Delete the rows of all versions."""
    _drop_packs(session, table_id)
    session.run("delete_all_bounds", table_id=table_id)
    session.run("delete_pruning_columns", table_id=table_id)
    session.run("delete_files", table_id=table_id, version=-1)
    session.run("delete_removals", table_id=table_id, version=-1)
    for name in _HISTORIES:
        session.run(f"delete_{name}", table_id=table_id, version=-1)


def end_segment(session: Session, table_id: int, version: int) -> None:
    """End the state of a table before a gap in its log: from this version on another state begins."""
    session.run("end_active_files", table_id=table_id, version=version)
    session.run("end_all_tombstones", table_id=table_id, version=version)
    # Applications and domains have no end of their own; what still holds is in the next checkpoint.
    session.run("delete_app_transactions", table_id=table_id, version=-1)
    session.run("delete_domains", table_id=table_id, version=-1)


def erase_versions(session: Session, table_id: int, version: int) -> None:
    """Undo every version from one on: what it added goes, what it removed comes back."""
    _drop_packs(session, table_id)
    session.run("delete_files", table_id=table_id, version=version)
    session.run("delete_bounds", table_id=table_id)
    session.run("delete_pruning_columns_since", table_id=table_id, version=version)
    session.run("delete_removals", table_id=table_id, version=version)
    session.run("revive_tombstones", table_id=table_id, version=version)
    for name in _HISTORIES:
        session.run(f"delete_{name}", table_id=table_id, version=version)


def _drop_packs(session: Session, table_id: int) -> None:
    """Packs go with the rows they were made of, under the lock under which a packer looks at the rows."""
    session.rows("lock_tables", keys=session.keys([table_id]))
    session.run("delete_packs", table_id=table_id)
