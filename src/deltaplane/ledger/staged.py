"""Staged commits: content that waits in `_delta_log/_staged_commits`, where no reader looks.

Ours carry "dp-" and the transaction's id in their names; others in that folder belong to somebody else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from deltaplane.ledger.commit import outcome
from deltaplane.ledger.context import Context
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.names import LOG_FOLDER
from deltaplane.ledger.storage import Storage

__all__ = ["STAGED_FOLDER", "clear_staged", "open_staged", "staged_by", "staged_path", "sweep_staged"]

STAGED_FOLDER = f"{LOG_FOLDER}/_staged_commits"
_OURS = re.compile(r"\d{20}\.dp-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.json")


def staged_path(version: int, transaction_id: str) -> str:
    """Where the commit of an open transaction waits."""
    return f"{STAGED_FOLDER}/{version:020d}.dp-{transaction_id}.json"


def staged_by(storage: Storage, transaction_id: str) -> list[str]:
    """The staged commits of one transaction in one table, oldest first."""
    listed = (_OURS.fullmatch(file.name) for file in storage.list(STAGED_FOLDER))
    return sorted(f"{STAGED_FOLDER}/{ours[0]}" for ours in listed if ours and ours[1] == transaction_id)


def sweep_staged(ctx: Context, table: ManagedTable, older_than_ms: int) -> tuple[str, ...]:
    """Remove our staged commits of transactions that have ended or died (invariant 10).

    Returns:
        The names that were removed.
    """
    storage = ctx.storage(table.location)
    limit = ctx.clock() - older_than_ms
    removed = []
    for file in storage.list(STAGED_FOLDER):
        ours = _OURS.fullmatch(file.name)
        if ours is None or file.modified_ms > limit:
            continue
        # After this the transaction has taken place or never will, so nobody needs its file any more.
        outcome(ctx, ours[1])
        storage.delete(f"{STAGED_FOLDER}/{file.name}")
        removed.append(file.name)
    return tuple(removed)


def clear_staged(ctx: Context, table: ManagedTable) -> None:
    """Remove our staged commits of transactions that have ended. Those of open ones are left alone."""
    storage = ctx.storage(table.location)
    found = _staged(storage)
    for name in _ended(ctx, found):
        for path in staged_by(storage, name):
            storage.delete(path)


def open_staged(ctx: Context, table: ManagedTable) -> list[str]:
    """The ids of transactions that have staged commits for a table and have not ended, oldest first."""
    found = _staged(ctx.storage(table.location))
    return sorted(found.keys() - _ended(ctx, found), key=found.__getitem__)


def _staged(storage: Storage) -> dict[str, int]:
    """The ids of the transactions that have staged something, with the time of the oldest file."""
    found: dict[str, int] = {}
    for file in storage.list(STAGED_FOLDER):
        ours = _OURS.fullmatch(file.name)
        if ours is not None:
            found[ours[1]] = min(file.modified_ms, found.get(ours[1], file.modified_ms))
    return found


def _ended(ctx: Context, transaction_ids: Iterable[str]) -> set[str]:
    with ctx.store.reading() as session:
        return {name for name in transaction_ids if session.row("transaction_by_id", transaction_id=name)}
