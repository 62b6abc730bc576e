"""Rules that have to look at rows, and checks that only Spark can judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import deltaplane as dp
from deltaplane.errors import RegistryError, SyncFailedError
from deltaplane.schema import Check, Column, DeltaTable, Field, Integer, Long, String, Struct
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


def test_checks_are_tried_on_columns_as_they_will_be(
    spark: SparkSession, engine: Engine, schema: str
) -> None:
    """A renamed column counts under its new name, an added one with its default."""
    mapped = {"delta.columnMapping.mode": "name"}
    engine.sync(dp.Registry(table(schema, properties=mapped)))
    spark.sql(f"INSERT INTO {schema}.t VALUES (1, -1, 'a')")
    columns = [
        Column("id", Long()),
        Column("m", Integer(), renamed_from="n"),
        Column("word", String()),
        Column("fresh", Integer(), default="0"),
    ]
    checks = [
        Check("m > 0", name="renamed"),
        Check("fresh > 0", name="added"),
        Check("fresh >= 0", name="fine"),
    ]
    wanted = DeltaTable("dev", schema, "t", columns, primary_key="id", checks=checks, properties=mapped)
    found = {f.column: f.text for f in engine.plan(dp.Registry(wanted)).findings if f.code == "CK101"}
    assert found == {
        "added": "1 existing row violates fresh > 0, for example id = 1.",
        "renamed": "1 existing row violates m > 0, for example id = 1.",
    }


def test_an_interrupted_default_does_not_count_as_a_violation(
    spark: SparkSession, engine: Engine, schema: str
) -> None:
    """Rows that the pending step will fill are judged as if they were filled."""
    engine.sync(dp.Registry(table(schema)))
    spark.sql(f"INSERT INTO {schema}.t VALUES (1, 5, 'a')")
    name = f"{schema}.t"
    spark.sql(
        f"ALTER TABLE {name} SET TBLPROPERTIES ('deltaplane.pending.backfill.d' = 'true', "
        "'delta.feature.allowColumnDefaults' = 'supported')"
    )
    spark.sql(f"ALTER TABLE {name} ADD COLUMNS (d INT)")
    spark.sql(f"ALTER TABLE {name} ALTER COLUMN d SET DEFAULT 7")
    columns = [*table(schema).columns, Column("d", Integer(), nullable=False, default="7")]
    wanted = DeltaTable("dev", schema, "t", columns, primary_key="id", checks=[Check("d > 1", name="big")])
    engine.sync(dp.Registry(wanted))
    assert engine.plan(dp.Registry(wanted)).is_empty
    assert [row["d"] for row in spark.table(name).collect()] == [7]


def test_statistics_columns_follow_a_rename(spark: SparkSession, engine: Engine, schema: str) -> None:
    """The property is set after the rename, under the new name."""
    mapped = {"delta.columnMapping.mode": "name", "delta.dataSkippingStatsColumns": "id,n"}
    engine.sync(dp.Registry(table(schema, properties=mapped)))
    columns = [Column("id", Long()), Column("m", Integer(), renamed_from="n"), Column("word", String())]
    renamed = {**mapped, "delta.dataSkippingStatsColumns": "id,m"}
    wanted = dp.Registry(DeltaTable("dev", schema, "t", columns, primary_key="id", properties=renamed))
    engine.sync(wanted)
    assert engine.plan(wanted).is_empty


def test_a_nested_special_name_switches_mapping_on_when_waived(engine: Engine, schema: str) -> None:
    """What the remedy of NM101 promises."""
    engine.sync(dp.Registry(table(schema)))
    odd = Column("s", Struct([Field("a b", Integer())]))
    wanted = dp.Registry(DeltaTable("dev", schema, "t", [*table(schema).columns, odd], primary_key="id"))
    for code in ("NM101", "PR101"):
        wanted.waive(code, f"{schema}.t", reason="agreed")
    engine.sync(wanted)
    assert engine.plan(wanted).is_empty
