"""The roles script: each role can do its work with a login of its own, and nothing more."""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import psycopg.errors
import pytest

from deltaplane import telemetry
from deltaplane.errors import LedgerError, LedgerUnavailable
from deltaplane.ledger import Ledger, completing, connect
from deltaplane.ledger.context import Context
from deltaplane.ledger.leases import lease
from deltaplane.ledger.migrations import installed_version, migrate, newest_version
from deltaplane.ledger.names import commit_path
from deltaplane.ledger.queries import load_queries
from deltaplane.ledger.registry import open_store
from deltaplane.ledger.roles import ROLES, roles_script
from deltaplane.ledger.uri import parse_uri
from ledger.conftest import SCHEMA, add, remove
from postgres_server import PostgresServer

TABLES = [
    "schema_versions",
    "tables",
    "transactions",
    "commits",
    "publications",
    "protocols",
    "metadata",
    "app_transactions",
    "domains",
    "files",
    "removals",
    "pruning_columns",
    "file_bounds",
    "file_packs",
    "creations",
    "leases",
    "audit",
]
VERBS = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")


@dataclass
class World:
    """A ledger with the roles, a table in it, and a user for each role."""

    server: PostgresServer
    database: str
    place: Path
    users: dict[str, str]

    def admin(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.server.conninfo(self.database), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def uri(self, role: str) -> str:
        options = "&options=-crole%3Ddeltaplane_owner" if role == "owner" else ""
        return self.server.uri(self.database, self.users[role]) + options

    def open(self, role: str) -> Ledger:
        return connect(self.uri(role), create=False, author=role)


def new_user(world: World, *roles: str) -> str:
    name = f"u_{uuid.uuid4().hex[:10]}"
    world.admin(f"CREATE ROLE {name} LOGIN")
    for role in roles:
        world.admin(f"GRANT {role} TO {name}")
    return name


@pytest.fixture
def world(postgres: PostgresServer, tmp_path: Path) -> Iterator[World]:
    made = World(postgres, postgres.new_database(), tmp_path / "orders", {})
    with connect(postgres.uri(made.database)) as ledger:
        ledger.create(made.place, SCHEMA, name="orders", properties={"delta.checkpointInterval": "2"})
    made.admin(roles_script())
    for role in ("reader", "writer", "reconciler", "owner"):
        made.users[role] = new_user(made, f"deltaplane_{role}")
    made.users["stranger"] = new_user(made)
    yield made
    for user in made.users.values():
        made.admin(f"DROP OWNED BY {user}; DROP ROLE {user}")


def append(ledger: Ledger, number: int, table: str = "orders") -> None:
    with ledger.transaction(message="a test") as tx:
        tx.commit(table, [add(number)])


def log_of(world: World) -> list[str]:
    return sorted(path.name for path in (world.place / "_delta_log").iterdir())


# --- the reader


def test_a_reader_opens_the_ledger_and_reads_everything(world: World) -> None:
    with world.open("writer") as ledger:
        append(ledger, 1)
    with world.open("reader") as ledger:
        snapshot = ledger.snapshot("orders")
        assert (snapshot.version, snapshot.num_files, snapshot.num_records) == (1, 1, 10)
        assert snapshot.files()["path"].to_pylist() == ["part-00001.parquet"]
        assert snapshot.files("id = 15")["path"].to_pylist() == ["part-00001.parquet"]
        assert [entry.version for entry in ledger.history("orders")] == [1, 0]
        assert [table.name for table in ledger.tables()] == ["orders"]
        assert [entry.action for entry in ledger.audit_trail()] == ["create"]
        assert ledger.status().tables[0].versions == 0
        assert ledger.verify("orders").ok


def test_opening_and_reading_writes_nothing(world: World) -> None:
    """Not even something that would be refused: the server counts every row that is written."""
    before = world.admin(
        "SELECT relname, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables ORDER BY 1"
    )
    user = world.users["reader"]
    world.admin(f"ALTER ROLE {user} SET default_transaction_read_only = on")
    with connect(world.uri("reader")) as ledger:
        ledger.snapshot("orders").files()
        ledger.history("orders")
    after = world.admin("SELECT relname, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables ORDER BY 1")
    assert after == before


@pytest.fixture
def reader(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """A reader, behind a large commit whose process died before it wrote the rows of its files."""
    monkeypatch.setattr(completing, "LARGE", 3)
    monkeypatch.setattr(Context, "start_behind", lambda *_: None)
    with world.open("writer") as writer, writer.transaction() as tx:
        tx.commit("orders", [add(5), add(6), add(7)])
    with world.open("reader") as ledger:
        yield ledger


def test_a_reader_waits_for_the_rows_of_a_large_commit(world: World, reader: Ledger) -> None:
    def later() -> None:
        with world.open("reconciler") as reconciler:
            reconciler.reconcile()

    timer = threading.Timer(0.5, later)
    timer.start()
    found = reader.snapshot("orders").files()
    timer.join()
    assert sorted(found["path"].to_pylist()) == [f"part-{n:05d}.parquet" for n in (5, 6, 7)]


def test_a_reader_is_told_that_the_rows_of_a_large_commit_lack(
    reader: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completing, "_PATIENCE_SECONDS", 0.2)
    with pytest.raises(LedgerError, match=r"rows of its files are not in the ledger yet.*reconcile"):
        reader.snapshot("orders")


def changes(world: World) -> dict[str, Callable[[Ledger], object]]:
    def foreign(ledger: Ledger) -> object:
        (world.place / commit_path(1)).write_text('{"commitInfo":{}}\n', encoding="utf-8")
        return ledger.refresh("orders")

    return {
        "commit": lambda ledger: append(ledger, 1),
        "create": lambda ledger: ledger.create(world.place.parent / "other", SCHEMA),
        "adopt": lambda ledger: ledger.adopt(world.place.parent / "plain"),
        "release": lambda ledger: ledger.release("orders"),
        "refresh": foreign,
        "outcome": lambda ledger: ledger.outcome("some id"),
    }


@pytest.mark.parametrize("what", ["commit", "create", "adopt", "release", "refresh", "outcome"])
def test_a_reader_changes_nothing_and_is_told_which_role_it_takes(world: World, what: str) -> None:
    (world.place.parent / "plain" / "_delta_log").mkdir(parents=True)
    source = world.place / commit_path(0)
    (world.place.parent / "plain" / commit_path(0)).write_bytes(source.read_bytes())
    with world.open("reader") as ledger, pytest.raises(LedgerError) as refused:
        changes(world)[what](ledger)
    text = str(refused.value)
    assert not isinstance(refused.value, LedgerUnavailable), "it would be tried again and again"
    assert "the user may not do that: permission denied for table" in text
    assert "Nothing was changed. It takes the role deltaplane_writer" in text
    assert world.admin("SELECT location, state, head_version FROM tables") == [
        (str(world.place), "managed", 0)
    ]
    assert world.admin("SELECT count(*) FROM transactions") == [(1,)]


def test_a_reader_cannot_freeze_a_table(world: World) -> None:
    """A log that contradicts the ledger is found by somebody who may not note it."""
    from deltaplane.ledger.publish import freeze

    with world.open("reader") as ledger, pytest.raises(LedgerError, match="deltaplane_writer"):
        freeze(ledger._ctx, ledger.tables()[0], "a reason")
    assert world.admin("SELECT state FROM tables") == [("managed",)]


# --- the writer


def test_a_writer_does_everything_that_tables_need(world: World) -> None:
    plain = world.place.parent / "plain"
    with world.open("writer") as ledger:
        for number in range(1, 4):
            append(ledger, number)
        with ledger.transaction() as tx:
            tx.commit("orders", [remove(1), {"txn": {"appId": "job", "version": 1}}])
        assert "00000000000000000004.checkpoint.parquet" in log_of(world)
        assert ledger.publish() == {str(world.place): 4}
        ledger.create(plain, SCHEMA, name="plain")
        ledger.release("plain")
        assert ledger.adopt(plain, name="plain").version == 0
        with ledger.transaction() as tx:
            tx.commit("orders", [add(7)])
            tx.commit("plain", [add(7)])
        _contradict(world, 5)
        repaired = ledger.repair("orders", "ledger", dry_run=False)
        assert repaired.done
        assert ledger.verify("orders").ok
        assert ledger.outcome("never was") is False
        actions = [entry.action for entry in ledger.audit_trail()]
        assert actions == ["repair, the ledger was kept", "adopt", "release", "create", "create"]


def _contradict(world: World, version: int) -> None:
    path = world.place / commit_path(version)
    path.unlink()
    path.write_text('{"commitInfo":{"operation":"WRITE","engineInfo":"somebody else"}}\n', encoding="utf-8")


@pytest.mark.parametrize("role", ["reader", "writer", "reconciler"])
def test_only_the_owner_migrates(world: World, role: str) -> None:
    store = open_store(parse_uri(world.uri(role)))
    newest = newest_version("postgres")
    with pytest.raises(LedgerError, match=r"Nothing was changed\. It takes the role deltaplane_owner"):
        migrate(store, to=1)
    assert installed_version(store) == newest
    store.close()


@pytest.mark.parametrize("role", ["writer", "reconciler"])
@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE commits",
        "CREATE TABLE mine (a int)",
        "ALTER TABLE commits ADD COLUMN a int",
        "TRUNCATE commits",
        "UPDATE commits SET content = ''",
        "UPDATE transactions SET author = 'somebody else'",
        "DELETE FROM transactions",
        "UPDATE audit SET author = 'somebody else'",
        "DELETE FROM audit",
        "UPDATE schema_versions SET version = 99",
    ],
)
def test_history_cannot_be_rewritten(world: World, role: str, statement: str) -> None:
    with (
        psycopg.connect(world.server.conninfo(world.database, world.users[role])) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(statement)  # type: ignore[call-overload]


# --- the reconciler


def _leave_pending(world: World) -> None:
    """A writer that dies after ratifying."""

    class Died(BaseException):
        pass

    def die(step: str, _attributes: object) -> None:
        if step == "commit.ratified":
            raise Died

    stop = telemetry.listen(die)
    try:
        with world.open("writer") as ledger, pytest.raises(Died):
            append(ledger, 1)
    finally:
        stop()
    assert log_of(world) == ["00000000000000000000.json"]


def test_a_reconciler_finishes_what_was_left(world: World) -> None:
    _leave_pending(world)
    info = {"commitInfo": {"operation": "WRITE", "engineInfo": "outside"}}
    outside = "".join(json.dumps(action) + "\n" for action in (info, add(9), remove(1)))
    with world.open("reconciler") as ledger:
        report = ledger.reconcile()
        assert [(table.outcome, table.published, table.error) for table in report.tables] == [
            ("done", 1, None)
        ]
        (world.place / commit_path(2)).write_text(outside, encoding="utf-8")
        report = ledger.reconcile()
        assert [(t.outcome, t.imported, t.checkpoint, t.error) for t in report.tables] == [
            ("done", 1, 2, None)
        ]
        assert ledger.snapshot("orders").files()["path"].to_pylist() == ["part-00009.parquet"]
        with lease(ledger._ctx, "some work", 30.0) as held:
            assert held
        assert [entry.action for entry in ledger.audit_trail()] == ["import", "create"]
    assert "00000000000000000002.checkpoint.parquet" in log_of(world)


def test_a_reconciler_freezes_a_table_that_diverged(world: World) -> None:
    _leave_pending(world)
    (world.place / commit_path(1)).write_text('{"commitInfo":{"engineInfo":"outside"}}\n', encoding="utf-8")
    with world.open("reconciler") as ledger:
        report = ledger.reconcile()
        assert "written by somebody else" in (report.tables[0].error or "")
        assert [entry.action for entry in ledger.audit_trail()] == ["freeze", "create"]
        assert ledger.tables()[0].state == "frozen"


@pytest.mark.parametrize("what", ["create", "adopt", "release"])
def test_a_reconciler_neither_brings_tables_in_nor_takes_them_out(world: World, what: str) -> None:
    (world.place.parent / "plain" / "_delta_log").mkdir(parents=True)
    (world.place.parent / "plain" / commit_path(0)).write_bytes((world.place / commit_path(0)).read_bytes())
    with world.open("reconciler") as ledger, pytest.raises(LedgerError, match="permission denied for table"):
        changes(world)[what](ledger)
    assert world.admin("SELECT location, state FROM tables") == [(str(world.place), "managed")]


# --- the owner, and strangers


def test_an_owner_migrates_and_the_others_can_use_what_came(world: World) -> None:
    store = open_store(parse_uri(world.uri("owner")))
    newest = newest_version("postgres")
    assert migrate(store, to=1) == (newest, 1)
    assert migrate(store, author="dba") == (1, newest)
    store.close()
    with world.open("writer") as ledger:
        append(ledger, 1)
        append(ledger, 2)
    assert "00000000000000000002.checkpoint.parquet" in log_of(world)
    with world.open("reader") as ledger:
        assert [entry.author for entry in ledger.audit_trail()] == ["dba"] * (newest - 2)
        assert ledger.snapshot("orders").files("id = 15")["path"].to_pylist() == ["part-00001.parquet"]
    assert rights(world, "deltaplane_writer")["audit"] == {"SELECT", "INSERT", "UPDATE", "DELETE"}
    world.admin(roles_script())
    assert rights(world, "deltaplane_writer")["audit"] == {"SELECT", "INSERT"}


def test_an_owner_makes_a_ledger_where_the_script_came_first(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    made = World(postgres, postgres.new_database(), tmp_path, {})
    made.admin(roles_script())
    made.users["owner"] = new_user(made, "deltaplane_owner")
    made.users["writer"] = new_user(made, "deltaplane_writer")
    with pytest.raises(LedgerError, match="deltaplane_owner"):
        connect(made.uri("writer"))
    connect(made.uri("owner")).close()
    owners = made.admin("SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'public'")
    assert owners == [("deltaplane_owner",)]
    with made.open("writer") as ledger:
        ledger.create(tmp_path / "t", SCHEMA)


def test_a_stranger_is_told_to_ask_for_a_role(world: World) -> None:
    with pytest.raises(LedgerError, match=r"permission denied.*deltaplane_"):
        world.open("stranger")


def test_a_ledger_in_a_schema_of_its_own_works_the_same(postgres: PostgresServer, tmp_path: Path) -> None:
    made = World(postgres, postgres.new_database(), tmp_path, {})
    made.admin("CREATE SCHEMA lake; REVOKE ALL ON SCHEMA lake FROM PUBLIC")
    made.admin(f'ALTER DATABASE "{made.database}" SET search_path = lake')
    connect(postgres.uri(made.database)).close()
    made.admin(roles_script())
    for role in ("reader", "writer"):
        made.users[role] = new_user(made, f"deltaplane_{role}")
    made.users["stranger"] = new_user(made)
    with made.open("writer") as ledger:
        ledger.create(tmp_path / "t", SCHEMA)
    with made.open("reader") as ledger:
        assert ledger.snapshot(tmp_path / "t").files().num_rows == 0
    with pytest.raises(LedgerError, match="there is a ledger in the schema lake, and the user may not look"):
        made.open("stranger")


def test_the_script_can_be_run_by_an_owner_of_the_database_who_is_no_superuser(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    made = World(postgres, postgres.new_database(), tmp_path, {})
    # Roles belong to the whole server; this user must be able to hand them on, as whoever made them is.
    dba = new_user(made)
    made.admin(f"ALTER ROLE {dba} CREATEROLE")
    made.admin(roles_script())
    for role in ROLES:
        made.admin(f"GRANT {role} TO {dba} WITH ADMIN OPTION")
    made.admin(f'ALTER DATABASE "{made.database}" OWNER TO {dba}')
    connect(postgres.uri(made.database, dba)).close()
    with psycopg.connect(postgres.conninfo(made.database, dba), autocommit=True) as connection:
        connection.execute(roles_script().encode())
    made.users["writer"] = new_user(made, "deltaplane_writer")
    with made.open("writer") as ledger:
        assert ledger.create(tmp_path / "t", SCHEMA).version == 0


# --- the script itself


def rights(world: World, role: str) -> dict[str, set[str]]:
    """What a role may do with the tables, all columns or some."""
    found: dict[str, set[str]] = {}
    for table in TABLES:
        asked = ", ".join(
            f"has_table_privilege('{role}', '{table}', '{verb}')"
            + (f" OR has_any_column_privilege('{role}', '{table}', '{verb}')" if verb in VERBS[:3] else "")
            for verb in VERBS
        )
        found[table] = {
            verb for verb, may in zip(VERBS, world.admin(f"SELECT {asked}")[0], strict=True) if may
        }
    return found


def needed() -> dict[str, set[str]]:
    """What the ledger's statements do to each table."""
    queries = load_queries("postgres", "number")
    found: dict[str, set[str]] = {table: {"SELECT"} for table in TABLES}
    for name in queries.names():
        text = queries.text(name)
        for verb, table in re.findall(r"\b(INSERT|DELETE|UPDATE) (?:INTO |FROM )?(\w+)\b", text):
            if table in found:
                found[table].add(verb)
        if "ON CONFLICT" in text and "DO UPDATE" in text:
            found[text.split()[2]].add("UPDATE")
        if "FOR UPDATE" in text:
            found["tables"].add("UPDATE")
    found["files"].add("INSERT")
    found["file_bounds"].add("INSERT")
    return found


def test_a_writer_has_exactly_the_rights_that_the_statements_need(world: World) -> None:
    wanted = needed() | {"schema_versions": {"SELECT"}}
    assert rights(world, "deltaplane_writer") == wanted


def test_a_reader_has_nothing_but_select_and_the_public_has_nothing(world: World) -> None:
    assert rights(world, "deltaplane_reader") == {table: {"SELECT"} for table in TABLES}
    assert rights(world, world.users["stranger"]) == {table: set() for table in TABLES}
    assert world.admin(f"SELECT has_schema_privilege('{world.users['stranger']}', 'public', 'CREATE')") == [
        (False,)
    ]


def test_a_reconciler_has_no_more_than_a_writer_and_deletes_only_what_is_left_over(world: World) -> None:
    writer, reconciler = rights(world, "deltaplane_writer"), rights(world, "deltaplane_reconciler")
    assert all(reconciler[table] <= writer[table] for table in TABLES)
    assert [table for table in TABLES if "DELETE" in reconciler[table]] == [
        "file_packs",
        "creations",
        "leases",
    ]
    assert "INSERT" not in reconciler["tables"]
    for column in ("location", "name", "foreign_commits", "allowed_paths"):
        asked = f"SELECT has_column_privilege('deltaplane_reconciler', 'tables', '{column}', 'UPDATE')"
        assert world.admin(asked) == [(False,)]


def test_the_script_names_every_table_of_the_ledger(world: World) -> None:
    """A table that comes with a later migration must be given to its roles."""
    tables = {row[0] for row in world.admin("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}
    assert tables == set(TABLES)
    owners = world.admin("SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'public'")
    assert owners == [("deltaplane_owner",)]


def test_the_script_may_be_run_again(world: World) -> None:
    before = {role: rights(world, role) for role in ROLES}
    world.admin("GRANT ALL ON commits TO deltaplane_reader")
    world.admin(roles_script())
    assert {role: rights(world, role) for role in ROLES} == before


def test_the_roles_cannot_log_in(world: World) -> None:
    found = world.admin(
        "SELECT rolname, rolcanlogin, rolsuper FROM pg_roles WHERE rolname LIKE 'deltaplane%'"
    )
    assert sorted(found) == sorted((role, False, False) for role in ROLES)
