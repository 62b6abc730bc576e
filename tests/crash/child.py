"""The process that is killed.

Run as a program it prepares itself once and then forks a child for every job that comes in on standard
input. A child does one piece of work with a ledger and kills itself with SIGKILL right before its n-th event.
Events are the named steps of the ledger, every statement that goes to the database, and every call that
changes a file. Nothing that others could see happens between two events, so this is a kill between any two
steps.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet

from deltaplane import telemetry
from deltaplane.errors import StorageError
from deltaplane.ledger import Ledger, adopt, adopting, checkpointing, commit, completing, connect, packs
from deltaplane.ledger.migrations import migrate
from deltaplane.ledger.registry import open_store
from deltaplane.ledger.uri import parse_uri

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
Job = dict[str, Any]
_write = os.write


def add(name: str) -> dict[str, Any]:
    """An add action with statistics."""
    stats = '{"numRecords":10,"minValues":{"id":1},"maxValues":{"id":9},"nullCount":{"id":0}}'
    body = {
        "path": f"{name}.parquet",
        "partitionValues": {},
        "size": 100,
        "modificationTime": 1_700_000_000_000,
    }
    return {"add": body | {"dataChange": True, "stats": stats}}


def remove(name: str) -> dict[str, Any]:
    """A remove action."""
    return {"remove": {"path": f"{name}.parquet", "deletionTimestamp": 1_700_000_100_000, "dataChange": True}}


class Trap:
    """Counts events once it is armed, and kills the process before the wanted one."""

    def __init__(self, job: Job) -> None:
        self._kill_at = job.get("kill_at")
        self._kind = job.get("kind")
        self._report = os.open(job["report"], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self._count = 0
        self._lock = threading.Lock()
        self.armed = False

    def event(self, kind: str, name: str) -> None:
        """Come to an event."""
        if not self.armed or self._kind not in {None, kind}:
            return
        # Tables may be published by several threads: none of them gets past the event at which all end.
        with self._lock:
            self._count += 1
            self.say("event", f"{kind} {name}")
            if self._count == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(60)

    def say(self, what: str, detail: Any) -> None:
        """Write a line that the test reads, also when this process is gone."""
        _write(self._report, f"{json.dumps([what, detail])}\n".encode())


def set_traps(trap: Trap) -> None:
    """Make every event known to the trap."""
    telemetry.listen(lambda name, _: trap.event("step", name))
    _trap_files(trap)
    _trap_sqlite(trap)
    _trap_postgres(trap)
    _trap_duckdb(trap)


def _trap_files(trap: Trap) -> None:
    def trapped(name: str) -> None:
        original: Callable[..., Any] = getattr(os, name)

        def call(*arguments: Any, **named: Any) -> Any:
            trap.event("file", name)
            return original(*arguments, **named)

        setattr(os, name, call)

    for name in ("fsync", "link", "replace", "mkdir", "unlink"):
        trapped(name)

    def torn(descriptor: int, data: bytes) -> int:
        """Half of it at a time, so that a kill can leave a torn file."""
        trap.event("file", "write")
        return _write(descriptor, data[: max(1, len(data) // 2)])

    os.write = torn  # type: ignore[assignment]


def _trap_sqlite(trap: Trap) -> None:
    class Connection(sqlite3.Connection):
        def execute(self, *arguments: Any) -> sqlite3.Cursor:
            trap.event("statement", _short(arguments[0]))
            return super().execute(*arguments)

        def executemany(self, *arguments: Any) -> sqlite3.Cursor:
            trap.event("statement", _short(arguments[0]))
            return super().executemany(*arguments)

    original = sqlite3.connect
    sqlite3.connect = lambda *a, **n: original(*a, factory=Connection, **n)  # type: ignore[assignment]


def _trap_postgres(trap: Trap) -> None:
    execute, copy = psycopg.Connection.execute, psycopg.Cursor.copy

    def trapped_execute(self: Any, query: Any, *arguments: Any, **named: Any) -> Any:
        trap.event("statement", _short(str(query)))
        return execute(self, query, *arguments, **named)

    @contextlib.contextmanager
    def trapped_copy(self: Any, query: Any, *arguments: Any, **named: Any) -> Iterator[Any]:
        trap.event("statement", _short(str(query)))
        with copy(self, query, *arguments, **named) as opened:
            yield opened
            trap.event("statement", "end of COPY")

    psycopg.Connection.execute = trapped_execute  # type: ignore[method-assign]
    psycopg.Cursor.copy = trapped_copy  # type: ignore[method-assign,assignment]


def _trap_duckdb(trap: Trap) -> None:
    class Connection:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def cursor(self) -> Connection:
            return Connection(self._inner.cursor())

        def execute(self, query: str, *arguments: Any) -> Any:
            trap.event("statement", _short(query))
            return self._inner.execute(query, *arguments)

        def __enter__(self) -> Connection:
            return self

        def __exit__(self, *_: object) -> None:
            self._inner.close()

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    original = duckdb.connect
    duckdb.connect = lambda *a, **n: Connection(original(*a, **n))  # type: ignore[assignment]


def _short(statement: str) -> str:
    lines = [line for line in statement.splitlines() if line and not line.startswith("--")]
    return " ".join(lines)[:60]


def _commit(ledger: Ledger, job: Job, trap: Trap) -> Any:
    trap.armed = True
    with ledger.transaction(transaction_id=job["id"]) as transaction:
        transaction.commit(job["tables"][0], [add(job["id"])])
    return transaction.result.versions if transaction.result else None


def _group(ledger: Ledger, job: Job, trap: Trap) -> Any:
    """Three tables: an append; one file for another; two commits."""
    first, second, third = job["tables"]
    trap.armed = True
    with ledger.transaction(transaction_id=job["id"]) as transaction:
        transaction.commit(first, [add(job["id"])])
        paths = [
            path.removesuffix(".parquet") for path in transaction.snapshot(second).files()["path"].to_pylist()
        ]
        gone = [remove(path) for path in paths if path != job["id"]][:1]
        transaction.commit(second, [*gone, add(job["id"])])
        transaction.commit(third, [add(f"{job['id']}-1")])
        transaction.commit(third, [add(f"{job['id']}-2")])
    return transaction.result.versions if transaction.result else None


def _large(ledger: Ledger, job: Job, trap: Trap) -> Any:
    """Two tables: a large version each, with one file for another, and the rows that follow them."""
    completing.LARGE = 2
    trap.armed = True
    with ledger.transaction(transaction_id=job["id"]) as transaction:
        for table in job["tables"]:
            paths = transaction.snapshot(table).files()["path"].to_pylist()
            gone = [remove(path.removesuffix(".parquet")) for path in paths][:1]
            transaction.commit(table, [*gone, add(f"{job['id']}-1"), add(f"{job['id']}-2")])
    trap.say("acknowledged", transaction.result.versions if transaction.result else None)
    ledger.close()
    return None


def _create(ledger: Ledger, job: Job, trap: Trap) -> Any:
    trap.armed = True
    return {job["tables"][0]: ledger.create(job["tables"][0], SCHEMA).version}


def _publish(ledger: Ledger, job: Job, trap: Trap) -> Any:
    """Publication of three versions and the checkpoint that is due by then."""
    published = commit.publish_all

    def not_now(*_: object) -> int:
        raise StorageError("not now")

    commit.publish_all = not_now
    for number in range(3):
        with ledger.transaction(transaction_id=f"{job['id']}-{number}") as transaction:
            transaction.commit(job["tables"][0], [add(f"{job['id']}-{number}")])
    commit.publish_all = published
    trap.armed = True
    return ledger.publish(job["tables"][0])


def _adopt(ledger: Ledger, job: Job, trap: Trap) -> Any:
    adopting._CHUNK = job["chunk"]
    trap.armed = True
    adoption = ledger.adopt(job["tables"][0])
    return {adoption.location: adoption.version}


def _migrate(job: Job, trap: Trap) -> Any:
    store = open_store(parse_uri(job["uri"]))
    trap.armed = True
    return migrate(store, job["to"])


def _install(job: Job, trap: Trap) -> Any:
    trap.armed = True
    connect(job["uri"]).close()
    return None


def _endless(ledger: Ledger, job: Job, trap: Trap) -> Any:
    """Commits until somebody else ends the process; every one is told of once it is acknowledged."""
    number = 0
    while True:
        identity = f"{job['id']}-{number}"
        with ledger.transaction(transaction_id=identity) as transaction:
            for table in job["tables"]:
                transaction.commit(table, [add(identity)])
        assert transaction.result is not None
        trap.say("acknowledged", [identity, transaction.result.versions])
        number += 1


def _hold(_: Ledger, __: Job, trap: Trap) -> Any:
    """Has the ledger open until somebody else ends the process."""
    trap.say("open", None)
    time.sleep(600)


_ON_A_LEDGER = {
    "commit": _commit,
    "group": _group,
    "large": _large,
    "create": _create,
    "publish": _publish,
    "adopt": _adopt,
    "endless": _endless,
    "hold": _hold,
}
_ON_A_DATABASE = {"migrate": _migrate, "install": _install}


def work(job: Job) -> None:
    """Do one job, in a process of its own."""
    trap = Trap(job)
    # A dead holder's lease must not keep the next process of the test waiting.
    checkpointing._LEASE_SECONDS = adopt._LEASE_SECONDS = job.get("lease_seconds", 0.001)
    packs.STRETCH = job.get("stretch", packs.STRETCH)
    set_traps(trap)
    try:
        if job["scenario"] in _ON_A_DATABASE:
            result = _ON_A_DATABASE[job["scenario"]](job, trap)
        else:
            result = _ON_A_LEDGER[job["scenario"]](connect(job["uri"]), job, trap)
        trap.say("acknowledged", result)
        # Past the last event: the work is done and nobody has closed anything.
        trap.event("step", "end")
    except BaseException:
        trap.say("failed", traceback.format_exc())
        raise


def _kill(child: int, job: Job) -> None:
    """Kill a child some time after it has said something for the first time."""
    deadline = time.monotonic() + 60
    while not (os.path.exists(job["report"]) and os.path.getsize(job["report"])):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    time.sleep(job["kill_after"])
    os.kill(child, signal.SIGKILL)


def serve() -> None:
    """Fork a child for every line of standard input, and tell how it ended."""
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            code = 1
            with contextlib.suppress(BaseException):
                work(job)
                code = 0
            os._exit(code)
        if "kill_after" in job:
            _kill(child, job)
        if job.get("background"):
            print(json.dumps({"pid": child}), flush=True)
            continue
        _, status = os.waitpid(child, 0)
        print(json.dumps({"code": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    # Read once here, so that no child has to: entry points, statements, the writer of Parquet.
    open_store(parse_uri("deltasql://sqlite//nowhere/ledger.db"))
    open_store(parse_uri("deltasql://postgres/nobody@/nothing"))
    open_store(parse_uri("deltasql://duckdb//nowhere/ledger.duckdb"))
    assert pyarrow.parquet
    serve()
