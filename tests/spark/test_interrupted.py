"""Runs that stop halfway, and two people who apply at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import deltaplane as dp
from deltaplane.planning.render import to_text
from deltaplane.schema import Column, DeltaTable, Integer, Long, String
from deltaplane.spark.catalog import SparkCatalog
from deltaplane.spark.dialect import Step
from deltaplane.sync import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MAPPED = {"delta.columnMapping.mode": "name"}
CODES = ("DS102", "DS103", "NM101", "LY101", "NL102", "PR101", "DP102")


class Stopped(BaseException):
    """Stands for the end of the process: nothing catches it."""


class StoppingCatalog(SparkCatalog):
    """Stops before its n-th statement."""

    def __init__(self, spark: SparkSession, statements: int) -> None:
        super().__init__(spark)
        self.left = statements

    def _run(self, step: Step, name: Any) -> None:
        if self.left == 0:
            raise Stopped
        self.left -= 1
        super()._run(step, name)


def first(schema: str) -> DeltaTable:
    columns = [
        Column("id", Long(), nullable=False),
        Column("City", String()),
        Column("gone", Integer()),
    ]
    return DeltaTable("dev", schema, "t", columns, properties=MAPPED, checks=["id > 0"])


def second(schema: str) -> DeltaTable:
    """Needs every step that cannot be done in one statement."""
    columns = [
        Column("id", Long(), nullable=False),
        Column("city", String()),
        Column("state", String(), nullable=False, default="'new'"),
    ]
    return DeltaTable(
        "dev", schema, "t", columns, properties=MAPPED, checks=["id > 0"], partitioned_by="city"
    )


def third(schema: str) -> DeltaTable:
    """Renames a column whose NOT NULL is held by a CHECK."""
    columns = [
        Column("id", Long(), nullable=False),
        Column("city", String()),
        Column("status", String(), nullable=False, default="'new'", renamed_from="state"),
    ]
    return replace(second(schema), columns=columns)


def registry(table: DeltaTable) -> dp.Registry:
    consenting = dp.Registry(table)
    for code in CODES:
        consenting.waive(code, f"{table.schema}.t", reason="the test agrees")
    return consenting


def interrupted_at(
    spark: SparkSession, schema: str, statements: int, target: Callable[[str], DeltaTable]
) -> bool:
    """Run towards `target` with an interruption, and tell whether it was still needed."""
    try:
        Engine(StoppingCatalog(spark, statements)).sync(registry(target(schema)))
    except Stopped:
        return True
    return False


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_run_interrupted_before_any_statement_is_finished_by_the_next(
    spark: SparkSession, engine: Engine, schema: str
) -> None:
    """Whatever was done stays done, only the rest is done, and every row is right."""
    for statement in range(100):
        place = f"{schema}_{statement}"
        engine.sync(registry(first(place)))
        spark.sql(f"INSERT INTO {place}.t VALUES (1, 'Oslo', 7), (2, 'Rome', 8)")
        stopped = interrupted_at(spark, place, statement, second)
        engine.sync(registry(second(place)))
        assert engine.plan(registry(second(place))).changes == (), f"before statement {statement}"
        assert [tuple(r) for r in spark.sql(f"SELECT * FROM {place}.t ORDER BY id").collect()] == [
            (1, "Oslo", "new"),
            (2, "Rome", "new"),
        ]
        properties = spark.sql(f"DESCRIBE DETAIL {place}.t").collect()[0]["properties"]
        assert not [key for key in properties if "pending" in key], f"before statement {statement}"
        if not stopped:
            break
    assert statement > 10


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_held_not_null_survives_an_interrupted_rename(
    spark: SparkSession, engine: Engine, schema: str
) -> None:
    """The CHECK is taken away for the rename, and put back by whoever comes next."""
    for statement in range(100):
        place = f"{schema}_{statement}"
        engine.sync(registry(first(place)))
        engine.sync(registry(second(place)))
        stopped = interrupted_at(spark, place, statement, third)
        engine.sync(registry(third(place)))
        assert engine.plan(registry(third(place))).changes == (), f"before statement {statement}"
        with pytest.raises(Exception, match="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"):
            spark.sql(f"INSERT INTO {place}.t VALUES (3, 'Bern', NULL)")
        if not stopped:
            break
    assert statement >= 4


def test_a_held_not_null_moves_with_its_column(spark: SparkSession, engine: Engine, schema: str) -> None:
    """A rename keeps the column NOT NULL, in one run."""
    engine.sync(registry(first(schema)))
    engine.sync(registry(second(schema)))
    engine.sync(registry(third(schema)))
    assert engine.plan(registry(third(schema))).changes == ()
    with pytest.raises(Exception, match="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"):
        spark.sql(f"INSERT INTO {schema}.t VALUES (3, 'Bern', NULL)")


KILLED = """
import os, signal, sys
import deltaplane as dp
sys.path.insert(0, sys.argv[3])
import test_interrupted as case
from deltaplane.sync import Engine

spark = dp.spark_session(master="local[2]", warehouse=sys.argv[1])
case.Stopped = None

class Killed(case.StoppingCatalog):
    def _run(self, step, name):
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        super()._run(step, name)

Engine(Killed(spark, int(sys.argv[4]))).sync(case.registry(case.second(sys.argv[2])))
"""


@pytest.mark.slow
@pytest.mark.parametrize("statement", [3, 5])
def test_a_killed_process_is_finished_by_another(
    spark: SparkSession, engine: Engine, schema: str, warehouse: Path, statement: int
) -> None:
    """SIGKILL in the middle of a default's steps, seen from another process."""
    engine.sync(registry(first(schema)))
    spark.sql(f"INSERT INTO {schema}.t VALUES (1, 'Oslo', 7)")
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(warehouse), schema, here, str(statement)],
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
        env={**os.environ, "PYTHONPATH": here},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    plan = engine.plan(registry(second(schema)))
    assert plan.changes
    engine.sync(registry(second(schema)))
    assert engine.plan(registry(second(schema))).changes == (), to_text(plan)
    assert [tuple(r) for r in spark.sql(f"SELECT * FROM {schema}.t").collect()] == [(1, "Oslo", "new")]


class RivalCatalog(SparkCatalog):
    """Lets somebody else act right before its n-th statement."""

    def __init__(self, spark: SparkSession, statement: int, rival: Callable[[], object]) -> None:
        super().__init__(spark)
        self.statement = statement
        self.rival = rival

    def _run(self, step: Step, name: Any) -> None:
        if self.statement == 0:
            self.rival()
        self.statement -= 1
        super()._run(step, name)


def plain(schema: str, *more: Column) -> DeltaTable:
    return DeltaTable("dev", schema, "t", [Column("a", Integer()), *more])


def test_somebody_who_was_faster_is_named_and_nothing_is_done_twice(
    spark: SparkSession, engine: Engine, schema: str
) -> None:
    """The second to add a column is told; the table has it once."""
    engine.sync(dp.Registry(plain(schema)))
    wanted = dp.Registry(plain(schema, Column("b", Integer())))
    slow = Engine(RivalCatalog(spark, 0, lambda: engine.sync(wanted)))
    with pytest.raises(dp.SyncFailedError) as failure:
        slow.sync(wanted)
    report = failure.value.report.tables[0]
    assert report.status == "failed"
    assert "somebody else changed the table at the same moment, and was first" in (report.error or "")
    assert engine.plan(wanted).is_empty


def test_a_change_between_plan_and_execution_is_noticed(
    spark: SparkSession, engine: Engine, schema: str
) -> None:
    """The table is looked at once more right before it is changed."""
    engine.sync(dp.Registry(plain(schema)))
    wanted = dp.Registry(plain(schema, Column("b", Integer())))

    class Between(SparkCatalog):
        reads = 0

        def read(self, name: Any) -> Any:
            self.reads += 1
            if self.reads == 2:
                engine.sync(dp.Registry(replace(plain(schema), comment="meanwhile")))
            return super().read(name)

    with pytest.raises(dp.SyncFailedError) as failure:
        Engine(Between(spark)).sync(wanted)
    assert "PL101: somebody else changed it in the meantime. Nothing was changed." in str(failure.value)
    assert spark.table(f"{schema}.t").columns == ["a"]


def test_two_who_apply_at_once_leave_the_table_as_declared(spark: SparkSession, schema: str) -> None:
    """One wins; the other is told, or finds nothing left to do; a third run is empty."""
    Engine(SparkCatalog(spark)).sync(dp.Registry(plain(schema)))
    wanted = plain(schema, Column("b", Integer()), Column("c", String(), default="'x'"))
    outcomes: list[str] = []
    start = threading.Barrier(2)

    def run() -> None:
        engine = Engine(SparkCatalog(spark))
        start.wait()
        try:
            engine.sync(dp.Registry(wanted))
            outcomes.append("done")
        except dp.SyncFailedError as failure:
            outcomes.append(str(failure.report.tables[0].error))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = [text for text in outcomes if text != "done"]
    assert all("somebody else" in text for text in told), outcomes
    third_run = Engine(SparkCatalog(spark))
    third_run.sync(dp.Registry(wanted))
    assert third_run.plan(dp.Registry(wanted)).is_empty
