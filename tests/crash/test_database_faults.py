"""Databases that restart, hang up, fill up or are locked; disks that refuse; clocks that jump."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from crash.child import SCHEMA, add, remove
from crash.proxy import Proxy
from crash.world import SLOW_ELSEWHERE, World, check_table, contents, with_tests
from deltaplane import telemetry
from deltaplane.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    CommitRefused,
    LedgerError,
    LedgerUnavailable,
    StorageError,
)
from deltaplane.ledger import Ledger, Retries, connect, storage_local
from deltaplane.ledger.stores import sqlite as sqlite_store
from postgres_server import PostgresServer

IMPATIENT = Retries(attempts=3, first_wait=0.01, longest_wait=0.02)
PATIENT = Retries(attempts=60, first_wait=0.1, longest_wait=0.5)


@pytest.fixture(scope="module")
def private() -> Iterator[PostgresServer]:
    """A server that these tests may restart."""
    server = PostgresServer()
    yield server
    server.stop()


@pytest.fixture
def on_private(private: PostgresServer, tmp_path: Path, zygote: Any) -> World:
    database = private.new_database()
    world = World(private.uri(database), tmp_path, zygote, private.conninfo(database))
    world.create_tables(1)
    return world


def at_step(step: str, act: Callable[[], None]) -> Callable[[], None]:
    """Do something once, when the ledger comes to a step."""
    done = threading.Event()

    def heard(name: str, _: dict[str, Any]) -> None:
        if name == step and not done.is_set():
            done.set()
            act()

    return telemetry.listen(heard)


def append(ledger: Ledger, table: str, identity: str) -> Any:
    with ledger.transaction(transaction_id=identity) as transaction:
        transaction.commit(table, [add(identity)])
    return transaction.result


# PostgreSQL goes away


@pytest.mark.parametrize("mode", [pytest.param("immediate", marks=pytest.mark.slow), "fast"])
@pytest.mark.parametrize(
    "step",
    [
        pytest.param("commit.begin", marks=pytest.mark.slow),
        pytest.param("commit.rows_written", marks=pytest.mark.slow),
        "commit.before_commit",
    ],
)
def test_restart_of_postgresql_during_a_commit_takes_place_once(
    private: PostgresServer, on_private: World, step: str, mode: str
) -> None:
    """Held at the step, the server restarts, then the commit goes on: its COMMIT meets a dead connection."""
    table = on_private.tables[0]
    log = str(private.folder / "restarted.log")
    with connect(on_private.uri, retries=PATIENT) as ledger:
        stop = at_step(step, lambda: private.control("restart", "-w", "-m", mode, "-l", log))
        try:
            result = append(ledger, table, "through")
        finally:
            stop()
        assert (result.versions, result.unpublished) == ({table: 1}, {})
        assert on_private.landed(ledger)["through"] == 1
        append(ledger, table, "next")
        on_private.check(ledger, finished=True)


@pytest.mark.slow
def test_restart_after_every_acknowledged_commit_loses_none(
    private: PostgresServer, on_private: World
) -> None:
    """An immediate restart is a power failure for the server: only what is on the disk comes back."""
    table = on_private.tables[0]
    log = str(private.folder / "restarted.log")
    with connect(on_private.uri, retries=PATIENT) as ledger:
        for number in range(3):
            assert append(ledger, table, f"kept-{number}").versions == {table: number + 1}
            private.control("restart", "-w", "-m", "immediate", "-l", log)
        assert [entry.transaction_id for entry in ledger.history(table, limit=3)] == [
            "kept-2",
            "kept-1",
            "kept-0",
        ]
        ledger.publish()
        on_private.check(ledger, finished=True)


def test_connection_ended_by_the_administrator_before_commit_is_repeated(on_private: World) -> None:
    table = on_private.tables[0]
    with connect(on_private.uri) as ledger:
        stop = at_step("commit.rows_written", lambda: terminate_others(on_private))
        try:
            result = append(ledger, table, "ended")
        finally:
            stop()
        assert (result.versions, result.unpublished) == ({table: 1}, {})
        assert on_private.landed(ledger)["ended"] == 1
        on_private.check(ledger, finished=True)


def terminate_others(world: World) -> None:
    others = (
        "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    assert world.conninfo is not None
    with psycopg.connect(world.conninfo, autocommit=True) as connection:
        assert connection.execute(others).fetchone() != (0,)


@pytest.mark.slow
def test_idle_connections_that_the_server_closed_are_replaced(on_private: World) -> None:
    """Rows and wide reads have a connection each, and neither failure reaches the caller."""
    table = on_private.tables[0]
    with connect(on_private.uri) as ledger:
        append(ledger, table, "first")
        assert ledger.snapshot(table).files().num_rows == 1
        terminate_others(on_private)
        assert ledger.snapshot(table).files().num_rows == 1
        terminate_others(on_private)
        append(ledger, table, "second")
        assert ledger.snapshot(table).files().num_rows == 2
        on_private.check(ledger, finished=True)


def test_commit_that_the_server_turned_into_a_rollback_is_not_acknowledged(on_private: World) -> None:
    """PostgreSQL answers COMMIT with ROLLBACK, and no error, when a statement before it failed."""
    with connect(on_private.uri) as ledger:

        def overlook_a_failure() -> None:
            with ledger._ctx.store.writing() as session:
                session.run("freeze", table_id=1, reason="half of it")
                with pytest.raises(psycopg.Error):
                    session.script("SELECT nothing FROM nowhere")

        with pytest.raises(LedgerError, match="ROLLBACK"):
            overlook_a_failure()
        assert ledger.tables()[0].state == "managed"
        append(ledger, on_private.tables[0], "unharmed")
        on_private.check(ledger, finished=True)


def test_group_that_publishes_pending_versions_needs_one_connection(
    on_private: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables are published side by side, and PostgreSQL has only so many connections for everybody."""
    on_private.create_tables(3)

    def full(*_: object) -> None:
        raise StorageError("not now")

    with connect(on_private.uri) as ledger:
        with monkeypatch.context() as patched:
            patched.setattr(storage_local.LocalStorage, "put_if_absent", full)
            on_private.commit(ledger, "pending")
        on_private.commit(ledger, "afterwards")
        assert on_private.conninfo is not None
        with psycopg.connect(on_private.conninfo) as other:
            count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            assert other.execute(count).fetchone() == (2,), "this one and the ledger's"
        on_private.check(ledger, finished=True)


@pytest.mark.slow
def test_short_threads_give_their_connections_back(on_private: World) -> None:
    """PostgreSQL has a hundred connections; more threads than that may come and go."""
    table = on_private.tables[0]
    with connect(on_private.uri) as ledger:
        seen = []
        for _ in range(110):
            thread = threading.Thread(target=lambda: seen.append(ledger.snapshot(table).files().num_rows))
            thread.start()
            thread.join()
        assert seen == [0] * 110


# The line is cut around COMMIT


@pytest.fixture
def line(private: PostgresServer) -> Iterator[Proxy]:
    proxy = Proxy(f"{private.folder}/.s.PGSQL.5432")
    yield proxy
    proxy.stop()


def through(world: World, proxy: Proxy) -> str:
    database = world.uri.split("?")[0].rpartition("/")[2]
    return (
        f"deltasql://postgres/postgres@127.0.0.1:{proxy.port}/{database}?sslmode=disable&gssencmode=disable"
    )


_EXECUTE = b"E\0\0\0\x09\0\0\0\0\0"


def statement_after(step: str, word: bytes = b"COMMIT") -> tuple[Callable[[bytes], bool], Callable[[], None]]:
    """Recognises the execution of a statement after a step; once.

    A statement may be prepared first, in a message of its own, which is let through.
    """
    near = threading.Event()
    stop = at_step(step, near.set)

    def is_it(data: bytes) -> bool:
        if near.is_set() and (data[:1] == b"Q" or _EXECUTE in data) and word in data:
            near.clear()
            return True
        return False

    return is_it, stop


def test_line_cut_after_commit_reached_the_server_is_found_out_and_acknowledged(
    on_private: World, line: Proxy
) -> None:
    table = on_private.tables[0]
    line.after, stop = statement_after("commit.before_commit")
    heard: list[str] = []
    end = telemetry.listen(lambda name, _: heard.append(name))
    with connect(through(on_private, line)) as ledger:
        try:
            result = append(ledger, table, "heard")
        finally:
            stop()
            end()
        assert line.cuts == 1
        assert heard.count("commit.outcome_unknown") == 1
        assert heard.count("commit.rows_written") == 1, "it must be found out, not written again"
        assert (result.versions, result.unpublished) == ({table: 1}, {})
        assert on_private.landed(ledger)["heard"] == 1
        on_private.check(ledger, finished=True)


def test_line_cut_before_commit_reached_the_server_is_found_out_and_repeated(
    on_private: World, line: Proxy
) -> None:
    """It is certain that nothing took place, so the commit is repeated under the same id."""
    table = on_private.tables[0]
    line.before, stop = statement_after("commit.before_commit")
    heard: list[str] = []
    end = telemetry.listen(lambda name, _: heard.append(name))
    with connect(through(on_private, line)) as ledger:
        try:
            result = append(ledger, table, "unheard")
        finally:
            stop()
            end()
        assert line.cuts == 1
        assert heard.count("commit.outcome_unknown") == 1
        assert heard.count("commit.rows_written") == 2
        assert (result.versions, result.unpublished) == ({table: 1}, {})
        assert on_private.landed(ledger)["unheard"] == 1
        on_private.check(ledger, finished=True)


@pytest.mark.slow
def test_commit_that_lost_its_line_and_its_place_conflicts(on_private: World, line: Proxy) -> None:
    """Nothing took place, and somebody else took the version meanwhile: a conflict, no unknown outcome."""
    table = on_private.tables[0]
    is_it, stop = statement_after("commit.before_commit")

    def cut(data: bytes) -> bool:
        if not is_it(data):
            return False
        line.closed = True
        terminate_others(on_private)
        with connect(on_private.uri) as other:
            append(other, table, "winner")
        line.closed = False
        return True

    line.before = cut
    with connect(through(on_private, line), retries=PATIENT) as ledger:
        try:
            with (
                pytest.raises(CommitConflict, match="version 1 was taken"),
                ledger.transaction(transaction_id="loser") as transaction,
            ):
                transaction.commit(table, [add("loser")], expected_version=0)
        finally:
            stop()
        assert on_private.landed(ledger)["loser"] == 0
        on_private.check(ledger, finished=True)


def test_commit_that_somebody_else_declared_dead_is_not_repeated(on_private: World, line: Proxy) -> None:
    """After ledger.outcome() answered False it never takes place, also when its own process comes back."""
    table = on_private.tables[0]
    is_it, stop = statement_after("commit.before_commit")
    answers: list[bool] = []

    def cut(data: bytes) -> bool:
        if not is_it(data):
            return False
        line.closed = True
        terminate_others(on_private)
        with connect(on_private.uri) as other:
            answers.append(other.outcome("declared dead"))
        line.closed = False
        return True

    line.before = cut
    with connect(through(on_private, line), retries=PATIENT) as ledger:
        try:
            with pytest.raises(CommitRefused, match="given up earlier"):
                append(ledger, table, "declared dead")
        finally:
            stop()
        assert answers == [False]
        assert on_private.landed(ledger)["declared dead"] == 0
        on_private.check(ledger, finished=True)


@pytest.mark.parametrize("reached", [True, False])
def test_database_that_stays_away_leaves_the_outcome_to_be_asked_for(
    on_private: World, line: Proxy, reached: bool
) -> None:
    table = on_private.tables[0]
    is_it, stop = statement_after("commit.before_commit")

    def cut(data: bytes) -> bool:
        line.closed = line.closed or is_it(data)
        return line.closed

    if reached:
        line.after = cut
    else:
        line.before = cut
    with connect(through(on_private, line), retries=IMPATIENT) as ledger:
        try:
            with pytest.raises(CommitOutcomeUnknown, match=r"ledger.outcome\('away'\)") as caught:
                append(ledger, table, "away")
        finally:
            stop()
        assert caught.value.transaction_id == "away"
        line.closed, line.before, line.after = False, lambda _: False, lambda _: False
        assert ledger.outcome("away") is reached
        append(ledger, table, "back")
        assert on_private.landed(ledger)["away"] == int(reached)
        on_private.check(ledger, finished=True)


@pytest.mark.slow
def test_line_cut_while_the_publication_is_noted_does_not_disturb_the_commit(
    on_private: World, line: Proxy
) -> None:
    table = on_private.tables[0]
    line.before, stop = statement_after("publish.file_written", b"WITH marked")
    with connect(through(on_private, line)) as ledger:
        try:
            result = append(ledger, table, "noted")
        finally:
            stop()
        assert line.cuts == 1
        assert result.versions == {table: 1}
        ledger.publish()
        on_private.check(ledger, finished=True)
        assert ledger.tables()[0].published_version == 1


@pytest.mark.slow
def test_server_that_accepts_and_says_nothing_is_given_up(
    on_private: World, line: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a limit of its own the client would wait for ever."""
    line.before = lambda _: bool(time.sleep(30))
    begun = time.monotonic()
    with pytest.raises(LedgerUnavailable):
        connect(through(on_private, line) + "&connect_timeout=2", retries=IMPATIENT)
    assert time.monotonic() - begun < 20


@pytest.mark.slow
def test_limit_of_the_server_is_not_called_a_lost_connection(on_private: World) -> None:
    """A limit of the server ends the statement and keeps the connection."""
    table = on_private.tables[0]
    with connect(
        f"{on_private.uri}&options=-c%20temp_file_limit%3D0%20-c%20work_mem%3D64", retries=IMPATIENT
    ):
        pass
    with connect(f"{on_private.uri}&options=-c%20lock_timeout%3D100", retries=IMPATIENT) as ledger:
        assert on_private.conninfo is not None
        with psycopg.connect(on_private.conninfo) as other:
            other.execute("SELECT 1 FROM tables FOR UPDATE")
            with pytest.raises(LedgerUnavailable, match="lock timeout"):
                append(ledger, table, "waited")
        assert on_private.landed(ledger)["waited"] == 0
        append(ledger, table, "afterwards")
    with connect(f"{on_private.uri}&options=-c%20statement_timeout%3D100", retries=IMPATIENT) as ledger:
        with psycopg.connect(on_private.conninfo) as other:
            other.execute("SELECT 1 FROM tables FOR UPDATE")
            with pytest.raises(LedgerUnavailable, match=r"could not do it.*statement timeout"):
                append(ledger, table, "cancelled")
        on_private.check(ledger, finished=True)


# SQLite and DuckDB


def test_sqlite_locked_for_a_moment_is_waited_for(new_world: Any) -> None:
    world = new_world("sqlite")
    world.create_tables(1)
    path = world.uri.removeprefix("deltasql://sqlite/")
    locker = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    locker.execute("BEGIN IMMEDIATE")
    threading.Timer(0.5, lambda: locker.execute("ROLLBACK")).start()
    with world.open() as ledger:
        append(ledger, world.tables[0], "patient")
        world.check(ledger, finished=True)
    locker.close()


def test_sqlite_locked_for_good_is_a_clear_error(new_world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = new_world("sqlite")
    world.create_tables(1)
    path = world.uri.removeprefix("deltasql://sqlite/")
    monkeypatch.setattr(sqlite_store, "_BUSY_SECONDS", 0.05)
    with connect(world.uri, retries=IMPATIENT) as ledger:
        before = contents(ledger, world.tables[0])
        locker = sqlite3.connect(path, isolation_level=None)
        locker.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerUnavailable, match=r"Nothing was written.*kept the ledger locked"):
            append(ledger, world.tables[0], "shut out")
        assert contents(ledger, world.tables[0]) == before
        locker.execute("ROLLBACK")
        locker.close()
        append(ledger, world.tables[0], "let in")
        world.check(ledger, finished=True)


def test_sqlite_taken_whole_by_another_process_is_a_clear_error(
    new_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = new_world("sqlite")
    world.create_tables(1)
    path = world.uri.removeprefix("deltasql://sqlite/")
    monkeypatch.setattr(sqlite_store, "_BUSY_SECONDS", 0.05)
    hold = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('PRAGMA locking_mode = EXCLUSIVE');"
        "c.execute('BEGIN EXCLUSIVE'); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(LedgerUnavailable, match="locked"):
        connect(world.uri, retries=IMPATIENT)
    holder.communicate("")
    with world.open() as ledger:
        append(ledger, world.tables[0], "free again")
        world.check(ledger, finished=True)


def test_sqlite_without_room_is_a_clear_error_and_nothing_is_written(new_world: Any) -> None:
    world = new_world("sqlite")
    world.create_tables(1)
    table = world.tables[0]
    with connect(world.uri, retries=IMPATIENT) as ledger:
        before = contents(ledger, table)
        connection = ledger._ctx.store._connection("writing")  # type: ignore[attr-defined]
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        with (
            pytest.raises(LedgerUnavailable, match=r"Nothing was written.*full.*free space"),
            ledger.transaction(transaction_id="too much") as transaction,
        ):
            transaction.commit(table, [add(f"file-{number}" + "x" * 500) for number in range(500)])
        assert contents(ledger, table) == before
        assert ledger.snapshot(table).num_files == 0
        connection.execute("PRAGMA max_page_count = 1073741823")
        append(ledger, table, "room again")
        world.check(ledger, finished=True)


def test_second_process_on_duckdb_is_refused_and_told_why(new_world: Any) -> None:
    world = new_world("duckdb")
    world.create_tables(1)
    report, pid = world.zygote.begin(scenario="hold", uri=world.uri, tables=world.tables, id="holder")
    while not report.exists() or "open" not in report.read_text():
        time.sleep(0.01)
    with pytest.raises(LedgerUnavailable, match=r"another process .* DuckDB serves one process at a time"):
        connect(world.uri)
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while True:
        try:
            ledger = connect(world.uri)
        except LedgerUnavailable:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        else:
            break
    append(ledger, world.tables[0], "its turn")
    world.check(ledger, finished=True)
    ledger.close()


# Disks and clocks


def assert_pending_then_finished(world: World, ledger: Ledger, result: Any, cause: str) -> None:
    table = world.tables[0]
    assert result.versions == {table: 1}
    assert cause in result.unpublished[table]
    status = ledger.status()
    assert [(lag.versions, lag.attempts) for lag in status.behind] == [(1, 1)]
    assert cause in str(status.behind[0].last_error)
    world.check(ledger)


@pytest.mark.parametrize("engine", SLOW_ELSEWHERE)
def test_disk_that_refuses_at_publication_delays_it_and_keeps_the_commit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create_tables(1)
    with world.open() as ledger:

        def full(*_: object) -> None:
            raise StorageError("Could not write it: No space left on device.")

        with monkeypatch.context() as patched:
            patched.setattr(storage_local.LocalStorage, "put_if_absent", full)
            result = append(ledger, world.tables[0], "held back")
        assert_pending_then_finished(world, ledger, result, "No space left on device")
        assert ledger.publish() == {world.tables[0]: 1}
        assert ledger.status().behind == ()
        world.check(ledger, finished=True)


@pytest.mark.parametrize("engine", SLOW_ELSEWHERE)
def test_file_that_vanishes_at_publication_does_not_disturb_the_commit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is taken, and gone when it is read: the commit holds all the same."""
    world.create_tables(1)
    with world.open() as ledger:
        with monkeypatch.context() as patched:
            patched.setattr(storage_local.LocalStorage, "put_if_absent", lambda *_: False)
            result = append(ledger, world.tables[0], "gone")
        assert result.versions == {world.tables[0]: 1}
        assert result.unpublished.keys() == {world.tables[0]}
        ledger.publish()
        world.check(ledger, finished=True)


@pytest.mark.slow
def test_limit_on_the_size_of_files_delays_publication(new_world: Any) -> None:
    """A real refusal by the system: no file of the log may exceed the limit, the database may not grow."""
    world = new_world("sqlite")
    world.create_tables(1)
    table = world.tables[0]
    program = (
        "import json, resource, signal, sys\n"
        "from crash.child import add\n"
        "from deltaplane import telemetry\n"
        "from deltaplane.ledger import connect\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "ledger = connect(sys.argv[1])\n"
        "limit = lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))\n"
        "telemetry.listen(lambda name, _: limit(100) if name == 'commit.ratified' else None)\n"
        "with ledger.transaction() as transaction:\n"
        "    transaction.commit(sys.argv[2], [add('large')])\n"
        "limit(resource.RLIM_INFINITY)\n"
        "print(json.dumps([transaction.result.versions, transaction.result.unpublished]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, world.uri, table],
        env=with_tests(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    versions, unpublished = json.loads(done.stdout)
    assert versions == {table: 1}
    assert "Raise the limit on the size of files" in unpublished[table]
    with world.open() as ledger:
        world.check(ledger)
        ledger.publish()
        world.check(ledger, finished=True)


@pytest.mark.skipif(os.getuid() == 0, reason="root may write into every folder")
def test_read_only_folder_delays_publication(new_world: Any) -> None:
    world = new_world("sqlite")
    world.create_tables(1)
    log = Path(world.tables[0]) / "_delta_log"
    log.chmod(0o555)
    with world.open() as ledger:
        result = append(ledger, world.tables[0], "read only")
        assert_pending_then_finished(world, ledger, result, "Permission denied")
        log.chmod(0o755)
        ledger.publish()
        world.check(ledger, finished=True)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")
def test_full_disk_delays_publication(new_world: Any, tmp_path: Path) -> None:
    world = new_world("sqlite")
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)], check=False)
    if mounted.returncode:
        pytest.skip("this machine does not let us mount")
    try:
        world.tables.append(str(small / "table"))
        with world.open() as ledger:
            ledger.create(world.tables[0], SCHEMA)
            filler = small / "filler"
            filler.write_bytes(b"x" * (os.statvfs(small).f_bavail * os.statvfs(small).f_bsize))
            result = append(ledger, world.tables[0], "no room")
            assert_pending_then_finished(world, ledger, result, "Free some space on that disk")
            filler.unlink()
            ledger.publish()
            world.check(ledger, finished=True)
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.parametrize("engine", SLOW_ELSEWHERE)
@pytest.mark.parametrize("in_commit", ["true", "false"])
def test_clock_that_jumps_leaves_the_versions_in_order(world: World, in_commit: str) -> None:
    world.create_tables(1, enableInCommitTimestamps=in_commit)
    table = world.tables[0]
    with world.open() as ledger:
        now = ledger._ctx.clock()
        jumps = [0, 5_000, -86_400_000, 3_600_000, -1, 0, 0, -10_000_000]
        for number, jump in enumerate(jumps):
            ledger._ctx.clock = lambda jump=jump: now + jump  # type: ignore[misc]
            append(ledger, table, f"jump-{number}")
        times = [entry.timestamp for entry in reversed(ledger.history(table))]
        assert times == sorted(set(times)), "times must strictly increase"
        told = [commit_times(content) for content in contents(ledger, table)]
        assert [timestamp for timestamp, _ in told] == times
        assert [inside for _, inside in told] == (times if in_commit == "true" else [None] * len(times))
        if in_commit == "true":
            check_table_without_outside_reader(ledger, table)
        else:
            world.check(ledger, finished=True)
        assert ledger.snapshot(table, timestamp=times[4]).version == 4


def commit_times(content: bytes) -> tuple[int, int | None]:
    info = json.loads(content.splitlines()[0])["commitInfo"]
    return info["timestamp"], info.get("inCommitTimestamp")


def check_table_without_outside_reader(ledger: Ledger, table: str) -> None:
    assert ledger.verify(table, every=True).differences == ()


@pytest.mark.parametrize("engine", SLOW_ELSEWHERE)
def test_threads_of_one_process_lose_nothing(world: World) -> None:
    world.create_tables(2, checkpointInterval="10")
    with world.open() as ledger:
        acknowledged: list[str] = []
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for turn in range(10):
                    identity = f"thread-{number}-{turn}"
                    world.commit(ledger, identity)
                    acknowledged.append(identity)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert failures == []
        assert len(acknowledged) == 60
        landed = world.landed(ledger)
        assert {identity: landed[identity] for identity in acknowledged} == dict.fromkeys(acknowledged, 2)
        ledger.publish()
        world.check(ledger, finished=True)


@pytest.mark.parametrize("engine", SLOW_ELSEWHERE)
def test_later_of_two_removals_conflicts_and_writes_nothing(world: World) -> None:
    world.create_tables(1)
    table = world.tables[0]
    with world.open() as ledger:
        append(ledger, table, "file")
        slow = ledger.transaction(transaction_id="slow")
        slow.commit(table, [remove("file"), add("slow")])
        with ledger.transaction(transaction_id="quick") as quick:
            quick.commit(table, [remove("file"), add("quick")])
        held = contents(ledger, table)
        with pytest.raises(CommitConflict, match="version 2 was taken"), slow:
            pass
        assert contents(ledger, table) == held
        check_table(ledger, table, finished=True)
