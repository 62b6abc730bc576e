"""The ledger on SQLite: one file, many processes of one machine, WAL."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import adbc_driver_sqlite.dbapi
import pyarrow as pa

from deltaplane.errors import LedgerUnavailable
from deltaplane.ledger.queries import Queries, load_queries
from deltaplane.ledger.stores.base import Row, WriteContention
from deltaplane.ledger.uri import LedgerUri

__all__ = ["SqliteStore"]

_BUSY_SECONDS = 60.0
_MEMORY_MAP_BYTES = 4 << 30
_BATCH_ROWS = "65536"


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

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        marks = ", ".join("?" * len(columns))
        self._connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)  # noqa: S608

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


class SqliteStore:
    """A ledger in a file of SQLite."""

    engine = "sqlite"

    def __init__(self, uri: LedgerUri) -> None:
        self._path = os.path.abspath(uri.target)
        self._queries = load_queries("sqlite", "colon")
        self._local = threading.local()
        self._all: list[tuple[int, Any]] = []
        self._guard = threading.Lock()

    def __repr__(self) -> str:
        return f"SqliteStore({self._path!r})"

    def _connection(self, kind: str) -> Any:
        """One connection per thread and process: SQLite's may not be carried over a fork."""
        held: dict[tuple[int, str], Any] = self._local.__dict__.setdefault("held", {})
        key = (os.getpid(), kind)
        if key not in held:
            held[key] = self._open_arrow() if kind == "arrow" else self._open(kind)
            with self._guard:
                self._all.append((os.getpid(), held[key]))
        return held[key]

    def _open(self, kind: str) -> sqlite3.Connection:
        try:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {'NORMAL' if kind == 'relaxed' else 'FULL'}")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute(f"PRAGMA mmap_size = {_MEMORY_MAP_BYTES}")
        except (sqlite3.Error, OSError) as error:
            raise LedgerUnavailable(
                f"{self._path}: SQLite cannot open the ledger: {error}. Nothing was changed. Check the "
                f"path, its "
                f"permissions and the free space of the disk."
            ) from error
        return connection

    def _open_arrow(self) -> Any:
        if not Path(self._path).exists():
            self._connection("writing")
        return adbc_driver_sqlite.dbapi.connect(f"file:{quote(self._path)}?mode=ro", autocommit=True)

    @contextmanager
    def _session(self, kind: str, begin: str) -> Iterator[_SqliteSession]:
        connection = self._connection(kind)
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
            f"changed. "
            f"Check the free space of the disk and the file's permissions."
        )

    @contextmanager
    def writing(self) -> Iterator[_SqliteSession]:
        with self._session("writing", "BEGIN IMMEDIATE") as session:
            yield session

    @contextmanager
    def relaxed(self) -> Iterator[_SqliteSession]:
        with self._session("relaxed", "BEGIN IMMEDIATE") as session:
            yield session

    @contextmanager
    def reading(self) -> Iterator[_SqliteSession]:
        with self._session("writing", "BEGIN") as session:
            yield session

    def arrow(self, query: str, *, optional: str = "", **values: Any) -> Iterator[pa.RecordBatch]:
        text, order = self._queries.ordered(query, optional)
        with self._connection("arrow").cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": _BATCH_ROWS})
            cursor.execute(text, [values[name] for name in order])
            yield from cursor.fetch_record_batch()

    def has_ledger(self) -> bool:
        connection = self._connection("writing")
        found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_versions'").fetchone()
        return found is not None

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def prune_values(
        self, ranges: Sequence[tuple[int, int, int]], at_least: int, at_most: int
    ) -> Mapping[str, Any]:
        return {"ranges": json.dumps([list(r) for r in ranges]), "at_least": at_least}

    def close(self) -> None:
        with self._guard:
            for pid, connection in self._all:
                if pid == os.getpid():
                    connection.close()
            self._all.clear()
        self._local = threading.local()
