"""`deltasql://` addresses: what they mean, and that no password travels in one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltaplane.errors import ConfigError
from deltaplane.ledger.stores.postgres import _conninfo
from deltaplane.ledger.uri import LedgerUri, parse_uri

TABLES = {
    "deltasql://sqlite/relative.db": LedgerUri("sqlite", "relative.db"),
    "deltasql://sqlite//abs/ledger.db": LedgerUri("sqlite", "/abs/ledger.db"),
    "deltasql://duckdb//abs/ledger.duckdb": LedgerUri("duckdb", "/abs/ledger.duckdb"),
    "deltasql://sqlite//abs/ledger.db#sales.orders": LedgerUri(
        "sqlite", "/abs/ledger.db", {}, "sales.orders"
    ),
    "deltasql://sqlite//abs/a%20b%23c.db": LedgerUri("sqlite", "/abs/a b#c.db"),
    "deltasql://sqlite//abs/odd:name@home.db": LedgerUri("sqlite", "/abs/odd:name@home.db"),
    "deltasql://postgres/user@host:5432/dbname?sslmode=verify-full": LedgerUri(
        "postgres", "user@host:5432/dbname", {"sslmode": "verify-full"}
    ),
    "deltasql://postgres/user%40corp@host/db": LedgerUri("postgres", "user@corp@host/db"),
    "deltasql://postgres/u@[::1]:5432/db": LedgerUri("postgres", "u@[::1]:5432/db"),
    "deltasql://postgres/u@a:1,b:2/db": LedgerUri("postgres", "u@a:1,b:2/db"),
    "deltasql://postgres/u@/db?host=/run/pg": LedgerUri("postgres", "u@/db", {"host": "/run/pg"}),
}


@pytest.mark.parametrize("text", TABLES)
def test_an_address_is_taken_apart(text: str) -> None:
    assert parse_uri(text) == TABLES[text]


@pytest.mark.parametrize("text", TABLES)
def test_an_address_is_written_as_it_can_be_read_again(text: str) -> None:
    assert parse_uri(str(TABLES[text])) == TABLES[text]


names = st.text(st.characters(codec="utf-8", exclude_characters="\t\r\n\0"), min_size=1)


@given(
    target=names.filter(lambda text: text.strip()),
    options=st.dictionaries(st.sampled_from(["mode", "cache"]), names, max_size=2),
    table=st.none() | names,
)
def test_every_address_of_a_file_survives_writing_and_reading(
    target: str, options: dict[str, str], table: str | None
) -> None:
    uri = LedgerUri("sqlite", target, options, table)
    assert parse_uri(str(uri)) == uri


POSTGRES = {
    "deltasql://postgres/u@h:5433/d": {"user": "u", "host": "h", "port": "5433", "dbname": "d"},
    "deltasql://postgres/h/d": {"host": "h", "dbname": "d"},
    "deltasql://postgres/u@/d?host=/run/pg": {"user": "u", "host": "/run/pg", "dbname": "d"},
    "deltasql://postgres/u@/run/pg/d": {"user": "u", "host": "/run/pg", "dbname": "d"},
    "deltasql://postgres/u@[::1]:5433/d": {"user": "u", "host": "::1", "port": "5433", "dbname": "d"},
    "deltasql://postgres/u@[::1]/d": {"user": "u", "host": "::1", "dbname": "d"},
    "deltasql://postgres/u@a:1,b:2/d": {"user": "u", "host": "a,b", "port": "1,2", "dbname": "d"},
    "deltasql://postgres/d?service=lake": {"service": "lake", "dbname": "d"},
    "deltasql://postgres/u@h/d?options=-crole%3Ddeltaplane_owner": {
        "user": "u",
        "host": "h",
        "dbname": "d",
        "options": "-crole=deltaplane_owner",
    },
}


@pytest.mark.parametrize("text", POSTGRES)
def test_postgresql_is_told_what_the_address_says(text: str) -> None:
    from psycopg.conninfo import conninfo_to_dict

    told = conninfo_to_dict(_conninfo(parse_uri(text)))
    assert told.pop("application_name") == "deltaplane"
    assert {key: told[key] for key in told if not key.startswith(("keepalives", "connect_"))} == POSTGRES[
        text
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sqlite:///x.db", "begins with deltasql://ENGINE/"),
        ("deltasql:sqlite", "begins with deltasql://ENGINE/"),
        ("", "begins with deltasql://ENGINE/"),
        ("deltasql://host:5432/db", "The engine comes first"),
        ("deltasql://sqlite", "names no database"),
        ("deltasql://sqlite/#orders", "names no database"),
        ("deltasql://[sqlite/x", "cannot be read"),
    ],
)
def test_what_is_no_address_is_refused_with_an_example(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        parse_uri(text)
    assert "deltasql://sqlite//data/ledger.db" in str(refused.value)


SECRET = "hunter2"


@pytest.mark.parametrize(
    "text",
    [
        f"deltasql://postgres/user:{SECRET}@host/db",
        f"deltasql://postgres/user%3A{SECRET}@host/db",
        f"deltasql://postgres/user:p@{SECRET}@host/db",
        f"deltasql://postgres/user:a/{SECRET}@host/db",
        # Characters that end a part of an address cut the password in two.
        f"deltasql://postgres/user:a#{SECRET}@host/db",
        f"deltasql://postgres/user:a?{SECRET}@host/db",
        f"deltasql://postgres/user:{SECRET}",
        f"deltasql://postgres/user:12{SECRET}@host/db",
        f"deltasql://postgres/user@host/db?password={SECRET}",
        f"deltasql://postgres/user@host/db?PassWord={SECRET}",
        f"deltasql://postgres/user@host/db?sslpassword={SECRET}",
        f"deltasql://postgres/user@host/db?oauth_client_secret={SECRET}",
        f"deltasql://postgres/host=h password={SECRET}",
        f"deltasql://postgres/host=h%20passfile={SECRET}%20dbname=d",
        f"deltasql://postgres/h {SECRET}/d",
        f"deltasql://postgres/host/db?host=h%20password%3D{SECRET}",
        f"deltasql://postgres/host/db#t password = {SECRET}",
        f"deltasql://oracle/user:{SECRET}@host/db",
        f"deltasql://user:{SECRET}@postgres/db",
        f"deltasql://postgres:{SECRET}@host/db",
        f"deltasql://user:{SECRET}℀@host/db",
        f"postgresql://user:{SECRET}@host/db",
    ],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_uri(text)
    shown = "".join(map(str, [refused.value, repr(refused.value), refused.value.__cause__]))
    assert SECRET not in shown
    assert refused.value.__cause__ is None


def test_settings_in_the_place_of_a_host_are_refused_with_an_example() -> None:
    with pytest.raises(ConfigError, match="settings, or white space, where user@host:port/dbname belongs"):
        parse_uri("deltasql://postgres/host=h dbname=d")


def test_the_refusal_names_the_ways_to_give_a_password() -> None:
    with pytest.raises(ConfigError, match=r"PGPASSWORD, PGPASSFILE or ~/\.pgpass"):
        parse_uri(f"deltasql://postgres/user:{SECRET}@host/db")


def test_a_setting_that_postgresql_does_not_know_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'does not know a setting.*"colour".*sslmode'):
        _conninfo(parse_uri("deltasql://postgres/u@h/d?colour=blue"))


def test_a_host_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ConfigError, match="host in the ledger's address cannot be read"):
        _conninfo(LedgerUri("postgres", "u@[::1/d"))
