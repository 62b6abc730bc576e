"""Hole H15: a transaction reads the logs of its tables over and over, and makes everybody else do so too."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

import deltaplane as dp
from spark_ledger.conftest import Lake, elsewhere

pytestmark = [pytest.mark.spark, pytest.mark.parametrize("ledger_uri", ["sqlite"], indirect=True)]

STATEMENTS = (
    "INSERT INTO {items} VALUES (1, 'new')",
    "UPDATE {items} SET state = 'paid' WHERE id = 0",
    "INSERT INTO {items} VALUES (2, 'new')",
    "UPDATE {items} SET state = 'paid' WHERE id = 1",
    "SELECT count(*) FROM {items}",
)


def jobs(lake: Lake, work: Callable[[], object]) -> int:
    """How many jobs Spark runs for it."""
    group = uuid.uuid4().hex

    def run() -> None:
        lake.spark.sparkContext.setJobGroup(group, "")
        work()

    elsewhere(run)
    return len(lake.spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def statements(lake: Lake, table: str) -> None:
    for statement in STATEMENTS:
        lake.rows(statement.replace("{items}", f"{{{table}}}"))


def log_of(lake: Lake, table: str) -> int:
    """Which object Delta has for the table outside of transactions."""
    jvm = lake.spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(lake.spark._jsparkSession, lake.path(table))
    return int(jvm.System.identityHashCode(log))


def test_statements_inside_run_no_more_jobs_than_outside(lake: Lake) -> None:
    """H15: what a view has read of a table it keeps from one statement to the next."""
    lake.table("outside", rows=1)
    lake.table("inside", rows=1)

    def transaction() -> None:
        with dp.transaction(lake.spark):
            statements(lake, "inside")

    outside = jobs(lake, lambda: statements(lake, "outside"))
    assert outside > len(STATEMENTS)
    assert jobs(lake, transaction) <= outside


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_the_end_of_a_transaction_leaves_the_logs_of_others_cached(lake: Lake, end: str) -> None:
    """H15: only what the ended view knew is forgotten."""
    lake.table("items", rows=1)
    lake.table("others", rows=1)
    before = log_of(lake, "items"), log_of(lake, "others")

    def transaction() -> None:
        with dp.transaction(lake.spark) as running:
            lake.sql("INSERT INTO {items} VALUES (1, 'new')")
            if end == "rollback":
                running.rollback()

    elsewhere(transaction)
    assert (log_of(lake, "items"), log_of(lake, "others")) == before
