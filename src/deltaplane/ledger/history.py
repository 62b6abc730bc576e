"""The commits of a table, newest first."""

from __future__ import annotations

from typing import Any

from deltaplane.ledger.context import Context
from deltaplane.ledger.model import Facts, HistoryEntry, ManagedTable, row_limit

__all__ = ["read_history"]


def read_history(ctx: Context, table: ManagedTable, limit: int | None) -> list[HistoryEntry]:
    """Read the newest commits of a table."""
    with ctx.store.reading() as session:
        rows = session.rows("history", table_id=table.table_id, limit=row_limit(limit))
    return [_entry(row) for row in rows]


def _entry(row: tuple[Any, ...]) -> HistoryEntry:
    values = list(row)
    values[5] = Facts.from_json(row[5])
    return HistoryEntry(*values)
