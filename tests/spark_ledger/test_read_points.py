"""The whole lake at one moment, now or in the past, through Spark and through others."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest
from deltalake import DeltaTable

import deltaplane as dp
from deltaplane.errors import (
    ConfigError,
    ReadPointExpired,
    StatementRefused,
    TableNewerThanPoint,
    VersionNotFound,
)
from spark_ledger.actors import Actor
from spark_ledger.conftest import Lake, elsewhere

pytestmark = pytest.mark.spark
on_sqlite = pytest.mark.parametrize("ledger_uri", ["sqlite"], indirect=True)

NAMES = ("left", "right")
SUMS = "SELECT (SELECT sum(n) FROM {left}), (SELECT sum(n) FROM {right})"
DAY = 86_400_000


def sums(lake: Lake) -> tuple[int, int]:
    return tuple(lake.rows(SUMS)[0])  # type: ignore[return-value]


def sums_at(lake: Lake, point: dp.ReadPoint | str) -> tuple[int, int]:
    with dp.reading_at(lake.spark, point):
        return sums(lake)


def outside_at(lake: Lake, point: dp.ReadPoint) -> tuple[int, ...]:
    """The same state through an engine that is told nothing but the versions."""
    tables = [DeltaTable(lake.path(name), version=point.versions[lake.path(name)]) for name in NAMES]
    return tuple(sum(table.to_pyarrow_table()["n"].to_pylist()) for table in tables)


@pytest.fixture
def ticking(lake: Lake) -> Iterator[Lake]:
    """A lake whose clock goes on by one second whenever somebody looks at it."""
    now = lake.ledger.context.clock() - DAY
    ticks = iter(range(now, now + DAY, 1000))
    before, lake.ledger.context.clock = lake.ledger.context.clock, lambda: next(ticks)
    yield lake
    lake.ledger.context.clock = before


def test_every_moment_of_the_past_is_a_whole_state(ticking: Lake) -> None:
    """Each commit has a time of its own, also two of one group: no moment lies between those."""
    lake = ticking
    for name in NAMES:
        lake.sql(f"CREATE TABLE {{{name}}} USING delta AS SELECT 0L AS n")
    created = lake.ledger.context.clock()
    for n in (1, 2):
        with dp.transaction(lake.spark):
            lake.sql(f"UPDATE {{left}} SET n = {n}")
            lake.sql(f"INSERT INTO {{left}} VALUES ({n})")
            lake.sql(f"UPDATE {{right}} SET n = {n}")
    lake.sql("UPDATE {right} SET n = 9")
    end = lake.ledger.context.clock()
    found = [lake.ledger.read_point(at=moment).versions for moment in range(created, end, 500)]
    states = [tuple(versions[lake.path(name)] for name in NAMES) for versions in found]
    assert list(dict.fromkeys(states)) == [(0, 0), (2, 1), (4, 2), (4, 3)]
    points = [lake.ledger.read_point(at=created + 500 * states.index(at)) for at in dict.fromkeys(states)]
    seen = [sums_at(lake, point.to_json()) for point in points]
    assert seen == [(0, 0), (2, 1), (6, 2), (6, 9)] == [outside_at(lake, point) for point in points]
    assert lake.ledger.read_point().versions == found[-1]


@on_sqlite
def test_a_point_is_read_by_others_and_later(lake: Lake) -> None:
    """It goes as text to another thread, stays while others commit, and nests in nothing."""
    for name in NAMES:
        lake.sql(f"CREATE TABLE {{{name}}} USING delta AS SELECT 1L AS n")
    text = lake.ledger.read_point().to_json()
    lake.sql("INSERT INTO {left} VALUES (5)")
    lake.sql("DELETE FROM {right}")
    lake.sql("ALTER TABLE {right} ADD COLUMN more int")
    assert elsewhere(lambda: sums_at(lake, text)) == (1, 1) == outside_at(lake, dp.ReadPoint.from_json(text))
    with dp.reading_at(lake.spark, text):
        assert lake.sql("SELECT * FROM {right}").columns == ["n"]
        assert elsewhere(lambda: lake.sql("SELECT * FROM {right}").columns) == ["n", "more"]
    assert sums(lake) == (6, None)


@on_sqlite
def test_a_moment_in_the_future_is_refused(lake: Lake) -> None:
    lake.table("left", "n bigint")
    with pytest.raises(VersionNotFound, match="lies in the future"):
        lake.ledger.read_point(at=lake.ledger.context.clock() + DAY)
    for seconds in (1_800_000_000.5, 0, -5):
        with pytest.raises(VersionNotFound, match="Give milliseconds since 1970, not seconds"):
            lake.ledger.read_point(at=seconds)  # type: ignore[arg-type]


@on_sqlite
def test_tables_that_are_newer_than_the_point_or_the_transaction_are_refused_by_name(lake: Lake) -> None:
    lake.table("left", "n bigint")
    point = lake.ledger.read_point()
    with Actor(lake) as a:
        a.begins()
        lake.table("right", "n bigint")
        for statement in ("SELECT * FROM {right}", "INSERT INTO {right} VALUES (1)"):
            with pytest.raises(Exception, match="is managed since after the transaction began"):
                a.sql(statement)
    with pytest.raises(
        TableNewerThanPoint, match=r"is managed since after the read point.* Take a newer point to see it"
    ):
        sums_at(lake, point)
    assert lake.path("right") in lake.ledger.read_point().versions
    assert lake.version("right") == 0


@on_sqlite
def test_a_point_that_the_log_no_longer_holds_has_expired(lake: Lake) -> None:
    """After a cleanup of the log old points say so; newer ones still work."""
    for name in NAMES:
        lake.table(name, "n bigint", "'delta.checkpointInterval' = '2'")
    old = lake.ledger.read_point()
    for n in range(4):
        lake.sql(f"INSERT INTO {{left}} VALUES ({n})")
    kept = lake.ledger.read_point()
    clock = lake.ledger.context.clock
    lake.ledger.context.clock = lambda: clock() + 40 * DAY
    lake.ledger.cleanup(lake.path("left"), dry_run=False)
    lake.ledger.context.clock = clock
    assert lake.log("left")[0].startswith(f"{4:020d}")
    with pytest.raises(
        ReadPointExpired, match=r"left: the log does not hold version 0 .* Take a newer point"
    ):
        sums_at(lake, old)
    # Only what is read counts.
    with dp.reading_at(lake.spark, old):
        assert lake.value("SELECT count(*) FROM {right}") == 0
    assert sums_at(lake, kept) == (6, None) == sums(lake)


@on_sqlite
def test_a_point_of_a_ledger_that_never_had_it_has_expired(lake: Lake) -> None:
    lake.table("left", "n bigint")
    known = lake.ledger.read_point()
    for name, version in (("left", 7), ("gone", 0)):
        point = dp.ReadPoint(known.at, {lake.path(name): version})
        with pytest.raises(ReadPointExpired, match="Take a newer point"), dp.reading_at(lake.spark, point):
            lake.rows(f"SELECT * FROM {{{name}}}")
    assert lake.value("SELECT count(*) FROM {left}") == 0


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE {new} (id bigint)", "CREATE TABLE {new} USING delta AS SELECT 1"]
)
def test_nothing_is_left_of_a_table_that_is_refused_at_a_point(lake: Lake, statement: str) -> None:
    lake.table("items", rows=1)
    text = statement if "AS" in statement else f"{statement} USING delta"
    with (
        pytest.raises(StatementRefused, match="No table can be created at a read point"),
        dp.reading_at(lake.spark, lake.ledger.read_point()),
    ):
        lake.sql(text)
    assert not (lake.folder / "new").exists()
    lake.sql(text)
    assert lake.version("new") == 0


def test_another_table_in_the_same_place_is_not_read_at_a_point_from_before(lake: Lake) -> None:
    lake.sql("CREATE TABLE {a} USING delta AS SELECT 'old' AS v")
    lake.sql("CREATE TABLE {b} USING delta AS SELECT 'kept' AS v")
    point = lake.ledger.read_point().to_json()
    lake.ledger.release(lake.path("a"))
    shutil.rmtree(lake.path("a"))
    time.sleep(0.01)
    lake.sql("CREATE TABLE {a} USING delta AS SELECT 'another table' AS v")
    with dp.reading_at(lake.spark, point):
        assert lake.value("SELECT v FROM {b}") == "kept"
        with pytest.raises(Exception, match="another table has been made there since"):
            lake.rows("SELECT v FROM {a}")
    assert lake.value("SELECT v FROM {a}") == "another table"


@pytest.mark.parametrize("anew", [True, False])
def test_a_table_that_others_drop_while_it_is_read_is_told_at_the_end(lake: Lake, anew: bool) -> None:
    lake.sql("CREATE TABLE {a} USING delta AS SELECT 'old' AS v")
    lake.sql("CREATE TABLE {b} USING delta AS SELECT 'kept' AS v")
    point = lake.ledger.read_point()

    def replaced() -> None:
        lake.ledger.release(lake.path("a"))
        shutil.rmtree(lake.path("a"))
        if anew:
            lake.sql("CREATE TABLE {a} USING delta AS SELECT 'another table' AS v")

    def read(*tables: str) -> None:
        with dp.reading_at(lake.spark, point):
            for table in tables:
                lake.rows(f"SELECT v FROM {{{table}}}")
            elsewhere(replaced)
            lake.rows(f"SELECT v FROM {{{tables[0]}}}")

    with pytest.raises(ReadPointExpired, match="/a: while this block read it, somebody else dropped"):
        read("a")
    if anew:
        # Who does not read it does not mind.
        point = lake.ledger.read_point()
        read("b")


def test_a_table_that_left_and_came_back_is_read_at_an_older_point(lake: Lake) -> None:
    lake.table("a", rows=2)
    point = lake.ledger.read_point()
    lake.ledger.release(lake.path("a"))
    time.sleep(0.01)
    lake.ledger.adopt(lake.path("a"))
    lake.sql("DELETE FROM {a}")
    with dp.reading_at(lake.spark, point):
        assert lake.value("SELECT count(*) FROM {a}") == 2


def test_a_point_stays_readable_when_one_of_its_tables_has_gone(lake: Lake) -> None:
    lake.table("a", rows=2)
    lake.table("b", rows=3)
    point = lake.ledger.read_point()
    lake.ledger.release(lake.path("b"))
    lake.sql("DELETE FROM {b}")
    with dp.reading_at(lake.spark, point):
        assert lake.value("SELECT count(*) FROM {a}") == 2
        with pytest.raises(Exception, match="the ledger does not manage it"):
            lake.value("SELECT count(*) FROM {b}")


@pytest.mark.parametrize("given", [None, 5, {"at": 1}])
def test_what_is_no_read_point_is_refused(lake: Lake, given: Any) -> None:
    with pytest.raises(ConfigError, match="reading_at takes a read point"), dp.reading_at(lake.spark, given):
        raise AssertionError
