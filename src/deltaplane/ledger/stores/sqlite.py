"""The ledger on SQLite: one file, many processes of one machine, WAL."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa

from deltaplane.errors import LedgerUnavailable
from deltaplane.ledger.queries import Queries, load_queries
from deltaplane.ledger.stores.base import NewRows, Question, Row, WriteContention
from deltaplane.ledger.stores.sqlite_wide import column_names, packed_batch, row_batches
from deltaplane.ledger.uri import LedgerUri

__all__ = ["SqliteStore"]

_BUSY_SECONDS = 60.0
_CACHE_KIB = 65_536
"""Room for the index by file keys, which come in no order: without it a large adoption waits for the disk."""
_CHUNK = 40_000
_READERS = 2
_AHEAD = 4


class _SqliteSession:
    def __init__(self, connection: sqlite3.Connection, queries: Queries) -> None:
        self._connection = connection
        self._queries = queries

    def rows(self, query: str, **values: Any) -> list[Row]:
        return self._connection.execute(self._queries.text(query), values).fetchall()

    def row(self, query: str, **values: Any) -> Row | None:
        found: Row | None = self._connection.execute(self._queries.text(query), values).fetchone()
        return found

    def run(self, query: str, **values: Any) -> int:
        return self._connection.execute(self._queries.text(query), values).rowcount

    def ask(self, *questions: Question) -> list[list[Row]]:
        return [self.rows(query, **values) for query, values in questions]

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        marks = ", ".join("?" * len(columns))
        self._connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)  # noqa: S608

    def together(self, *writes: Question | NewRows) -> None:
        for write in writes:
            if isinstance(write, NewRows):
                self.insert(write.table, write.columns, write.rows)
            else:
                self.run(write[0], **write[1])

    def pipelined(self, wanted: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def script(self, text: str) -> None:
        for statement in _statements(text):
            self._connection.execute(statement)

    def keys(self, values: Sequence[int]) -> str:
        return json.dumps(list(values))


def _statements(text: str) -> Iterator[str]:
    """Executescript would commit first; a migration must be one transaction."""
    pending = ""
    for line in text.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""


def _use_wal(connection: sqlite3.Connection) -> None:
    """Turn the write-ahead log on. SQLite does not wait by itself for others that do the same right now."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


class SqliteStore:
    """A ledger in a file of SQLite."""

    engine = "sqlite"

    def __init__(self, uri: LedgerUri) -> None:
        self._path = os.path.abspath(uri.target)
        self._queries = load_queries("sqlite", "colon")
        self._local = threading.local()
        self._all: list[tuple[int, threading.Thread, Any]] = []
        self._guard = threading.Lock()
        self._inode: int | None = None

    def __repr__(self) -> str:
        return f"SqliteStore({self._path!r})"

    def _connection(self, kind: str) -> Any:
        """One connection per thread and process: SQLite's may not be carried over a fork."""
        held: dict[tuple[int, str], Any] = self._local.__dict__.setdefault("held", {})
        key = (os.getpid(), kind)
        if key not in held:
            held[key] = self._open(kind)
            self._remember(held[key])
        return held[key]

    def _check_file(self) -> None:
        """See that the file is the one that was opened: SQLite would go on writing into a deleted one."""
        try:
            found = os.stat(self._path).st_ino
        except FileNotFoundError:
            found = None
        self._inode = self._inode or found
        if found != self._inode:
            raise LedgerUnavailable(
                f"{self._path}: the ledger's file was {'deleted' if found is None else 'replaced'} while it "
                f"was open. Nothing was changed. Open the ledger anew; if the file is gone, restore a "
                f"backup."
            )

    def _remember(self, connection: Any) -> None:
        with self._guard:
            # Threads come and go, and a process has only so many open files.
            ended = [e for e in self._all if e[0] == os.getpid() and not e[1].is_alive()]
            for entry in ended:
                self._all.remove(entry)
                entry[2].close()
            self._all.append((os.getpid(), threading.current_thread(), connection))

    def _open(self, kind: str) -> sqlite3.Connection:
        try:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            _use_wal(connection)
            connection.execute(f"PRAGMA synchronous = {'NORMAL' if kind == 'relaxed' else 'FULL'}")
            connection.execute("PRAGMA foreign_keys = ON")
            if kind == "wide":
                connection.execute("PRAGMA query_only = ON")
            else:
                connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        except (sqlite3.Error, OSError) as error:
            raise LedgerUnavailable(
                f"{self._path}: SQLite cannot open the ledger: {error}. Nothing was changed. Check the "
                f"path, its permissions and the free space of the disk."
            ) from error
        return connection

    @contextmanager
    def _session(self, kind: str, begin: str) -> Iterator[_SqliteSession]:
        connection = self._connection(kind)
        self._check_file()
        try:
            connection.execute(begin)
        except sqlite3.Error as error:
            raise self._translated(error) from error
        try:
            yield _SqliteSession(connection, self._queries)
            connection.execute("COMMIT")
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError):
                raise self._translated(error) from error
            raise

    def _translated(self, error: sqlite3.Error) -> Exception:
        text = str(error)
        if "locked" in text or "busy" in text:
            return WriteContention(
                f"{self._path}: another process kept the ledger locked for {_BUSY_SECONDS:.0f} s."
            )
        if "no such table" in text:
            return error
        return LedgerUnavailable(
            f"{self._path}: SQLite could not do it: {text}. The transaction was rolled back, nothing was "
            f"changed. Check the free space of the disk and the file's permissions."
        )

    @contextmanager
    def writing(self) -> Iterator[_SqliteSession]:
        with self._session("writing", "BEGIN IMMEDIATE") as session:
            yield session

    @contextmanager
    def relaxed(self) -> Iterator[_SqliteSession]:
        with self._session("relaxed", "BEGIN IMMEDIATE") as session:
            yield session

    def note_published(self, table_id: int, first: int, last: int, now: int) -> None:
        with self.relaxed() as session:
            session.run("mark_published", table_id=table_id, version=last)
            session.run("record_published", table_id=table_id, first=first, last=last, now=now)

    @contextmanager
    def reading(self) -> Iterator[_SqliteSession]:
        with self._session("writing", "BEGIN") as session:
            yield session

    @contextmanager
    def glance(self) -> Iterator[_SqliteSession]:
        try:
            yield _SqliteSession(self._connection("writing"), self._queries)
        except sqlite3.OperationalError as error:
            raise self._translated(error) from error

    def arrow(self, query: str, *, optional: str = "", **values: Any) -> Iterator[pa.RecordBatch]:
        text = self._queries.text(query, optional)
        try:
            if ":first_file" not in text:
                yield from row_batches(self._connection("wide"), text, values)
            else:
                yield from self._chunks(text, values)
        except sqlite3.Error as error:
            raise LedgerUnavailable(
                f"{self._path}: SQLite could not read it: {error}. Nothing was changed."
            ) from error

    def _chunks(self, text: str, values: Mapping[str, Any]) -> Iterator[pa.RecordBatch]:
        """Chunks by file id, read ahead by two threads: SQLite works outside Python's lock."""
        connection = self._connection("wide")
        query = self._queries.text("file_range")
        first, last = connection.execute(query, {"table_id": values["table_id"]}).fetchone()
        if first is None:
            return
        first = max(first, values.get("first_file", first))
        beyond = min(last + 1, values.get("beyond_file", last + 1))
        if first >= beyond:
            return
        names = column_names(connection, text, {**values, "first_file": 0, "beyond_file": 0})

        def chunk(start: int) -> pa.RecordBatch:
            part = {**values, "first_file": start, "beyond_file": min(start + _CHUNK, beyond)}
            return packed_batch(self._connection("wide"), text, names, part)

        starts = range(first, beyond, _CHUNK)
        if len(starts) == 1:
            yield chunk(first)
            return
        with ThreadPoolExecutor(_READERS) as pool:
            waiting = deque(pool.submit(chunk, start) for start in starts[:_AHEAD])
            for start in [*starts[_AHEAD:], *[None] * len(waiting)]:
                batch = waiting.popleft().result()
                if start is not None:
                    waiting.append(pool.submit(chunk, start))
                yield batch

    def has_ledger(self) -> bool:
        if not Path(self._path).exists():
            # Looking must not make a file.
            return False
        with self.reading() as session:
            return bool(session.rows("ledger_present"))

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def prune_values(
        self, ranges: Sequence[tuple[int, int, int]], at_least: int, at_most: int
    ) -> Mapping[str, Any]:
        return {"ranges": json.dumps([list(r) for r in ranges]), "at_least": at_least}

    def close(self) -> None:
        with self._guard:
            for pid, _, connection in self._all:
                if pid == os.getpid():
                    connection.close()
            self._all.clear()
        self._local = threading.local()
