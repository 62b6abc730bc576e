"""The ledger on DuckDB: one file, one process. Reads are the fastest of all."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import duckdb
import pyarrow as pa

from deltaplane.errors import LedgerUnavailable
from deltaplane.ledger.queries import Queries, load_queries
from deltaplane.ledger.stores.base import NewRows, Question, Row, WriteContention
from deltaplane.ledger.uri import LedgerUri

__all__ = ["DuckdbStore"]

_APPEND_FROM = 50  # from here on an Arrow batch beats a text
_BATCH_ROWS = 65_536
_SHORT = 2_000  # longer texts are handed over as values
_INT32 = 2**31
_VALUE = re.compile(r"\$([a-z_][a-z_0-9]*)")


# One lock for each file, so that all ledgers of this process that are open on it take turns at writing.
_WRITERS: WeakValueDictionary[str, threading.RLock] = WeakValueDictionary()
_GUARD = threading.Lock()


# Looking at a file must not fetch anything.
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "preserve_insertion_order": "true",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


class _DuckdbSession:
    def __init__(self, cursor: duckdb.DuckDBPyConnection, queries: Queries) -> None:
        self._cursor = cursor
        self._queries = queries

    def _execute(self, query: str, values: Mapping[str, Any]) -> duckdb.DuckDBPyConnection:
        text, others = _with_literals(self._queries.text(query), values)
        return self._cursor.execute(text, others)

    def rows(self, query: str, **values: Any) -> list[Row]:
        return self._execute(query, values).fetchall()

    def row(self, query: str, **values: Any) -> Row | None:
        found: Row | None = self._execute(query, values).fetchone()
        return found

    def run(self, query: str, **values: Any) -> int:
        counted = self._execute(query, values).fetchone()
        return int(counted[0]) if counted and isinstance(counted[0], int) else 0

    def ask(self, *questions: Question) -> list[list[Row]]:
        return [self.rows(query, **values) for query, values in questions]

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        content = list(rows)
        if not content:
            return
        names = ", ".join(columns)
        if len(content) < _APPEND_FROM:
            # As one text: the driver takes long over every value, because it looks for numpy each time.
            listed = json.dumps([dict(zip(columns, row, strict=True)) for row in content])
            picked = ", ".join(f"r ->> '{name}'" for name in columns)
            source = "(SELECT unnest(CAST($listed AS JSON[])) AS r)"
            self._cursor.execute(
                f"INSERT INTO {table} ({names}) SELECT {picked} FROM {source}",  # noqa: S608 - names of ours
                {"listed": listed},
            )
            return
        arrays = {name: [row[i] for row in content] for i, name in enumerate(columns)}
        self._cursor.register("incoming", pa.table(arrays))
        self._cursor.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM incoming")  # noqa: S608
        self._cursor.unregister("incoming")

    def together(self, *writes: Question | NewRows) -> None:
        for write in writes:
            if isinstance(write, NewRows):
                self.insert(write.table, write.columns, write.rows)
            else:
                self.run(write[0], **write[1])

    def pipelined(self, wanted: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def script(self, text: str) -> None:
        self._cursor.execute(text)

    def keys(self, values: Sequence[int]) -> str:
        # As text: the driver looks for numpy at every value of a list.
        return str(list(values))


def _with_literals(text: str, values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A statement with its small values in it, and the values that are left.

    The driver looks for numpy at every value that it is given, which takes longer than most statements.
    """
    literals = {name: _literal(value) for name, value in values.items()}
    filled = _VALUE.sub(lambda found: literals.get(found[1]) or found[0], text)
    return filled, {name: value for name, value in values.items() if literals[name] is None}


def _literal(value: Any) -> str | None:
    if value is None:
        return "NULL"
    if type(value) is int:
        # Larger numbers, and the least one, would be of a wider type.
        return f"({value})" if abs(value) < _INT32 else f"CAST({value} AS BIGINT)"
    if type(value) is str and len(value) <= _SHORT and "\0" not in value:
        quoted = value.replace("'", "''")
        return f"'{quoted}'"
    return None


class DuckdbStore:
    """A ledger in a file of DuckDB. A second process is refused; threads of one take turns at writing."""

    engine = "duckdb"

    def __init__(self, uri: LedgerUri) -> None:
        self._path = os.path.abspath(uri.target)
        self._queries = load_queries("duckdb", "dollar")
        with _GUARD:
            self._writer = _WRITERS.setdefault(self._path, threading.RLock())
        self._root: duckdb.DuckDBPyConnection | None = None
        self._opened_in = 0

    def __repr__(self) -> str:
        return f"DuckdbStore({self._path!r})"

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        self._check_process()
        with self._writer:
            if self._root is None:
                self._root = self._open()
                self._opened_in = os.getpid()
            return self._root.cursor()

    def _is_forked(self) -> bool:
        return self._root is not None and self._opened_in != os.getpid()

    def _check_process(self) -> None:
        """Before the lock is taken: a thread that the fork has left behind may have held it."""
        if self._is_forked():
            raise LedgerUnavailable(
                f"{self._path}: this process was forked from the one that has the ledger open, and DuckDB "
                f"serves one process at a time: what it wrote would be lost. Nothing was changed. Keep the "
                f"ledger on SQLite or PostgreSQL, which serve many."
            )

    def _open(self) -> duckdb.DuckDBPyConnection:
        try:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            return duckdb.connect(self._path, config=_CONFIG)
        except (duckdb.Error, OSError) as error:
            text = str(error)
            if "lock" in text.lower():
                raise LedgerUnavailable(
                    f"{self._path}: another process has this ledger open, and DuckDB serves one process at "
                    f"a time. Nothing was changed. Close the other one, or keep the ledger on SQLite or "
                    f"PostgreSQL, which serve many."
                ) from error
            raise LedgerUnavailable(
                f"{self._path}: DuckDB cannot open the ledger: {text.splitlines()[0]}. Nothing was changed. "
                f"Check the path, its permissions and the free space of the disk."
            ) from error

    @contextmanager
    def _session(self) -> Iterator[_DuckdbSession]:
        cursor = self._cursor()
        try:
            cursor.execute("BEGIN TRANSACTION")
            yield _DuckdbSession(cursor, self._queries)
            cursor.execute("COMMIT")
        except BaseException as error:
            self._abort(cursor)
            if isinstance(error, duckdb.TransactionException):
                raise WriteContention(f"{self._path}: {error}") from error
            if isinstance(error, duckdb.IOException | duckdb.FatalException):
                raise LedgerUnavailable(
                    f"{self._path}: DuckDB could not do it: {str(error).splitlines()[0]}. The transaction "
                    f"was rolled back. Check the free space of the disk, and open the ledger anew."
                ) from error
            raise
        finally:
            cursor.close()

    def _abort(self, cursor: duckdb.DuckDBPyConnection) -> None:
        try:
            cursor.execute("ROLLBACK")
        except duckdb.Error:
            # A failed COMMIT has ended the transaction already.
            return

    @contextmanager
    def writing(self) -> Iterator[_DuckdbSession]:
        self._check_process()
        with self._writer, self._session() as session:
            yield session

    @contextmanager
    def relaxed(self) -> Iterator[_DuckdbSession]:
        with self.writing() as session:
            yield session

    def note_published(self, table_id: int, first: int, last: int, now: int) -> None:
        with self.relaxed() as session:
            session.run("mark_published", table_id=table_id, version=last)
            session.run("record_published", table_id=table_id, first=first, last=last, now=now)

    @contextmanager
    def reading(self) -> Iterator[_DuckdbSession]:
        with self._session() as session:
            yield session

    @contextmanager
    def glance(self) -> Iterator[_DuckdbSession]:
        with self._cursor() as cursor:
            yield _DuckdbSession(cursor, self._queries)

    def arrow(self, query: str, *, optional: str = "", **values: Any) -> Iterator[pa.RecordBatch]:
        with self._cursor() as cursor:
            text = self._queries.text(query, optional)
            yield from cursor.execute(text, values).to_arrow_reader(_BATCH_ROWS)

    def has_ledger(self) -> bool:
        if self._root is None and not Path(self._path).exists():
            # Looking must not make a file.
            return False
        with self._cursor() as cursor:
            try:
                # The list of tables would tell as well, and takes longer: it looks into every one of them.
                cursor.execute("SELECT 1 FROM schema_versions LIMIT 0")
            except duckdb.CatalogException:
                return False
        return True

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def prune_values(
        self, ranges: Sequence[tuple[int, int, int]], at_least: int, at_most: int
    ) -> Mapping[str, Any]:
        return {"at_least": at_least, "at_most": at_most}

    def close(self) -> None:
        if self._is_forked():
            # It is the other process's.
            return
        with self._writer:
            if self._root is not None:
                self._root.close()
                self._root = None
