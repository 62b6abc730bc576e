"""Several drivers that append to one table, each a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.ledger_report import Result, say
from benchmarks.ledger_tables import Databases

__all__ = ["crowd"]

_DRIVERS = 4
_START_SECONDS = 300


def crowd(folder: Path, dbs: Databases, seconds: int) -> list[Result]:
    """How many commits four drivers get into one table, plain and through a ledger on PostgreSQL."""
    counts = {}
    for kind in ("plain", "managed"):
        say(f"{_DRIVERS} drivers append for {seconds} s, {kind}")
        counts[kind] = _appended(
            folder / f"crowd-{kind}", dbs.uri("postgres") if kind == "managed" else None, seconds
        )
    told = f"{counts['managed']} commits, plain Delta {counts['plain']}"
    goal = "at least as many as plain Delta"
    what = f"postgres: {_DRIVERS} drivers append to one table for {seconds} s"
    return [Result(what, goal, told, counts["managed"] >= counts["plain"])]


def _appended(folder: Path, uri: str | None, seconds: int) -> int:
    """The drivers start, tell that they are ready, and begin together."""
    folder.mkdir()
    command = [sys.executable, "-m", "benchmarks.spark_drivers"]
    wish = {"folder": str(folder), "uri": uri, "seconds": seconds}
    drivers = [
        subprocess.Popen(
            [*command, json.dumps({**wish, "number": number})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(_DRIVERS)
    ]
    try:
        for driver in drivers:
            assert driver.stdout is not None
            assert driver.stdout.readline().strip() == "ready"
        for driver in drivers:
            assert driver.stdin is not None
            driver.stdin.write("go\n")
            driver.stdin.flush()
        return sum(
            int(driver.communicate(timeout=seconds + _START_SECONDS)[0].split()[-1]) for driver in drivers
        )
    finally:
        for driver in drivers:
            driver.kill()


def _drive(folder: str, uri: str | None, seconds: int, number: int) -> int:
    import deltaplane as dp

    spark = dp.spark_session(
        master="local[1]",
        warehouse=f"{folder}/warehouse{number}",
        conf={"spark.driver.memory": "1g"},
        ledger=uri,
        manage=[folder] if uri else None,
    )
    table = f"delta.`{folder}/table`"
    if number == 0:
        spark.sql(f"CREATE TABLE IF NOT EXISTS {table} (id BIGINT) USING delta")
    else:
        _wait_for(Path(folder, "table", "_delta_log", f"{0:020d}.json"))
    for _ in range(3):
        spark.sql(f"INSERT INTO {table} VALUES (-1)")
    print("ready", flush=True)
    sys.stdin.readline()
    end = time.monotonic() + seconds
    done = 0
    while time.monotonic() < end:
        spark.sql(f"INSERT INTO {table} VALUES ({done})")
        done += 1
    spark.stop()
    return done


def _wait_for(file: Path) -> None:
    end = time.monotonic() + _START_SECONDS
    while not file.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"{file} did not appear")
        time.sleep(0.2)


if __name__ == "__main__":
    print(_drive(**json.loads(sys.argv[1])))
