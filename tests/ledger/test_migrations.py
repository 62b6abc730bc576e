"""The ledger's own schema: the sum of its migrations; another version is refused politely or migrated."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deltaplane.errors import LedgerSchemaError
from deltaplane.ledger import connect, migrations
from deltaplane.ledger.migrations import install, installed_version, migrate, newest_version
from deltaplane.ledger.registry import open_store
from deltaplane.ledger.stores.base import Store
from deltaplane.ledger.uri import parse_uri
from ledger.conftest import SCHEMA, add, remove

# What a database says of itself: tables, columns, types, nullability, defaults, keys, indexes, checks.
CATALOG = {
    "sqlite": [
        "SELECT type, name, tbl_name, sql FROM sqlite_master",
        "SELECT m.name, c.* FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table'",
        "SELECT m.name, l.*, x.* FROM sqlite_master m, pragma_index_list(m.name) l,"
        " pragma_index_xinfo(l.name) x",
        "SELECT m.name, f.* FROM sqlite_master m, pragma_foreign_key_list(m.name) f",
    ],
    "duckdb": [
        "SELECT table_name, column_name, column_index, data_type, is_nullable, column_default"
        " FROM duckdb_columns() WHERE NOT internal",
        "SELECT table_name, constraint_type, constraint_text FROM duckdb_constraints()",
        "SELECT table_name, index_name, is_unique, sql FROM duckdb_indexes()",
        "SELECT sequence_name, start_value, increment_by FROM duckdb_sequences()",
    ],
    "postgres": [
        "SELECT c.relname, c.relkind, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod),"
        " a.attnotnull, a.attidentity, a.attcollation::regcollation::text, pg_get_expr(d.adbin, d.adrelid)"
        " FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0"
        " LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum"
        " WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'S', 'v')",
        "SELECT conrelid::regclass::text, conname, contype, pg_get_constraintdef(oid) FROM pg_constraint"
        " WHERE connamespace = 'public'::regnamespace",
        "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    ],
}


def catalog(store: Store) -> list[list[tuple[Any, ...]]]:
    """Everything that the database knows about its tables."""
    with store.reading() as session:
        raw: Any = getattr(session, "_connection", None) or session._cursor  # type: ignore[attr-defined]
        found = [[tuple(row) for row in raw.execute(text).fetchall()] for text in CATALOG[store.engine]]
    return [sorted((_plain(row) for row in rows), key=repr) for rows in found]


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Comments inside CREATE TABLE are no part of the schema; neither is white space."""
    return tuple(re.sub(r"\s+", " ", value) if isinstance(value, str) else value for value in row)


@pytest.fixture
def store(uri: str) -> Iterator[Store]:
    opened = open_store(parse_uri(uri))
    yield opened
    opened.close()


def by_steps(store: Store, upto: int | None = None) -> None:
    """Build a ledger by its migrations alone."""
    steps = [step for step in migrations.migrations(store.engine) if upto is None or step.version <= upto]
    for step in steps:
        with store.writing() as session:
            session.script(step.up)
            migrations._record(session, step)


def versions_of(store: Store) -> list[int]:
    return list(range(1, newest_version(store.engine) + 1))


def test_the_schema_is_the_sum_of_its_migrations(
    store: Store, engine: str, ledger_uri: Callable[[str], str]
) -> None:
    install(store)
    other = open_store(parse_uri(ledger_uri(engine)))
    by_steps(other)
    whole, summed = catalog(store), catalog(other)
    other.close()
    assert whole == summed
    assert len(whole[0]) > 20


def test_migrations_are_numbered_without_gaps_and_the_same_on_every_database() -> None:
    names = {
        engine: [(step.version, step.name) for step in migrations.migrations(engine)] for engine in CATALOG
    }
    assert names["sqlite"] == names["duckdb"] == names["postgres"]
    assert [number for number, _ in names["sqlite"]] == list(range(1, len(names["sqlite"]) + 1))


def test_down_to_the_first_version_and_up_again_gives_the_same_schema(store: Store) -> None:
    install(store)
    newest = newest_version(store.engine)
    before = catalog(store)
    assert migrate(store, to=1) == (newest, 1)
    assert installed_version(store) == 1
    assert catalog(store) != before
    assert migrate(store) == (1, newest)
    assert catalog(store) == before


def test_every_version_in_between_is_what_its_migrations_lead_to(
    store: Store, engine: str, ledger_uri: Callable[[str], str]
) -> None:
    install(store)
    for version in reversed(versions_of(store)):
        migrate(store, to=version)
        other = open_store(parse_uri(ledger_uri(engine)))
        by_steps(other, version)
        assert (version, catalog(store)) == (version, catalog(other))
        other.close()


def test_commits_survive_a_way_down_and_up(uri: str, tmp_path: Path) -> None:
    with connect(uri, author="tester") as ledger:
        ledger.create(tmp_path / "t", SCHEMA, name="t")
        with ledger.transaction(message="first") as tx:
            tx.commit("t", [add(1), add(2)])
        before = (ledger.history("t"), ledger.snapshot("t").files().sort_by("path"))
    store = open_store(parse_uri(uri))
    migrate(store, to=1)
    migrate(store)
    store.close()
    with connect(uri, create=False) as ledger:
        assert (ledger.history("t"), ledger.snapshot("t").files().sort_by("path")) == before
        # The pruning index went with the second migration: files are found all the same.
        assert ledger.snapshot("t").files("id = 25")["path"].to_pylist() == ["part-00002.parquet"]
        with ledger.transaction() as tx:
            tx.commit("t", [add(3)])
        assert ledger.snapshot("t").files("id = 35")["path"].to_pylist() == ["part-00003.parquet"]


def test_removals_survive_a_way_down_and_up(uri: str, tmp_path: Path) -> None:
    """Files that went, came back, went again, and were written anew."""
    with connect(uri, author="tester") as ledger:
        ledger.create(tmp_path / "t", SCHEMA, name="t")
        for actions in (
            [add(1), add(2), add(3)],
            [remove(1), remove(2)],
            [add(1)],
            [remove(1)],
            [{"add": {**add(3)["add"], "modificationTime": 5}}],
        ):
            with ledger.transaction() as tx:
                tx.commit("t", actions)
        before = [ledger.snapshot("t", version=number).files().sort_by("path") for number in range(6)]
        assert [files.num_rows for files in before] == [0, 3, 1, 2, 1, 1]
    store = open_store(parse_uri(uri))
    migrate(store, to=5)
    migrate(store)
    store.close()
    with connect(uri, create=False) as ledger:
        after = [ledger.snapshot("t", version=number).files().sort_by("path") for number in range(6)]
        assert after == before
        assert ledger.verify("t", every=True).differences == ()
        with ledger.transaction() as tx:
            tx.commit("t", [remove(3), add(2)])
        assert ledger.verify("t", every=True).differences == ()


def test_migrating_to_where_the_schema_is_changes_nothing(store: Store) -> None:
    install(store)
    newest = newest_version(store.engine)
    assert migrate(store) == (newest, newest)
    assert migrate(store, to=newest) == (newest, newest)


@pytest.mark.parametrize("wanted", [0, -1, 99])
def test_a_version_that_does_not_exist_is_refused(store: Store, wanted: int) -> None:
    install(store)
    before = catalog(store)
    with pytest.raises(LedgerSchemaError, match=rf"cannot bring it to {wanted}\. Nothing was changed"):
        migrate(store, to=wanted)
    assert catalog(store) == before


def test_migrating_a_database_without_a_ledger_is_refused(store: Store) -> None:
    with pytest.raises(LedgerSchemaError, match=r"holds no ledger yet.*deltaplane ledger init"):
        migrate(store)


def test_a_newer_schema_is_refused_and_both_versions_are_named(uri: str, store: Store) -> None:
    install(store)
    newest = newest_version(store.engine)
    with store.writing() as session:
        session.run("record_schema_version", version=newest + 4, name="later", now=1, by="a newer client")
    store.close()
    with pytest.raises(LedgerSchemaError) as refused:
        connect(uri)
    text = str(refused.value)
    assert f"has schema version {newest + 4}" in text
    assert f"knows versions up to {newest}" in text
    assert "Install a newer deltaplane" in text
    assert f"deltaplane ledger migrate --to {newest}" in text
    with pytest.raises(LedgerSchemaError, match=f"has schema version {newest + 4}"):
        migrate(store)


@pytest.mark.parametrize("create", [True, False])
def test_an_older_schema_is_refused_and_not_migrated_silently(uri: str, store: Store, create: bool) -> None:
    install(store)
    migrate(store, to=2)
    store.close()
    with pytest.raises(LedgerSchemaError) as refused:
        connect(uri, create=create)
    text = str(refused.value)
    assert "has schema version 2" in text
    assert f"this client needs {newest_version(store.engine)}" in text
    assert "Back the database up, then run: deltaplane ledger migrate" in text
    assert installed_version(store) == 2


def test_an_empty_database_is_refused_unless_it_may_be_filled(uri: str, store: Store) -> None:
    with pytest.raises(
        LedgerSchemaError, match=r"holds no ledger yet\. Make one with: deltaplane ledger init"
    ):
        connect(uri, create=False)
    if store.engine != "postgres":
        # Looking for a ledger leaves no file behind.
        assert not Path(parse_uri(uri).target).exists()
    assert not store.has_ledger()


def at_once(work: Callable[[], Any], how_many: int) -> list[Any]:
    """Run the same from many threads, as close together as can be."""
    barrier, found = threading.Barrier(how_many), []

    def run() -> None:
        barrier.wait()
        try:
            found.append(work())
        except Exception as error:
            found.append(error)

    threads = [threading.Thread(target=run) for _ in range(how_many)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_many_installers_at_once_make_one_ledger(uri: str) -> None:
    parsed = parse_uri(uri)

    def installs() -> bool:
        store = open_store(parsed)
        try:
            return install(store)
        finally:
            store.close()

    made = at_once(installs, 6)
    assert sorted(made, key=repr) == [False] * 5 + [True]
    store = open_store(parsed)
    with store.reading() as session:
        assert session.row("schema_version") == (newest_version(store.engine),)
    store.close()


def test_many_migrations_at_once_take_each_step_once(uri: str, store: Store) -> None:
    install(store)
    migrate(store, to=1)
    parsed = parse_uri(uri)
    newest = newest_version(store.engine)

    def migrates() -> tuple[int, int]:
        other = open_store(parsed)
        try:
            return migrate(other)
        finally:
            other.close()

    found = at_once(migrates, 4)
    assert {after for _, after in found} == {newest}
    with store.reading() as session:
        steps = [row[5] for row in session.rows("audit_trail", limit=10)]
    assert steps == [f"schema {version - 1} to {version}" for version in range(newest, 2, -1)]


def failing(engine: str, version: int, up: str | None = None, down: str | None = None) -> Any:
    steps = migrations.migrations(engine)
    broken = replace(steps[version - 1], up=up or steps[version - 1].up, down=down or steps[version - 1].down)
    return lambda _engine: (*steps[: version - 1], broken, *steps[version:])


def test_a_failing_step_up_leaves_the_schema_where_it_was(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(store)
    migrate(store, to=1)
    before = catalog(store)
    good = migrations.migrations(store.engine)[1].up
    broken = failing(store.engine, 2, up=good + "\nINSERT INTO no_such_table VALUES (1);\n")
    monkeypatch.setattr(migrations, "migrations", broken)
    with pytest.raises(LedgerSchemaError) as refused:
        migrate(store)
    assert "migration 2 (pruning) failed" in str(refused.value)
    assert "no_such_table" in str(refused.value)
    assert "the schema is at version 1 as before" in str(refused.value)
    assert (installed_version(store), catalog(store)) == (1, before)
    monkeypatch.undo()
    assert migrate(store) == (1, newest_version(store.engine))


def test_a_failing_step_down_leaves_the_schema_where_it_was(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(store)
    newest, before = newest_version(store.engine), catalog(store)
    good = migrations.migrations(store.engine)[newest - 1].down
    broken = failing(store.engine, newest, down=good + "\nDROP TABLE no_such_table;\n")
    monkeypatch.setattr(migrations, "migrations", broken)
    with pytest.raises(LedgerSchemaError, match=f"the schema is at version {newest} as before"):
        migrate(store, to=1)
    assert (installed_version(store), catalog(store)) == (newest, before)


def test_a_migration_is_entered_in_the_audit_trail(uri: str, store: Store) -> None:
    install(store)
    migrate(store, to=2)
    migrate(store, author="dba")
    store.close()
    with connect(uri, create=False) as ledger:
        entries = ledger.audit_trail()
    assert [(e.action, e.author, e.location, e.detail) for e in entries] == [
        ("migrate", "dba", None, f"schema {version - 1} to {version}")
        for version in range(newest_version(store.engine), 2, -1)
    ]
