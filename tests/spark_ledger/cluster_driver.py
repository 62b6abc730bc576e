"""A driver with executors in processes of their own: what it saw goes to standard output as JSON.

Called with a folder.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import deltaplane as dp


def history(spark: SparkSession, path: str) -> list[list[Any]]:
    rows = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").collect()
    return [[row.version, row.operation] for row in rows]


def ids(spark: SparkSession, path: str) -> list[int]:
    return sorted(row.id for row in spark.read.format("delta").load(path).collect())


def exercise(spark: SparkSession, path: str) -> dict[str, Any]:
    """Everything that lets executors open the log store or the file system."""
    spark.range(4).repartition(2).write.format("delta").save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 0")
    spark.sql(f"OPTIMIZE delta.`{path}`")
    spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    spark.sql(f"GENERATE symlink_format_manifest FOR TABLE delta.`{path}`")
    manifest = Path(path, "_symlink_format_manifest/manifest").read_text().split()
    return {
        "history": history(spark, path),
        "ids": ids(spark, path),
        "manifest": len(manifest),
        "files": len(list(Path(path).glob("*.parquet"))),
    }


def transact(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """A transaction that is rolled back, and one that commits, with work on the executors in between."""
    one, two, new = (str(folder / name) for name in ("managed", "two", "new"))
    spark.range(1).write.format("delta").save(two)
    seen: dict[str, Any] = {}
    for ending in ("rollback", "commit"):
        with dp.transaction(spark) as transaction:
            spark.sql(f"UPDATE delta.`{one}` SET id = id + 10")
            spark.sql(
                f"MERGE INTO delta.`{two}` t USING delta.`{one}` s ON t.id = s.id "
                "WHEN NOT MATCHED THEN INSERT *"
            )
            spark.sql(f"CREATE TABLE delta.`{new}` USING delta AS SELECT * FROM delta.`{two}`")
            inside = [ids(spark, path) for path in (one, two, new)]
            operations = [name for _, name in history(spark, one)][:1]
            if ending == "rollback":
                transaction.rollback()
        seen[ending] = {
            "inside": inside,
            "operations": operations,
            "after": [ids(spark, path) for path in (one, two)],
            "new": Path(new).exists(),
        }
    return seen


def lose_executor(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """A transaction in which a task kills its executor, and the work is repeated."""
    one, two = (str(folder / name) for name in ("managed", "two"))
    marker = folder.parent / "killed"
    driver = spark._jvm.java.lang.ProcessHandle.current().pid()

    def kills_once(number: int) -> int:
        # The worker's parent is the daemon that forked it, and the daemon's is the executor.
        daemon = os.getppid()
        executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
        if number == 3 and not marker.exists() and executor not in (1, driver):
            marker.write_text(str(executor))
            os.kill(executor, signal.SIGKILL)
        return number + 100

    spark.udf.register("kills_once", kills_once, "bigint")
    before = len(list(Path(one).glob("*.parquet")))
    with dp.transaction(spark):
        spark.sql(f"INSERT INTO delta.`{one}` SELECT kills_once(id) FROM range(0, 8, 1, 4)")
        spark.sql(f"DELETE FROM delta.`{two}`")
        spark.sql(f"INSERT INTO delta.`{two}` SELECT id FROM delta.`{one}` WHERE id >= 100")
    return {
        "killed": marker.exists(),
        "ids": [ids(spark, one)[-8:], ids(spark, two)],
        "written again": len(list(Path(one).glob("*.parquet"))) - before >= 4,
    }


def main(folder: Path) -> None:
    spark = dp.spark_session(
        master="local-cluster[2,1,1024]",
        ledger=f"deltasql://sqlite/{folder}/ledger.db",
        manage=[str(folder / "lake")],
        warehouse=str(folder / "warehouse"),
        conf={
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
            "spark.databricks.delta.retentionDurationCheck.enabled": "false",
            "spark.databricks.delta.vacuum.parallelDelete.enabled": "true",
        },
    )
    seen = {
        "managed": exercise(spark, str(folder / "lake/managed")),
        "plain": exercise(spark, str(folder / "plain")),
        "transaction": transact(spark, folder / "lake"),
    }
    seen["executors"] = spark._jsc.sc().getExecutorMemoryStatus().size() - 1
    seen["loss"] = lose_executor(spark, folder / "lake")
    ledger = dp.connect(f"deltasql://sqlite/{folder}/ledger.db")
    seen["differences"] = [len(ledger.verify(t.location, every=True).differences) for t in ledger.tables()]
    spark.stop()
    print("\n" + json.dumps(seen))


if __name__ == "__main__":
    if "DELTAPLANE_BREAK" in os.environ:
        from spark_ledger import breaks

        breaks.pytest_configure()
    main(Path(sys.argv[1]))
