"""Ledgers on every database: a test that takes `ledger` runs three times."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deltaplane.ledger import Ledger, connect
from postgres_server import PostgresServer

ENGINES = ("sqlite", "duckdb", "postgres")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.stop()


@pytest.fixture
def ledger_uri(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """The address of a fresh database of an engine."""

    def fresh(engine: str) -> str:
        if engine == "postgres":
            server: PostgresServer = request.getfixturevalue("postgres")
            return server.uri(server.new_database())
        return f"deltasql://{engine}/{tmp_path}/ledger-{uuid.uuid4().hex[:8]}.{engine}"

    return fresh


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def uri(engine: str, ledger_uri: Callable[[str], str]) -> str:
    return ledger_uri(engine)


@pytest.fixture
def ledger(uri: str) -> Iterator[Ledger]:
    with connect(uri, author="tester") as opened:
        yield opened


SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def add(number: int, **fields: Any) -> dict[str, Any]:
    """An add action with statistics: ids from 10 * number on."""
    low, high = 10 * number, 10 * number + 9
    bounds = f'"minValues":{{"id":{low}}},"maxValues":{{"id":{high}}}'
    stats = f'{{"numRecords":10,{bounds},"nullCount":{{"id":0}}}}'
    body = {
        "path": f"part-{number:05d}.parquet",
        "partitionValues": {},
        "size": 100 + number,
        "modificationTime": 1_700_000_000_000 + number,
        "dataChange": True,
        "stats": stats,
    }
    return {"add": body | fields}


def remove(number: int, **fields: Any) -> dict[str, Any]:
    body = {"path": f"part-{number:05d}.parquet", "deletionTimestamp": 1_700_000_100_000, "dataChange": True}
    return {"remove": body | fields}
