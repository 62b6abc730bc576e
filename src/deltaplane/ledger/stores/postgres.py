"""The ledger on PostgreSQL: many machines. READ COMMITTED, rows locked with FOR UPDATE in the order of their
ids.
"""

from __future__ import annotations

import json
import os
import re
import select
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from typing import Any, cast

import adbc_driver_postgresql.dbapi
import psycopg
import psycopg.conninfo
import psycopg.errors
import pyarrow as pa

from deltaplane.errors import ConfigError, LedgerError, LedgerUnavailable
from deltaplane.ledger.queries import Queries, load_queries
from deltaplane.ledger.stores.base import ConnectionLost, MayNotWrite, NewRows, Question, Row, WriteContention
from deltaplane.ledger.uri import LedgerUri

__all__ = ["PostgresStore"]

_ADDRESS = re.compile(r"(?:\[(?P<bracketed>[^\]]*)\]|(?P<plain>[^:\[\]]*))(?::(?P<port>\d*))?")
_FEW = 50
# They look into a second table for each row: a plan from when it was small would go through all of it.
_PLANNED_ANEW = frozenset(
    ("count_files", "end_active_files", "files_before", "files_by_id", "files_for_bounds")
)
_RETRYABLE = (
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.LockNotAvailable,
)


_DENIED = psycopg.errors.InsufficientPrivilege.sqlstate
_READER = "deltaplane_reader"
_WRITER = "deltaplane_writer, or deltaplane_reconciler where only publication is meant"
_OWNER = "deltaplane_owner"


class _PostgresSession:
    """One transaction. What need not be answered at once travels together with what comes next."""

    def __init__(self, connection: psycopg.Connection[Row], queries: Queries) -> None:
        self._connection = connection
        self._queries = queries
        self._under_way = ExitStack()
        self._pipelined = False

    def begin(self, *statements: str) -> None:
        """Begin, without waiting for the answer."""
        self._hurry()
        for statement in statements:
            self._connection.execute(statement, prepare=False)

    def commit(self) -> None:
        done = self._connection.execute("COMMIT", prepare=False)
        self._settle()
        if done.statusmessage != "COMMIT":
            # PostgreSQL ends a transaction in which a statement failed without calling that an error.
            raise LedgerError(
                f"PostgreSQL answered COMMIT with {done.statusmessage}: a statement before it had failed. "
                f"Nothing was written."
            )

    def abandon(self) -> None:
        """Leave what is under way to its fate: the first failure is known already."""
        with suppress(psycopg.Error):
            self._settle()

    def _hurry(self) -> None:
        if self._connection.pgconn.pipeline_status == psycopg.pq.PipelineStatus.OFF:
            self._under_way.enter_context(self._connection.pipeline())

    def _settle(self) -> None:
        """Wait for the answers of everything that is under way."""
        self._under_way.close()

    def _execute(self, query: str, values: Mapping[str, Any]) -> psycopg.Cursor[Row]:
        # The text is a file of ours; values travel beside it.
        again = False if query in _PLANNED_ANEW else None
        cursor = self._connection.execute(self._queries.text(query), values, prepare=again)
        if not self._pipelined:
            self._settle()
        return cursor

    def rows(self, query: str, **values: Any) -> list[Row]:
        return self._execute(query, values).fetchall()

    def row(self, query: str, **values: Any) -> Row | None:
        return self._execute(query, values).fetchone()

    def run(self, query: str, **values: Any) -> int:
        return self._execute(query, values).rowcount

    def ask(self, *questions: Question) -> list[list[Row]]:
        with self.pipelined(True):
            cursors = [self._execute(query, values) for query, values in questions]
        self._settle()
        return [cursor.fetchall() for cursor in cursors]

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        self.together(NewRows(table, columns, rows))

    def together(self, *writes: Question | NewRows) -> None:
        parts: list[_Write] = []
        for write in writes:
            if not isinstance(write, NewRows):
                parts.append((self._queries.text(write[0]), write[1]))
                continue
            content = list(write.rows)
            if len(content) > _FEW:
                self._copy(write.table, write.columns, content)
            elif content:
                # As one value: COPY takes three round trips, and cannot be pipelined.
                listed = [dict(zip(write.columns, row, strict=True)) for row in content]
                text = _insert_text(write.table, tuple(write.columns))
                parts.append((text, {"listed": json.dumps(listed, ensure_ascii=False)}))
        if parts:
            text = _chained(tuple(text for text, _ in parts))
            self._connection.execute(text, _numbered_values(parts))

    def _copy(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        self._settle()
        with (
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy,
        ):
            for row in rows:
                copy.write_row(row)

    @contextmanager
    def pipelined(self, wanted: bool) -> Iterator[None]:
        if wanted:
            self._hurry()
        before, self._pipelined = self._pipelined, wanted
        try:
            yield
        finally:
            self._pipelined = before

    def script(self, text: str) -> None:
        self._settle()
        self._connection.execute(text)

    def keys(self, values: Sequence[int]) -> str:
        # As text: the driver looks at every value of a list.
        return f"{{{','.join(map(str, values))}}}"


_Write = tuple[str, Mapping[str, Any]]
"""The text of a statement and its values."""
_VALUE = re.compile(r"%\((\w+)\)s")


@lru_cache
def _insert_text(table: str, columns: tuple[str, ...]) -> str:
    names = ", ".join(columns)
    source = f"json_populate_recordset(CAST(NULL AS {table}), CAST(%(listed)s AS json))"
    return f"INSERT INTO {table} ({names}) SELECT {names} FROM {source}"  # noqa: S608 - names of ours


def _numbered(texts: tuple[str, ...]) -> list[str]:
    """The statements with names for their values that no two of them share."""
    return [_VALUE.sub(rf"%(\1_{number})s", text) for number, text in enumerate(texts)]


def _numbered_values(writes: Sequence[_Write]) -> dict[str, Any]:
    return {f"{name}_{number}": v for number, (_, given) in enumerate(writes) for name, v in given.items()}


@lru_cache
def _chained(texts: tuple[str, ...]) -> str:
    """One statement that does what all of them do; none of them sees what another wrote."""
    *others, last = _numbered(texts)
    parts = ", ".join(f"w{number} AS ({text})" for number, text in enumerate(others))
    return f"WITH {parts} {last}" if parts else last


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
        self._all: list[tuple[int, threading.Thread, Any]] = []
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
            connection.execute(self._queries.text("session_settings"))
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
            # Threads come and go, and the server has only so many connections.
            ended = [entry for entry in self._all if entry[0] == key[0] and not entry[1].is_alive()]
            for entry in ended:
                self._all.remove(entry)
                entry[2].close()
            self._all.append((key[0], threading.current_thread(), connection))

    def _arrow_connection(self) -> Any:
        held, key = self._held(), (os.getpid(), "arrow")
        if key not in held:
            try:
                connection = adbc_driver_postgresql.dbapi.connect(self._conninfo, autocommit=True)
                with connection.cursor() as cursor:
                    cursor.execute(self._wide.text("wide_settings"))
                    cursor.fetchall()
            except Exception as error:
                raise LedgerUnavailable(
                    f"{self._shown}: PostgreSQL does not let us in for a wide read: {_first_line(error)}"
                ) from error
            self._remember(key, connection)
        return held[key]

    @contextmanager
    def _session(self, role: str, *first: str) -> Iterator[_PostgresSession]:
        connection = self._usable()
        session = _PostgresSession(connection, self._queries)
        committing = False
        try:
            if first:
                session.begin(*first)
            yield session
            if first:
                committing = True
                session.commit()
        except BaseException as error:
            alive = self._abort(connection, session)
            if isinstance(error, _RETRYABLE):
                raise WriteContention(f"{self._shown}: {_first_line(error)}") from error
            if isinstance(error, psycopg.errors.InsufficientPrivilege):
                raise self._denied(error, role) from error
            if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
                raise MayNotWrite(
                    f"{self._shown}: the database takes no writes: {_first_line(error)}. Nothing was "
                    f"changed. Connect to the primary server, with a user that may write."
                ) from error
            if isinstance(error, psycopg.Error) and not alive:
                raise ConnectionLost(_first_line(error), during_commit=committing) from error
            if isinstance(error, psycopg.OperationalError):
                raise LedgerUnavailable(
                    f"{self._shown}: PostgreSQL could not do it: {_first_line(error)}. The transaction was "
                    f"rolled back, nothing was changed. Look into the server's log."
                ) from error
            raise

    def _usable(self) -> psycopg.Connection[Row]:
        """A connection for a transaction; one that the server closed while it lay idle is replaced."""
        connection = self._connection()
        # An idle connection has nothing to say; when there is something to read it is the server's farewell.
        idle = select.poll()
        idle.register(connection, select.POLLIN)
        if idle.poll(0):
            try:
                connection.execute("SELECT 1")
            except psycopg.Error:
                connection.close()
                connection = self._connection()
        return connection

    def _denied(self, error: Exception, role: str) -> LedgerError:
        text = _first_line(error)
        if "schema_versions" in text or "must be owner" in text or "for schema" in text:
            role = _OWNER
        return MayNotWrite(
            f"{self._shown}: the user may not do that: {text}. Nothing was changed. It takes the role "
            f"{role}: ask whoever runs the database to grant it."
        )

    def _abort(self, connection: psycopg.Connection[Row], session: _PostgresSession) -> bool:
        """Roll back; False when the connection is gone."""
        try:
            session.abandon()
            connection.execute("ROLLBACK")
        except psycopg.Error:
            # The server rolls back by itself when the connection goes.
            connection.close()
            return False
        return True

    @contextmanager
    def writing(self) -> Iterator[_PostgresSession]:
        with self._session(_WRITER, "BEGIN ISOLATION LEVEL READ COMMITTED") as session:
            yield session

    @contextmanager
    def relaxed(self) -> Iterator[_PostgresSession]:
        with self._session(_WRITER, "BEGIN", "SET LOCAL synchronous_commit = off") as session:
            yield session

    def note_published(self, table_id: int, first: int, last: int, now: int) -> None:
        # A statement by itself is a transaction: one round trip in place of five statements.
        with self._session(_WRITER) as session:
            session.run("note_published", table_id=table_id, first=first, last=last, now=now)

    @contextmanager
    def reading(self) -> Iterator[_PostgresSession]:
        with self._session(_READER, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") as session:
            yield session

    @contextmanager
    def glance(self) -> Iterator[_PostgresSession]:
        try:
            yield _PostgresSession(self._connection(), self._queries)
        except psycopg.errors.InsufficientPrivilege as error:
            raise self._denied(error, _READER) from error
        except psycopg.OperationalError as error:
            raise ConnectionLost(_first_line(error)) from error

    def arrow(self, query: str, *, optional: str = "", **values: Any) -> Iterator[pa.RecordBatch]:
        text, order = self._wide.ordered(query, optional)
        try:
            with self._wide_cursor(text, [values[name] for name in order]) as cursor:
                yield from cursor.fetch_record_batch()
        except adbc_driver_postgresql.dbapi.Error as error:
            self._drop_arrow_connection()
            if error.sqlstate == _DENIED:
                raise self._denied(error, _READER) from error
            raise ConnectionLost(_first_line(error)) from error

    def _wide_cursor(self, text: str, values: list[Any]) -> Any:
        """A cursor with the answer; a connection that broke while it lay idle is replaced."""
        used = (os.getpid(), "arrow") in self._held()
        cursor = self._arrow_connection().cursor()
        try:
            cursor.execute(text, values)
        except adbc_driver_postgresql.dbapi.Error as error:
            cursor.close()
            if not used or error.sqlstate == _DENIED:
                raise
            self._drop_arrow_connection()
            return self._wide_cursor(text, values)
        return cursor

    def _drop_arrow_connection(self) -> None:
        connection = self._held().pop((os.getpid(), "arrow"), None)
        if connection is not None:
            connection.close()

    def _value(self, query: str) -> Any:
        try:
            found = self._connection().execute(self._queries.text(query)).fetchone()
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            raise ConnectionLost(_first_line(error)) from error
        return found[0] if found else None

    def has_ledger(self) -> bool:
        if self._value("ledger_present"):
            return True
        if schema := self._value("hidden_ledger"):
            raise LedgerError(
                f"{self._shown}: there is a ledger in the schema {schema}, and the user may not look into "
                f"it. Nothing was changed. It takes the role {_READER}, or {_WRITER}: ask whoever runs the "
                f"database to grant it."
            )
        return False

    def now(self) -> int:
        return int(self._value("clock") or 0)

    def prune_values(
        self, ranges: Sequence[tuple[int, int, int]], at_least: int, at_most: int
    ) -> Mapping[str, Any]:
        classes, froms, tos = zip(*ranges, strict=True) if ranges else ((), (), ())
        return {"classes": list(classes), "froms": list(froms), "tos": list(tos), "at_least": at_least}

    def close(self) -> None:
        with self._guard:
            for pid, _, connection in self._all:
                if pid == os.getpid():
                    connection.close()
            self._all.clear()
        self._local = threading.local()


def _conninfo(uri: LedgerUri) -> str:
    """The address in PostgreSQL's own words. Several hosts stand side by side: a:5432,b:5432."""
    user, _, place = uri.target.rpartition("@")
    addresses, _, database = place.rpartition("/")
    pairs = [_ADDRESS.fullmatch(address) for address in addresses.split(",")]
    if None in pairs:
        raise ConfigError(
            "The host in the ledger's address cannot be read. Write it like host:5432, or [::1]:5432."
        )
    hosts = ",".join(pair["plain"] or pair["bracketed"] or "" for pair in pairs if pair)
    ports = ",".join(pair["port"] or "" for pair in pairs if pair)
    given = {"user": user, "host": hosts, "port": ports, "dbname": database}
    options = {key: value for key, value in given.items() if value.strip(",")} | dict(uri.options)
    # A server that fell silent is noticed within a minute, in place of the system's two hours.
    silence = {"connect_timeout": "10", "keepalives_idle": "30", "keepalives_interval": "10"}
    options = {"application_name": "deltaplane", **silence, "keepalives_count": "3"} | options
    try:
        return psycopg.conninfo.make_conninfo(**cast("dict[str, Any]", options))
    except psycopg.Error as error:
        raise ConfigError(
            f"PostgreSQL does not know a setting of the ledger's address: {_first_line(error)}. Correct what "
            f"stands after the '?': every setting of libpq may, such as sslmode or sslrootcert."
        ) from None


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
