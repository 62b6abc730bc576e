"""Everything that commits to a Delta table does the same under the ledger as on plain Delta.

A script runs on a folder that nobody manages and on a managed one, in the same session, and once more with
every statement in a transaction: first in one that is rolled back, which leaves no trace, then in one that
commits. The published logs are compared version by version, and so is what Spark rebuilds from them.

What is taken out of the logs before, and nothing else:

1. Times: timestamp and inCommitTimestamp of commitInfo, modificationTime, deletionTimestamp, createdTime,
   lastUpdated, the property delta.inCommitTimestampEnablementTimestamp, tags with the time of an insertion,
   and metrics whose names end with TimeMs.
2. Random ids are numbered as they come up, so that it still counts which file, column or query is meant:
   UUIDs (names of files, physical names of columns, the table's id, the ids of commits and queries). The id
   of a file with deletion vectors is blanked. Random folders of two characters before a file's name go.
3. The folder of the table.
4. Spark's numbers for expressions in predicates (`id#678L`).
5. Sizes in bytes: rows that come from several files are put together in the order of their random names, and
   compressed as they come.
6. How many files VACUUM found: those that rolled-back transactions left behind are among them.
7. The order of the lines of one commit.

Checkpoints are the ledger's own and not compared. Most tables have one every three versions, so what Spark
reads, and what it writes after reading, comes from them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import deltaplane as dp
from spark_ledger.conftest import Lake
from spark_ledger.normal_log import normal_log
from spark_ledger.parity_scripts import SCRIPTS, Place, Script, Step

pytestmark = pytest.mark.spark
EVERYWHERE = {
    # VACUUM and CONVERT start ten thousand tasks otherwise, on the smallest table.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}


def scripts(where: str) -> list[Any]:
    """All of them; those that take long are for slow runs."""
    return [
        pytest.param(script, id=script.name, marks=() if where in script.quick else pytest.mark.slow)
        for script in SCRIPTS
    ]


@pytest.fixture
def ledger_uri(tmp_path: Path) -> str:
    """The database does not matter here."""
    return f"deltasql://sqlite/{tmp_path}/ledger.db"


@pytest.fixture(scope="module")
def shared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables that scripts read from: the same for all runs."""
    folder = tmp_path_factory.mktemp("shared")
    for start in (0, 4):
        rows = spark.range(start, start + 4, 1, 1)
        named = rows.selectExpr("id", "CAST(id % 3 AS int) AS p", "concat('s', id) AS state")
        named.write.format("delta").mode("append").save(str(folder / "source"))
    return folder


class Logs:
    """The logs that scripts leave on plain Delta; each script runs there once."""

    def __init__(self, folder: Path, shared: Path) -> None:
        self.folder = folder
        self.shared = shared
        self._found: dict[str, dict[str, Any]] = {}

    def of(self, script: Script, lake: Lake) -> dict[str, Any]:
        if script.name not in self._found:
            place = self.place(lake.spark, self.folder / script.name)
            for step in script.steps:
                with configured(lake.spark, step):
                    step.work(place)
            assert not any(str(place.root) == table.location for table in lake.ledger.tables())
            self._found[script.name] = outcome(place)
        return self._found[script.name]

    def place(self, spark: SparkSession, root: Path) -> Place:
        spark.sql(f"DROP TABLE IF EXISTS {Place.name}")
        return Place(spark, root, root.with_name(f"{root.name}_beside"), self.shared)


@pytest.fixture(scope="module")
def plain(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Logs:
    return Logs(tmp_path_factory.mktemp("plain"), shared)


@contextmanager
def configured(spark: SparkSession, step: Step) -> Iterator[None]:
    settings = {**EVERYWHERE, **step.conf}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in settings:
            spark.conf.unset(key)


def outcome(place: Place) -> dict[str, Any]:
    """The log, and what a session that has nothing in its caches rebuilds from the folder."""
    commits, naming = normal_log(place.root)
    jvm: Any = place.spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    detail = place.spark.sql(f"DESCRIBE DETAIL delta.`{place.root}`").collect()[0].asDict()
    for key in ("id", "createdAt", "lastModified"):
        del detail[key]
    history = place.spark.sql(f"DESCRIBE HISTORY delta.`{place.root}`").collect()
    return {
        "commits": commits,
        "rows": rows_of(place),
        "detail": naming.value(detail),
        "history": [(row.version, row.operation, row.isBlindAppend) for row in history],
    }


def checksums(root: Path) -> list[str]:
    return sorted(file.name for file in (root / "_delta_log").glob("0*.crc"))


def rows_of(place: Place) -> list[str]:
    return sorted(map(str, place.spark.read.format("delta").load(str(place.root)).collect()))


def compare(expected: dict[str, Any], found: dict[str, Any]) -> None:
    """Version by version, so that a difference is told with its statement."""
    assert found["history"] == expected["history"], "other commits were made"
    for version, (theirs, ours) in enumerate(zip(expected["commits"], found["commits"], strict=True)):
        only = [line for line in ours if line not in theirs], [line for line in theirs if line not in ours]
        assert only == ([], []), f"version {version} differs"
        assert ours == theirs, f"version {version} differs"
    assert found == expected


def trace(lake: Lake, root: Path) -> dict[str, Any]:
    """Everything a rolled-back statement might have changed."""
    log = root / "_delta_log"
    files = (
        {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in log.iterdir() if f.is_file()}
        if (log.exists())
        else {}
    )
    tables = {table.location: table.head_version for table in lake.ledger.tables()}
    place = Place(lake.spark, root, root, root)
    names = [row.tableName for row in lake.spark.sql("SHOW TABLES").collect()]
    return {"log": files, "tables": tables, "rows": rows_of(place) if files else [], "names": names}


@pytest.mark.parametrize("script", scripts("outside"))
def test_outside_of_transactions_the_log_is_that_of_plain_delta(
    lake: Lake, plain: Logs, script: Script
) -> None:
    expected = plain.of(script, lake)
    place = plain.place(lake.spark, lake.folder / script.name)
    for step in script.steps:
        with configured(lake.spark, step):
            step.work(place)
    assert lake.version(script.name) == len(expected["commits"]) - 1
    assert checksums(place.root) == checksums(plain.folder / script.name)
    assert lake.ledger.verify(str(place.root), every=True).differences == ()
    compare(expected, outcome(place))


def roll_back(lake: Lake, place: Place, step: Step) -> None:
    before = trace(lake, place.root)
    with dp.transaction(lake.spark) as transaction:
        step.work(place)
        transaction.rollback()
    assert trace(lake, place.root) == before, f"rolled back, this left a trace: {step.label}"


@pytest.mark.parametrize("script", scripts("inside"))
def test_in_transactions_a_rollback_leaves_no_trace_and_a_commit_the_log_of_plain_delta(
    lake: Lake, plain: Logs, script: Script
) -> None:
    expected = plain.of(script, lake)
    place = plain.place(lake.spark, lake.folder / script.name)
    for step in script.steps:
        with configured(lake.spark, step):
            if not step.joins:
                step.work(place)
                continue
            if step.repeatable:
                roll_back(lake, place, step)
            with dp.transaction(lake.spark) as transaction:
                step.work(place)
            assert transaction.result is not None
            assert list(transaction.result.versions) == [str(place.root)], step.label
    assert lake.ledger.verify(str(place.root), every=True).differences == ()
    compare(expected, outcome(place))
