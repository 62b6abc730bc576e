"""Names: what the ledger calls a table, every session on the ledger calls it."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, UnsupportedOperationException
from pyspark.sql import SparkSession

import deltaplane as dp
from deltaplane.errors import TransactionConflict
from deltaplane.spark.attaching import attach, detach
from spark_ledger.conftest import Lake, elsewhere

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([("id", pa.int64()), ("state", pa.string())])


@pytest.fixture
def schema() -> str:
    return f"names_{uuid.uuid4().hex[:8]}"


@pytest.fixture
def named(lake: Lake, schema: str) -> Iterator[str]:
    """A table that only the ledger knows by its name."""
    lake.ledger.create(lake.path("orders"), schema=SCHEMA, name=f"{schema}.orders")
    yield f"{schema}.orders"
    lake.spark.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


def test_sql_and_dataframes_find_a_table_by_the_name_in_the_ledger(lake: Lake, named: str) -> None:
    lake.spark.sql(f"INSERT INTO {named} VALUES (1, 'new')")
    lake.spark.createDataFrame([(2, "new")], "id bigint, state string").write.format("delta").mode(
        "append"
    ).saveAsTable(named)
    lake.spark.createDataFrame([(3, "new")], "id bigint, state string").writeTo(named).append()
    lake.spark.sql(f"UPDATE {named} SET state = 'paid' WHERE id = 1")
    assert sorted(map(tuple, lake.spark.table(named).collect())) == [(1, "paid"), (2, "new"), (3, "new")]
    assert lake.version("orders") == 4
    assert lake.spark.sql(f"SELECT count(*) FROM {named} VERSION AS OF 1").first()[0] == 1


def test_names_of_the_ledger_are_listed(lake: Lake, named: str, schema: str) -> None:
    assert [row.tableName for row in lake.spark.sql(f"SHOW TABLES IN {schema}").collect()] == ["orders"]
    assert schema in [row[0] for row in lake.spark.sql("SHOW SCHEMAS").collect()]
    assert lake.spark.catalog.tableExists(named)
    assert not lake.spark.catalog.tableExists(f"{schema}.other")
    assert lake.spark.sql(f"SHOW TABLES IN {schema} LIKE 'ord*'").count() == 1
    assert lake.spark.sql(f"SHOW VIEWS IN {schema}").count() == 0
    lake.spark.sql(f"SHOW USER FUNCTIONS IN {schema}").collect()
    detail = lake.spark.sql(f"DESCRIBE DETAIL {named}").first()
    assert detail["location"] == f"file:{lake.path('orders')}"


def test_a_schema_of_the_ledger_can_be_used_and_written_into(lake: Lake, named: str, schema: str) -> None:
    lake.spark.sql(f"USE {schema}")
    try:
        assert lake.spark.sql("SELECT count(*) FROM orders").first()[0] == 0
        lake.spark.sql("CREATE VIEW open_orders AS SELECT * FROM orders WHERE state = 'new'")
        lake.spark.sql("INSERT INTO orders VALUES (1, 'new')")
        assert lake.spark.sql("SELECT count(*) FROM open_orders").first()[0] == 1
    finally:
        lake.spark.sql("USE default")


def test_streams_read_and_write_by_a_name_of_the_ledger(lake: Lake, named: str, tmp_path: Path) -> None:
    lake.spark.sql(f"INSERT INTO {named} VALUES (1, 'new'), (2, 'new')")
    copies = lake.path("copies")
    lake.ledger.create(copies, schema=SCHEMA, name=f"{named.partition('.')[0]}.copies")
    query = (
        lake.spark.readStream.table(named)
        .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .toTable(f"{named.partition('.')[0]}.copies")
    )
    query.awaitTermination()
    assert query.exception() is None
    assert lake.value("SELECT count(*) FROM {copies}") == 2


def test_a_transaction_writes_by_names_of_the_ledger(lake: Lake, named: str) -> None:
    with dp.transaction(lake.spark, author="test", message="by name"):
        lake.spark.sql(f"INSERT INTO {named} VALUES (1, 'new')")
        assert lake.spark.table(named).count() == 1
    with dp.transaction(lake.spark, author="test", message="by name") as tx:
        lake.spark.sql(f"DELETE FROM {named}")
        tx.rollback()
    assert lake.spark.table(named).count() == 1


def test_a_table_that_spark_creates_has_its_name_in_the_ledger(lake: Lake, schema: str) -> None:
    lake.spark.sql(f"CREATE SCHEMA {schema} LOCATION '{lake.folder}/{schema}'")
    try:
        lake.spark.sql(f"CREATE TABLE {schema}.plain (id bigint) USING delta")
        lake.spark.sql(
            f"CREATE TABLE {schema}.placed USING delta LOCATION '{lake.path('p')}' AS SELECT 1 AS id"
        )
        lake.spark.range(3).write.format("delta").saveAsTable(f"{schema}.saved")
        with dp.transaction(lake.spark, author="test", message="new"):
            lake.spark.range(2).write.format("delta").saveAsTable(f"{schema}.inside")
            assert {table.name for table in lake.ledger.tables()} == {
                f"{schema}.{name}" for name in ("plain", "placed", "saved")
            }
        names = {table.name: table.location for table in lake.ledger.tables()}
        assert set(names) == {f"{schema}.{name}" for name in ("plain", "placed", "saved", "inside")}
        assert names[f"{schema}.placed"] == lake.path("p")
        assert lake.ledger.snapshot(f"{schema}.saved").version == 0
    finally:
        lake.spark.sql(f"DROP SCHEMA {schema} CASCADE")


def test_a_session_elsewhere_finds_what_this_one_created(
    lake: Lake, schema: str, ledger_uri: str, spark: SparkSession
) -> None:
    """Another program has the ledger and nothing else: not this one's catalog, and not its warehouse."""
    lake.spark.sql(f"CREATE SCHEMA {schema} LOCATION '{lake.folder}/{schema}'")
    lake.spark.sql(f"CREATE TABLE {schema}.t USING delta AS SELECT id FROM range(7)")
    catalog = spark._jsparkSession.sharedState().externalCatalog().unwrapped().unwrapped()
    jvm = spark._jvm
    assert jvm is not None
    other = jvm.org.apache.spark.sql.catalyst.catalog.InMemoryCatalog(
        spark.sparkContext._jsc.sc().conf(), spark.sparkContext._jsc.hadoopConfiguration()
    )
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    elsewhere = jvm.deltaplane.LedgerNames(other, hadoop, "/nowhere")
    assert not other.databaseExists(schema)
    assert elsewhere.databaseExists(schema)
    assert elsewhere.tableExists(schema, "t")
    found = elsewhere.getTable(schema, "t")
    assert str(found.location()) == str(catalog.getTable(schema, "t").location())
    assert str(found.tableType().name()) == "EXTERNAL"
    lake.spark.sql(f"DROP SCHEMA {schema} CASCADE")
    assert not elsewhere.tableExists(schema, "t")
    assert lake.ledger.tables() == []


def test_dropping_a_name_leaves_the_table_and_its_files(lake: Lake, named: str) -> None:
    lake.spark.sql(f"INSERT INTO {named} VALUES (1, 'new')")
    lake.spark.sql(f"DROP TABLE {named}")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        lake.spark.table(named).count()
    (table,) = lake.ledger.tables()
    assert table.name is None
    assert lake.value("SELECT count(*) FROM {orders}") == 1


def test_a_table_with_a_place_of_its_own_loses_its_name_in_the_ledger_as_well(
    lake: Lake, schema: str
) -> None:
    lake.spark.sql(f"CREATE SCHEMA {schema}")
    lake.spark.sql(f"CREATE TABLE {schema}.t (id bigint) USING delta LOCATION '{lake.path('t')}'")
    lake.spark.sql(f"DROP TABLE {schema}.t")
    assert [table.name for table in lake.ledger.tables()] == [None]
    assert not lake.spark.catalog.tableExists(f"{schema}.t")
    lake.spark.sql(f"DROP SCHEMA {schema}")


def test_a_name_can_be_changed(lake: Lake, named: str, schema: str) -> None:
    lake.spark.sql(f"ALTER TABLE {named} RENAME TO {schema}.sales")
    assert [table.name for table in lake.ledger.tables()] == [f"{schema}.sales"]
    assert lake.spark.table(f"{schema}.sales").count() == 0
    lake.ledger.create(lake.path("other"), schema=SCHEMA, name=f"{schema}.other")
    with pytest.raises(AnalysisException, match="already exists"):
        lake.spark.sql(f"ALTER TABLE {schema}.sales RENAME TO {schema}.other")
    assert {table.name for table in lake.ledger.tables()} == {f"{schema}.sales", f"{schema}.other"}


def test_a_name_of_the_ledger_is_not_given_twice(lake: Lake, named: str, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="already exists"):
        lake.spark.sql(f"CREATE TABLE {named} (id bigint) USING delta")
    lake.spark.sql(f"CREATE TABLE IF NOT EXISTS {named} (id bigint) USING delta")
    assert len(lake.ledger.tables()) == 1


def test_a_schema_that_holds_names_of_the_ledger_is_not_empty(lake: Lake, named: str, schema: str) -> None:
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_EMPTY"):
        lake.spark.sql(f"DROP SCHEMA {schema}")
    lake.spark.sql(f"DROP SCHEMA {schema} CASCADE")
    assert [table.name for table in lake.ledger.tables()] == [None]
    assert schema not in [row[0] for row in lake.spark.sql("SHOW SCHEMAS").collect()]


def test_a_table_that_was_replaced_by_name_is_the_same_table(lake: Lake, named: str) -> None:
    lake.spark.sql(f"CREATE OR REPLACE TABLE {named} USING delta AS SELECT 1 AS one")
    assert lake.version("orders") == 1
    assert lake.value("SELECT one FROM {orders}") == 1
    assert [table.name for table in lake.ledger.tables()] == [named]


def test_names_without_a_schema_are_those_of_the_default_one(lake: Lake, schema: str) -> None:
    lake.ledger.create(lake.path("a"), schema=SCHEMA, name=f"A_{schema}")
    lake.ledger.create(lake.path("b"), schema=SCHEMA, name=f"spark_catalog.{schema}.b")
    lake.ledger.create(lake.path("c"), schema=SCHEMA, name=f"unity.{schema}.c")
    assert lake.spark.table(f"a_{schema}").count() == 0
    assert lake.spark.table(f"default.a_{schema}").count() == 0
    assert [row.tableName for row in lake.spark.sql(f"SHOW TABLES IN {schema}").collect()] == ["b"]
    lake.spark.sql(f"DROP TABLE a_{schema}")


def test_a_session_without_its_ledger_knows_only_its_own_names(
    spark: SparkSession, tmp_path: Path, schema: str
) -> None:
    folder = tmp_path / "lake"
    ledger = attach(spark, dp.connect(f"deltasql://sqlite/{tmp_path}/ledger.db"), manage=[str(folder)])
    ledger.create(str(folder / "t"), schema=SCHEMA, name=f"{schema}.t")
    assert spark.table(f"{schema}.t").count() == 0
    detach(spark)
    assert not spark.catalog.tableExists(f"{schema}.t")
    ledger.close()


def test_a_name_that_somebody_else_gave_meanwhile_is_a_conflict(lake: Lake, schema: str) -> None:
    lake.spark.sql(f"CREATE SCHEMA {schema}")

    def late() -> None:
        with dp.transaction(lake.spark, author="test", message="late"):
            lake.spark.sql(f"CREATE TABLE {schema}.t (id bigint) USING delta LOCATION '{lake.path('mine')}'")
            elsewhere(lambda: lake.ledger.create(lake.path("theirs"), schema=SCHEMA, name=f"{schema}.t"))

    with pytest.raises(TransactionConflict, match=rf"{schema}\.t: .*they gave that name to another table"):
        late()
    assert [table.location for table in lake.ledger.tables()] == [lake.path("theirs")]
    assert lake.spark.sql(f"DESCRIBE DETAIL {schema}.t").first()["location"] == f"file:{lake.path('theirs')}"
    lake.spark.sql(f"DROP SCHEMA {schema} CASCADE")


def test_a_transaction_that_loses_a_name_leaves_it_to_the_winner_and_appends_there_next_time(
    lake: Lake, schema: str
) -> None:
    lake.spark.sql(f"CREATE SCHEMA {schema} LOCATION '{lake.folder}/{schema}'")
    theirs = lake.path("theirs")
    runs = []

    def append(spark: SparkSession) -> None:
        runs.append(1)
        spark.createDataFrame([(1, "ours")], "id bigint, state string").write.format("delta").mode(
            "append"
        ).saveAsTable(f"{schema}.audit")
        if len(runs) == 1:
            elsewhere(lambda: lake.ledger.create(theirs, schema=SCHEMA, name=f"{schema}.audit"))

    dp.run_transaction(lake.spark, append, retries=3)
    assert len(runs) == 2
    assert [(table.name, table.location) for table in lake.ledger.tables()] == [(f"{schema}.audit", theirs)]
    assert lake.spark.table(f"{schema}.audit").count() == 1
    assert lake.value("SELECT state FROM {theirs}") == "ours"
    lake.spark.sql(f"DROP SCHEMA {schema} CASCADE")


def test_another_name_is_given_only_to_the_table_that_is_renamed(
    lake: Lake, named: str, schema: str, tmp_path: Path
) -> None:
    """A table that is not managed has the same name in this session's catalog, and wins there."""
    own = lake.spark._jsparkSession.sharedState().externalCatalog().unwrapped().unwrapped()  # type: ignore[attr-defined]
    detach(lake.spark)
    lake.spark.sql(f"CREATE SCHEMA {schema}")
    lake.spark.sql(f"CREATE TABLE {schema}.orders (id bigint) USING delta LOCATION '{tmp_path}/mine'")
    attach(lake.spark, lake.ledger, manage=[str(lake.folder)])
    assert own.tableExists(schema, "orders")
    lake.spark.sql(f"ALTER TABLE {schema}.orders RENAME TO {schema}.mine")
    assert [table.name for table in lake.ledger.tables()] == [named]


def test_a_table_in_the_warehouse_of_another_session_keeps_its_name(lake: Lake, schema: str) -> None:
    place = lake.path(f"elsewhere/{schema}.db/orders")
    lake.ledger.create(place, schema=SCHEMA, name=f"{schema}.orders")
    with pytest.raises(UnsupportedOperationException, match="RENAME would move the folder"):
        lake.spark.sql(f"ALTER TABLE {schema}.orders RENAME TO {schema}.sales")
    assert [table.name for table in lake.ledger.tables()] == [f"{schema}.orders"]


def test_a_new_table_whose_folder_was_removed_meanwhile_is_not_committed(lake: Lake, schema: str) -> None:
    lake.table("other")
    lake.spark.sql(f"CREATE SCHEMA {schema} LOCATION '{lake.folder}/{schema}'")

    def late() -> None:
        with dp.transaction(lake.spark, author="test", message="late"):
            lake.spark.sql(f"CREATE TABLE {schema}.t USING delta AS SELECT 1 AS id")
            lake.sql("INSERT INTO {other} VALUES (1, 'new')")
            shutil.rmtree(lake.folder / schema / "t")

    with pytest.raises(TransactionConflict, match="they removed files of the new table"):
        late()
    assert lake.version("other") == 0
    assert len(lake.ledger.tables()) == 1
    lake.spark.sql(f"DROP SCHEMA {schema} CASCADE")


def test_a_name_that_spark_gives_to_a_managed_table_is_kept(lake: Lake, schema: str) -> None:
    lake.table("t", rows=2)
    lake.spark.sql(f"CREATE SCHEMA {schema}")
    lake.spark.sql(f"CREATE TABLE {schema}.t USING delta LOCATION '{lake.path('t')}'")
    lake.spark.sql(f"CREATE TABLE {schema}.alias USING delta LOCATION '{lake.path('t')}'")
    assert [table.name for table in lake.ledger.tables()] == [f"{schema}.t"]
    lake.spark.sql(f"DROP TABLE {schema}.alias")
    assert [table.name for table in lake.ledger.tables()] == [f"{schema}.t"]
    assert lake.spark.table(f"{schema}.t").count() == 2
    lake.spark.sql(f"DROP SCHEMA {schema} CASCADE")
