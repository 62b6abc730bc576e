"""Backup and restore, as docs/how-to/ledger-backup.md describes them, also of a backup that is too old."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

from deltaplane import telemetry
from deltaplane.errors import CommitConflict, CommitRefused, CorruptLog, ForeignCommit
from deltaplane.ledger import Ledger, connect
from deltaplane.ledger.names import commit_path
from deltaplane.ledger.uri import parse_uri
from ledger.conftest import SCHEMA, add, remove
from postgres_server import PostgresServer


class Vault:
    """Takes backups of a ledger and restores them to a new place."""

    def __init__(
        self, engine: str, folder: Path, fresh: Callable[[str], str], server: PostgresServer | None
    ) -> None:
        self.engine = engine
        self.folder = folder
        self._fresh = fresh
        self._server = server

    def take(self, uri: str) -> Path:
        saved = self.folder / f"backup-{time.monotonic_ns()}"
        target = parse_uri(uri).target
        if self.engine == "sqlite":
            with sqlite3.connect(target) as connection:
                connection.execute("VACUUM INTO ?", (str(saved),))
        elif self.engine == "duckdb":
            with duckdb.connect(target) as connection:
                connection.execute("CHECKPOINT")
            shutil.copy(target, saved)
        else:
            self._tool("pg_dump", "--format=custom", f"--file={saved}", self._conninfo(uri))
        return saved

    def restore(self, saved: Path) -> str:
        uri = self._fresh(self.engine)
        if self.engine == "postgres":
            self._tool("pg_restore", "--exit-on-error", f"--dbname={self._conninfo(uri)}", str(saved))
        else:
            shutil.copy(saved, parse_uri(uri).target)
        return uri

    def _conninfo(self, uri: str) -> str:
        assert self._server is not None
        return self._server.conninfo(parse_uri(uri).target.rpartition("/")[2])

    def _tool(self, name: str, *arguments: str) -> None:
        assert self._server is not None
        subprocess.run(
            [self._server.binaries / name, *arguments], check=True, env=os.environ | {"PGTZ": "UTC"}
        )


@pytest.fixture
def vault(
    request: pytest.FixtureRequest, engine: str, tmp_path: Path, ledger_uri: Callable[[str], str]
) -> Vault:
    server = request.getfixturevalue("postgres") if engine == "postgres" else None
    return Vault(engine, tmp_path, ledger_uri, server)


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "orders")


def commit(ledger: Ledger, place: str, *numbers: int, transaction_id: str | None = None) -> None:
    with ledger.transaction(author="loader", message="a load", transaction_id=transaction_id) as tx:
        tx.commit(place, [add(number) for number in numbers])


def paths(numbers: range | list[int]) -> list[str]:
    return [f"part-{number:05d}.parquet" for number in numbers]


def files_of(ledger: Ledger, place: str, version: int | None = None) -> list[str]:
    return sorted(ledger.snapshot(place, version).files()["path"].to_pylist())


def files_of_reader(place: str) -> list[str]:
    """What somebody without the ledger reads."""
    return sorted(uri.rpartition("/")[2] for uri in DeltaTable(place).file_uris())


def log_bytes(place: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(Path(place, "_delta_log").glob("*.json"))}


def check_equal(ledger: Ledger, place: str, expected: list[str]) -> None:
    """Ledger, log and an outside reader tell the same story."""
    assert files_of(ledger, place) == expected
    assert files_of_reader(place) == expected
    verification = ledger.verify(place, every=True)
    assert verification.differences == ()
    versions = [entry.version for entry in ledger.history(place)]
    assert versions == list(range(len(versions)))[::-1]


class Died(BaseException):
    """Stands for a process that is killed."""


def dying_at(step: str) -> Callable[[], None]:
    def die(name: str, _attributes: object) -> None:
        if name == step:
            raise Died

    return telemetry.listen(die)


def commit_unpublished(ledger: Ledger, place: str, number: int) -> None:
    """Ratify a version and die before it is published."""
    stop = dying_at("commit.ratified")
    try:
        with pytest.raises(Died):
            commit(ledger, place, number)
    finally:
        stop()


@pytest.fixture
def moved_on(vault: Vault, uri: str, place: str) -> Iterator[tuple[Ledger, list[str]]]:
    """A ledger restored from a backup of version 2, with a log at version 5."""
    with connect(uri) as ledger:
        ledger.create(place, SCHEMA, name="orders")
        commit(ledger, place, 1)
        commit(ledger, place, 2)
    saved = vault.take(uri)
    with connect(uri) as ledger:
        commit(ledger, place, 3, transaction_id="third")
        commit(ledger, place, 4)
        with ledger.transaction(author="cleaner") as tx:
            tx.commit(place, [remove(1)])
    with connect(vault.restore(saved), create=False) as restored:
        yield restored, paths([2, 3, 4])


# --- backups as such


def everything(ledger: Ledger, place: str) -> list[object]:
    files = ledger.snapshot(place).files().sort_by("path").to_pylist()
    return [ledger.tables(), ledger.history(place), files, ledger.audit_trail()]


def test_a_restored_ledger_is_the_ledger(vault: Vault, uri: str, place: str, tmp_path: Path) -> None:
    with connect(uri, author="tester") as ledger:
        ledger.create(place, SCHEMA, name="orders")
        commit(ledger, place, 1, 2, 3)
        before = everything(ledger, place)
    restored_uri = vault.restore(vault.take(uri))
    with connect(restored_uri, create=False) as ledger:
        assert everything(ledger, place) == before
        # Numbers that the database hands out go on where they were.
        ledger.create(tmp_path / "other", SCHEMA, name="other")
        assert [table.table_id for table in ledger.tables()] == [1, 2]
        commit(ledger, place, 4)
        check_equal(ledger, place, paths([1, 2, 3, 4]))


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_backup_taken_while_writers_work_is_a_moment_of_the_ledger(
    vault: Vault, uri: str, place: str
) -> None:
    stop, failures = threading.Event(), []
    with connect(uri) as ledger:
        ledger.create(place, SCHEMA, properties={"delta.checkpointInterval": "5"})

        def write(first: int) -> None:
            try:
                for number in range(first, first + 100_000):
                    if stop.is_set():
                        return
                    commit(ledger, place, number)
            except Exception as error:
                failures.append(error)

        writers = [threading.Thread(target=write, args=(first,)) for first in (0, 200_000)]
        for writer in writers:
            writer.start()
        while ledger.latest_version(place) < 10:
            time.sleep(0.01)
        saved = vault.take(uri)
        while ledger.latest_version(place) < 25:
            time.sleep(0.01)
        stop.set()
        for writer in writers:
            writer.join()
        assert failures == []
        with connect(vault.restore(saved), create=False) as restored:
            head = restored.latest_version(place)
            assert 10 <= head < ledger.latest_version(place)
            assert files_of(restored, place) == files_of(ledger, place, head)
            restored.refresh(place)
            check_equal(restored, place, files_of(ledger, place))


def test_duckdb_can_be_exported_and_imported(tmp_path: Path, place: str) -> None:
    first, second = tmp_path / "a.duckdb", tmp_path / "b.duckdb"
    with connect(f"deltasql://duckdb/{first}") as ledger:
        ledger.create(place, SCHEMA, name="orders")
        commit(ledger, place, 1)
    with duckdb.connect(str(first)) as connection:
        connection.execute(f"EXPORT DATABASE '{tmp_path}/exported' (FORMAT parquet)")
    with duckdb.connect(str(second)) as connection:
        connection.execute(f"IMPORT DATABASE '{tmp_path}/exported'")
    with connect(f"deltasql://duckdb/{second}", create=False) as ledger:
        ledger.create(tmp_path / "other", SCHEMA)
        commit(ledger, place, 2)
        check_equal(ledger, place, paths([1, 2]))
        assert len({table.table_id for table in ledger.tables()}) == 2


# --- a backup from before the log's newest versions


def test_the_next_commit_finds_what_the_backup_lacks(moved_on: tuple[Ledger, list[str]], place: str) -> None:
    ledger, expected = moved_on
    published = log_bytes(place)
    assert ledger.latest_version(place) == 2
    commit(ledger, place, 9)
    check_equal(ledger, place, sorted([*expected, *paths([9])]))
    assert ledger.latest_version(place) == 6
    assert {name: content for name, content in log_bytes(place).items() if name in published} == published
    told = [(entry.version, entry.source, entry.author) for entry in ledger.history(place)]
    assert told[:4] == [
        (6, "ledger", "loader"),
        (5, "foreign", "cleaner"),
        (4, "foreign", "loader"),
        (3, "foreign", "loader"),
    ]


@pytest.mark.parametrize("way", ["refresh", "reconcile"])
def test_it_can_be_brought_up_before_anybody_writes(
    moved_on: tuple[Ledger, list[str]], place: str, way: str
) -> None:
    ledger, expected = moved_on
    if way == "refresh":
        assert ledger.refresh(place) == 3
    else:
        assert [table.imported for table in ledger.reconcile().tables] == [3]
    check_equal(ledger, place, expected)
    assert [entry.action for entry in ledger.audit_trail()][:3] == ["import"] * 3


def test_a_commit_made_from_the_old_state_is_refused(moved_on: tuple[Ledger, list[str]], place: str) -> None:
    ledger, expected = moved_on
    assert files_of(ledger, place) == paths([1, 2])
    with pytest.raises(CommitConflict), ledger.transaction() as tx:
        tx.commit(place, [remove(1)])
    check_equal(ledger, place, expected)


def test_a_table_that_refuses_outsiders_names_the_way_out(
    moved_on: tuple[Ledger, list[str]], place: str
) -> None:
    ledger, expected = moved_on
    table = ledger.tables()[0]
    with ledger._ctx.store.writing() as session:
        session.run("set_policy", table_id=table.table_id, foreign_commits="refuse")
    before = log_bytes(place)
    with pytest.raises(ForeignCommit, match=r"Nothing was written.*deltaplane ledger refresh orders"):
        commit(ledger, place, 9)
    assert log_bytes(place) == before
    assert ledger.refresh(place) == 3
    commit(ledger, place, 9)
    check_equal(ledger, place, sorted([*expected, *paths([9])]))


def test_a_transaction_that_the_backup_does_not_know_is_not_repeated(
    moved_on: tuple[Ledger, list[str]], place: str
) -> None:
    """Its writer was not sure and asks again under the same id."""
    ledger, expected = moved_on
    commit(ledger, place, 3, transaction_id="third")
    check_equal(ledger, place, expected)
    assert ledger.latest_version(place) == 5
    assert ledger.outcome("third")


def test_imported_versions_have_the_time_of_their_files(ledger: Ledger, place: str) -> None:
    ledger.create(place, SCHEMA)
    moment = int(time.time()) + 1
    for number in (1, 2):
        path = Path(place, commit_path(number))
        path.write_text('{"commitInfo":{"operation":"WRITE"}}\n', encoding="utf-8")
        os.utime(path, (moment + number,) * 2)
    while time.time() < moment + 2.1:
        time.sleep(0.05)
    ledger.refresh(place)
    assert [entry.timestamp for entry in ledger.history(place)[:2]] == [
        (moment + 2) * 1000,
        (moment + 1) * 1000,
    ]
    assert ledger.snapshot(place, timestamp=(moment + 1) * 1000 + 500).version == 1


# --- versions that were ratified and not yet published


def test_what_waited_for_publication_in_the_backup_is_published(vault: Vault, uri: str, place: str) -> None:
    with connect(uri) as ledger:
        ledger.create(place, SCHEMA)
        commit_unpublished(ledger, place, 1)
    saved = vault.take(uri)
    with connect(vault.restore(saved), create=False) as ledger:
        assert files_of_reader(place) == []
        assert ledger.publish() == {place: 1}
        check_equal(ledger, place, paths([1]))


def test_what_waited_in_the_backup_was_published_since(vault: Vault, uri: str, place: str) -> None:
    with connect(uri) as ledger:
        ledger.create(place, SCHEMA)
        commit_unpublished(ledger, place, 1)
    saved = vault.take(uri)
    with connect(uri) as ledger:
        commit(ledger, place, 2)
        commit(ledger, place, 3)
    before = log_bytes(place)
    with connect(vault.restore(saved), create=False) as ledger:
        commit(ledger, place, 4)
        check_equal(ledger, place, paths([1, 2, 3, 4]))
    assert before.items() <= log_bytes(place).items()


def test_a_version_that_was_in_neither_backup_nor_log_is_gone_and_nothing_else(
    vault: Vault, uri: str, place: str
) -> None:
    """The one loss that a restore can bring: ratified after the backup, and never published."""
    with connect(uri) as ledger:
        ledger.create(place, SCHEMA)
        commit(ledger, place, 1)
    saved = vault.take(uri)
    with connect(uri) as ledger:
        commit_unpublished(ledger, place, 2)
    with connect(vault.restore(saved), create=False) as ledger:
        commit(ledger, place, 3)
        check_equal(ledger, place, paths([1, 3]))
        assert ledger.latest_version(place) == 2


def test_a_group_of_which_only_a_part_was_published_is_not_taken_for_whole(
    vault: Vault, uri: str, place: str, tmp_path: Path
) -> None:
    other = str(tmp_path / "zebras")
    with connect(uri) as ledger:
        ledger.create(place, SCHEMA)
        ledger.create(other, SCHEMA)
    saved = vault.take(uri)

    def group(ledger: Ledger) -> None:
        with ledger.transaction(transaction_id="both") as tx:
            tx.commit(place, [add(1)])
            tx.commit(other, [add(1)])

    stop = dying_at("publish.marked")
    try:
        with connect(uri) as ledger, pytest.raises(Died):
            group(ledger)
    finally:
        stop()
    # The two are published at once; a kill in between would have left one of them without its file.
    Path(other, commit_path(1)).unlink()
    assert (len(log_bytes(place)), len(log_bytes(other))) == (2, 1)
    with connect(vault.restore(saved), create=False) as ledger:
        with pytest.raises(CommitRefused, match=r"has nothing of it.*restored from a backup"):
            group(ledger)
        assert sorted([ledger.latest_version(place), ledger.latest_version(other)]) == [0, 1]


# --- further than the log reaches back


def test_a_log_that_was_cleaned_up_beyond_the_backup_is_refused_with_the_way_out(
    moved_on: tuple[Ledger, list[str]], place: str
) -> None:
    ledger, expected = moved_on
    Path(place, "_delta_log").joinpath("_last_checkpoint").unlink(missing_ok=True)
    DeltaTable(place).create_checkpoint()
    for number in range(5):
        Path(place, commit_path(number)).unlink()
    before = log_bytes(place)
    with pytest.raises(CorruptLog) as refused:
        commit(ledger, place, 9)
    assert "restored from an older backup" in str(refused.value)
    assert "deltaplane ledger release orders, then deltaplane ledger adopt" in str(refused.value)
    assert log_bytes(place) == before
    ledger.release(place)
    ledger.adopt(place, name="orders")
    commit(ledger, place, 9)
    assert files_of(ledger, place) == sorted([*expected, *paths([9])])
    assert files_of_reader(place) == sorted([*expected, *paths([9])])


def test_a_table_that_came_after_the_backup_is_adopted(
    moved_on: tuple[Ledger, list[str]], tmp_path: Path, ledger_uri: Callable[[str], str], engine: str
) -> None:
    ledger, _ = moved_on
    place = str(tmp_path / "younger")
    with connect(ledger_uri(engine)) as lost:
        lost.create(place, SCHEMA)
        commit(lost, place, 1)
    with pytest.raises(CommitRefused, match="deltaplane ledger adopt"):
        ledger.create(place, SCHEMA)
    ledger.adopt(place)
    commit(ledger, place, 2)
    check_equal(ledger, place, paths([1, 2]))
