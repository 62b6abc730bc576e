"""A process is killed at every step of publication, and two publishers are made to meet at every step."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from crash.child import add
from crash.world import SLOW_ELSEWHERE, Ended, World, contents, every_kill, published_versions
from deltaplane import telemetry
from deltaplane.errors import CorruptLog, NotADeltaTable, StorageError
from deltaplane.ledger import Ledger, commit, connect


def test_publication_killed_at_every_step_is_finished_by_the_next(world: World, kind: str | None) -> None:
    def work(number: int) -> Ended:
        world.renew(number, 1, checkpointInterval="3")
        identity = f"publish-{number}"
        ended = world.run("publish", identity, kill_at=number, kind=kind)
        with world.open() as ledger:
            world.check(ledger)
            if number % 2:
                world.publish(ledger)
            else:
                # The next writer publishes what it finds pending.
                world.commit(ledger, f"{identity}-after")
            world.check(ledger, finished=True)
            landed = world.landed(ledger)
            assert [landed[f"{identity}-{n}"] for n in range(3)] == [1, 1, 1]
        return ended

    events = every_kill(work)
    written = [event for event in events if event == "step publish.file_written"]
    assert len(written) == 3


def pending(ledger: Ledger, table: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_now(*_: object) -> int:
        raise StorageError("not now")

    with monkeypatch.context() as patched:
        patched.setattr(commit, "publish_all", not_now)
        for number in range(count):
            with ledger.transaction() as transaction:
                transaction.commit(table, [add(f"pending-{number}")])


MEETING_POINTS = ["publish.file_written", "publish.marked", "checkpoint.written", "checkpoint.pointed"]


@pytest.mark.parametrize("engine", SLOW_ELSEWHERE)
@pytest.mark.parametrize("step", MEETING_POINTS)
def test_publisher_held_at_a_step_does_not_disturb_another(
    world: World, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is held right after the step; the second publishes everything; the first goes on."""
    world.create_tables(1, checkpointInterval="2")
    held, go_on = threading.Event(), threading.Event()

    def hold(name: str, _: dict[str, object]) -> None:
        if name == step and threading.current_thread().name == "slow" and not held.is_set():
            held.set()
            assert go_on.wait(30)

    with world.open() as ledger:
        table = world.tables[0]
        pending(ledger, table, 3, monkeypatch)
        stop = telemetry.listen(hold)
        failures: list[BaseException] = []

        def publish() -> None:
            try:
                ledger.publish(table)
            except BaseException as error:
                failures.append(error)

        slow = threading.Thread(target=publish, name="slow")
        slow.start()
        assert held.wait(30)
        assert ledger.publish(table) == {table: 3}
        world.check(ledger, finished=True)
        with ledger.transaction() as transaction:
            transaction.commit(table, [add("newer")])
        world.check(ledger, finished=True)
        go_on.set()
        slow.join(30)
        stop()
        assert failures == []
        world.check(ledger, finished=True)
        row = ledger.tables()[0]
        # The slow one may not take the marks of the fast one back.
        assert (row.head_version, row.published_version) == (4, 4)


@pytest.mark.parametrize("engine", SLOW_ELSEWHERE)
def test_two_connections_publishing_at_once_write_the_same_files(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create_tables(1, checkpointInterval="4")
    with world.open() as ledger:
        pending(ledger, world.tables[0], 30, monkeypatch)
        # DuckDB serves one process and one store; the others get a connection of their own.
        own = world.uri.startswith("deltasql://duckdb")
        ledgers = [ledger if own else connect(world.uri) for _ in range(4)]
        barrier = threading.Barrier(4)
        failures: list[BaseException] = []

        def publish(mine: Ledger) -> None:
            try:
                barrier.wait(30)
                assert mine.publish() == {world.tables[0]: 30}
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=publish, args=(mine,)) for mine in ledgers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert failures == []
        world.check(ledger, finished=True)
        for mine in ledgers:
            if mine is not ledger:
                mine.close()


@pytest.mark.parametrize("engine", SLOW_ELSEWHERE)
def test_folder_deleted_underneath_is_a_clear_error_and_the_ledger_keeps_everything(world: World) -> None:
    world.create_tables(1)
    with world.open() as ledger:
        table = world.tables[0]
        for number in range(3):
            world.commit(ledger, f"before-{number}")
        held = contents(ledger, table)
        log = Path(table) / "_delta_log"
        for file in log.iterdir():
            file.unlink()
        log.rmdir()
        Path(table).rmdir()
        with pytest.raises(NotADeltaTable, match="Nothing was written"):
            world.commit(ledger, "after")
        assert contents(ledger, table) == held
        assert not Path(table).exists(), "a log that begins in the midst must not appear"
        # Restored from a backup, work goes on.
        log.mkdir(parents=True)
        for version, content in enumerate(held):
            (log / f"{version:020d}.json").write_bytes(content)
        world.commit(ledger, "restored")
        world.check(ledger, finished=True)
        assert published_versions(table) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("engine", SLOW_ELSEWHERE)
def test_commit_deleted_from_the_log_is_noticed_before_a_gap_appears(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create_tables(1)
    with world.open() as ledger:
        table = world.tables[0]
        pending(ledger, table, 2, monkeypatch)
        log = Path(table) / "_delta_log"
        first = (log / f"{0:020d}.json").rename(log / "elsewhere")
        with pytest.raises(CorruptLog, match="would leave a gap"):
            ledger.publish(table)
        assert published_versions(table) == []
        assert len(contents(ledger, table)) == 3
        first.rename(log / f"{0:020d}.json")
        ledger.publish(table)
        world.check(ledger, finished=True)
