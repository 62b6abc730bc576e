"""Commits of writers that know nothing of the ledger: who sees them, and since when."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import deltaplane as dp
from deltaplane.errors import ForeignCommit, TransactionConflict
from deltaplane.spark.pins import with_outsiders
from spark_ledger.conftest import Lake, elsewhere

pytestmark = pytest.mark.spark


def outsider_writes(lake: Lake, name: str, number: int) -> None:
    write_deltalake(lake.path(name), pa.table({"id": pa.array([number], pa.int64())}), mode="append")


@pytest.fixture
def items(lake: Lake) -> Iterator[Lake]:
    lake.sql("CREATE TABLE {items} USING delta AS SELECT id FROM range(3)")
    lake.sql("CREATE TABLE {copies} (id bigint) USING delta")
    yield lake
    lake.ledger.refresh(lake.path("items"))


def ids(lake: Lake, name: str = "items") -> list[int]:
    return [row.id for row in lake.rows(f"SELECT id FROM {{{name}}} ORDER BY id")]


def test_what_was_in_the_log_when_a_transaction_began_is_seen_and_can_be_built_on(items: Lake) -> None:
    outsider_writes(items, "items", 10)
    outsider_writes(items, "items", 11)
    with dp.transaction(items.spark):
        assert ids(items) == [0, 1, 2, 10, 11]
        items.sql("INSERT INTO {copies} SELECT id FROM {items}")
        items.sql("UPDATE {items} SET id = 20 WHERE id = 10")
    assert ids(items) == [0, 1, 2, 11, 20]
    assert ids(items, "copies") == [0, 1, 2, 10, 11]
    assert [entry.source for entry in items.ledger.history(items.path("items"))] == [
        *("ledger", "foreign", "foreign", "ledger")
    ]


def test_what_came_later_is_not_seen(items: Lake) -> None:
    with dp.transaction(items.spark):
        outsider_writes(items, "items", 10)
        assert ids(items) == [0, 1, 2]
        outsider_writes(items, "items", 11)
        items.sql("INSERT INTO {copies} SELECT id FROM {items}")
        assert ids(items) == [0, 1, 2]
    assert ids(items, "copies") == [0, 1, 2]
    assert ids(items) == [0, 1, 2, 10, 11]


def test_whoever_writes_what_an_outsider_changed_meanwhile_loses(items: Lake) -> None:
    def loses() -> None:
        items.sql("UPDATE {items} SET id = 20 WHERE id = 0")
        outsider_writes(items, "items", 10)

    with pytest.raises(TransactionConflict, match="delta-rs"):
        dp.run_transaction(items.spark, loses, retries=0)
    assert ids(items) == [0, 1, 2, 10]


def test_somebody_else_has_taken_it_in_meanwhile(items: Lake) -> None:
    """The outsider was before the transaction, and who took it in was after its begin."""
    outsider_writes(items, "items", 10)
    with dp.transaction(items.spark):
        elsewhere(lambda: items.sql("INSERT INTO {items} VALUES (30)"))
        assert ids(items) == [0, 1, 2, 10]
    assert ids(items) == [0, 1, 2, 10, 30]


def test_read_points_have_it(items: Lake) -> None:
    outsider_writes(items, "items", 10)
    point = items.ledger.read_point()
    assert point.versions[items.path("items")] == 1
    outsider_writes(items, "items", 11)
    with dp.reading_at(items.spark, point):
        assert ids(items) == [0, 1, 2, 10]
    assert items.ledger.read_point(point.at).versions == point.versions


def test_a_table_that_refuses_outsiders_is_read_as_the_ledger_has_it(items: Lake) -> None:
    place = items.path("items")
    items.ledger.configure(place, foreign_commits="refuse")
    outsider_writes(items, "items", 10)
    assert items.ledger.read_point().versions[place] == 0
    with dp.transaction(items.spark):
        assert ids(items) == [0, 1, 2]
    with pytest.raises(ForeignCommit, match="refuses"), dp.transaction(items.spark):
        items.sql("DELETE FROM {items}")
    items.ledger.refresh(place)
    assert ids(items) == [0, 1, 2, 10]


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ([], 4),
        ([(5, "foreign", 90), (6, "foreign", 100), (7, "foreign", 101)], 6),
        ([(5, "foreign", 90), (6, "ledger", 91), (7, "foreign", 92)], 5),
        ([(5, "ledger", 90), (6, "foreign", 91)], 4),
    ],
)
def test_a_version_moves_over_outsiders_of_before_and_over_nobody_else(
    later: list[tuple[int, str, int]], expected: int
) -> None:
    assert with_outsiders(4, later, 100) == expected
