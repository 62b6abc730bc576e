"""64 processes commit at once: every acknowledged commit is in the log once, in order."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from deltaplane.ledger import Ledger, connect
from postgres_server import PostgresServer

WORKER = Path(__file__).with_name("worker.py")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
PROCESSES = 64


@dataclass(frozen=True)
class Notes:
    """What all workers wrote down."""

    acknowledged: dict[str, dict[str, int]]
    kinds: Counter[str]
    conflicts: Counter[str]
    failures: list[Any]
    unpublished: int


def run_workers(folder: Path, **job: Any) -> Notes:
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, str(WORKER)],
        input=json.dumps({**job, "folder": str(folder)}),
        text=True,
        check=False,
    )
    lines = [json.loads(line) for file in folder.iterdir() for line in file.read_text().splitlines()]
    said = [line for line in lines if line[0] == "acknowledged"]
    notes = Notes(
        {identity: versions for _, _, identity, versions in said},
        Counter(kind for _, kind, _, _ in said),
        Counter(line[1] for line in lines if line[0] == "conflict"),
        [line[1:] for line in lines if line[0] == "failed"],
        sum(line[0] == "unpublished" for line in lines),
    )
    assert len(notes.acknowledged) == len(said)
    assert notes.failures == [], f"{len(notes.failures)} failures, the first:\n{notes.failures[0]}"
    assert done.returncode == 0
    return notes


def create(ledger: Ledger, folder: Path, count: int) -> list[str]:
    tables = [str(folder / f"table{number}") for number in range(count)]
    for table in tables:
        ledger.create(table, SCHEMA, properties={"delta.checkpointInterval": "50"})
    return tables


def assert_every_acknowledged_commit_is_there_once(
    ledger: Ledger, tables: list[str], notes: Notes
) -> dict[str, int]:
    """In the ledger, and in the published files, at the version that was told."""
    heads = ledger.publish()
    for table in tables:
        told = {identity: by[table] for identity, by in notes.acknowledged.items() if table in by}
        in_ledger = [
            (entry.version, entry.transaction_id) for entry in reversed(ledger.history(table, limit=10**9))
        ]
        assert [version for version, _ in in_ledger] == list(range(heads[table] + 1)), "a gap"
        published = [(version, transaction_of(table, version)) for version in range(heads[table] + 1)]
        assert published == in_ledger
        # Nothing is lost, nothing is doubled, and nothing is there that nobody was told of.
        assert {identity: version for version, identity in in_ledger[1:]} == told
        assert len(in_ledger) - 1 == len(told)
        assert (Path(table) / "_delta_log" / f"{heads[table] + 1:020d}.json").exists() is False
        outside = DeltaTable(table)
        assert outside.version() == heads[table]
        ours = sorted(ledger.snapshot(table).files()["path"].to_pylist())
        assert sorted(uri.rsplit("/", 1)[-1] for uri in outside.file_uris()) == ours
        assert ledger.verify(table).differences == ()
    return heads


def transaction_of(table: str, version: int) -> str:
    path = Path(table) / "_delta_log" / f"{version:020d}.json"
    info = json.loads(path.read_bytes().splitlines()[0])["commitInfo"]
    return str(info["txnId"])


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of its own with room for every process twice: rows and wide reads have a connection each."""
    opened = PostgresServer()
    with psycopg.connect(opened.conninfo(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET max_connections = 200")
    opened.control("restart", "-w", "-m", "fast", "-l", str(opened.folder / "restarted.log"))
    yield opened
    opened.stop()


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [20, pytest.param(120, marks=pytest.mark.exhaustive)])
def test_64_processes_of_mixed_commits_on_postgresql(
    server: PostgresServer, tmp_path: Path, seconds: int
) -> None:
    uri = server.uri(server.new_database())
    with connect(uri) as ledger:
        tables = create(ledger, tmp_path, 6)
        notes = run_workers(tmp_path / "notes", uri=uri, tables=tables, workers=PROCESSES, seconds=seconds)
        heads = assert_every_acknowledged_commit_is_there_once(ledger, tables, notes)
    # A blind append never loses; only who insists on a version may.
    assert set(notes.conflicts) <= {"remove"}
    assert min(notes.kinds[kind] for kind in ("append", "group", "remove")) > 0
    numbers = {
        "seconds": seconds,
        "transactions": len(notes.acknowledged),
        "versions": sum(heads.values()),
        "kinds": dict(notes.kinds),
        "conflicts": dict(notes.conflicts),
        "unpublished at first": notes.unpublished,
    }
    print(json.dumps(numbers))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_64_processes_of_blind_appends_lose_none(engine: str, tmp_path: Path, request: Any) -> None:
    """They also open the ledger at the same moment, and it does not exist yet."""
    if engine == "sqlite":
        uri = f"deltasql://sqlite/{tmp_path}/ledger.db"
    else:
        server: PostgresServer = request.getfixturevalue("server")
        uri = server.uri(server.new_database())
    run_workers(tmp_path / "opened", uri=uri, tables=[], workers=PROCESSES, commits=0)
    with connect(uri) as ledger:
        tables = create(ledger, tmp_path, 1)
        begun = time.monotonic()
        notes = run_workers(tmp_path / "notes", uri=uri, tables=tables, workers=PROCESSES, commits=20)
        seconds = time.monotonic() - begun
        heads = assert_every_acknowledged_commit_is_there_once(ledger, tables, notes)
    assert notes.conflicts == Counter()
    assert heads[tables[0]] == len(notes.acknowledged) == PROCESSES * 20
    print(json.dumps({"engine": engine, "commits": PROCESSES * 20, "seconds": round(seconds, 1)}))


def test_8_processes_of_blind_appends_on_sqlite_lose_none(tmp_path: Path) -> None:
    uri = f"deltasql://sqlite/{tmp_path}/ledger.db"
    with connect(uri) as ledger:
        tables = create(ledger, tmp_path, 1)
        notes = run_workers(tmp_path / "notes", uri=uri, tables=tables, workers=8, commits=10)
        heads = assert_every_acknowledged_commit_is_there_once(ledger, tables, notes)
    assert (notes.conflicts, heads[tables[0]]) == (Counter(), 80)
