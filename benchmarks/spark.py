"""What the ledger costs Spark, side by side with plain Delta in one session. Run with `make bench`.

Plain and managed tables are of the same shape, and every statement runs on both, one right after the other,
with the order changing: what else the machine does meets both alike. A pair is one whole job on both sides.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

import deltaplane as dp
from benchmarks.ledger_report import Result, load_now, say, show
from benchmarks.ledger_tables import databases, write_log
from benchmarks.spark_drivers import crowd
from deltaplane.spark.attaching import attach, detach

PARTS = ("job", "transaction", "large", "drivers")
ENGINES = ("sqlite", "postgres")
_SLOWER = 1.05
_LARGE_SLOWER = 1.10
_ACTIONS = 100_000

_APPEND = "INSERT INTO {t} SELECT id, 'new' FROM range({n}, {n} + 10)"
_UPDATE = "UPDATE {t} SET state = 'paid' WHERE id BETWEEN {n} AND {n} + 5"
_MERGE = (
    "MERGE INTO {t} t USING (SELECT id, 'merged' AS state FROM range({n}, {n} + 8)) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET state = s.state WHEN NOT MATCHED THEN INSERT *"
)


def job(appends: int, updates: int, merges: int) -> list[str]:
    """The statements of a job, of all kinds from the begin to the end."""
    kinds = [(_APPEND, appends), (_UPDATE, updates), (_MERGE, merges)]
    placed = [((at + 0.5) / count, text) for text, count in kinds for at in range(count)]
    return [text.replace("{n}", str(10 * number)) for number, (_, text) in enumerate(sorted(placed))]


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Bench:
    """One session, with a folder that is managed and one that is not."""

    def __init__(self, spark: SparkSession, folder: Path, statements: list[str]) -> None:
        self.spark = spark
        self.folder = folder
        self.statements = statements
        self._number = 0

    def place(self, kind: str) -> Path:
        """A folder for a new table, which is managed or not."""
        self._number += 1
        return self.folder / kind / f"t{self._number}"

    def table(self, kind: str) -> str:
        path = self.place(kind)
        self.spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT, state STRING) USING delta")
        return f"delta.`{path}`"

    def pair(self, most: int | None = None) -> tuple[float, float]:
        """A job on a plain table and on a managed one, statement by statement; or its first statements."""
        sides = [self.table("plain"), self.table("managed")]
        totals = [0.0, 0.0]
        for number, text in enumerate(self.statements[:most]):
            for side in (0, 1) if number % 2 else (1, 0):
                totals[side] += self.run(text, sides[side])
        return totals[0], totals[1]

    def run(self, text: str, table: str) -> float:
        return timed(lambda: self.spark.sql(text.replace("{t}", table)))

    def outside_and_inside(self) -> tuple[float, float]:
        """A job outside of a transaction and the same inside of one, with its begin and its end."""
        outside, inside = self.table("managed"), self.table("managed")
        first = sum(self.run(text, outside) for text in self.statements)

        def whole() -> None:
            with dp.transaction(self.spark):
                for text in self.statements:
                    self.run(text, inside)

        return first, timed(whole)


def ratios(what: str, goal: float, pairs: list[tuple[float, float]]) -> Result:
    """The median of the ratios, with their spread."""
    found = sorted(ours / theirs for theirs, ours in pairs)
    middle = statistics.median(found)
    ours = statistics.median(ours for _, ours in pairs)
    theirs = statistics.median(theirs for theirs, _ in pairs)
    spread = f"{found[0]:.3f} to {found[-1]:.3f}, {len(pairs)} pairs"
    told = f"{middle:.3f}x ({spread}), {ours:.1f} s and {theirs:.1f} s"
    return Result(what, f"at most {goal:g}x", told, middle <= goal)


def emptied(bench: Bench, what: str, repeat: int, commits: int) -> Result:
    """All files of a table go, without a look at their rows.

    Args:
        commits: How many versions the table has before. Behind every tenth Delta writes a checkpoint.
    """
    ledger = dp.connect(bench_uri(bench))

    def prepared(place: str) -> tuple[Path, str]:
        path = write_log(bench.place(place), _ACTIONS, commits)
        if place == "managed":
            ledger.adopt(str(path))
        return path, f"DELETE FROM delta.`{path}`"

    whole = f"{what}: a commit that removes {_ACTIONS:,} files, as version {commits}"
    return large(bench, ledger, whole, repeat, prepared)


def cloned(bench: Bench, what: str, repeat: int) -> Result:
    """All files of a table come at once, into a new one."""
    source = write_log(bench.place("plain"), _ACTIONS, 9)

    def prepared(place: str) -> tuple[Path, str]:
        path = bench.place(place)
        return path, f"CREATE TABLE delta.`{path}` SHALLOW CLONE delta.`{source}`"

    whole = f"{what}: a commit that adds {_ACTIONS:,} files, as version 0"
    return large(bench, dp.connect(bench_uri(bench)), whole, repeat, prepared)


def large(
    bench: Bench, ledger: dp.Ledger, what: str, repeat: int, prepared: Callable[[str], tuple[Path, str]]
) -> Result:
    """A statement that commits many actions.

    The ledger writes the rows of its files behind it. How long that takes is told, and waited for, so that it
    does not slow down what comes next.

    Args:
        prepared: Gives a table, managed or plain, and the statement.
    """
    say(what)
    pairs = []
    for number in range(-1, repeat):
        times = {}
        behind = 0.0
        for place in ("plain", "managed") if number % 2 else ("managed", "plain"):
            path, statement = prepared(place)
            times[place] = timed(lambda statement=statement: bench.spark.sql(statement))
            if place == "managed":
                behind = timed(lambda path=path: ledger.snapshot(str(path)))
        told = f"plain {times['plain']:.1f} s, managed {times['managed']:.1f} s, rows {behind:.1f} s behind"
        if number < 0:
            say(f"{told}, to warm up")
            continue
        say(told)
        pairs.append((times["plain"], times["managed"]))
    return ratios(what, _LARGE_SLOWER, pairs)


def bench_uri(bench: Bench) -> str:
    from deltaplane.spark.attaching import attachment_of

    return str(attachment_of(bench.spark).ledger.context.uri)


def measured(wish: argparse.Namespace, folder: Path) -> list[Result]:
    statements = job(wish.appends, wish.updates, wish.merges)
    size = f"{wish.appends} appends, {wish.updates} updates, {wish.merges} merges"
    results: list[Result] = []
    with databases(folder, ENGINES) as dbs:
        spark = dp.spark_session(warehouse=str(folder / "warehouse"))
        bench = Bench(spark, folder, statements)
        for engine in wish.engines:
            ledger = attach(spark, dbs.uri(engine), manage=[str(folder / "managed")])
            say(f"{engine}: warming up")
            bench.pair(wish.warm_up)
            if "job" in wish.parts:
                say(f"{engine}: {wish.pairs} pairs of jobs")
                pairs = [bench.pair() for _ in range(wish.pairs)]
                results.append(ratios(f"{engine}: {size}, against plain Delta", _SLOWER, pairs))
            if "transaction" in wish.parts:
                say(f"{engine}: {wish.pairs} jobs outside and inside of a transaction")
                pairs = [bench.outside_and_inside() for _ in range(wish.pairs)]
                results.append(ratios(f"{engine}: the same inside of one transaction", 1.0, pairs))
            if "large" in wish.parts:
                results += [emptied(bench, engine, wish.repeat, commits) for commits in wish.large_at]
                results.append(cloned(bench, engine, wish.repeat))
            detach(spark)
            ledger.close()
        spark.stop()
        if "drivers" in wish.parts:
            results += crowd(folder, dbs, wish.seconds)
    return results


def wishes() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=7, help="how many jobs on each side")
    parser.add_argument("--appends", type=int, default=50)
    parser.add_argument("--updates", type=int, default=20)
    parser.add_argument("--merges", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=40, help="how many statements run before on each side")
    parser.add_argument("--repeat", type=int, default=7, help="how often a large commit is made")
    parser.add_argument("--large-at", type=int, nargs="+", default=[10, 9], help="as which versions files go")
    parser.add_argument("--seconds", type=int, default=60, help="how long the drivers append")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    return parser.parse_args()


def main() -> int:
    wish = wishes()
    print(f"Spark on the ledger, {os.cpu_count()} cores, load {load_now()} at the start")
    with tempfile.TemporaryDirectory(prefix="dpbench", dir=wish.folder) as folder:
        code = show(measured(wish, Path(folder)))
    print(f"\nload {load_now()} at the end")
    return code


if __name__ == "__main__":
    sys.exit(main())
