"""Statements that run on plain Delta and under the ledger: everything that commits to a Delta table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from delta.tables import DeltaTable, IdentityGenerator
from pyspark.sql import DataFrame, SparkSession

__all__ = ["SCRIPTS", "Place", "Script", "Step"]


@dataclass(frozen=True)
class Place:
    """Where a script runs.

    Attributes:
        spark: The session.
        root: The folder of the table, {t} in statements.
        beside: A folder for what is not the table's own, such as the checkpoints of streams.
        shared: A folder whose content is the same in every run, {shared} in statements.
    """

    spark: SparkSession
    root: Path
    beside: Path
    shared: Path
    # The same in every run: it is told in the log.
    name: ClassVar[str] = "parity_named"

    def sql(self, statement: str) -> None:
        named = {"t": f"delta.`{self.root}`", "root": self.root, "shared": self.shared, "name": self.name}
        self.spark.sql(statement.format(**named))

    def rows(self, start: int, end: int, tasks: int = 1) -> DataFrame:
        """Rows of (id, p, state)."""
        numbers = self.spark.range(start, end, 1, tasks)
        return numbers.selectExpr("id", "CAST(id % 3 AS int) AS p", "concat('s', id) AS state")

    def table(self) -> DeltaTable:
        return DeltaTable.forPath(self.spark, str(self.root))


@dataclass(frozen=True)
class Step:
    """One statement.

    Attributes:
        label: What it is, for messages.
        work: Does it.
        joins: It may be part of a transaction.
        repeatable: It does the same again after it was rolled back.
        conf: Settings of the session for it.
    """

    label: str
    work: Callable[[Place], object]
    joins: bool = True
    repeatable: bool = True
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Script:
    """Statements on one table.

    Attributes:
        name: What they are about.
        steps: The statements.
        quick: Where they run in every run of the suite: "outside" of transactions, "inside", or both.
    """

    name: str
    steps: tuple[Step, ...]
    quick: tuple[str, ...] = ()


def sql(statement: str, joins: bool = True, **conf: str) -> Step:
    return Step(
        statement, lambda place: place.sql(statement), joins, conf={_SETTINGS[k]: v for k, v in conf.items()}
    )


def call(label: str, work: Callable[[Place], object], joins: bool = True) -> Step:
    return Step(label, work, joins)


_SETTINGS = {
    "log_vacuum": "spark.databricks.delta.vacuum.logging.enabled",
    "retention_check": "spark.databricks.delta.retentionDurationCheck.enabled",
    "overwrite": "spark.sql.sources.partitionOverwriteMode",
    "user_metadata": "spark.databricks.delta.commitInfo.userMetadata",
}
_COMPACT = "spark.databricks.delta.autoCompact.minNumFiles"
_COLUMNS = "(id bigint, p int, state string)"
_OFTEN = "'delta.checkpointInterval' = '3'"


def created(columns: str = _COLUMNS, properties: str = "", partitioned: str = "") -> Step:
    extra = f"{_OFTEN}{', ' if properties else ''}{properties}"
    return sql(f"CREATE TABLE {{t}} {columns} USING delta {partitioned} TBLPROPERTIES ({extra})")


def inserted(start: int, end: int, tasks: int = 1) -> Step:
    return sql(
        f"INSERT INTO {{t}} SELECT id, CAST(id % 3 AS int), concat('s', id) "
        f"FROM range({start}, {end}, 1, {tasks})"
    )


def merged(start: int, end: int) -> Step:
    return sql(
        f"MERGE INTO {{t}} t USING (SELECT id, CAST(id % 3 AS int) p, 'merged' state "
        f"FROM range({start}, {end}, 1, 1)) s ON t.id = s.id WHEN MATCHED AND s.id % 2 = 0 THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET state = s.state WHEN NOT MATCHED THEN INSERT *"
    )


def write(frame: DataFrame, place: Place, mode: str, **options: str) -> None:
    frame.write.format("delta").mode(mode).options(**options).save(str(place.root))


ROWS = Script(
    "rows",
    (
        created(),
        inserted(0, 6, 2),
        sql("UPDATE {t} SET state = 'paid' WHERE id < 2"),
        sql("DELETE FROM {t} WHERE id = 5"),
        merged(3, 8),
        call("DataFrame append", lambda p: write(p.rows(20, 23), p, "append")),
        call(
            "append with userMetadata and an application's transaction",
            lambda p: write(p.rows(23, 25), p, "append", userMetadata="mine", txnAppId="app", txnVersion="1"),
        ),
        sql("INSERT INTO {t} VALUES (40, 1, 'noted')", user_metadata="of the session"),
        call(
            "append that merges the schema",
            lambda p: write(p.rows(30, 32).selectExpr("*", "1 AS extra"), p, "append", mergeSchema="true"),
        ),
        sql("INSERT OVERWRITE {t} SELECT id, 1, 'over', 2 FROM range(0, 3, 1, 1)"),
        call(
            "overwrite with another schema",
            lambda p: write(p.rows(0, 9, 2), p, "overwrite", overwriteSchema="true"),
        ),
        sql("TRUNCATE TABLE {t}"),
    ),
    quick=("outside", "inside"),
)

API = Script(
    "api",
    (
        call(
            "DeltaTable.create with generated, identity and default columns",
            lambda p: (
                DeltaTable.create(p.spark)
                .location(str(p.root))
                .addColumn("key", "BIGINT", generatedAlwaysAs=IdentityGenerator(1, 1))
                .addColumn("id", "BIGINT")
                .addColumn("twice", "BIGINT", generatedAlwaysAs="id * 2")
                .property("delta.checkpointInterval", "3")
                .execute()
            ),
        ),
        sql("INSERT INTO {t} (id) SELECT id FROM range(0, 4, 1, 1)"),
        call(
            "append without the identity", lambda p: write(p.spark.range(4, 7, 1, 1).toDF("id"), p, "append")
        ),
        call("DeltaTable.optimize", lambda p: p.table().optimize().executeCompaction()),
        call("DeltaTable.update", lambda p: p.table().update("id = 1", {"id": "100"})),
        call("DeltaTable.delete", lambda p: p.table().delete("id = 2")),
        call(
            "DeltaTable.merge",
            lambda p: (
                p.table()
                .alias("t")
                .merge(p.spark.range(3, 9, 1, 1).toDF("id").alias("s"), "t.id = s.id")
                .whenMatchedDelete("s.id = 3")
                .whenNotMatchedInsert(values={"id": "s.id"})
                .execute()
            ),
        ),
        sql("ALTER TABLE {t} ALTER COLUMN key SYNC IDENTITY"),
        call("DeltaTable.restoreToVersion", lambda p: p.table().restoreToVersion(2)),
        call("DeltaTable.addFeatureSupport", lambda p: p.table().addFeatureSupport("deletionVectors")),
        call("DeltaTable.upgradeTableProtocol", lambda p: p.table().upgradeTableProtocol(1, 4)),
    ),
)

PARTITIONS = Script(
    "partitions",
    (
        created(partitioned="PARTITIONED BY (p)"),
        inserted(0, 9, 2),
        call(
            "replaceWhere", lambda p: write(p.rows(0, 3).where("p = 1"), p, "overwrite", replaceWhere="p = 1")
        ),
        sql("INSERT INTO {t} REPLACE WHERE p = 2 SELECT 50, 2, 'replaced'"),
        call(
            "dynamic partition overwrite",
            lambda p: write(p.rows(60, 61), p, "overwrite", partitionOverwriteMode="dynamic"),
        ),
        sql("INSERT OVERWRITE {t} PARTITION (p = 2) SELECT 70, 'static'"),
        sql("INSERT OVERWRITE {t} SELECT 71, 1, 'dynamic'", overwrite="dynamic"),
        inserted(80, 86, 2),
        sql("OPTIMIZE {t} WHERE p = 1"),
        sql("DELETE FROM {t} WHERE p = 2"),
        sql("UPDATE {t} SET p = 7 WHERE id = 81"),
        sql("CREATE OR REPLACE TABLE {t} USING delta PARTITIONED BY (k) AS SELECT 1 AS k, 2 AS v"),
    ),
)

DEFINITIONS = Script(
    "definitions",
    (
        sql(f"CREATE TABLE {{t}} USING delta TBLPROPERTIES ({_OFTEN}) AS SELECT 1 AS a, 'x' AS b"),
        sql(f"REPLACE TABLE {{t}} USING delta TBLPROPERTIES ({_OFTEN}) AS SELECT 2 AS a, 'y' AS b"),
        sql(f"CREATE OR REPLACE TABLE {{t}} USING delta TBLPROPERTIES ({_OFTEN}) AS SELECT 3 AS a, 'z' AS b"),
        sql("ALTER TABLE {t} ADD COLUMNS (c int COMMENT 'new' AFTER a, s struct<x: int>)"),
        sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"),
        sql("ALTER TABLE {t} RENAME COLUMN b TO name"),
        sql("ALTER TABLE {t} DROP COLUMN c"),
        sql("ALTER TABLE {t} SET TBLPROPERTIES ('own' = '1', 'delta.enableTypeWidening' = 'true')"),
        sql("ALTER TABLE {t} UNSET TBLPROPERTIES ('own')"),
        sql("ALTER TABLE {t} ALTER COLUMN a TYPE bigint"),
        sql("INSERT INTO {t} VALUES (5000000000, 'wide', named_struct('x', 1))"),
        sql("ALTER TABLE {t} ADD CONSTRAINT positive CHECK (a > 0)"),
        sql("ALTER TABLE {t} DROP CONSTRAINT positive"),
        sql("COMMENT ON TABLE {t} IS 'told'"),
        sql("ALTER TABLE {t} CLUSTER BY (a)"),
        sql("INSERT INTO {t} VALUES (7, 'clustered', NULL)"),
        sql("OPTIMIZE {t} FULL"),
        sql("UPDATE {t} SET name = 'renamed' WHERE a = 7"),
        sql("ALTER TABLE {t} CLUSTER BY NONE"),
        call(
            "DataFrameWriterV2.createOrReplace",
            lambda p: p.rows(0, 3).writeTo(f"delta.`{p.root}`").using("delta").createOrReplace(),
        ),
        call("DataFrameWriterV2.append", lambda p: p.rows(3, 5).writeTo(f"delta.`{p.root}`").append()),
    ),
    quick=("outside",),
)

FEATURES = Script(
    "features",
    (
        created(
            properties="'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true', "
            "'delta.enableRowTracking' = 'true', 'delta.enableInCommitTimestamps' = 'true'"
        ),
        inserted(0, 10),
        sql("DELETE FROM {t} WHERE id IN (1, 2)"),
        sql("UPDATE {t} SET state = 'paid' WHERE id = 3"),
        merged(7, 13),
        inserted(20, 22),
        sql("OPTIMIZE {t}"),
        sql("DELETE FROM {t} WHERE id = 0"),
        sql("REORG TABLE {t} APPLY (PURGE)"),
        sql("INSERT OVERWRITE {t} VALUES (1, 1, 'over')"),
        sql("RESTORE TABLE {t} TO VERSION AS OF 4"),
        sql("UPDATE {t} SET state = 'restored' WHERE id = 4"),
    ),
    quick=("outside",),
)

LATER = Script(
    "features_added_later",
    (
        created(),
        inserted(0, 6, 2),
        sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"),
        sql("UPDATE {t} SET state = 'paid' WHERE id = 1"),
        sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')"),
        sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')"),
        sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"),
        sql("DELETE FROM {t} WHERE id = 2"),
        sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')"),
        merged(3, 8),
        inserted(20, 22),
        sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')"),
        sql("ALTER TABLE {t} ALTER COLUMN state SET DEFAULT 'none'"),
        sql("INSERT INTO {t} (id, p) VALUES (30, 0)"),
    ),
)

UPKEEP = Script(
    "upkeep",
    (
        created(),
        inserted(0, 4, 2),
        inserted(4, 8, 2),
        sql("OPTIMIZE {t}"),
        inserted(8, 12, 2),
        sql("OPTIMIZE {t} ZORDER BY (id)"),
        sql("DELETE FROM {t} WHERE id < 3"),
        sql("RESTORE TABLE {t} TO VERSION AS OF 3"),
        sql("VACUUM {t}", joins=False, log_vacuum="true"),
        inserted(30, 32),
        sql("VACUUM {t} RETAIN 0 HOURS", joins=False, log_vacuum="true", retention_check="false"),
        sql(
            "ALTER TABLE {t} SET TBLPROPERTIES ('delta.autoOptimize.autoCompact' = 'true', "
            "'delta.autoOptimize.optimizeWrite' = 'true')"
        ),
        # Delta remembers in the process which small files it has compacted, also when that was rolled back.
        replace(inserted(40, 46, 2), repeatable=False),
        replace(inserted(50, 56, 2), repeatable=False, conf={_COMPACT: "2"}),
        sql("DELETE FROM {t}"),
    ),
)

CLUSTERED = Script(
    "clustered",
    (
        created(partitioned="CLUSTER BY (id)"),
        inserted(0, 6, 2),
        sql("OPTIMIZE {t}"),
        sql("ALTER TABLE {t} CLUSTER BY (id, p)"),
        inserted(6, 12, 2),
        sql("OPTIMIZE {t} FULL"),
        merged(3, 8),
    ),
)

CONVERTED = Script(
    "converted",
    (
        call(
            "plain Parquet files",
            lambda p: p.rows(0, 6).write.partitionBy("p").parquet(str(p.root)),
            joins=False,
        ),
        sql("CONVERT TO DELTA parquet.`{root}` PARTITIONED BY (p int)", joins=False),
        sql("UPDATE {t} SET state = 'converted' WHERE id = 1"),
        sql("INSERT INTO {t} (id, p, state) VALUES (10, 0, 'new')"),
        call("append", lambda p: write(p.rows(12, 13).select("id", "state", "p"), p, "append")),
    ),
    quick=("outside",),
)

CLONED = Script(
    "cloned",
    (
        sql(f"CREATE TABLE {{t}} SHALLOW CLONE delta.`{{shared}}/source` TBLPROPERTIES ({_OFTEN})"),
        sql("UPDATE {t} SET state = 'cloned' WHERE id = 1"),
        inserted(10, 12),
        sql("DELETE FROM {t} WHERE id = 2"),
        sql("OPTIMIZE {t}"),
        sql("RESTORE TABLE {t} TO VERSION AS OF 1"),
        sql("DELETE FROM {t}"),
        sql("CREATE OR REPLACE TABLE {t} SHALLOW CLONE delta.`{shared}/source` VERSION AS OF 1"),
    ),
    quick=("outside", "inside"),
)

NAMED = Script(
    "named",
    (
        call(
            "saveAsTable",
            lambda p: p.rows(0, 3).write.format("delta").option("path", str(p.root)).saveAsTable(p.name),
        ),
        call("insertInto", lambda p: p.rows(3, 5).write.insertInto(p.name)),
        call(
            "saveAsTable, append",
            lambda p: p.rows(5, 7).write.format("delta").mode("append").saveAsTable(p.name),
        ),
        sql("UPDATE {name} SET state = 'named' WHERE id = 1"),
        call(
            "saveAsTable, overwrite",
            lambda p: (
                p.rows(0, 2)
                .write.format("delta")
                .mode("overwrite")
                .option("overwriteSchema", "true")
                .saveAsTable(p.name)
            ),
        ),
        sql("CREATE OR REPLACE TABLE {name} (a int) USING delta LOCATION '{root}'"),
    ),
)


def _source(place: Place) -> DataFrame:
    """The rows of {shared}/source, in one batch for each of its commits."""
    return (
        place.spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(f"{place.shared}/source")
    )


def _stream(place: Place, mode: str) -> None:
    query = (
        _source(place)
        .writeStream.format("delta")
        .outputMode(mode)
        .option("checkpointLocation", str(place.beside / "append"))
        .trigger(availableNow=True)
        .start(str(place.root))
    )
    query.awaitTermination()


def _complete(place: Place) -> None:
    counted = _source(place).groupBy("p").count().selectExpr("count AS id", "p", "'complete' AS state")
    query = (
        counted.writeStream.format("delta")
        .outputMode("complete")
        .option("checkpointLocation", str(place.beside / "complete"))
        .trigger(availableNow=True)
        .start(str(place.root))
    )
    query.awaitTermination()


def _each_batch(place: Place) -> None:
    def merge(rows: DataFrame, batch: int) -> None:
        (
            place.table()
            .alias("t")
            .merge(rows.alias("s"), "t.id = s.id")
            .whenMatchedUpdate(set={"state": "'batch'"})
            .whenNotMatchedInsertAll()
            .execute()
        )

    query = (
        _source(place)
        .writeStream.foreachBatch(merge)
        .option("checkpointLocation", str(place.beside / "batches"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


STREAMED = Script(
    "streamed",
    (
        created(),
        call("a stream that appends", lambda p: _stream(p, "append"), joins=False),
        call("a stream that merges in foreachBatch", _each_batch, joins=False),
        call("a stream that replaces", _complete, joins=False),
    ),
    quick=("outside",),
)

SCRIPTS = (
    ROWS,
    PARTITIONS,
    DEFINITIONS,
    FEATURES,
    UPKEEP,
    API,
    LATER,
    CLUSTERED,
    CONVERTED,
    CLONED,
    NAMED,
    STREAMED,
)
