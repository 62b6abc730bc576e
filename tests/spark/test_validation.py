"""Rules that have to look at rows, and checks that only Spark can judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import deltaplane as dp
from deltaplane.errors import RegistryError, SyncFailedError
from deltaplane.schema import Check, Column, DeltaTable, Integer, Long, String
from deltaplane.sync import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def table(schema: str, **values: Any) -> DeltaTable:
    columns = [Column("id", Long()), Column("n", Integer()), Column("word", String())]
    return DeltaTable("dev", schema, "t", columns, **{"primary_key": "id", **values})


def test_rows_that_violate_a_new_check_are_counted_and_named(
    spark: SparkSession, engine: Engine, schema: str
) -> None:
    """The count is exact, NULL counts too, and the keys of some rows are shown; nothing is changed."""
    engine.sync(dp.Registry(table(schema)))
    spark.sql(f"INSERT INTO {schema}.t VALUES (1, 5, 'a'), (2, -1, 'b'), (3, NULL, 'c')")
    wanted = dp.Registry(table(schema, checks=[Check("n > 0", name="positive")]))
    plan = engine.plan(wanted)
    found = [finding.text for finding in plan.findings if finding.code == "CK101"]
    assert found == ["2 existing rows violate n > 0, for example id = 2; id = 3."]
    with pytest.raises(SyncFailedError):
        engine.sync(wanted)
    assert engine.plan(dp.Registry(table(schema))).is_empty


def test_a_waived_check_is_still_held_to_account_by_delta(
    spark: SparkSession, engine: Engine, schema: str
) -> None:
    """A waiver lets the plan go on; rows that are still wrong at apply are refused without harm."""
    engine.sync(dp.Registry(table(schema)))
    spark.sql(f"INSERT INTO {schema}.t VALUES (2, -1, 'b')")
    wanted = dp.Registry(table(schema, checks=[Check("n > 0", name="positive")]))
    wanted.waive("CK101", f"{schema}.t", reason="the rows are being corrected")
    with pytest.raises(SyncFailedError) as failure:
        engine.sync(wanted)
    assert "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION" in (failure.value.report.tables[0].error or "")
    spark.sql(f"UPDATE {schema}.t SET n = 1")
    engine.sync(wanted)
    assert engine.plan(wanted).is_empty


def test_nulls_are_counted_before_a_column_becomes_not_null(
    spark: SparkSession, engine: Engine, schema: str
) -> None:
    """A waived NL102 meets CK101 when there are rows without a value."""
    engine.sync(dp.Registry(table(schema)))
    spark.sql(f"INSERT INTO {schema}.t VALUES (1, NULL, 'a')")
    columns = [Column("id", Long()), Column("n", Integer(), nullable=False), Column("word", String())]
    wanted = dp.Registry(DeltaTable("dev", schema, "t", columns, primary_key="id"))
    wanted.waive("NL102", f"{schema}.t", reason="agreed")
    codes = {finding.code for finding in engine.plan(wanted).findings if finding.blocks}
    assert codes == {"CK101"}


def test_a_check_that_spark_cannot_understand_is_a_clear_failure(
    spark: SparkSession, engine: Engine, schema: str
) -> None:
    """The function does not exist; the table stays as it is."""
    engine.sync(dp.Registry(table(schema)))
    with pytest.raises(SyncFailedError) as failure:
        engine.sync(dp.Registry(table(schema, checks=["nosuchfunction(n) > 0"])))
    error = failure.value.report.tables[0].error or ""
    assert "nosuchfunction" in error
    assert "Py4J" not in error
    assert "\n" not in error
    assert engine.plan(dp.Registry(table(schema))).is_empty


def test_two_catalogs_that_are_one_here_cannot_both_have_the_table(engine: Engine, schema: str) -> None:
    """Open-source Spark has one catalog; the message says how to map them apart."""
    columns = [Column("id", Long())]
    registry = dp.Registry(DeltaTable("dev", schema, "t", columns), DeltaTable("prod", schema, "t", columns))
    with pytest.raises(RegistryError, match="both map to spark_catalog"):
        engine.plan(registry)


def test_the_users_session_keeps_its_settings(spark: SparkSession, engine: Engine, schema: str) -> None:
    """The commit note and the switched-off ${…} stay in a session of our own."""
    spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")
    engine.sync(dp.Registry(table(schema)))
    assert spark.conf.get("spark.databricks.delta.commitInfo.userMetadata", None) is None
    assert spark.conf.get("spark.sql.variable.substitute") == "true"


def test_one_engine_serves_databricks_code_on_open_source_spark(spark: SparkSession, schema: str) -> None:
    """build_databricks_engine on a session that is not Databricks is the engine of open-source Spark."""
    engine = dp.build_databricks_engine(spark)
    engine.sync(dp.Registry(table(schema, tags={"tier": "gold"})))
    assert engine.plan(dp.Registry(table(schema, tags={"tier": "gold"}))).is_empty
    assert engine.catalog.capabilities.engine == "open-source Spark"
