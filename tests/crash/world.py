"""A ledger with its tables, on which processes are killed, and what must hold after every kill."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable

from crash.child import SCHEMA, add
from deltaplane.ledger import Ledger, connect
from deltaplane.ledger.ratify import decompress

ENGINES = ("sqlite", "duckdb", "postgres")
_SLOW = pytest.mark.slow
_EXHAUSTIVE = [_SLOW, pytest.mark.exhaustive]


def _everything(engine: str, marks: Any) -> Any:
    """Killing at the named steps is quick; at every statement and change of a file it takes its time."""
    return pytest.param((engine, None), id=f"{engine}-everything", marks=marks)


# The statements of DuckDB are the slowest.
_EVERYWHERE = [
    _everything("sqlite", _SLOW),
    _everything("duckdb", _EXHAUSTIVE),
    _everything("postgres", _SLOW),
]
KILLS = [pytest.param(("sqlite", "step"), id="sqlite-steps"), *_EVERYWHERE]
# For what the databases do alike. Where DuckDB has nothing of its own to show, the steps are enough.
KILLS_BRIEF_ELSEWHERE = [
    pytest.param(("sqlite", "step"), id="sqlite-steps"),
    pytest.param(("duckdb", "step"), id="duckdb-steps", marks=_SLOW),
    _everything("sqlite", _SLOW),
    _everything("postgres", _EXHAUSTIVE),
]
STEPS = [pytest.param((e, "step"), id=f"{e}-steps", marks=[_SLOW] * (e != "sqlite")) for e in ENGINES]
KILLS_ON_EVERY_ENGINE = [*(pytest.param((e, "step"), id=f"{e}-steps") for e in ENGINES), *_EVERYWHERE]
SLOW_ELSEWHERE = ["sqlite", pytest.param("duckdb", marks=_SLOW), pytest.param("postgres", marks=_SLOW)]

CHILD = Path(__file__).with_name("child.py")
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(\.[0-9a-f-]{36})?\.(parquet|json)")
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")


@dataclass(frozen=True)
class Ended:
    """How a child ended, and what it said before."""

    killed: bool
    events: list[str]
    acknowledged: list[Any]
    failure: str | None

    @property
    def where(self) -> str:
        return self.events[-1] if self.events else "the begin"


def with_tests() -> dict[str, str]:
    """An environment in which a program finds the modules of the tests."""
    paths = [str(CHILD.parent.parent), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


class Zygote:
    """The prepared process that forks the children."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._jobs = 0
        self._process = subprocess.Popen(
            [sys.executable, str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=with_tests(),
        )

    def run(self, **job: Any) -> Ended:
        """Run a job to its end, which may be violent."""
        report, answer = self._send(job)
        return _ended(report, answer["code"])

    def begin(self, **job: Any) -> tuple[Path, int]:
        """Begin a job that goes on beside the test; gives its report and its process id."""
        report, answer = self._send({**job, "background": True})
        return report, answer["pid"]

    def _send(self, job: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
        self._jobs += 1
        report = self._folder / f"report-{self._jobs}.jsonl"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**job, "report": str(report)}) + "\n")
        self._process.stdin.flush()
        return report, json.loads(self._process.stdout.readline())

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def _ended(report: Path, code: int) -> Ended:
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    said = {what: [detail for kind, detail in lines if kind == what] for what in ("event", "acknowledged")}
    failure = next((detail for kind, detail in lines if kind == "failed"), None)
    return Ended(code == -9, said["event"], said["acknowledged"], failure)


@dataclass
class World:
    """One ledger and its tables."""

    uri: str
    folder: Path
    zygote: Zygote
    conninfo: str | None = None
    tables: list[str] = field(default_factory=list)
    _made: int = 0

    @contextlib.contextmanager
    def open(self) -> Iterator[Ledger]:
        """A fresh connection, once the server has noticed that the killed ones are gone."""
        self.wait_for_the_dead()
        with connect(self.uri) as ledger:
            yield ledger

    def wait_for_the_dead(self) -> None:
        if self.conninfo is None:
            return
        others = (
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        deadline = time.monotonic() + 20
        with psycopg.connect(self.conninfo, autocommit=True) as connection:
            while connection.execute(others).fetchone() != (0,):
                assert time.monotonic() < deadline, "a killed client's session is still there"
                time.sleep(0.005)

    def create_tables(self, count: int, **properties: str) -> None:
        given = {f"delta.{key}": value for key, value in properties.items()}
        with self.open() as ledger:
            for _ in range(count):
                self._made += 1
                self.tables.append(str(self.folder / f"table{self._made}"))
                ledger.create(self.tables[-1], SCHEMA, properties=given)

    def renew(self, number: int, count: int, **properties: str) -> None:
        """New tables after every twenty kills, so that looking at all versions stays quick."""
        if number % 20 == 1:
            self.tables.clear()
            self.create_tables(count, **properties)

    def run(self, scenario: str, identity: str, **job: Any) -> Ended:
        ended = self.zygote.run(scenario=scenario, uri=self.uri, tables=self.tables, id=identity, **job)
        assert ended.failure is None, ended.failure
        return ended

    def commit(self, ledger: Ledger, identity: str) -> None:
        """The next writer: one commit to every table."""
        with ledger.transaction(transaction_id=identity) as transaction:
            for table in self.tables:
                transaction.commit(table, [add(identity)])

    def check(self, ledger: Ledger, *, finished: bool = False) -> None:
        """See that every table is whole; `finished` also asks that nothing is left to be published."""
        for table in self.tables:
            check_table(ledger, table, finished=finished)
            if finished:
                assert ledger.verify(table).differences == ()

    def publish(self, ledger: Ledger) -> None:
        """Publish what is pending of these tables, and take a quick look."""
        for table in self.tables:
            newest = ledger.publish(table)[table]
            assert published_versions(table) == list(range(newest + 1))

    def landed(self, ledger: Ledger) -> Counter[str]:
        """How many versions each transaction has."""
        rows = [entry.transaction_id for table in self.tables for entry in ledger.history(table)]
        return Counter(identity for identity in rows if identity)


def every_kill(work: Callable[[int], Ended]) -> list[str]:
    """Kill before the first event, the second and so on; gives the events once the work comes to its end."""
    number = 1
    while True:
        ended = work(number)
        if not ended.killed:
            return ended.events
        assert len(ended.events) == number
        number += 1


def contents(ledger: Ledger, table: str) -> list[bytes]:
    """What the ledger holds, version by version from 0 on."""
    found = ledger._ctx.table(table)
    with ledger._ctx.store.reading() as session:
        rows = session.rows("contents", table_id=found.table_id, first=0, last=2**40)
    assert [row[0] for row in rows] == list(range(found.head_version + 1))
    return [decompress(row[1], row[2]) for row in rows]


def published_versions(table: str) -> list[int]:
    names = [path.name for path in (Path(table) / "_delta_log").glob("*")]
    return sorted(int(match[1]) for match in map(_COMMIT.fullmatch, names) if match)


def check_table(ledger: Ledger, table: str, *, finished: bool) -> None:
    """Invariants 1, 2, 3 and 5 for one table, at any moment."""
    log = Path(table) / "_delta_log"
    held = contents(ledger, table)
    versions = published_versions(table)
    assert versions == list(range(len(versions))), "a gap in the published log"
    assert len(versions) <= len(held), "published and not ratified"
    for version in versions:
        assert (log / f"{version:020d}.json").read_bytes() == held[version]
    if finished:
        assert len(versions) == len(held)
    _check_checkpoints(log, versions)
    if versions:
        _check_outside_reader(ledger, table, versions[-1])


def _check_checkpoints(log: Path, versions: list[int]) -> None:
    names = [path.name for path in log.glob("*") if path.is_file()]
    checkpoints = {int(match[1]) for match in map(_CHECKPOINT.fullmatch, names) if match}
    assert checkpoints <= set(versions), "a checkpoint of a version that is not published"
    if "_last_checkpoint" in names:
        assert json.loads((log / "_last_checkpoint").read_text())["version"] in checkpoints
    known = (_COMMIT, _CHECKPOINT, _TEMPORARY, re.compile("_last_checkpoint"))
    assert [name for name in names if not any(pattern.fullmatch(name) for pattern in known)] == []


def _check_outside_reader(ledger: Ledger, table: str, version: int) -> None:
    outside = DeltaTable(table)
    assert outside.version() == version
    seen = sorted(uri.rsplit("/", 1)[-1] for uri in outside.file_uris())
    ours = sorted(ledger.snapshot(table, version=version).files().column("path").to_pylist())
    assert seen == ours
