"""Large versions are ratified bare. The rows of their files follow: whoever needs them first writes them."""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import duckdb
import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from deltaplane import telemetry
from deltaplane.cli.ledger_output import round_text
from deltaplane.errors import LedgerError, LedgerSchemaError, LedgerUnavailable
from deltaplane.ledger import Ledger, completing, connect, snapshot
from deltaplane.ledger.checkpointing import checkpoint_if_due
from deltaplane.ledger.commit import NewTable, Request
from deltaplane.ledger.commit import commit as land
from deltaplane.ledger.completing import Lacking, complete_table
from deltaplane.ledger.context import Context
from deltaplane.ledger.migrations import migrate
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.names import commit_path
from deltaplane.ledger.placing import Staged
from deltaplane.ledger.prepare import prepare_actions, prepare_bytes
from deltaplane.ledger.ratify import Version, decompress
from deltaplane.ledger.reconcile import ReconcileReport
from deltaplane.log.jsonlines import action_from_dict, write_commit
from ledger.conftest import SCHEMA, add, remove


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
        complete_table(ctx, Lacking(of))
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
    lacking = Lacking(ledger.context.table(table))
    done: list[bool] = []
    threads = [
        threading.Thread(target=lambda: done.append(complete_table(ledger.context, lacking)))
        for _ in range(4)
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
    done = ledger.reconcile().tables
    assert [(report.outcome, report.completed) for report in done] == [("done", True)]
    assert "the rows of a large commit written" in (round_text(ReconcileReport(done, ledger.status())) or "")
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


def test_a_version_with_which_a_checkpoint_is_due_brings_its_rows(ledger: Ledger, tmp_path: Path) -> None:
    """The checkpoint is there when the commit is: nothing writes into the table's folder behind it."""
    place = str(tmp_path / "often")
    ledger.create(place, SCHEMA, properties={"delta.checkpointInterval": "2"})
    seen: list[str] = []
    stop = telemetry.listen(lambda name, _: seen.append(name))
    commit(ledger, place, add(0), add(1), add(2))
    _joined(ledger)
    assert "complete.done" in seen
    seen.clear()
    commit(ledger, place, add(3), add(4), add(5))
    stop()
    assert "complete.done" not in seen
    assert (tmp_path / "often" / "_delta_log" / f"{2:020d}.checkpoint.parquet").exists()
    assert_whole(ledger, place, *range(6))


@pytest.mark.parametrize("who", ["whoever committed", "the next commit"])
def test_whoever_asks_for_checkpoints_himself_does_not_wait_for_rows(
    ledger: Ledger, tmp_path: Path, nobody_completes: None, who: str
) -> None:
    """Spark asks at the end of a statement; should it not come to that, the next commit writes it."""
    place = str(tmp_path / "often")
    ledger.create(place, SCHEMA, properties={"delta.checkpointInterval": "2"})
    commit(ledger, place, add(0))
    table = ledger.context.table(place)
    staged = (Staged(table, prepare_actions([add(1), add(2), add(3)], place), 1, True),)
    land(ledger.context, Request("asks", staged, None, None, asks_for_checkpoints=True))
    checkpoint = tmp_path / "often" / "_delta_log" / f"{2:020d}.checkpoint.parquet"
    assert is_bare(ledger, place)
    assert not checkpoint.exists()
    if who == "whoever committed":
        assert checkpoint_if_due(ledger.context, ledger.context.table(place), 2) == 2
    else:
        commit(ledger, place, add(4))
    assert checkpoint.exists()
    assert len(DeltaTable(place, version=2).file_uris()) == 4
    assert_whole(ledger, place, *range(4 if who == "whoever committed" else 5))


ODD_TEXTS = {"stats": '{"numRecords":1,"x":"\ud800"}', "clusteringProvider": "a\0b"}


@pytest.mark.parametrize("name", ODD_TEXTS)
def test_what_a_database_cannot_keep_is_refused_before_it_is_ratified(
    ledger: Ledger, table: str, name: str
) -> None:
    """These come in the writer's own bytes, which are only looked through for what matters."""
    told = [
        {"commitInfo": {"operation": "WRITE"}},
        *(add(n) for n in (2, 3)),
        add(4, **{name: ODD_TEXTS[name]}),
    ]
    content = "".join(json.dumps(action) + "\n" for action in told).encode()
    managed = ledger.context.table(table)
    request = Request("odd", (Staged(managed, prepare_bytes(content, table), 1, True),), None, None)
    with suppress(UnicodeError, LedgerError, psycopg.Error, duckdb.Error):
        # Some databases can keep one of them.
        land(ledger.context, request)
    expected = {1: [0, 1], 2: [0, 1, 2, 3, 4]}
    assert numbers(ledger.snapshot(table).files()) == expected[ledger.latest_version(table)]
    assert not is_bare(ledger, table)


def test_statistics_that_are_nested_too_deeply_are_junk(
    ledger: Ledger, table: str, nobody_completes: None
) -> None:
    deep = '{"x":' + "[" * 100_000 + "]" * 100_000 + ',"numRecords":1}'
    commit(ledger, table, add(2, stats=deep), add(3), add(4))
    assert numbers(ledger.snapshot(table).files()) == [0, 1, 2, 3, 4]
    assert ledger.snapshot(table).num_records is None


def test_the_rows_of_a_version_that_was_replaced_are_not_written(
    ledger: Ledger, table: str, nobody_completes: None
) -> None:
    """Whoever committed is late; meanwhile a repair forgot the version, and another one has its number."""
    commit(ledger, table, add(2), add(3), add(4))
    with ledger.context.store.reading() as session:
        number = ledger.context.table(table).table_id
        row = session.row("content", table_id=number, version=2)
    assert row is not None
    content = decompress(row[0], row[1])
    version = Version(2, prepare_bytes(content, table), content, 0, 0, "ledger")
    late = Lacking(ledger.context.table(table), version)
    (Path(table) / commit_path(2)).unlink()
    (Path(table) / commit_path(1)).write_bytes(write_commit([action_from_dict(add(7))]))
    ledger.repair(table, keep="log", dry_run=False)
    commit(ledger, table, add(8), add(9), add(10))
    assert is_bare(ledger, table)
    assert complete_table(ledger.context, late)
    assert_whole(ledger, table, 7, 8, 9, 10)


def test_a_released_table_is_as_it_was_published(ledger: Ledger, table: str) -> None:
    """Nothing of what is under way behind a commit comes after the release."""
    for number in range(1, 6):
        commit(ledger, table, *(add(3 * number + n) for n in range(3)))
        ledger.release(table)
        _joined(ledger)
        assert len(DeltaTable(table).file_uris()) == 2 + 3 * number
        assert not list((Path(table) / "_delta_log").glob("*checkpoint*"))
        ledger.adopt(table)
    assert_whole(ledger, table, 0, 1, *range(3, 18))


def test_the_reconciler_writes_the_rows_of_a_frozen_table_too(
    ledger: Ledger, table: str, nobody_completes: None
) -> None:
    commit(ledger, table, remove(0), add(2), add(3))
    with ledger.context.store.writing() as session:
        session.run("freeze", table_id=ledger.context.table(table).table_id, reason="a test")
    assert [report.outcome for report in ledger.reconcile().tables] == ["frozen"]
    assert not is_bare(ledger, table)


def test_a_repeated_commit_that_took_place_writes_the_rows(
    ledger: Ledger, table: str, nobody_completes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a connection that broke during COMMIT."""
    managed = ledger.context.table(table)
    actions = [add(2), add(3), add(4)]
    request = Request("twice", (Staged(managed, prepare_actions(actions, table), 1, True),), None, None)
    land(ledger.context, request)
    assert is_bare(ledger, table)
    monkeypatch.undo()
    assert land(ledger.context, request).versions == {table: 2}
    _joined(ledger)
    assert not is_bare(ledger, table)
    assert_whole(ledger, table, 0, 1, 2, 3, 4)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_process_that_is_forked_while_rows_are_written_is_not_stuck(
    ledger: Ledger, table: str, engine: str
) -> None:
    held, go_on = threading.Event(), threading.Event()

    def hold(name: str, _: object) -> None:
        if name == "complete.rows_written":
            held.set()
            go_on.wait(20)

    stop = telemetry.listen(hold)
    commit(ledger, table, remove(0), add(2), add(3))
    assert held.wait(20)
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        fine = gc.isenabled()
        if engine == "duckdb":
            try:
                ledger.history(table)
            except LedgerUnavailable:
                ledger.context.store.close()
            else:
                fine = False
        os._exit(0 if fine else 1)
    _, status = os.waitpid(child, 0)
    go_on.set()
    _joined(ledger)
    stop()
    assert status == 0
    assert_whole(ledger, table, 1, 2, 3)


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


def test_a_failure_behind_a_commit_is_told_and_harms_nothing(
    ledger: Ledger, table: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> bool:
        raise LedgerError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(completing, "complete_table", broken)
        commit(ledger, table, remove(0), add(2), add(3))
        _joined(ledger)
    assert "the rows of its newest version are still to be written: the disk is full" in caplog.text
    assert_whole(ledger, table, 1, 2, 3)


def test_a_process_without_threads_to_spare_commits_all_the_same(
    ledger: Ledger, table: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        commit(ledger, table, remove(0), add(2), add(3))
    assert "the rows of its newest version are still to be written: can't start new thread" in caplog.text
    assert_whole(ledger, table, 1, 2, 3)


def _joined(ledger: Ledger) -> None:
    for thread in ledger.context._behind:
        thread.join()
