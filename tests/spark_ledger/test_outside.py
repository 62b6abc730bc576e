"""What others see of managed tables: sessions without us, delta-rs, Polars, whoever looks into the log."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

import deltaplane as dp
from deltaplane import telemetry
from deltaplane.cli.app import main
from deltaplane.errors import StatementRefused
from deltaplane.ledger import completing
from deltaplane.ledger.context import Context
from spark_ledger.conftest import Lake, elsewhere

pytestmark = pytest.mark.spark
EVERY_VERSION = "'delta.checkpointInterval' = '1'"

WITHOUT_US = """
import json, sys
from delta import configure_spark_with_delta_pip
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
for key, value in {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}.items():
    builder = builder.config(key, value)
spark = configure_spark_with_delta_pip(builder).getOrCreate()
told = []
for statement in json.load(sys.stdin):
    told.append([list(row) for row in spark.sql(statement).collect()])
assert "deltaplane" not in sys.modules
print(chr(1) + json.dumps(told, default=str))
"""


@pytest.fixture
def ledger_uri(tmp_path: Path) -> str:
    """The database does not matter here."""
    return f"deltasql://sqlite/{tmp_path}/ledger.db"


def without_us(folder: Path, *statements: str) -> list[list[list[Any]]]:
    """What an ordinary Spark session in another process answers."""
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_US],
        input=json.dumps(statements),
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    answer: list[list[list[Any]]] = json.loads(ran.stdout.rpartition("\x01")[2])
    return answer


def user_metadata(lake: Lake, name: str, version: int) -> str | None:
    """What the published log says to everybody."""
    text = (lake.folder / name / "_delta_log" / f"{version:020d}.json").read_text(encoding="utf-8")
    infos = [json.loads(line)["commitInfo"] for line in text.splitlines() if "commitInfo" in line]
    told: str | None = infos[0].get("userMetadata")
    return told


# ---- other readers and writers


def test_a_session_without_us_reads_and_writes_a_released_table(lake: Lake, tmp_path: Path) -> None:
    lake.table("orders", properties=f"'delta.enableDeletionVectors' = 'true', {EVERY_VERSION}", rows=6)
    lake.table("totals", "n bigint")
    with dp.transaction(lake.spark):
        lake.sql("DELETE FROM {orders} WHERE id = 5")
        lake.sql("INSERT INTO {totals} SELECT count(*) FROM {orders}")
    lake.sql("OPTIMIZE {orders}")
    released = lake.ledger.release(lake.path("orders"))
    orders = f"delta.`{lake.path('orders')}`"
    seen, *_, count, history = without_us(
        tmp_path,
        f"SELECT id, state FROM {orders} ORDER BY id",
        f"UPDATE {orders} SET state = 'theirs' WHERE id = 0",
        f"INSERT INTO {orders} VALUES (9, 'theirs')",
        f"OPTIMIZE {orders}",
        f"SELECT count(*), count_if(state = 'theirs') FROM {orders}",
        f"DESCRIBE HISTORY {orders}",
    )
    assert seen == [[number, "new"] for number in range(5)]
    assert count == [[6, 2]]
    assert sorted(row[0] for row in history) == list(range(released.version + 4))
    # The same session goes on with a table that is not managed any more, and with one that is managed again.
    assert lake.value("SELECT count(*) FROM {orders}") == 6
    lake.sql("DELETE FROM {orders} WHERE id = 9")
    assert [table.location for table in lake.ledger.tables()] == [lake.path("totals")]
    lake.ledger.adopt(lake.path("orders"))
    with dp.transaction(lake.spark):
        lake.sql("INSERT INTO {orders} VALUES (10, 'ours')")
        lake.sql("INSERT INTO {totals} VALUES (1)")
    assert lake.version("orders") == released.version + 5
    assert lake.value("SELECT count(*) FROM {orders}") == 6


def test_delta_rs_and_polars_read_a_managed_table_and_nothing_of_a_transaction(lake: Lake) -> None:
    lake.table("orders", properties=EVERY_VERSION, rows=4)

    def seen() -> tuple[int, list[Any], list[Any]]:
        table = DeltaTable(lake.path("orders"))
        theirs = polars.read_delta(lake.path("orders")).sort("id")["state"].to_list()
        return table.version(), table.to_pyarrow_table().sort_by("id")["state"].to_pylist(), theirs

    before = seen()
    with dp.transaction(lake.spark):
        lake.sql("UPDATE {orders} SET state = 'paid' WHERE id < 2")
        during = seen()
        lake.sql("DELETE FROM {orders} WHERE id = 3")
    states = ["paid", "paid", "new"]
    assert before == during == (1, ["new"] * 4, ["new"] * 4)
    assert seen() == (3, states, states)
    lake.sql("UPDATE {orders} SET state = 'sent' WHERE id = 0")
    assert seen() == (4, ["sent", "paid", "new"], ["sent", "paid", "new"])


# ---- nothing for versions that are not ratified


@contextmanager
def watched(lake: Lake, *names: str) -> Iterator[list[str]]:
    """Look into the logs as often as possible, and collect what tells of a version that is not ratified."""
    wrong: list[str] = []
    looks = 0
    done = threading.Event()

    def look() -> None:
        nonlocal looks
        while not done.is_set():
            for name in names:
                # First the files, then the ledger: what is ratified in between is fine.
                told = [(file, version_of(lake.folder / name, file)) for file in lake.log(name)]
                head = lake.ledger.latest_version(lake.path(name))
                wrong.extend(f"{name}/{file} at {head}" for file, version in told if version > head)
                looks += 1
            time.sleep(0.005)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield wrong
    finally:
        done.set()
        thread.join()
    assert looks > 20, "that was too short to see anything"


def version_of(table: Path, name: str) -> int:
    """The version that a file of the log tells of."""
    if name == "_last_checkpoint":
        return int(json.loads((table / "_delta_log" / name).read_text())["version"])
    return int(name[:20]) if re.match(r"\d{20}\.", name) else -1


def changes(lake: Lake, spark: SparkSession) -> None:
    orders = f"delta.`{lake.path('orders')}`"
    spark.sql(f"INSERT INTO {orders} VALUES (10, 'more')")
    spark.sql(f"UPDATE {orders} SET state = 'paid' WHERE id = 1")
    spark.sql(f"ALTER TABLE {orders} SET TBLPROPERTIES ('own' = '1')")
    spark.sql(f"DELETE FROM {orders} WHERE id = 10")
    spark.sql(f"SELECT count(*) FROM {orders}").collect()


@pytest.mark.parametrize("policy", ["classic", pytest.param("v2", marks=pytest.mark.slow)])
def test_no_file_of_the_log_tells_of_a_version_that_is_not_ratified(lake: Lake, policy: str) -> None:
    lake.table("orders", properties=f"{EVERY_VERSION}, 'delta.checkpointPolicy' = '{policy}'", rows=3)
    with watched(lake, "orders") as wrong:
        with dp.transaction(lake.spark) as transaction:
            changes(lake, lake.spark)
            transaction.rollback()
        assert lake.version("orders") == 1
        with dp.transaction(lake.spark):
            changes(lake, lake.spark)
            elsewhere(lambda: lake.sql("SELECT * FROM {orders}").collect())
        changes(lake, lake.spark)
    assert wrong == []
    assert lake.version("orders") == 9
    assert_checkpoints_are_the_ledgers(lake, "orders")


def test_a_session_beside_the_transactions_own_writes_nothing_before_it_ends_either(lake: Lake) -> None:
    """In foreachBatch Spark hands out rows of a session of its own."""
    lake.table("source", rows=3)
    lake.table("orders", properties=EVERY_VERSION)

    def copy(rows: DataFrame, batch: int) -> None:
        with dp.transaction(lake.spark):
            rows.write.format("delta").mode("append").save(lake.path("orders"))
            changes(lake, rows.sparkSession)

    def stream() -> None:
        rows = lake.spark.readStream.format("delta").load(lake.path("source"))
        writer = rows.writeStream.foreachBatch(copy).trigger(availableNow=True)
        writer.option("checkpointLocation", str(lake.folder / "stream")).start().awaitTermination()

    with watched(lake, "orders") as wrong:
        stream()
        with dp.transaction(lake.spark) as transaction:
            changes(lake, lake.spark.newSession())
            transaction.rollback()
    assert wrong == []
    assert lake.version("orders") == 5
    assert_checkpoints_are_the_ledgers(lake, "orders")


@pytest.mark.parametrize("policy", ["classic", pytest.param("v2", marks=pytest.mark.slow)])
def test_the_checkpoint_of_a_large_version_is_there_when_its_statement_ends(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """Its rows follow the commit, and the checkpoint takes them; no later statement may meet it."""
    monkeypatch.setattr(completing, "LARGE", 1)
    # As if the thread that writes the rows were late.
    monkeypatch.setattr(Context, "start_behind", lambda *_: None)
    lake.table("orders", properties=f"{EVERY_VERSION}, 'delta.checkpointPolicy' = '{policy}'", rows=3)
    steps: list[str] = []
    stop = telemetry.listen(lambda name, _: steps.append(name))
    for number, statement in enumerate(
        (
            "INSERT INTO {orders} VALUES (10, 'more')",
            "UPDATE {orders} SET state = 'paid' WHERE id = 1",
            "OPTIMIZE {orders}",
            "DELETE FROM {orders}",
            "RESTORE TABLE {orders} TO VERSION AS OF 2",
            "INSERT OVERWRITE {orders} VALUES (11, 'new')",
        ),
        start=2,
    ):
        steps.clear()
        lake.sql(statement)
        assert lake.version("orders") == number
        assert (
            steps.index("publish.marked") < steps.index("complete.done") < steps.index("checkpoint.pointed")
        )
        assert_checkpoints_are_the_ledgers(lake, "orders")
    stop()
    assert lake.value("SELECT sum(id) FROM {orders}") == 11


def assert_checkpoints_are_the_ledgers(lake: Lake, name: str) -> None:
    """Delta's own are written by parquet-mr."""
    log = lake.folder / name / "_delta_log"
    files = [*log.glob("*.checkpoint*.parquet"), *log.glob("_sidecars/*.parquet")]
    assert files
    writers = {pq.ParquetFile(file).metadata.created_by.partition(" ")[0] for file in files}
    assert writers == {"parquet-cpp-arrow"}
    assert version_of(lake.folder / name, "_last_checkpoint") == lake.version(name)


def test_a_feature_is_dropped_with_checkpoints_of_the_ledger(lake: Lake) -> None:
    """Delta asks for them itself here, and goes on only when it finds them."""
    lake.table("orders", properties="'delta.enableDeletionVectors' = true", rows=5)
    lake.sql("DELETE FROM {orders} WHERE id = 3")
    with pytest.raises(StatementRefused, match="DROP FEATURE cannot run inside"), dp.transaction(lake.spark):
        lake.sql("ALTER TABLE {orders} DROP FEATURE deletionVectors")
    lake.sql("ALTER TABLE {orders} DROP FEATURE deletionVectors")
    protocol = lake.ledger.snapshot(lake.path("orders")).protocol
    assert "deletionVectors" not in (protocol.writer_features or ())
    assert "checkpointProtection" in (protocol.writer_features or ())
    lake.sql("INSERT INTO {orders} VALUES (9, 'new')")
    assert lake.value("SELECT sum(id) FROM {orders}") == 0 + 1 + 2 + 4 + 9
    log = lake.folder / "orders" / "_delta_log"
    writers = [pq.ParquetFile(file).metadata.created_by for file in log.glob("*.checkpoint*.parquet")]
    assert len(writers) >= 3
    assert {writer.partition(" ")[0] for writer in writers} == {"parquet-cpp-arrow"}


# ---- dropped and made again


def test_a_dropped_table_is_forgotten_and_a_new_one_of_its_name_is_managed(lake: Lake, schema: str) -> None:
    lake.sql(f"CREATE SCHEMA {schema} LOCATION '{lake.folder}/{schema}'")
    place = f"{lake.folder}/{schema}/orders"
    for number in (1, 2):
        lake.sql(f"CREATE TABLE {schema}.orders (id bigint) USING delta")
        lake.sql(f"INSERT INTO {schema}.orders VALUES ({number})")
        assert [(t.location, t.head_version) for t in lake.ledger.tables()] == [(place, 1)]
        assert lake.value(f"SELECT sum(id) FROM {schema}.orders") == number
        if number == 1:
            lake.sql(f"DROP TABLE {schema}.orders")
            assert lake.ledger.tables() == []
            assert not os.path.exists(place)
    lake.sql(f"DROP SCHEMA {schema} CASCADE")
    assert lake.ledger.tables() == []


def test_dropping_a_name_leaves_a_table_elsewhere_managed(lake: Lake, schema: str) -> None:
    place = lake.table("orders", rows=2)
    lake.sql(f"CREATE TABLE {schema} USING delta LOCATION '{place}'")
    lake.sql(f"DROP TABLE {schema}")
    lake.sql("INSERT INTO {orders} VALUES (5, 'later')")
    assert [(t.location, t.head_version) for t in lake.ledger.tables()] == [(place, 2)]


def test_a_new_name_that_would_move_the_folder_is_refused(lake: Lake, schema: str) -> None:
    lake.sql(f"CREATE SCHEMA {schema} LOCATION '{lake.folder}/{schema}'")
    lake.sql(f"CREATE TABLE {schema}.orders (id bigint) USING delta")
    lake.table("elsewhere", "id bigint")
    lake.sql(f"CREATE TABLE {schema}.placed USING delta LOCATION '{lake.path('elsewhere')}'")
    with pytest.raises(Exception, match="RENAME would move the folder") as refused:
        lake.sql(f"ALTER TABLE {schema}.orders RENAME TO {schema}.bills")
    assert "deltaplane ledger release" in str(refused.value)
    lake.sql(f"ALTER TABLE {schema}.placed RENAME TO {schema}.renamed")
    for name in ("orders", "renamed"):
        lake.sql(f"INSERT INTO {schema}.{name} VALUES (1)")
    assert sorted(table.head_version for table in lake.ledger.tables()) == [1, 1]
    lake.sql(f"DROP SCHEMA {schema} CASCADE")
    assert [table.location for table in lake.ledger.tables()] == [lake.path("elsewhere")]


# ---- groups


def test_history_and_log_name_the_group_beside_what_the_user_said(
    lake: Lake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("orders", "totals", "audit"):
        lake.table(name)
    row = lake.spark.createDataFrame([(1, "x")], "id bigint, state string")

    def append(name: str, **options: str) -> None:
        row.write.format("delta").mode("append").options(**options).save(lake.path(name))

    with dp.transaction(lake.spark, author="me", message="settle") as transaction:
        append("orders", userMetadata="by the writer")
        append("totals", userMetadata='{"ticket": 7}')
        append("audit")
        lake.spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", "of the session")
        try:
            lake.sql("UPDATE {audit} SET state = 'y'")
        finally:
            lake.spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")
    append("orders", userMetadata="alone")
    ids = {name: DeltaTable(lake.path(name)).metadata().id for name in ("orders", "totals", "audit")}
    group = {
        "transactionGroup": {
            "transactionId": transaction.transaction_id,
            "participants": [
                {"tableId": ids["orders"], "version": 1},
                {"tableId": ids["totals"], "version": 1},
                {"tableId": ids["audit"], "version": 2},
            ],
        }
    }
    told = {
        f"{name} {version}": json.loads(user_metadata(lake, name, version) or "null")
        for name, version in (("orders", 1), ("totals", 1), ("audit", 1), ("audit", 2))
    }
    assert told == {
        "orders 1": {"userMetadata": "by the writer", **group},
        "totals 1": {"ticket": 7, **group},
        "audit 1": group,
        "audit 2": {"userMetadata": "of the session", **group},
    }
    assert user_metadata(lake, "orders", 2) == "alone"
    history = lake.rows("DESCRIBE HISTORY {audit}")
    assert json.loads(history[0].userMetadata) == told["audit 2"]
    monkeypatch.setenv("DELTAPLANE_LEDGER", lake.ledger.context.uri)
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["ledger", "history", lake.path("orders")])
    lines = capsys.readouterr().out.splitlines()
    assert [transaction.transaction_id in line for line in lines] == [False, False, True, False]
    assert "3 tables" in lines[2]
