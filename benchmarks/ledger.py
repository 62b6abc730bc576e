"""How fast the ledger is, against deltalake on the same machine and the same tables. Run with `make bench`.

Everything lies in a temporary folder and goes away with it. Every opening is of a fresh process with a fresh
connection, without the time that imports take; memory is that of the process. PostgreSQL and SQLite run with
full durability.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from benchmarks.ledger_bulk import bulk
from benchmarks.ledger_reading import reading
from benchmarks.ledger_report import Result, load_now, show
from benchmarks.ledger_tables import ENGINES, databases
from benchmarks.ledger_writing import crowd, groups, one_writer

PARTS = ("reading", "commits", "groups", "crowd", "bulk")


def wishes() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000, help="files of the large table")
    parser.add_argument("--log-commits", type=int, default=1000, help="in how many commits they came")
    parser.add_argument("--commits", type=int, default=300, help="commits of one writer")
    parser.add_argument("--groups", type=int, default=60, help="transactions over ten tables")
    parser.add_argument("--repeat", type=int, default=3, help="how often each measurement is taken")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    return parser.parse_args()


def measured(wish: argparse.Namespace, folder: Path) -> list[Result]:
    results: list[Result] = []
    with databases(folder, wish.engines) as dbs:
        if "commits" in wish.parts:
            results += one_writer(folder, dbs, wish.commits, wish.repeat)
        if "groups" in wish.parts:
            results += groups(folder, dbs, wish.groups, wish.repeat)
        if "crowd" in wish.parts:
            results += crowd(folder, dbs)
        if "bulk" in wish.parts:
            results += bulk(folder, dbs)
        if "reading" in wish.parts:
            results += reading(folder, dbs, wish.files, wish.log_commits, wish.repeat)
    return results


def main() -> int:
    wish = wishes()
    # Whoever ends the run must find neither its folder nor its server afterwards.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"deltalake {version('deltalake')}, {os.cpu_count()} cores, load {load_now()} at the start")
    with tempfile.TemporaryDirectory(prefix="dpbench", dir=wish.folder) as folder:
        code = show(measured(wish, Path(folder)))
    print(f"\nload {load_now()} at the end")
    return code


if __name__ == "__main__":
    sys.exit(main())
