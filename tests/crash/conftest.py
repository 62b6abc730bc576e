"""Ledgers on every database, and processes that are killed on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crash.world import KILLS, World, Zygote
from postgres_server import PostgresServer


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    prepared = Zygote(tmp_path_factory.mktemp("reports"))
    yield prepared
    prepared.stop()


@pytest.fixture(params=KILLS)
def case(request: pytest.FixtureRequest) -> tuple[str, str | None]:
    """On which database, and whether to kill at the named steps only or at every event."""
    chosen: tuple[str, str | None] = request.param
    return chosen


@pytest.fixture
def engine(case: tuple[str, str | None]) -> str:
    return case[0]


@pytest.fixture
def kind(case: tuple[str, str | None]) -> str | None:
    return case[1]


@pytest.fixture
def new_world(request: pytest.FixtureRequest, tmp_path: Path, zygote: Zygote) -> Callable[[str], World]:
    """A world on a fresh database of an engine; the ledger itself is not made yet."""

    def fresh(engine: str) -> World:
        if engine != "postgres":
            return World(f"deltasql://{engine}/{tmp_path}/ledger.{engine}", tmp_path, zygote)
        server: PostgresServer = request.getfixturevalue("postgres")
        database = server.new_database()
        return World(server.uri(database), tmp_path, zygote, server.conninfo(database))

    return fresh


@pytest.fixture
def world(engine: str, new_world: Callable[[str], World]) -> World:
    return new_world(engine)
