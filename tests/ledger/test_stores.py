"""Opening a database: who is asked, what happens when it cannot be had, and how many may have it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from deltaplane.errors import ConfigError, LedgerError, LedgerUnavailable
from deltaplane.ledger import Ledger, connect
from deltaplane.ledger.registry import open_store, registered_stores
from deltaplane.ledger.stores.base import ConnectionLost
from deltaplane.ledger.stores.duckdb import _with_literals
from deltaplane.ledger.stores.postgres import PostgresStore
from deltaplane.ledger.uri import parse_uri
from ledger.conftest import SCHEMA, add
from postgres_server import PostgresServer


def test_three_databases_are_registered() -> None:
    assert {"sqlite", "duckdb", "postgres"} <= registered_stores().keys()


def test_an_unknown_engine_is_refused_and_those_registered_are_listed() -> None:
    with pytest.raises(ConfigError) as refused:
        connect("deltasql://oracle/whatever")
    assert "No store is registered for the engine 'oracle'" in str(refused.value)
    assert "duckdb, postgres, sqlite" in str(refused.value)


def test_a_missing_driver_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltaplane.ledger.stores.duckdb", None)
    with pytest.raises(ConfigError, match=r"pip install 'deltaplane\[duckdb\]'"):
        connect("deltasql://duckdb/x.duckdb")


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
def test_a_folder_that_does_not_exist_yet_is_made(engine: str, tmp_path: Path) -> None:
    place = tmp_path / "new" / "folder" / "ledger.db"
    connect(f"deltasql://{engine}/{place}").close()
    assert place.exists()


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
def test_a_file_that_is_no_database_is_refused_and_kept(engine: str, tmp_path: Path) -> None:
    place = tmp_path / "notes.txt"
    place.write_text("these are my notes\n" * 200, encoding="utf-8")
    with pytest.raises(LedgerUnavailable, match=r"notes\.txt.*Nothing was changed"):
        connect(f"deltasql://{engine}/{place}")
    assert place.read_text(encoding="utf-8").startswith("these are my notes")


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
def test_a_folder_in_place_of_the_database_is_refused(engine: str, tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="cannot open the ledger"):
        connect(f"deltasql://{engine}/{tmp_path}")


def test_a_second_process_is_refused_on_duckdb(tmp_path: Path) -> None:
    uri = f"deltasql://duckdb/{tmp_path}/ledger.duckdb"
    program = f"""
import sys
from deltaplane.errors import LedgerUnavailable
from deltaplane.ledger import connect
try:
    connect({uri!r})
except LedgerUnavailable as error:
    sys.exit(str(error))
"""
    with connect(uri):
        second = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert "another process has this ledger open" in second.stderr
    assert "SQLite or PostgreSQL" in second.stderr
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_two_ledgers_of_one_process_share_a_file_of_duckdb(tmp_path: Path) -> None:
    uri = f"deltasql://duckdb/{tmp_path}/ledger.duckdb"
    with connect(uri) as first, connect(uri) as second:
        first.create(tmp_path / "t", SCHEMA)
        with second.transaction() as tx:
            tx.commit(str(tmp_path / "t"), [add(1)])
        assert first.snapshot(tmp_path / "t").num_files == 1


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable) as refused:
        connect(f"deltasql://postgres/u@/d?host={tmp_path}")
    assert "PostgreSQL does not let us in" in str(refused.value)
    assert "Nothing was changed" in str(refused.value)
    assert "PGPASSWORD" in str(refused.value)


def test_a_database_that_is_not_there_is_named(postgres: PostgresServer) -> None:
    with pytest.raises(LedgerUnavailable, match='database "nowhere" does not exist'):
        connect(postgres.uri("nowhere"))


@pytest.fixture
def server_store(postgres: PostgresServer) -> Iterator[PostgresStore]:
    store = open_store(parse_uri(postgres.uri(postgres.new_database())))
    assert isinstance(store, PostgresStore)
    yield store
    store.close()


def cut(postgres: PostgresServer, store: PostgresStore) -> None:
    """End the store's sessions as an administrator would."""
    own = store._connection().info.backend_pid
    with psycopg.connect(postgres.conninfo(), autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(%s, 5000)", (own,))


@pytest.mark.parametrize("question", ["has_ledger", "now"])
def test_a_lost_connection_is_told_and_the_next_question_connects_anew(
    postgres: PostgresServer, server_store: PostgresStore, question: str
) -> None:
    cut(postgres, server_store)
    ask: Any = getattr(server_store, question)
    with pytest.raises(ConnectionLost):
        ask()
    assert ask() is not None


def test_a_database_that_takes_no_writes_is_told(postgres: PostgresServer, tmp_path: Path) -> None:
    name = postgres.new_database()
    uri = postgres.uri(name)
    with connect(uri) as ledger:
        ledger.create(tmp_path / "t", SCHEMA)
    with psycopg.connect(postgres.conninfo(), autocommit=True) as admin:
        admin.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    with connect(uri) as ledger:
        assert ledger.snapshot(tmp_path / "t").version == 0
        with pytest.raises(LedgerError, match=r"takes no writes.*Nothing was changed.*primary"):
            _append(ledger, tmp_path / "t")


def _append(ledger: Ledger, place: Path) -> None:
    with ledger.transaction() as tx:
        tx.commit(str(place), [add(1)])


def test_many_rows_go_to_postgresql_by_copy(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied: list[str] = []
    copy = psycopg.Cursor.copy

    def watched(cursor: psycopg.Cursor[Any], statement: Any, *rest: Any, **options: Any) -> Any:
        copied.append(str(statement))
        return copy(cursor, statement, *rest, **options)

    monkeypatch.setattr(psycopg.Cursor, "copy", watched)
    with connect(postgres.uri(postgres.new_database())) as ledger:
        ledger.create(tmp_path / "t", SCHEMA)
        copied.clear()
        with ledger.transaction() as tx:
            tx.commit(str(tmp_path / "t"), [add(number) for number in range(500)])
        assert ledger.snapshot(tmp_path / "t").num_files == 500
    tables = [statement.split()[1] for statement in copied]
    assert tables == ["files", "file_bounds"]
    assert all(statement.endswith("FROM STDIN") for statement in copied)


@pytest.mark.parametrize(
    "value",
    [
        None,
        0,
        -1,
        2**31,
        -(2**31),
        2**63 - 1,
        -(2**63),
        "",
        "it's 'quoted' \\ \" $value :value %s ü\n",
        "x" * 5000,
        b"\0\xff",
        True,
        1.5,
    ],
)
def test_values_reach_duckdb_as_they_are(value: object) -> None:
    text, others = _with_literals("SELECT $value, $value", {"value": value})
    with duckdb.connect() as connection:
        assert connection.execute(text, others).fetchone() == (value, value)


def test_a_noted_publication_never_takes_the_newest_version_back(ledger: Ledger, tmp_path: Path) -> None:
    """Two publishers may finish in either order."""
    table = str(tmp_path / "t")
    ledger.create(table, SCHEMA)
    for number in range(3):
        with ledger.transaction() as transaction:
            transaction.commit(table, [add(number)])
    context = ledger.context
    number = context.table(table).table_id
    with context.store.writing() as session:
        session.run("unpublish", table_id=number, version=1)
        session.run("set_published", table_id=number, version=0)
    context.store.note_published(number, 3, 3, 1003)
    context.store.note_published(number, 1, 2, 1002)
    with context.store.reading() as session:
        noted = [session.row("publication", table_id=number, version=v) for v in (1, 2, 3)]
    assert [row[3] for row in noted if row] == [1002, 1002, 1003]
    assert context.table(table).published_version == 3
