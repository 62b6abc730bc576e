"""Hole H5: tables that are created inside of a transaction, by name and by path."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import deltaplane as dp
from deltaplane.errors import DeltaplaneError, ReadPointExpired, SparkStartError, TransactionConflict
from deltaplane.ledger.alerts import Thresholds
from deltaplane.ledger.reconcile import Grace, reconcile
from deltaplane.spark.attaching import attach, detach
from deltaplane.spark.port import LedgerPort
from spark_ledger.actors import Actor
from spark_ledger.conftest import Lake, elsewhere

pytestmark = [pytest.mark.spark, pytest.mark.parametrize("ledger_uri", ["sqlite"], indirect=True)]


@pytest.fixture
def lake(spark: SparkSession, ledger_uri: str, warehouse: Path) -> Iterator[Lake]:
    """A schema of the warehouse: every table in it has a name, and is managed."""
    schema = f"s{uuid.uuid4().hex[:10]}"
    ledger = attach(spark, dp.connect(ledger_uri))
    spark.sql(f"CREATE SCHEMA {schema}")
    spark.sql(f"USE {schema}")
    folder = Path(spark.sql(f"DESCRIBE SCHEMA {schema}").where("info_name = 'Location'").first()[1])
    yield Lake(spark, ledger, Path(str(folder).removeprefix("file:")))
    spark.sql("USE default")
    detach(spark)
    for table in ledger.tables():
        assert ledger.verify(table.location, every=True).differences == ()
    ledger.close()


def names(lake: Lake) -> list[str]:
    return sorted(row.tableName for row in lake.rows("SHOW TABLES"))


def everything(folder: Path) -> list[str]:
    return sorted(
        os.path.relpath(os.path.join(at, name), folder) for at, _, found in os.walk(folder) for name in found
    )


@pytest.mark.parametrize("place", ["made", "{made}", "made LOCATION"], ids=["name", "path", "name and path"])
def test_a_table_made_in_a_rolled_back_transaction_leaves_no_name_and_no_files(
    lake: Lake, place: str
) -> None:
    """H5: its entry in the catalog was visible at once and stayed."""
    table, _, placed = place.partition(" ")
    where = f"LOCATION '{lake.path('made')}'" if placed else ""
    with Actor(lake) as a:
        a.begins().sql(f"CREATE TABLE {table} USING delta {where} AS SELECT 1 AS id")
        a.sql(f"INSERT INTO {table} VALUES (2)")
        assert a.column(f"SELECT id FROM {table} ORDER BY id") == [1, 2]
        with pytest.raises(AnalysisException):
            lake.rows(f"SELECT * FROM {table}")
        a.rollback()
    assert (names(lake), everything(lake.folder), lake.ledger.tables()) == ([], [], [])
    assert not (lake.folder / "made").exists()
    lake.sql(f"CREATE TABLE {table} USING delta AS SELECT 'x' AS other")
    assert lake.value(f"SELECT * FROM {table}") == "x"


@pytest.mark.parametrize("place", ["made", "{made}"], ids=["name", "path"])
def test_a_table_made_in_a_transaction_is_there_for_everybody_after_it(lake: Lake, place: str) -> None:
    """H5: Delta insists on the path of version 0, which a staged one does not have."""
    with dp.transaction(lake.spark) as transaction:
        lake.sql(f"CREATE TABLE {place} (id bigint) USING delta")
        lake.sql(f"INSERT INTO {place} VALUES (1), (2)")
        lake.sql(f"DELETE FROM {place} WHERE id = 1")
    assert transaction.result is not None
    assert transaction.result.versions == {lake.path("made"): 2}
    assert elsewhere(lambda: lake.value(f"SELECT id FROM {place}")) == 2
    assert DeltaTable(lake.path("made")).to_pyarrow_table().to_pydict() == {"id": [2]}


def test_the_second_of_two_transactions_that_make_a_table_harms_nothing_of_the_first(lake: Lake) -> None:
    """H5: taking back its own name must not take the winner's table away."""
    with Actor(lake) as a, Actor(lake) as b:
        a.begins().sql("CREATE TABLE made USING delta AS SELECT 1 AS id")
        b.begins().sql("CREATE TABLE made USING delta AS SELECT 2 AS id")
        assert (a.column("SELECT * FROM made"), b.column("SELECT * FROM made")) == ([1], [2])
        assert a.commits() == {"made": 0}
        with pytest.raises(TransactionConflict):
            b.commits()
    assert (names(lake), lake.value("SELECT id FROM made")) == (["made"], 1)
    assert DeltaTable(lake.path("made")).to_pyarrow_table().to_pydict() == {"id": [1]}


def test_a_rollback_harms_nothing_that_somebody_else_made_under_the_same_name(lake: Lake) -> None:
    """H5: the name is the same, the table is not."""
    with Actor(lake) as a:
        a.begins().sql("CREATE TABLE made USING delta AS SELECT 1 AS id")
        lake.sql("CREATE TABLE made USING delta AS SELECT 2 AS id")
        assert a.column("SELECT * FROM made") == [1]
        a.rollback()
    assert (names(lake), lake.value("SELECT id FROM made")) == (["made"], 2)


def test_a_rolled_back_replacement_leaves_the_table_as_it_was(lake: Lake) -> None:
    """H5: the name was there before, so it stays."""
    lake.sql("CREATE TABLE made USING delta AS SELECT 1 AS id")
    before = everything(lake.folder / "made/_delta_log")
    with Actor(lake) as a:
        a.begins().sql("CREATE OR REPLACE TABLE made USING delta AS SELECT 'x' AS other")
        assert (a.column("SELECT * FROM made"), lake.value("SELECT id FROM made")) == (["x"], 1)
        a.rollback()
    assert (names(lake), lake.value("SELECT id FROM made")) == (["made"], 1)
    kept = [name for name in everything(lake.folder / "made/_delta_log") if "_staged_commits" not in name]
    assert kept == before


def test_a_rollback_keeps_files_that_lay_there_before(lake: Lake) -> None:
    """H5: only what the transaction wrote goes away."""
    (lake.folder / "made").mkdir(parents=True)
    (lake.folder / "made/notes.txt").write_text("mine")
    with Actor(lake) as a:
        a.begins().does(lambda: lake.spark.range(1).write.format("delta").save(lake.path("made")))
        assert a.column("SELECT id FROM {made}") == [0]
        a.rollback()
    assert everything(lake.folder) == ["made/notes.txt"]


def test_what_a_dead_driver_left_of_a_new_table_is_cleared_away(lake: Lake) -> None:
    """The ledger knows no table there, so the place itself is noted; the reconciler finds it."""
    with Actor(lake) as a:
        a.begins().sql("CREATE TABLE made USING delta AS SELECT 1 AS id")
        a.sql("INSERT INTO made VALUES (2)")
        assert len(everything(lake.folder)) > 3
        # The driver is not heard of any more; a day passes.
        report = reconcile(lake.ledger.context, Thresholds(), grace=Grace(0, 0))
        assert report.abandoned == (lake.path("made"),)
        assert everything(lake.folder) == []
        with pytest.raises(DeltaplaneError, match="was given up earlier"):
            a.commits()
    assert (names(lake), lake.ledger.tables()) == ([], [])


def test_a_new_table_whose_files_somebody_cleared_away_is_not_made(lake: Lake) -> None:
    """Two begin to make it; the one that gives up cannot tell whose files lie there."""

    frame = lake.spark.range(1)
    original = LedgerPort._commit

    def late(*args: Any) -> str | None:
        for file in (lake.folder / "made").glob("part-*.parquet"):
            file.unlink()
        return original(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LedgerPort, "_commit", late)
        with pytest.raises(Exception, match=r"files of the new table are gone.*Run the statement again"):
            frame.write.format("delta").save(lake.path("made"))
    assert lake.ledger.tables() == []
    frame.write.format("delta").save(lake.path("made"))
    assert lake.value("SELECT count(*) FROM {made}") == 1


def test_tables_of_a_namespace_are_managed_wherever_they_lie(lake: Lake, tmp_path: Path) -> None:
    """`manage=` names a namespace: what is created under a name in it counts, and nothing else."""
    schema = lake.folder.name.removesuffix(".db")
    detach(lake.spark)
    attach(lake.spark, lake.ledger, manage=[schema.upper()])
    far = tmp_path / "far"
    lake.sql(f"CREATE TABLE far (id BIGINT) USING delta LOCATION '{far}'")
    lake.sql("CREATE TABLE near USING delta AS SELECT 1 AS id")
    lake.spark.range(1).write.format("delta").saveAsTable("saved")
    lake.spark.newSession().sql(f"CREATE TABLE {schema}.other_session (id BIGINT) USING delta")
    lake.sql("CREATE TABLE cloned SHALLOW CLONE near")
    lake.spark.range(1).write.format("delta").save(lake.path("unnamed"))
    lake.sql(f"CREATE TABLE default.{schema}_other (id BIGINT) USING delta")
    with dp.transaction(lake.spark):
        lake.sql(f"CREATE TABLE inside USING delta LOCATION '{tmp_path / 'inside'}' AS SELECT 2 AS id")
    lake.sql(f"DROP TABLE default.{schema}_other")
    found = sorted(table.location for table in lake.ledger.tables())
    assert found == sorted(
        [str(far), str(tmp_path / "inside")]
        + [lake.path(name) for name in ("near", "saved", "other_session", "cloned")]
    )


def test_what_is_to_be_managed_has_to_be_a_list(lake: Lake) -> None:
    detach(lake.spark)
    with pytest.raises(SparkStartError, match=r"takes a list.*manage=\['here'\]"):
        attach(lake.spark, lake.ledger, manage="here")
    attach(lake.spark, lake.ledger)


DEPARTURES = {
    "dropped": ["DROP TABLE old"],
    "made anew": ["DROP TABLE old", "CREATE TABLE old USING delta AS SELECT 7 AS id"],
    # As many versions as before, so that Spark finds the version that it was told to read.
    "made anew, as long": [
        "DROP TABLE old",
        "CREATE TABLE old (id int) USING delta",
        "INSERT INTO old VALUES (7)",
        "INSERT INTO old VALUES (8)",
    ],
}
USES = {
    "read before": ("SELECT * FROM old", "INSERT INTO other VALUES (1)"),
    "read after": ("SELECT * FROM other", "INSERT INTO other SELECT id FROM old"),
    "only read": ("SELECT * FROM old", "SELECT * FROM other"),
    "written before": ("INSERT INTO old VALUES (2)", "SELECT * FROM other"),
    "written after": ("SELECT * FROM old", "INSERT INTO old VALUES (2)"),
}
CONFLICTS = [
    ("dropped", "read before"),
    ("dropped", "written after"),
    ("made anew", "read before"),
    ("made anew, as long", "read after"),
    ("made anew, as long", "only read"),
    ("made anew, as long", "written before"),
]


@pytest.mark.parametrize(("departure", "use"), CONFLICTS)
def test_a_table_that_others_drop_or_make_anew_during_a_transaction_is_a_conflict(
    lake: Lake, departure: str, use: str
) -> None:
    """A table of the same name and place is another table, also where its log is as long."""
    lake.sql("CREATE TABLE other (id int) USING delta")
    for statement in ("CREATE TABLE old (id int) USING delta", "INSERT INTO old VALUES (1)"):
        lake.sql(statement)
    attempts: list[str] = []

    def work() -> None:
        first, second = USES[use]
        lake.sql(first).collect()
        if not attempts:
            elsewhere(lambda: [lake.sql(statement) for statement in DEPARTURES[departure]])
        attempts.append(use)
        lake.sql(second).collect()

    with pytest.raises(TransactionConflict, match="dropped or released") as lost, dp.transaction(lake.spark):
        work()
    assert "old" in lost.value.table
    assert lake.value("SELECT count(*) FROM other") == 0
    if departure == "dropped":
        return
    rows = [row.id for row in lake.rows("SELECT id FROM old ORDER BY id")]
    assert rows == ([7] if departure == "made anew" else [7, 8])
    attempts.clear()
    dp.run_transaction(lake.spark, work, retries=1)
    assert len(attempts) == 2


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM old",
        "INSERT INTO old VALUES (2)",
        "UPDATE old SET id = 3",
        "CREATE OR REPLACE TABLE old USING delta AS SELECT 5 AS id",
    ],
)
def test_nothing_of_a_table_that_others_made_anew_is_read_or_written(lake: Lake, statement: str) -> None:
    """Not only at the end: what a block does beside the tables would be done with rows of the other one."""
    lake.sql("CREATE TABLE old (id int) USING delta")
    lake.sql("INSERT INTO old VALUES (1)")

    def work() -> None:
        lake.sql("SELECT * FROM old").collect()
        elsewhere(lambda: [lake.sql(text) for text in DEPARTURES["made anew, as long"]])
        with pytest.raises(Exception, match="somebody else dropped or released the table"):
            lake.sql(statement).collect()

    with pytest.raises(TransactionConflict, match="dropped or released"), dp.transaction(lake.spark):
        work()
    assert [row.id for row in lake.rows("SELECT id FROM old ORDER BY id")] == [7, 8]


def test_nothing_of_a_table_that_others_made_anew_is_read_at_a_point(lake: Lake) -> None:
    lake.sql("CREATE TABLE old (id int) USING delta")
    lake.sql("INSERT INTO old VALUES (1)")
    point = lake.ledger.read_point()

    def work() -> None:
        lake.sql("SELECT * FROM old").collect()
        elsewhere(lambda: [lake.sql(text) for text in DEPARTURES["made anew, as long"]])
        with pytest.raises(Exception, match="while this block read it, somebody else dropped or released"):
            lake.sql("SELECT * FROM old").collect()

    with pytest.raises(ReadPointExpired, match="while this block read it"), dp.reading_at(lake.spark, point):
        work()
