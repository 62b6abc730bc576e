"""How fast planning is, and how often it asks the catalog. Run with `make bench`."""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import deltaplane as dp
from deltaplane.planning import OPEN_SOURCE, ObservedTable, plan_table
from deltaplane.planning.simulate import simulate_all
from deltaplane.schema import Column, Decimal, DeltaTable, Field, Long, String, Struct, Timestamp
from deltaplane.spark.catalog import SparkCatalog
from deltaplane.sync import Engine

TABLES = 10_000
COLUMNS = 50
PLANNING_SECONDS = 5.0
CALLS_PER_TABLE = 3


@dataclass(frozen=True)
class Result:
    """One goal and what came of it."""

    what: str
    goal: str
    measured: str
    met: bool


def declare(number: int) -> DeltaTable:
    types = (
        Long(),
        String(),
        Decimal(18, 2),
        Timestamp(),
        Struct([Field("a", Long()), Field("b", String())]),
    )
    columns = [Column(f"c{n}", types[n % len(types)], comment=f"column {n}") for n in range(COLUMNS)]
    return DeltaTable(
        "dev",
        f"s{number % 20}",
        f"t{number}",
        columns,
        primary_key="c0",
        checks=["c0 >= 0"],
        properties={"delta.columnMapping.mode": "name", "team": "red"},
    )


def observe(table: DeltaTable) -> ObservedTable:
    state = simulate_all(None, plan_table(table, None, OPEN_SOURCE).changes, OPEN_SOURCE)
    assert state is not None
    return state


def edit(table: DeltaTable) -> DeltaTable:
    """A rename, an add, a comment and a check: work in every table."""
    columns = list(table.columns)
    columns[3] = replace(columns[3], name="renamed", renamed_from=columns[3].name)
    columns[7] = replace(columns[7], comment="another comment")
    columns.insert(10, Column("added", Long()))
    return replace(table, columns=columns, checks=["c0 >= 1"])


def timed(work: Callable[[], Any]) -> float:
    """Time work, without the collector's walks over everything the benchmark itself has made before."""
    gc.collect()
    gc.freeze()
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    gc.unfreeze()
    return seconds


def planning() -> list[Result]:
    declared = [declare(number) for number in range(TABLES)]
    # Declared anew: what a catalog returns shares no objects with the declaration.
    observed = [observe(declare(number)) for number in range(TABLES)]
    edited = [edit(table) for table in declared]
    size = f"{TABLES:,} tables x {COLUMNS} columns"

    def run(tables: list[DeltaTable]) -> float:
        return timed(lambda: [plan_table(t, o, OPEN_SOURCE) for t, o in zip(tables, observed, strict=True)])

    results = []
    for what, tables in (("nothing to change", declared), ("four changes in every table", edited)):
        seconds = run(tables)
        results.append(
            Result(
                f"pure planning of {size}, {what}",
                f"under {PLANNING_SECONDS:.0f} s",
                f"{seconds:.2f} s",
                seconds < PLANNING_SECONDS,
            )
        )
    return results


def catalog_calls() -> list[Result]:
    """Count the calls that reading tables makes on real Spark, for few and for many tables and columns."""
    calls: Counter[str] = Counter()

    class Counting(SparkCatalog):
        def _describe(self, name: Any) -> Any:
            calls["describe"] += 1
            return super()._describe(name)

        def _is_external(self, name: Any) -> bool:
            calls["entry"] += 1
            return super()._is_external(name)

        def _log_state(self, name: Any, location: str) -> Any:
            calls["log"] += 1
            return super()._log_state(name, location)

    with tempfile.TemporaryDirectory() as folder:
        spark = dp.spark_session(warehouse=str(Path(folder) / "warehouse"))
        engine = Engine(Counting(spark))
        results = []
        for count, width in ((2, 3), (12, 3), (12, 60)):
            tables = [
                DeltaTable("dev", "bench", f"w{width}_{n}", [Column(f"c{i}", Long()) for i in range(width)])
                for n in range(count)
            ]
            engine.sync(dp.Registry(*tables))
            calls.clear()
            engine.plan(dp.Registry(*tables))
            per_table = sum(calls.values()) / count
            results.append(
                Result(
                    f"catalog calls per table, {count} tables x {width} columns",
                    f"{CALLS_PER_TABLE}",
                    f"{per_table:g}",
                    per_table == CALLS_PER_TABLE,
                )
            )
        spark.stop()
    return results


def main() -> int:
    results = [*planning(), *catalog_calls()]
    width = max(len(result.what) for result in results)
    print(f"{'what':<{width}}  {'goal':<10}  {'measured':<10}  ")
    for result in results:
        verdict = "met" if result.met else "MISSED"
        print(f"{result.what:<{width}}  {result.goal:<10}  {result.measured:<10}  {verdict}")
    return 0 if all(result.met for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
