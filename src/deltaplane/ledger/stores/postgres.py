"""The ledger on PostgreSQL: many machines. READ COMMITTED, rows locked with FOR UPDATE in the order of their
ids.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import adbc_driver_postgresql.dbapi
import psycopg
import psycopg.conninfo
import psycopg.errors
import pyarrow as pa

from deltaplane.errors import LedgerUnavailable
from deltaplane.ledger.queries import Queries, load_queries
from deltaplane.ledger.stores.base import ConnectionLost, Row, WriteContention
from deltaplane.ledger.uri import LedgerUri

__all__ = ["PostgresStore"]

_RETRYABLE = (
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.LockNotAvailable,
)


class _PostgresSession:
    def __init__(self, connection: psycopg.Connection[Row], queries: Queries) -> None:
        self._connection = connection
        self._queries = queries

    def _execute(self, query: str, values: Mapping[str, Any]) -> psycopg.Cursor[Row]:
        # The text is a file of ours; values travel beside it.
        return self._connection.execute(self._queries.text(query), values)

    def rows(self, query: str, **values: Any) -> list[Row]:
        return self._execute(query, values).fetchall()

    def row(self, query: str, **values: Any) -> Row | None:
        return self._execute(query, values).fetchone()

    def run(self, query: str, **values: Any) -> int:
        return self._execute(query, values).rowcount

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        target = f"{table} ({', '.join(columns)})"
        with (
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY {target} FROM STDIN") as copy,
        ):
            for row in rows:
                copy.write_row(row)

    def script(self, text: str) -> None:
        self._connection.execute(text)

    def keys(self, values: Sequence[int]) -> list[int]:
        return list(values)


class PostgresStore:
    """A ledger in a database of PostgreSQL. Passwords and certificates come by PostgreSQL's own
    conventions.
    """

    engine = "postgres"

    def __init__(self, uri: LedgerUri) -> None:
        self._conninfo = _conninfo(uri)
        self._shown = str(uri.without_table())
        self._queries = load_queries("postgres", "format")
        self._wide = load_queries("postgres", "number")
        self._local = threading.local()
        self._all: list[tuple[int, Any]] = []
        self._guard = threading.Lock()

    def __repr__(self) -> str:
        return f"PostgresStore({self._shown!r})"

    def _held(self) -> dict[tuple[int, str], Any]:
        held: dict[tuple[int, str], Any] = self._local.__dict__.setdefault("held", {})
        return held

    def _connection(self) -> psycopg.Connection[Row]:
        """One connection per thread and process."""
        held, key = self._held(), (os.getpid(), "rows")
        if key in held and not held[key].closed:
            return cast("psycopg.Connection[Row]", held[key])
        try:
            connection = psycopg.connect(self._conninfo, autocommit=True)
        except psycopg.Error as error:
            raise LedgerUnavailable(
                f"{self._shown}: PostgreSQL does not let us in: {_first_line(error)}. Nothing was changed. "
                f"Check the "
                f"address, that the server runs, and PGPASSWORD, PGPASSFILE or the certificates."
            ) from error
        self._remember(key, connection)
        return connection

    def _remember(self, key: tuple[int, str], connection: Any) -> None:
        self._held()[key] = connection
        with self._guard:
            self._all.append((key[0], connection))

    def _arrow_connection(self) -> Any:
        held, key = self._held(), (os.getpid(), "arrow")
        if key not in held:
            try:
                connection = adbc_driver_postgresql.dbapi.connect(self._conninfo, autocommit=True)
            except Exception as error:
                raise LedgerUnavailable(
                    f"{self._shown}: PostgreSQL does not let us in for a wide read: {_first_line(error)}"
                ) from error
            self._remember(key, connection)
        return held[key]

    @contextmanager
    def _session(self, *first: str) -> Iterator[_PostgresSession]:
        connection = self._connection()
        committing = False
        try:
            connection.execute("; ".join(first))
            yield _PostgresSession(connection, self._queries)
            committing = True
            connection.execute("COMMIT")
        except BaseException as error:
            self._abort(connection)
            if isinstance(error, _RETRYABLE):
                raise WriteContention(f"{self._shown}: {_first_line(error)}") from error
            # A server that ends our session says so in an error of the administrator's class before it hangs
            # up.
            if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
                raise ConnectionLost(_first_line(error), during_commit=committing) from error
            raise

    def _abort(self, connection: psycopg.Connection[Row]) -> None:
        try:
            connection.execute("ROLLBACK")
        except psycopg.Error:
            # The server rolls back by itself when the connection goes.
            connection.close()

    @contextmanager
    def writing(self) -> Iterator[_PostgresSession]:
        with self._session("BEGIN ISOLATION LEVEL READ COMMITTED") as session:
            yield session

    @contextmanager
    def relaxed(self) -> Iterator[_PostgresSession]:
        with self._session("BEGIN", "SET LOCAL synchronous_commit = off") as session:
            yield session

    @contextmanager
    def reading(self) -> Iterator[_PostgresSession]:
        with self._session("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") as session:
            yield session

    def arrow(self, query: str, *, optional: str = "", **values: Any) -> Iterator[pa.RecordBatch]:
        text, order = self._wide.ordered(query, optional)
        try:
            with self._arrow_connection().cursor() as cursor:
                cursor.execute(text, [values[name] for name in order])
                yield from cursor.fetch_record_batch()
        except adbc_driver_postgresql.dbapi.Error as error:
            held = self._held()
            held.pop((os.getpid(), "arrow")).close()
            raise ConnectionLost(_first_line(error)) from error

    def has_ledger(self) -> bool:
        try:
            found = self._connection().execute("SELECT to_regclass('schema_versions')").fetchone()
        except psycopg.OperationalError as error:
            raise ConnectionLost(_first_line(error)) from error
        return found is not None and found[0] is not None

    def now(self) -> int:
        found = (
            self._connection()
            .execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
            .fetchone()
        )
        return int(found[0]) if found else 0

    def prune_values(
        self, ranges: Sequence[tuple[int, int, int]], at_least: int, at_most: int
    ) -> Mapping[str, Any]:
        classes, froms, tos = zip(*ranges, strict=True)
        return {"classes": list(classes), "froms": list(froms), "tos": list(tos), "at_least": at_least}

    def close(self) -> None:
        with self._guard:
            for pid, connection in self._all:
                if pid == os.getpid():
                    connection.close()
            self._all.clear()
        self._local = threading.local()


def _conninfo(uri: LedgerUri) -> str:
    user, _, place = uri.target.rpartition("@")
    address, _, database = place.rpartition("/")
    host, _, port = address.partition(":")
    given = {"user": user, "host": host, "port": port, "dbname": database}
    options = {key: value for key, value in given.items() if value} | dict(uri.options)
    options.setdefault("application_name", "deltaplane")
    return psycopg.conninfo.make_conninfo(**cast("dict[str, Any]", options))


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
