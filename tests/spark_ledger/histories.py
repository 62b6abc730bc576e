"""Transactions over three tables that leave their ids behind, so that what was seen can be checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import deltaplane as dp
from deltaplane.errors import CommitConflict
from spark_ledger.checker import Read, Recorded, check_history
from spark_ledger.conftest import Lake

__all__ = ["LISTS", "client", "create_lists", "faults_of", "ids_in", "versions_now"]

LISTS = ("one", "two", "three")


def client(lake: Lake, number: int, rounds: int, record: Callable[[Recorded], object]) -> None:
    """Transactions that leave their ids in two of three tables: one is updated, the other appended to."""
    for turn in range(rounds):
        # All clients update the same table, so of those that overlap only the first can commit.
        changed, grown = LISTS[turn % 3], LISTS[(turn + 1 + number % 2) % 3]
        reads: list[Read] = []
        floor = versions_now(lake)
        acknowledged: bool | None = None
        try:
            with dp.transaction(lake.spark) as transaction:
                name, ceiling = transaction.transaction_id, versions_now(lake)
                reads.append(ids_in(lake, changed))
                lake.sql(f"UPDATE {{{changed}}} SET ids = concat(ids, ' {name}') WHERE row = 0")
                reads.append(ids_in(lake, changed, own=1))
                lake.sql(f"INSERT INTO {{{grown}}} VALUES (1, '{name}')")
                reads.extend(ids_in(lake, table, own=int(table in {changed, grown})) for table in LISTS)
            acknowledged = True
        except CommitConflict:
            acknowledged = False
        record(
            Recorded(
                name, tuple(reads), {changed: 1, grown: 1}, frozenset({grown}), acknowledged, floor, ceiling
            )
        )


def versions_now(lake: Lake) -> dict[str, int]:
    versions = lake.ledger.read_point().versions
    return {name: versions[lake.path(name)] for name in LISTS}


def ids_in(lake: Lake, table: str, own: int = 0) -> Read:
    rows = lake.rows(f"SELECT ids FROM {{{table}}}")
    return Read(table, tuple(one for row in rows for one in row.ids.split()), own)


def create_lists(lake: Lake) -> None:
    for name in LISTS:
        lake.sql(f"CREATE TABLE {{{name}}} USING delta AS SELECT 0 AS row, '' AS ids")


def faults_of(lake: Lake, record: Sequence[Recorded]) -> list[str]:
    """Check what was recorded, and the end, against the versions that the ledger holds."""
    end = Recorded("the end", tuple(ids_in(lake, table) for table in LISTS), floor=versions_now(lake))
    versions = {}
    for name in LISTS:
        history = lake.ledger.history(lake.path(name))[::-1]
        # The creation leaves no id.
        versions[name] = [None, *(entry.transaction_id for entry in history[1:])]
    return check_history(versions, [*record, end])
