"""Every statement of every .sql file is accepted by its database, and is used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import deltaplane
from deltaplane.ledger.migrations import install
from deltaplane.ledger.queries import load_queries
from deltaplane.ledger.registry import open_store
from deltaplane.ledger.stores.base import Store
from deltaplane.ledger.uri import parse_uri
from deltaplane.sqltext import load_statements
from ledger.conftest import ENGINES

STYLES = {"sqlite": "colon", "duckdb": "dollar", "postgres": "number"}
NAMES = {engine: load_queries(engine, STYLES[engine]).names() for engine in ENGINES}
CASES = [(engine, name) for engine in ENGINES for name in NAMES[engine]]

# Columns that a snapshot asks for only where a table has them.
OPTIONAL = [
    "".join(parts)
    for parts in product(
        ("", "partition_values, "), ("", "coalesce(deletion_vector, '') AS deletion_vector, ")
    )
]
# No statements but parts of others.
FRAGMENTS = {
    "among": "SELECT 1 FROM tables WHERE table_id {}",
    "column_list": "SELECT {} FROM pruning_columns i",
    "gone": "SELECT 1 FROM files f WHERE {}",
    "gone_one": "SELECT 1 FROM files f WHERE {}",
}
# Prepared for settings that can be changed later; nothing asks for them yet.
NOT_ASKED_YET = {"leases"}


@pytest.fixture(scope="module")
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One ledger of each engine, for all statements."""
    opened: dict[str, Store] = {}

    def store(engine: str) -> Store:
        if engine not in opened:
            if engine == "postgres":
                server = request.getfixturevalue("postgres")
                address = server.uri(server.new_database())
            else:
                address = f"deltasql://{engine}/{tmp_path_factory.mktemp('ledger')}/l.{engine}"
            opened[engine] = open_store(parse_uri(address))
            install(opened[engine])
        return opened[engine]

    yield store
    for each in opened.values():
        each.close()


def prepare(store: Store, text: str, names: tuple[str, ...]) -> None:
    """Let the database parse and plan a statement without running it."""
    with store.writing() as session:
        raw: Any = getattr(session, "_connection", None) or session._cursor  # type: ignore[attr-defined]
        if store.engine == "sqlite":
            raw.execute(f"EXPLAIN {text}", dict.fromkeys(names))
            return
        raw.execute(f"PREPARE probe AS {text}")
        raw.execute("DEALLOCATE probe")


@pytest.mark.parametrize(("engine", "name"), CASES)
def test_a_statement_is_accepted_by_its_database(stores: Any, engine: str, name: str) -> None:
    queries = load_queries(engine, STYLES[engine])
    for optional in OPTIONAL if "{optional}" in queries._templates[name] else [""]:
        text, values = queries.ordered(name, optional)
        assert "{" not in text
        if name in FRAGMENTS:
            text = FRAGMENTS[name].format(text)
        prepare(stores(engine), text, values)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_statement_that_is_wrong_would_be_noticed(stores: Any, engine: str) -> None:
    with pytest.raises(Exception, match="no_such_column"):
        prepare(stores(engine), "SELECT no_such_column FROM tables", ())


@pytest.mark.parametrize("name", NAMES["postgres"])
def test_values_of_both_drivers_of_postgresql_are_named_alike(name: str) -> None:
    """Rows go through one driver, wide reads through another, and both are given the same values."""
    text = load_queries("postgres", "format").text(name)
    marked = re.findall(r"%\((\w+)\)s", text)
    assert set(marked) == set(load_queries("postgres", "number").ordered(name)[1])
    assert "%" not in re.sub(r"%\(\w+\)s|%%", "", text)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_statement_of_one_database_is_asked_only_by_its_store(engine: str) -> None:
    """What the ledger asks everywhere, every database must have."""
    own = set(NAMES[engine]) - set.intersection(*(set(names) for names in NAMES.values()))
    root = Path(deltaplane.__file__).parent
    texts = {path: path.read_text(encoding="utf-8") for path in root.rglob("*.py")}
    users = {path.name for path, text in texts.items() for name in own if f'"{name}"' in text}
    assert users <= {f"{engine}.py"}


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_database_says_differently_is_in_no_file_twice(engine: str) -> None:
    """A statement of the shared file that every database replaces would be dead."""
    shared = load_statements("deltaplane.ledger.sql", "queries.sql").templates
    own = load_statements(f"deltaplane.ledger.sql.{engine}", "queries.sql").templates
    assert not [name for name in own if shared.get(name) == own[name]]


def sources() -> str:
    root = Path(deltaplane.__file__).parent
    return "\n".join(path.read_text(encoding="utf-8") for path in root.rglob("*.py"))


def test_every_statement_is_used() -> None:
    text = sources()
    built = {f"delete_{name}" for name in re.findall(r'"(\w+)"', _between(text, "_HISTORIES = (", ")"))}
    everywhere = {name for names in NAMES.values() for name in names}
    unused = {name for name in everywhere if f'"{name}"' not in text} - built
    assert unused == NOT_ASKED_YET & unused


def test_every_statement_that_is_asked_for_exists() -> None:
    asked = set(
        re.findall(r'(?:session\.rows?|session\.run|store\.arrow|self\._value)\(\s*"(\w+)"', sources())
    )
    assert len(asked) > 50
    assert asked <= {name for names in NAMES.values() for name in names}


def _between(text: str, start: str, end: str) -> str:
    return text.partition(start)[2].partition(end)[0]


# What a commit asks by key, and the end of the index search that it must be: a commit to a table of a million
# files must not go through all of them.
KEYED = {
    "end_tombstones": "file_id=?)",
    "files_by_id": "file_id=?)",
    "files_by_key": "file_key=?)",
    "removals_of": "file_id=?)",
}


@pytest.mark.parametrize("name", sorted(KEYED))
def test_sqlite_finds_files_by_their_keys_without_going_through_the_table(stores: Any, name: str) -> None:
    text, values = load_queries("sqlite", "colon").ordered(name)
    with stores("sqlite").reading() as session:
        plan = session._connection.execute(f"EXPLAIN QUERY PLAN {text}", dict.fromkeys(values)).fetchall()
    searches = [row[3] for row in plan if "SEARCH" in row[3]]
    assert searches
    assert all(search.endswith(KEYED[name]) for search in searches)
    assert not [row[3] for row in plan if row[3].startswith(("SCAN f", "SCAN r"))]
