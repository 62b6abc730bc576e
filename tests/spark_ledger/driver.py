"""A driver with a Spark of its own, which does one job and may be killed at any moment.

What it says goes to a file, line by line, and stays when it is killed.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import deltaplane as dp
from deltaplane import telemetry
from deltaplane.ledger import connect
from spark_ledger.conftest import Lake
from spark_ledger.histories import client
from spark_ledger.store import open_store, storage_options

BANKS = ("checking", "savings", "loans")
ACCOUNTS = 4
Job = dict[str, Any]


class Report:
    """Says what happens, and kills the whole driver, Python and Java, at the wanted step."""

    def __init__(self, job: Job) -> None:
        self._file = os.open(job["report"], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self._kill_at: tuple[str, int] | None = tuple(job["kill_at"]) if job.get("kill_at") else None
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def say(self, what: str, detail: Any = None) -> None:
        os.write(self._file, f"{json.dumps([what, detail])}\n".encode())

    def step(self, name: str, _: dict[str, Any] | None = None) -> None:
        # Tables are published by several threads: none of them gets past the step at which all end.
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + 1
            self.say("step", name)
            if (name, self._counts[name]) == self._kill_at:
                os.killpg(0, signal.SIGKILL)
                time.sleep(60)


def opened(job: Job) -> Lake:
    folder = Path(job["folder"])
    store = job.get("endpoint")
    ledger = connect(job["uri"], storage_options=storage_options(store) if store else None)
    spark = dp.spark_session(
        master="local[1]",
        warehouse=str(folder / "warehouse"),
        conf={
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "1",
            "spark.databricks.delta.snapshotPartitions": "1",
        },
    )
    if store:
        open_store(spark, store)
    dp.attach(spark, ledger, manage=[str(folder)])
    return Lake(spark, ledger, folder)


def transfers(lake: Lake, job: Job, report: Report) -> None:
    """Move money until the time is over, or the wanted number is reached."""
    chance = random.Random(job["seed"])
    for _ in range(job["most"]):
        if Path(job["stop"]).exists():
            return
        identity, amount = uuid.uuid4().hex, chance.randint(1, 9)
        route = chance.sample(BANKS, chance.choice((2, 2, 3)))
        amounts = dict(
            zip(route, (-amount, amount) if len(route) == 2 else (-2 * amount, amount, amount), strict=True)
        )

        def work(moved: dict[str, int] = amounts, name: str = identity) -> None:
            for bank, change in moved.items():
                account = chance.randrange(ACCOUNTS)
                lake.sql(f"UPDATE {{{bank}}} SET amount = amount + {change} WHERE id = {account}")
            values = ", ".join(str(moved.get(bank, 0)) for bank in BANKS)
            lake.sql(f"INSERT INTO {{journal}} VALUES ('{name}', {values})")

        report.say("tried", identity)
        dp.run_transaction(lake.spark, work, retries=50, author=f"driver {job['seed']}")
        report.say("acknowledged", identity)


def group(lake: Lake, job: Job, report: Report) -> None:
    """One transaction over three tables and one that it creates, in every folder that is named."""
    for place in job["places"]:
        there = Lake(lake.spark, lake.ledger, Path(place))
        stop = telemetry.listen(report.step)
        with dp.transaction(lake.spark) as transaction:
            report.say("begun", transaction.transaction_id)
            write_group(lake.spark, there, job["name"])
            report.step("before the end")
        report.say("acknowledged", transaction.transaction_id)
        report.step("end")
        stop()


def write_group(spark: SparkSession, there: Lake, name: str) -> None:
    for table in ("one", "two", "three"):
        there.sql(f"INSERT INTO {{{table}}} VALUES (1, '{name}')")
    there.sql(f"UPDATE {{one}} SET id = 2 WHERE name = '{name}'")
    rows = spark.createDataFrame([(1, name)], "id bigint, name string").coalesce(1)
    rows.write.format("delta").mode("append").save(there.path("new"))


def race(lake: Lake, job: Job, report: Report) -> None:
    """Transactions on tables that other drivers write too."""
    report.say("ready")
    deadline = time.monotonic() + 300
    while not Path(job["go"]).exists() and time.monotonic() < deadline:
        time.sleep(0.05)

    def record(one: Any) -> None:
        report.say("recorded", {**dataclasses.asdict(one), "appends": sorted(one.appends)})

    client(lake, job["number"], job["rounds"], record)


def store(lake: Lake, job: Job, report: Report) -> None:
    """Appends to a table on an object store that other drivers append to."""
    report.say("ready")
    deadline = time.monotonic() + 300
    while not Path(job["go"]).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    table = f"delta.`s3a://{job['bucket']}/managed/shared`"
    for number in range(job["rounds"]):
        lake.spark.sql(f"INSERT INTO {table} VALUES ({100 * job['number'] + number})")


def main() -> None:
    job = json.loads(sys.argv[1])
    report = Report(job)
    lake = opened(job)
    report.say("open")
    {"transfers": transfers, "group": group, "race": race, "store": store}[job["work"]](lake, job, report)
    report.say("done")
    lake.spark.stop()
    lake.ledger.close()


if __name__ == "__main__":
    main()
