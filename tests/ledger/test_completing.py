"""Large versions are ratified bare. The rows of their files follow: whoever needs them first writes them."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from deltaplane import telemetry
from deltaplane.errors import LedgerError, LedgerSchemaError
from deltaplane.ledger import Ledger, completing, connect, snapshot
from deltaplane.ledger.commit import NewTable, Request
from deltaplane.ledger.commit import commit as land
from deltaplane.ledger.completing import complete_table
from deltaplane.ledger.context import Context
from deltaplane.ledger.migrations import migrate
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.names import commit_path
from deltaplane.ledger.prepare import prepare_bytes
from deltaplane.log.jsonlines import action_from_dict, write_commit
from ledger.conftest import SCHEMA, add, remove
from ledger.test_roles import World, world  # noqa: F401 - a fixture


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completing, "LARGE", 3)


@pytest.fixture
def nobody_completes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the process that committed had died right behind its commit."""
    monkeypatch.setattr(Context, "start_behind", lambda *_: None)


@pytest.fixture
def table(ledger: Ledger, tmp_path: Path) -> str:
    """A table with the files 0 and 1."""
    place = str(tmp_path / "table")
    ledger.create(place, SCHEMA)
    commit(ledger, place, add(0), add(1))
    return place


def commit(ledger: Ledger, table: str, *actions: dict[str, object]) -> None:
    with ledger.transaction() as transaction:
        transaction.commit(table, list(actions))


def is_bare(ledger: Ledger, table: str) -> bool:
    with ledger.context.store.glance() as session:
        found = session.row("bare_head", table_id=ledger.context.table(table).table_id)
    assert (found is None) is (ledger.history(table)[0].num_files is not None)
    return found is not None


def numbers(files: pa.Table) -> list[int]:
    return sorted(
        int(path.removeprefix("part-").removesuffix(".parquet")) for path in files["path"].to_pylist()
    )


def assert_whole(ledger: Ledger, table: str, *files: int) -> None:
    """The newest version has these files, for every reader, and all versions are what the log says."""
    newest = ledger.snapshot(table)
    assert numbers(newest.files()) == sorted(files)
    assert (newest.num_files, newest.size_bytes) == (len(files), sum(100 + n for n in files))
    assert numbers(newest.files("id >= 0")) == sorted(files)
    assert newest.num_records == 10 * len(files)
    assert not is_bare(ledger, table)
    for version in range(newest.version + 1):
        assert ledger.verify(table, version=version).differences == ()
    outside = [uri.rsplit("/", 1)[-1] for uri in DeltaTable(table).file_uris()]
    assert sorted(outside) == [f"part-{n:05d}.parquet" for n in sorted(files)]


def test_it_is_in_the_log_before_its_rows_are_in_the_ledger(
    ledger: Ledger, table: str, nobody_completes: None
) -> None:
    commit(ledger, table, remove(0), add(2), add(3))
    assert is_bare(ledger, table)
    assert DeltaTable(table).version() == 2
    assert len(DeltaTable(table).file_uris()) == 3
    assert ledger.history(table)[0].facts.adds == 2


def test_a_reader_writes_the_rows(ledger: Ledger, table: str, nobody_completes: None) -> None:
    commit(ledger, table, remove(0), add(2), add(3))
    assert_whole(ledger, table, 1, 2, 3)


def test_a_reader_of_an_older_version_does_not(ledger: Ledger, table: str, nobody_completes: None) -> None:
    commit(ledger, table, remove(0), add(2), add(3))
    assert numbers(ledger.snapshot(table, version=1).files()) == [0, 1]
    assert is_bare(ledger, table)


def test_a_reader_whom_somebody_else_outruns(
    ledger: Ledger, table: str, nobody_completes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has seen that the version is bare; before it looks again somebody has written the rows."""
    commit(ledger, table, remove(0), add(2), add(3))
    ours = snapshot.ensure_complete

    def outrun(ctx: Context, of: ManagedTable, version: int) -> None:
        complete_table(ctx, of.table_id)
        ours(ctx, of, version)

    monkeypatch.setattr(snapshot, "ensure_complete", outrun)
    assert_whole(ledger, table, 1, 2, 3)


def test_the_next_commit_writes_the_rows_and_builds_on_them(
    ledger: Ledger, table: str, nobody_completes: None
) -> None:
    commit(ledger, table, remove(0), add(2), add(3))
    commit(ledger, table, remove(2), add(0))
    assert_whole(ledger, table, 0, 1, 3)


def test_a_large_version_on_a_large_one(ledger: Ledger, table: str, nobody_completes: None) -> None:
    commit(ledger, table, remove(0), add(2), add(3))
    commit(ledger, table, remove(1), remove(2), add(4))
    assert ledger.history(table)[1].num_files == 3
    assert is_bare(ledger, table)
    assert_whole(ledger, table, 3, 4)


def test_two_large_versions_and_a_small_one_in_one_transaction(
    ledger: Ledger, table: str, nobody_completes: None
) -> None:
    with ledger.transaction() as transaction:
        transaction.commit(table, [add(2), add(3), add(4)])
        transaction.commit(table, [remove(2), remove(3), remove(0)])
        transaction.commit(table, [add(5)])
    assert_whole(ledger, table, 1, 4, 5)


def test_a_table_that_begins_with_a_large_version(
    ledger: Ledger, tmp_path: Path, nobody_completes: None
) -> None:
    place = str(tmp_path / "new")
    ledger.create(str(tmp_path / "like"), SCHEMA)
    first = (tmp_path / "like" / commit_path(0)).read_bytes()
    files = write_commit(action_from_dict(add(number)) for number in range(3))
    prepared = prepare_bytes(first + files, place)
    new = NewTable(place, None, "import", (), prepared)
    land(ledger.context, Request("first", (), None, None, (new,)))
    assert is_bare(ledger, place)
    assert_whole(ledger, place, 0, 1, 2)


def test_it_is_completed_behind_the_commit(ledger: Ledger, uri: str, table: str) -> None:
    seen: list[str] = []
    threads: list[str] = []

    def note(name: str, _: object) -> None:
        if name == "complete.done":
            threads.append(threading.current_thread().name)
        seen.append(name)

    stop = telemetry.listen(note)
    commit(ledger, table, remove(0), add(2), add(3))
    ledger.close()
    stop()
    assert seen.index("publish.marked") < seen.index("complete.done")
    assert threads != [threading.current_thread().name]
    with connect(uri) as again:
        assert not is_bare(again, table)
        assert_whole(again, table, 1, 2, 3)


def test_whoever_commits_and_goes_on_at_once_meets_himself(ledger: Ledger, table: str) -> None:
    """The thread behind and the next commit want the same rows, again and again."""
    for round_ in range(1, 11):
        commit(ledger, table, *(add(3 * round_ + n) for n in range(3)))
    assert_whole(ledger, table, 0, 1, *range(3, 33))


def test_several_complete_it_at_once(ledger: Ledger, uri: str, table: str, nobody_completes: None) -> None:
    commit(ledger, table, remove(0), add(2), add(3))
    number = ledger.context.table(table).table_id
    done: list[bool] = []
    threads = [
        threading.Thread(target=lambda: done.append(complete_table(ledger.context, number))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [False, False, False, True]
    assert_whole(ledger, table, 1, 2, 3)


def test_moments_and_read_points_know_it(ledger: Ledger, table: str, nobody_completes: None) -> None:
    commit(ledger, table, remove(0), add(2), add(3))
    stamp = ledger.history(table)[0].timestamp
    assert ledger.read_point().versions[table] == 2
    assert ledger.read_point(at=max(stamp, ledger.history(table)[0].committed_at)).versions[table] == 2
    assert is_bare(ledger, table)
    assert ledger.snapshot(table, timestamp=stamp).version == 2
    assert numbers(ledger.snapshot(table, version=2).files()) == [1, 2, 3]


def test_the_reconciler_writes_the_rows(ledger: Ledger, table: str, nobody_completes: None) -> None:
    commit(ledger, table, remove(0), add(2), add(3))
    assert [report.outcome for report in ledger.reconcile().tables] == ["done"]
    assert not is_bare(ledger, table)
    assert [report.outcome for report in ledger.reconcile().tables] == ["clean"]
    assert_whole(ledger, table, 1, 2, 3)


def test_a_foreign_commit_on_top(ledger: Ledger, table: str, nobody_completes: None) -> None:
    commit(ledger, table, remove(0), add(2), add(3))
    lines = write_commit(action_from_dict(action) for action in (remove(3), add(4)))
    (Path(table) / commit_path(3)).write_bytes(lines)
    assert ledger.refresh(table) == 1
    assert_whole(ledger, table, 1, 2, 4)


def test_a_repair_that_forgets_it(ledger: Ledger, table: str, nobody_completes: None) -> None:
    commit(ledger, table, remove(0), add(2), add(3))
    lines = write_commit(action_from_dict(action) for action in (remove(1), add(7)))
    (Path(table) / commit_path(2)).write_bytes(lines)
    ledger.repair(table, keep="log", dry_run=False)
    assert_whole(ledger, table, 0, 7)


def test_a_repair_that_keeps_it(ledger: Ledger, table: str, nobody_completes: None) -> None:
    commit(ledger, table, remove(0), add(2), add(3))
    (Path(table) / commit_path(2)).write_bytes(b'{"commitInfo":{}}\n')
    ledger.repair(table, keep="ledger", dry_run=False)
    assert_whole(ledger, table, 1, 2, 3)


def test_its_checkpoint_is_written_behind_it(ledger: Ledger, tmp_path: Path) -> None:
    place = str(tmp_path / "often")
    ledger.create(place, SCHEMA, properties={"delta.checkpointInterval": "1"})
    commit(ledger, place, add(0), add(1), add(2))
    ledger.context.close()
    assert (tmp_path / "often" / "_delta_log" / f"{1:020d}.checkpoint.parquet").exists()
    assert_whole(ledger, place, 0, 1, 2)


def test_what_could_go_wrong_with_its_rows_is_found_at_once(ledger: Ledger, table: str) -> None:
    huge = 2**62
    with pytest.raises(Exception, match="more than 64 bits"):
        commit(ledger, table, add(2, size=huge), add(3, size=huge), add(4, size=huge))
    assert_whole(ledger, table, 0, 1)


def test_an_older_schema_does_not_take_it(
    ledger: Ledger, table: str, nobody_completes: None, engine: str
) -> None:
    commit(ledger, table, remove(0), add(2), add(3))
    store = ledger.context.store
    with pytest.raises(LedgerSchemaError, match=r"migration 7 \(bare_versions\) failed"):
        migrate(store, 6)
    ledger.reconcile()
    assert migrate(store, 6) == (7, 6)
    assert migrate(store) == (6, 7)
    assert_whole(ledger, table, 1, 2, 3)


@pytest.fixture
def reader(world: World, nobody_completes: None) -> Ledger:  # noqa: F811
    with world.open("writer") as writer:
        commit(writer, str(world.place), add(5), add(6), add(7))
    return world.open("reader")


def test_a_user_who_may_only_read_waits_for_the_rows(
    world: World,  # noqa: F811
    reader: Ledger,
) -> None:
    def later() -> None:
        with world.open("reconciler") as reconciler:
            reconciler.reconcile()

    timer = threading.Timer(0.5, later)
    timer.start()
    found = numbers(reader.snapshot(str(world.place)).files())
    timer.join()
    assert found[-3:] == [5, 6, 7]


def test_a_user_who_may_only_read_is_told_what_lacks(
    world: World,  # noqa: F811
    reader: Ledger,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(completing, "_PATIENCE_SECONDS", 0.2)
    with pytest.raises(LedgerError, match=r"rows of its files are not in the ledger yet.*reconcile"):
        reader.snapshot(str(world.place))


def test_a_failure_behind_a_commit_is_told_and_harms_nothing(
    ledger: Ledger, table: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> bool:
        raise LedgerError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(completing, "complete_table", broken)
        commit(ledger, table, remove(0), add(2), add(3))
        _joined(ledger)
    assert "the rows of version 2 are still to be written: the disk is full" in caplog.text
    assert_whole(ledger, table, 1, 2, 3)


def _joined(ledger: Ledger) -> None:
    for thread in ledger.context._behind:
        thread.join()
