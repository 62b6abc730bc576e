"""What PostgreSQL makes of statements about a table that its statistics do not know yet.

A table that was adopted a moment ago has many files, and for the planner it has none. A plan that is good for
none compares every file with every removal: what takes a second takes an hour then.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from deltaplane.ledger.migrations import install
from deltaplane.ledger.queries import load_queries
from deltaplane.ledger.registry import open_store
from deltaplane.ledger.stores.postgres import PostgresStore
from deltaplane.ledger.uri import parse_uri
from postgres_server import PostgresServer

KNOWN, UNKNOWN = 1, 2
FILES = 5000
HALF = FILES // 2

# Each with the values that make it look at many rows.
WIDE: dict[str, dict[str, Any]] = {
    "file_keys": {},
    "files_between": {"first_file": 0, "beyond_file": FILES},
    "files_full": {},
    "files_narrow": {},
    "tombstones_full": {"expired_before": -1},
}
BY_ROWS: dict[str, dict[str, Any]] = {
    "count_files": {},
    "delete_bounds": {},
    "end_active_files": {},
    "files_before": {"since": 1, "limit": FILES},
    "files_by_id": {"keys": list(range(FILES))},
    "files_for_bounds": {"after": -1, "limit": FILES},
    "history": {"limit": FILES},
    "lag": {},
    "pending": {"limit": FILES},
    "versions_at_moment": {"moment": 1},
    "winners": {"version": -1},
}
OF_ONE: dict[str, dict[str, Any]] = {"bare_head": {}, "head_state": {}}

_FILL = """
INSERT INTO tables (table_id, location, state, foreign_commits, allowed_paths, base_version, head_version,
    published_version, checkpoint_version, next_file_id, managed_since)
OVERRIDING SYSTEM VALUE VALUES ({0}, '/t{0}', 'managed', 'refuse', '[]', 0, {1} - 1, -1, -1, {1}, 0);
INSERT INTO files (table_id, file_id, added_version, file_key, size, modification_time, path,
    partition_values)
SELECT {0}, n, 0, n, 1, 0, 'part-' || n, '{{}}' FROM generate_series(0, {1} - 1) AS n;
INSERT INTO removals (table_id, file_id, removed_version, tombstone_until, deletion_timestamp)
SELECT {0}, n, 1, 9223372036854775807, 0 FROM generate_series(0, {1} - 1, 2) AS n;
INSERT INTO file_bounds (table_id, column_id, file_id, width_class, lo, hi)
SELECT {0}, 0, n, 0, n, n FROM generate_series(0, {1} - 1) AS n;
INSERT INTO transactions (transaction_id, state, origin, committed_at, table_count)
SELECT '{0}-' || n, 'committed', 'here', n, 1 FROM generate_series(0, {1} - 1) AS n;
INSERT INTO commits (table_id, version, transaction_id, source, content, content_size, sha256, blind_append,
    facts, committed_at, commit_timestamp, num_files)
SELECT {0}, n, '{0}-' || n, 'ledger', '', 0, '', 0, '{{}}', n, n, 0 FROM generate_series(0, {1} - 1) AS n;
INSERT INTO publications (table_id, version, attempts, next_attempt_at)
SELECT {0}, n, 0, 0 FROM generate_series(0, {1} - 1) AS n;
"""
_TABLES = ("commits", "file_bounds", "files", "publications", "removals", "tables", "transactions")


@pytest.fixture(scope="module")
def store(postgres: PostgresServer) -> Iterator[PostgresStore]:
    """A ledger whose statistics know one of two tables."""
    opened = open_store(parse_uri(postgres.uri(postgres.new_database())))
    assert isinstance(opened, PostgresStore)
    install(opened)
    with opened.writing() as session:
        for table in _TABLES:
            session.script(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
        session.script(_FILL.format(KNOWN, FILES))
        session.script(f"ANALYZE {', '.join(_TABLES)}")
        session.script(_FILL.format(UNKNOWN, FILES))
    yield opened
    opened.close()


def plan(store: PostgresStore, name: str, values: dict[str, Any]) -> dict[str, Any]:
    """How PostgreSQL has run a statement, on the connection that the ledger runs it on."""
    given = {"table_id": UNKNOWN, "version": 1, **values}
    text, order = load_queries("postgres", "number").ordered(name)
    if name in WIDE:
        with store._arrow_connection().cursor() as cursor:
            cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": "false"})
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", [given[part] for part in order])
            told = cursor.fetchall()[0][0]
    else:
        text = load_queries("postgres", "format").text(name)
        with store.writing() as session:
            session.script("SAVEPOINT unchanged")
            told = session._connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", given).fetchone()[0]
            session.script("ROLLBACK TO SAVEPOINT unchanged")
    return (json.loads(told) if isinstance(told, str) else told)[0]["Plan"]


def work(node: dict[str, Any]) -> float:
    """How many rows all steps of a plan have looked at."""
    thrown = sum(value for key, value in node.items() if key.startswith("Rows Removed by"))
    own = node["Actual Loops"] * (node["Actual Rows"] + thrown)
    return own + sum(work(part) for part in node.get("Plans", ()))


@pytest.mark.parametrize("name", sorted(WIDE | BY_ROWS))
def test_no_statement_compares_every_row_with_every_other(store: PostgresStore, name: str) -> None:
    made = plan(store, name, (WIDE | BY_ROWS)[name])
    assert HALF < work(made) < 20 * FILES, json.dumps(made, indent=1)


@pytest.mark.parametrize("name", sorted(OF_ONE))
def test_the_newest_version_is_found_among_many(store: PostgresStore, name: str) -> None:
    made = plan(store, name, {})
    assert 0 < work(made) < 20, json.dumps(made, indent=1)


def test_a_plan_that_does_would_be_noticed(store: PostgresStore) -> None:
    text = load_queries("postgres", "format").text("files_full")
    with store.reading() as session:
        raw: Any = session._connection
        told = raw.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", {"table_id": UNKNOWN, "version": 1})
        made = told.fetchone()[0][0]["Plan"]
    assert work(made) > 100 * FILES
