"""A process is killed at every step of making the ledger's own schema and of changing it, up and down."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from crash.world import ENGINES, SLOW_ELSEWHERE, Ended, World, every_kill
from deltaplane.errors import LedgerSchemaError
from deltaplane.ledger.migrations import installed_version, migrate, newest_version
from deltaplane.ledger.registry import open_store
from deltaplane.ledger.stores.base import Store
from deltaplane.ledger.uri import parse_uri

_OBJECTS = {
    "sqlite": "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY type, name",
    "duckdb": "SELECT 'table', table_name, sql FROM duckdb_tables() "
    "UNION ALL SELECT 'index', index_name, sql FROM duckdb_indexes() ORDER BY 1, 2",
    "postgres": "SELECT 'column', table_name || '.' || column_name, data_type || is_nullable "
    "FROM information_schema.columns WHERE table_schema = 'public' "
    "UNION ALL SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1, 2",
}


def objects(store: Store) -> list[tuple[Any, ...]]:
    """Everything the database's schema consists of."""
    with store.reading() as session:
        raw: Any = getattr(session, "_connection", None) or session._cursor  # type: ignore[attr-defined]
        return [tuple(row) for row in raw.execute(_OBJECTS[store.engine]).fetchall()]


def opened(world: World) -> Store:
    world.wait_for_the_dead()
    return open_store(parse_uri(world.uri))


def expected_objects(world: World) -> dict[int, list[tuple[Any, ...]]]:
    """The schema at every version, from migrations that nobody disturbs."""
    store = opened(world)
    newest = newest_version(store.engine)
    found = {newest: objects(store)}
    for version in range(newest - 1, 0, -1):
        migrate(store, version)
        found[version] = objects(store)
    migrate(store)
    store.close()
    return found


@pytest.mark.parametrize("direction", ["up", "down"])
def test_migration_killed_at_every_step_is_at_a_whole_version(
    world: World, kind: str | None, direction: str
) -> None:
    world.create_tables(1)
    expected = expected_objects(world)
    newest = max(expected)
    begin, target = (1, newest) if direction == "up" else (newest, 1)

    def work(number: int) -> Ended:
        store = opened(world)
        migrate(store, begin)
        store.close()
        ended = world.run("migrate", f"migrate-{number}", kill_at=number, kind=kind, to=target)
        store = opened(world)
        version = installed_version(store)
        assert objects(store) == expected[version], f"half of a step after a kill at {ended.where}"
        assert version == target or not ended.acknowledged
        assert migrate(store, target) == (version, target)
        assert objects(store) == expected[target]
        migrate(store)
        store.close()
        with world.open() as ledger:
            world.commit(ledger, f"migrate-{number}-after")
            world.check(ledger, finished=True)
        return ended

    events = every_kill(work)
    names = {"up": {"migrate.applied", "migrate.recorded"}, "down": {"migrate.forgotten", "migrate.undone"}}
    assert {f"step {name}" for name in names[direction]} <= set(events)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.slow
def test_installation_killed_at_every_step_is_repeated_by_the_next(engine: str, new_world: Any) -> None:
    worlds: list[World] = []

    def work(number: int) -> Ended:
        fresh: World = new_world(engine)
        if engine != "postgres":
            fresh.uri = f"{fresh.uri}-{number}"
        fresh.folder = fresh.folder / str(number)
        worlds.append(fresh)
        ended = fresh.run("install", f"install-{number}", kill_at=number)
        store = opened(fresh)
        assert installed_version(store) in {0, newest_version(engine)}
        store.close()
        fresh.create_tables(1)
        with fresh.open() as ledger:
            fresh.commit(ledger, "first")
            fresh.check(ledger, finished=True)
        return ended

    every_kill(work)
    assert len(worlds) > 5


@pytest.mark.parametrize("engine", SLOW_ELSEWHERE)
def test_two_that_migrate_at_once_take_each_step_once(world: World) -> None:
    world.create_tables(1)
    expected = expected_objects(world)
    store = opened(world)
    migrate(store, 1)
    # DuckDB serves one process; its threads share the store.
    stores = [store, store] if store.engine == "duckdb" else [store, opened_beside(world)]
    barrier = threading.Barrier(2)
    failures: list[BaseException] = []

    def up(mine: Store) -> None:
        try:
            barrier.wait(30)
            migrate(mine)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=up, args=(mine,)) for mine in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert objects(store) == expected[max(expected)]
    for mine in stores:
        mine.close()


def opened_beside(world: World) -> Store:
    return open_store(parse_uri(world.uri))


@pytest.mark.parametrize("engine", SLOW_ELSEWHERE)
def test_client_meets_a_half_migrated_ledger_politely(world: World) -> None:
    world.create_tables(1)
    ended = world.run("migrate", "halfway", kill_at=2, kind="step", to=1)
    assert ended.where == "step migrate.undone"
    with pytest.raises(LedgerSchemaError, match="deltaplane ledger migrate"), world.open():
        pass
    store = opened(world)
    migrate(store)
    store.close()
    with world.open() as ledger:
        world.check(ledger, finished=True)
