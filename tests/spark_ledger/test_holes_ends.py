"""Holes of the naive attachment at the edges of a transaction: H9, H10, H12, H14 and H16."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

import deltaplane as dp
from deltaplane import telemetry
from deltaplane.errors import StatementRefused, TransactionDoomed
from spark_ledger.conftest import Lake, elsewhere

pytestmark = pytest.mark.spark
VIEW = "deltaplane.view"


@pytest.mark.parametrize("statement", ["VACUUM {orders}", "DROP TABLE {orders}"])
@pytest.mark.parametrize("ledger_uri", ["sqlite"], indirect=True)
def test_what_no_rollback_brings_back_is_refused_inside_and_nothing_is_gone(
    lake: Lake, statement: str
) -> None:
    """H9."""
    lake.table("orders", rows=3)
    name = statement.split(maxsplit=1)[0]
    with (
        pytest.raises(StatementRefused, match=f"{name}.*no rollback brings back"),
        dp.transaction(lake.spark),
    ):
        lake.sql(statement)
    assert lake.value("SELECT count(*) FROM {orders}") == 3


@pytest.mark.parametrize("ledger_uri", ["sqlite"], indirect=True)
def test_a_schema_that_no_rollback_would_take_back_is_not_made(lake: Lake) -> None:
    statement = "CREATE SCHEMA IF NOT EXISTS made_inside"
    with pytest.raises(StatementRefused, match="CREATE SCHEMA cannot run"), dp.transaction(lake.spark):
        lake.sql(statement)
    assert not lake.spark.catalog.databaseExists("made_inside")
    lake.sql(statement)
    lake.sql("DROP SCHEMA made_inside")


@pytest.mark.parametrize("ledger_uri", ["sqlite"], indirect=True)
def test_vacuum_waits_for_open_transactions_that_have_files_in_the_table(lake: Lake) -> None:
    """H9: the files of an open transaction are part of no version, so VACUUM would delete them."""
    lake.table("orders", rows=3)
    lake.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")

    def vacuum() -> None:
        lake.sql("VACUUM {orders} RETAIN 0 HOURS")

    with dp.transaction(lake.spark):
        lake.sql("INSERT INTO {orders} VALUES (9, 'new')")
        with pytest.raises(PySparkException, match=r"VACUUM of .* has to wait: 1 open"):
            elsewhere(vacuum)
    vacuum()
    assert lake.value("SELECT count(*) FROM {orders}") == 4
    lake.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")


@pytest.fixture
def bare_files(lake: Lake) -> Iterator[Any]:
    """Takes our file system away, as closeAll would where fs.file.impl is not set; brings it back."""
    jvm: Any = lake.spark._jvm
    hadoop = lake.spark.sparkContext._jsc.hadoopConfiguration()
    ours = hadoop.get("fs.file.impl")

    def take_away() -> None:
        hadoop.set("fs.file.impl", "org.apache.hadoop.fs.LocalFileSystem")
        jvm.org.apache.hadoop.fs.FileSystem.closeAll()

    yield take_away
    hadoop.set("fs.file.impl", ours)
    jvm.org.apache.hadoop.fs.FileSystem.closeAll()


@pytest.mark.parametrize("ledger_uri", ["sqlite"], indirect=True)
def test_a_statement_that_fails_behind_its_commit_dooms_the_transaction(lake: Lake, bare_files: Any) -> None:
    """H10: the commit is staged, and Delta does not find it: whoever goes on must not commit half of it."""
    lake.table("orders", rows=3)

    def go_on_after_a_failure() -> None:
        with dp.transaction(lake.spark):
            lake.sql("UPDATE {orders} SET state = 'paid' WHERE id = 0")
            bare_files()
            with pytest.raises((Py4JJavaError, PySparkException)):
                lake.sql("UPDATE {orders} SET state = 'paid' WHERE id = 1")

    with pytest.raises(TransactionDoomed, match="a statement failed after its commit was staged"):
        go_on_after_a_failure()
    assert lake.version("orders") == 1


@pytest.mark.parametrize("ledger_uri", ["sqlite"], indirect=True)
def test_closing_all_file_systems_leaves_transactions_working(lake: Lake) -> None:
    """H10: new ones are of our class, too."""
    lake.table("orders", rows=3)
    with dp.transaction(lake.spark):
        lake.spark._jvm.org.apache.hadoop.fs.FileSystem.closeAll()  # type: ignore[union-attr]
        lake.sql("DELETE FROM {orders}")
        assert lake.value("SELECT count(*) FROM {orders}") == 0
    assert lake.value("SELECT count(*) FROM {orders}") == 0


@pytest.mark.parametrize("ledger_uri", ["sqlite"], indirect=True)
def test_a_dataframe_held_over_the_end_reads_what_is_committed_by_then(lake: Lake) -> None:
    """H12: one that names a version of the transaction itself reads that one, from where it was staged."""
    lake.table("orders", rows=3)
    with dp.transaction(lake.spark):
        lake.sql("INSERT INTO {orders} VALUES (9, 'new')")
        kept = lake.sql("SELECT * FROM {orders}")
        # Nothing is computed inside, so the staged commit itself is read later.
        named = lake.sql("SELECT * FROM {orders} VERSION AS OF 2")
    lake.sql("INSERT INTO {orders} VALUES (10, 'new')")
    assert kept.count() == 5
    assert named.count() == 4
    with dp.transaction(lake.spark) as transaction:
        lake.sql("DELETE FROM {orders}")
        dropped = lake.sql("SELECT * FROM {orders}")
        assert dropped.count() == 0
        transaction.rollback()
    assert dropped.count() == 5


def test_a_commit_that_waits_for_the_database_keeps_no_reader_waiting(lake: Lake) -> None:
    """H14: Delta calls us while it holds the table's lock; other tables must not be locked with it."""
    lake.table("slow", rows=3)
    lake.table("other", rows=3)
    reached, go_on = threading.Event(), threading.Event()

    def wait(step: str, attributes: dict[str, Any]) -> None:
        if step == "commit.before_commit":
            reached.set()
            assert go_on.wait(120)

    quiet = telemetry.listen(wait)
    writer = threading.Thread(target=lambda: lake.sql("INSERT INTO {slow} VALUES (9, 'new')"))
    writer.start()
    try:
        assert reached.wait(120)
        assert elsewhere(lambda: lake.value("SELECT count(*) FROM {other}")) == 3
        with dp.transaction(lake.spark):
            # A transaction has logs of its own, so it does not even wait for the same table.
            assert lake.value("SELECT count(*) FROM {slow}") == 3
        assert writer.is_alive()
    finally:
        quiet()
        go_on.set()
        writer.join()
    assert lake.value("SELECT count(*) FROM {slow}") == 4


@pytest.mark.parametrize("ledger_uri", ["sqlite"], indirect=True)
def test_a_stale_id_is_refused_and_never_means_no_transaction(lake: Lake) -> None:
    """H16: a thread of a pool may keep the id of a transaction that has ended."""
    lake.table("orders", rows=3)
    with dp.transaction(lake.spark) as ended:
        pass

    def look(view: str) -> int:
        lake.spark.sparkContext.setLocalProperty(VIEW, view)
        try:
            return int(lake.value("SELECT count(*) FROM {orders}"))
        finally:
            lake.spark.sparkContext.setLocalProperty(VIEW, None)  # type: ignore[arg-type]

    for view in (ended.transaction_id, "never-begun"):
        with pytest.raises(PySparkException, match="has ended, and something still runs in it"):
            elsewhere(lambda view=view: look(view))  # type: ignore[misc]
    assert lake.value("SELECT count(*) FROM {orders}") == 3
