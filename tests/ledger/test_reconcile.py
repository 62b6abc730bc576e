"""The reconciler finishes what was left, once, and one bad table does not stop the others."""

from __future__ import annotations

import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from deltaplane import telemetry
from deltaplane.errors import CommitRefused, LedgerUnavailable, NotADeltaTable
from deltaplane.ledger import Ledger, connect
from deltaplane.ledger.alerts import Alert, Notifier, Thresholds
from deltaplane.ledger.leases import lease
from deltaplane.ledger.publish import freeze
from deltaplane.ledger.reconcile import ReconcileReport, TableReport, reconcile, watch
from deltaplane.ledger.staged import staged_path
from deltaplane.log.jsonlines import dump_json
from ledger.conftest import SCHEMA, add
from ledger.unpublished import block, commit, delayed, log_of, table_behind
from postgres_server import PostgresServer

QUIET = Thresholds(None, None, None, False, False)


def commit_names(versions: int) -> list[str]:
    return [f"{version:020d}.json" for version in range(versions)]


def test_pending_versions_are_published_and_then_there_is_nothing_to_do(
    ledger: Ledger, tmp_path: Path
) -> None:
    table = table_behind(ledger, tmp_path, "t", 3)
    assert log_of(table) == commit_names(1)
    first, second = ledger.reconcile(), ledger.reconcile()
    assert first.tables == (TableReport(str(table), "t", "done", published=3),)
    assert second.tables == (TableReport(str(table), "t", "clean"),)
    assert log_of(table) == commit_names(4)
    assert (first.alerts, first.status.behind, first.failed) == ((), (), ())


def test_one_bad_table_does_not_stop_the_others(ledger: Ledger, tmp_path: Path) -> None:
    table_behind(ledger, tmp_path, "a", 2)
    bad = table_behind(ledger, tmp_path, "b", 2)
    table_behind(ledger, tmp_path, "c", 2)
    block(bad, 2)
    report = ledger.reconcile()
    assert [(table.name, table.outcome, table.published) for table in report.tables] == [
        ("a", "done", 2),
        ("b", "failed", 1),
        ("c", "done", 2),
    ]
    assert "Is a directory" in (report.tables[1].error or "")
    assert [(lag.name, lag.versions, lag.attempts) for lag in report.status.behind] == [("b", 1, 1)]


def test_an_unforeseen_failure_is_reported_and_logged_with_its_trace(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table_behind(ledger, tmp_path, "a", 1)
    table_behind(ledger, tmp_path, "b", 1)
    real = ledger._ctx.storage

    def broken(root: str) -> object:
        if root.endswith("/a"):
            raise ZeroDivisionError("who divides here")
        return real(root)

    monkeypatch.setattr(ledger._ctx, "storage", broken)
    report = ledger.reconcile()
    assert [(table.name, table.outcome) for table in report.tables] == [("a", "failed"), ("b", "done")]
    assert "ZeroDivisionError: who divides here" in (report.tables[0].error or "")
    assert any(record.exc_info for record in caplog.records)


def test_a_failed_publication_waits_for_its_next_attempt_unless_forced(
    ledger: Ledger, tmp_path: Path
) -> None:
    table = table_behind(ledger, tmp_path, "t", 1)
    place = block(table, 1)
    assert ledger.reconcile().tables[0].outcome == "failed"
    place.rmdir()
    assert ledger.reconcile().tables == (TableReport(str(table), "t", "waiting"),)
    assert ledger.reconcile(force=True).tables == (TableReport(str(table), "t", "done", published=1),)


def test_the_next_attempt_comes_when_its_time_has_come(ledger: Ledger, tmp_path: Path) -> None:
    table = table_behind(ledger, tmp_path, "t", 1)
    place = block(table, 1)
    ledger.reconcile()
    place.rmdir()
    ledger._ctx.clock = lambda: time.time_ns() // 1_000_000 + 2_000
    assert ledger.reconcile().tables[0].outcome == "done"


def test_a_clock_that_jumped_back_does_not_delay_the_next_attempt_for_long(
    ledger: Ledger, tmp_path: Path
) -> None:
    table = table_behind(ledger, tmp_path, "t", 1)
    place = block(table, 1)
    ledger._ctx.clock = lambda: time.time_ns() // 1_000_000 + 86_400_000
    ledger.reconcile()
    place.rmdir()
    ledger._ctx.clock = lambda: time.time_ns() // 1_000_000
    assert ledger.reconcile().tables[0].outcome == "done"


def write_foreign(table: Path, version: int) -> None:
    lines = "".join(dump_json(action) + "\n" for action in ({"commitInfo": {"operation": "WRITE"}}, add(90)))
    (table / "_delta_log" / f"{version:020d}.json").write_text(lines)


def test_commits_of_outside_writers_are_imported(ledger: Ledger, tmp_path: Path) -> None:
    table = table_behind(ledger, tmp_path, "t", 0)
    write_foreign(table, 1)
    assert ledger.reconcile().tables == (TableReport(str(table), "t", "done", imported=1),)
    assert ledger.snapshot("t").version == 1


def test_a_policy_that_refuses_them_is_a_failure_with_an_alert(ledger: Ledger, tmp_path: Path) -> None:
    table = tmp_path / "t"
    ledger.create(table, SCHEMA, name="t", foreign_commits="refuse")
    write_foreign(table, 1)
    report = ledger.reconcile()
    assert [(entry.outcome, entry.imported) for entry in report.tables] == [("failed", 0)]
    assert [alert.kind for alert in report.alerts] == ["failed"]
    assert ledger.snapshot("t").version == 0


def test_due_checkpoints_are_written(ledger: Ledger, tmp_path: Path) -> None:
    table = tmp_path / "t"
    ledger.create(table, SCHEMA, name="t", properties={"delta.checkpointInterval": "3"})
    with delayed():
        commit(ledger, "t", 1, 2, 3, 4)
    assert ledger.reconcile().tables == (TableReport(str(table), "t", "done", published=4, checkpoint=3),)
    assert f"{3:020d}.checkpoint.parquet" in log_of(table)


def test_a_checkpoint_that_failed_is_written_by_the_next_round(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "t"
    ledger.create(table, SCHEMA, name="t", properties={"delta.checkpointInterval": "2"})

    def broken(*_: object) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patched:
        patched.setattr("deltaplane.ledger.checkpointing.write_checkpoint", broken)
        commit(ledger, "t", 1, 2)
    assert ledger.reconcile().tables == (TableReport(str(table), "t", "done", checkpoint=2),)


def test_a_frozen_table_is_left_alone(ledger: Ledger, tmp_path: Path) -> None:
    table = table_behind(ledger, tmp_path, "t", 2)
    with pytest.raises(Exception, match="frozen"):
        freeze(ledger._ctx, ledger.tables()[0], "two stories")
    report = ledger.reconcile()
    assert report.tables == (TableReport(str(table), "t", "frozen", error="two stories"),)
    assert log_of(table) == commit_names(1)
    assert [alert.kind for alert in report.alerts] == ["frozen"]


@pytest.mark.parametrize("gone", ["", "_delta_log"])
@pytest.mark.parametrize("pending", [0, 2])
def test_a_table_deleted_underneath_is_reported_and_not_recreated(
    ledger: Ledger, tmp_path: Path, gone: str, pending: int
) -> None:
    table = table_behind(ledger, tmp_path, "t", pending)
    other = table_behind(ledger, tmp_path, "u", 1)
    shutil.rmtree(table / gone)
    report = ledger.reconcile(force=True)
    assert [(entry.outcome, entry.published) for entry in report.tables] == [("failed", 0), ("done", 1)]
    assert "the table's folder is gone" in (report.tables[0].error or "")
    assert not (table / "_delta_log").exists()
    assert len(log_of(other)) == 2
    # A delayed publication is judged by its lag; a table that only vanished needs a person at once.
    assert [alert.kind for alert in report.alerts] == ([] if pending else ["failed"])


def test_a_deleted_table_takes_no_commit_and_no_publication(ledger: Ledger, tmp_path: Path) -> None:
    table = table_behind(ledger, tmp_path, "t", 0)
    shutil.rmtree(table)
    with pytest.raises(NotADeltaTable, match="the table's folder is gone"), ledger.transaction() as tx:
        tx.commit("t", [add(1)])
    assert (ledger.snapshot("t").version, table.exists()) == (0, False)


def test_what_is_pending_is_not_published_into_a_deleted_folder(ledger: Ledger, tmp_path: Path) -> None:
    table = table_behind(ledger, tmp_path, "t", 2)
    shutil.rmtree(table)
    with pytest.raises(NotADeltaTable, match="the table's folder is gone"):
        ledger.publish("t")
    lag = ledger.status().tables[0]
    assert (lag.versions, lag.attempts, table.exists()) == (2, 1, False)
    assert "the table's folder is gone" in (lag.last_error or "")


def test_a_log_that_was_cleaned_up_to_a_checkpoint_is_not_taken_for_gone(
    ledger: Ledger, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    ledger.create(table, SCHEMA, name="t", properties={"delta.checkpointInterval": "2"})
    commit(ledger, "t", 1, 2)
    for name in commit_names(3):
        (table / "_delta_log" / name).unlink()
    with delayed():
        commit(ledger, "t", 3)
    assert ledger.reconcile().tables[0].outcome == "done"


def old(path: Path, hours: float) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}")
    then = time.time() - hours * 3600
    os.utime(path, (then, then))
    return path


def test_leftovers_of_killed_writers_are_removed_and_nothing_else(ledger: Ledger, tmp_path: Path) -> None:
    table = table_behind(ledger, tmp_path, "t", 0)
    log = table / "_delta_log"
    gone = [
        old(log / f".00000000000000000001.json.{uuid.uuid4().hex}.tmp", 2),
        old(log / "_sidecars" / f".x.parquet.{uuid.uuid4().hex}.tmp", 2),
    ]
    kept = [
        old(log / f".00000000000000000001.json.{uuid.uuid4().hex}.tmp", 0.1),
        old(log / "mine.tmp", 99),
        old(log / ".00000000000000000000.json.crc", 99),
    ]
    report = ledger.reconcile().tables[0]
    assert (report.outcome, sorted(report.removed)) == ("done", sorted(path.name for path in gone))
    assert ([path.exists() for path in gone], [path.exists() for path in kept]) == ([False] * 2, [True] * 3)


def test_staged_commits_of_dead_transactions_are_removed_and_can_never_be_committed(
    ledger: Ledger, tmp_path: Path
) -> None:
    table = table_behind(ledger, tmp_path, "t", 0)
    dead, alive = str(uuid.uuid4()), str(uuid.uuid4())
    staged = old(table / staged_path(1, dead), 25)
    kept = [
        old(table / staged_path(1, alive), 23),
        old(table / "_delta_log/_staged_commits" / f"{1:020d}.{uuid.uuid4()}.json", 99),
        old(table / "_delta_log/_staged_commits" / "notes.json", 99),
    ]
    assert ledger.reconcile().tables[0].removed == (staged.name,)
    assert (staged.exists(), [path.exists() for path in kept]) == (False, [True] * 3)
    with (
        pytest.raises(CommitRefused, match="was given up earlier"),
        ledger.transaction(transaction_id=dead) as tx,
    ):
        tx.commit("t", [add(1)])
    with ledger.transaction(transaction_id=alive) as tx:
        tx.commit("t", [add(1)])
    assert ledger.snapshot("t").version == 1


def test_a_staged_commit_of_a_committed_transaction_goes_and_the_commit_stays(
    ledger: Ledger, tmp_path: Path
) -> None:
    table = table_behind(ledger, tmp_path, "t", 0)
    name = str(uuid.uuid4())
    with ledger.transaction(transaction_id=name) as tx:
        tx.commit("t", [add(1)])
    staged = old(table / staged_path(1, name), 25)
    ledger.reconcile()
    assert (staged.exists(), ledger.outcome(name)) == (False, True)


def test_expired_leases_are_removed_and_living_ones_stay(ledger: Ledger) -> None:
    now = ledger._ctx.store.now()
    with ledger._ctx.store.writing() as session:
        for name, expires in (("dead", now - 1000), ("living", now + 600_000)):
            session.row("take_lease", name=name, holder="x", now=now, expires_at=expires)
    assert ledger.reconcile().expired_leases == 1
    with ledger._ctx.store.reading() as session:
        assert [row[0] for row in session.rows("leases")] == ["living"]


def test_two_reconcilers_at_once_do_every_table_once(
    ledger: Ledger, uri: str, engine: str, tmp_path: Path
) -> None:
    """The second comes while the first is in the middle of a table: that one is busy, the other is done."""
    table_behind(ledger, tmp_path, "a", 3)
    table_behind(ledger, tmp_path, "b", 3)
    second = ledger if engine == "duckdb" else connect(uri)
    written: list[tuple[str, int]] = []
    reports: list[ReconcileReport] = []

    def heard(step: str, values: dict[str, object]) -> None:
        if step != "publish.file_written":
            return
        written.append((str(values["table"]), int(str(values["version"]))))
        if written == [("a", 1)]:
            other = threading.Thread(target=lambda: reports.append(second.reconcile()))
            other.start()
            other.join()

    stop = telemetry.listen(heard)
    try:
        reports.append(ledger.reconcile())
    finally:
        stop()
        second.close() if second is not ledger else None
    outcomes = [[(t.name, t.outcome, t.published) for t in report.tables] for report in reports]
    assert outcomes == [[("a", "busy", 0), ("b", "done", 3)], [("a", "done", 3), ("b", "clean", 0)]]
    assert sorted(written) == [(table, version) for table in "ab" for version in (1, 2, 3)]


def test_a_table_that_leaves_meanwhile_is_no_failure(ledger: Ledger, tmp_path: Path) -> None:
    table_behind(ledger, tmp_path, "a", 1)
    table_behind(ledger, tmp_path, "b", 1)

    def heard(step: str, values: dict[str, object]) -> None:
        if step == "publish.marked" and values["table"] == "a":
            stop()
            ledger.release("b")

    stop = telemetry.listen(heard)
    assert [(t.name, t.outcome) for t in ledger.reconcile().tables] == [("a", "done"), ("b", "gone")]


def watched(ledger: Ledger, rounds: int, each: Callable[[int], None], notifier: Notifier) -> list[str]:
    """Watch for so many rounds; the outcomes of every round."""
    seen: list[str] = []
    stop = threading.Event()

    def after(report: ReconcileReport | None) -> None:
        seen.append("unreachable" if report is None else ",".join(t.outcome for t in report.tables))
        each(len(seen))
        if len(seen) == rounds:
            stop.set()

    watch(ledger._ctx, Thresholds(max_attempts=0), notifier, 0.001, stop, after, force=True)
    return seen


def test_a_watch_tells_of_an_alert_when_it_begins_and_when_it_ends(
    ledger: Ledger, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "deltaplane")
    place = block(table_behind(ledger, tmp_path, "t", 1), 1)

    def mend(round_: int) -> None:
        if round_ == 3:
            place.rmdir()

    assert watched(ledger, 5, mend, Notifier(ledger.uri)) == ["failed"] * 3 + ["done", "clean"]
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("alert")]
    assert [text.split(":")[0] for text in said] == ["alert attempts", "alert attempts is over"]


def test_a_watch_outlives_a_ledger_that_is_away(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table_behind(ledger, tmp_path, "t", 1)
    notifier, real = Notifier(ledger.uri), ledger._ctx.store.reading
    kinds: list[list[str]] = []

    def away() -> object:
        raise LedgerUnavailable("nobody answers")

    def each(round_: int) -> None:
        kinds.append([alert.kind for alert in notifier.active])
        monkeypatch.setattr(ledger._ctx.store, "reading", away if round_ < 3 else real)

    assert watched(ledger, 5, each, notifier) == ["done", "unreachable", "unreachable", "clean", "clean"]
    assert kinds == [[], ["unreachable"], ["unreachable"], [], []]


def test_a_stop_ends_the_round_after_the_table_in_hand(ledger: Ledger, tmp_path: Path) -> None:
    table_behind(ledger, tmp_path, "a", 1)
    table_behind(ledger, tmp_path, "b", 1)
    stop = threading.Event()
    unlisten = telemetry.listen(lambda step, _: stop.set() if step == "publish.marked" else None)
    report = reconcile(ledger._ctx, QUIET, stop=stop)
    unlisten()
    assert [(table.name, table.outcome) for table in report.tables] == [("a", "done")]
    assert [lag.name for lag in report.status.behind] == ["b"]


def test_a_stopped_watch_does_not_call_alerts_over(ledger: Ledger, tmp_path: Path) -> None:
    table_behind(ledger, tmp_path, "t", 1)
    notifier, stop = Notifier(ledger.uri), threading.Event()
    lasting = Alert("failed", "another", "needs a person")
    notifier.update([lasting])
    unlisten = telemetry.listen(lambda step, _: stop.set() if step == "publish.marked" else None)
    rounds: list[ReconcileReport | None] = []
    watch(ledger._ctx, Thresholds(), notifier, 0.001, stop, rounds.append)
    unlisten()
    assert (len(rounds), notifier.active) == (1, (lasting,))


def test_a_failure_is_not_over_while_another_reconciler_has_the_table(ledger: Ledger, tmp_path: Path) -> None:
    table_behind(ledger, tmp_path, "t", 0)
    notifier, stop = Notifier(ledger.uri), threading.Event()
    lasting = Alert("failed", "t", "needs a person")
    notifier.update([lasting, Alert("failed", "gone", "needs nobody any more")])
    with lease(ledger._ctx, f"reconcile:{ledger.tables()[0].table_id}", 60) as held:
        assert held
        report = reconcile(ledger._ctx, Thresholds(), stop=stop)
        assert [table.outcome for table in report.tables] == ["busy"]
        after: list[tuple[Alert, ...]] = []

        def each(_: ReconcileReport | None) -> None:
            after.append(notifier.active)
            stop.set()

        watch(ledger._ctx, Thresholds(), notifier, 0.001, stop, each)
    assert after == [(lasting,)]


def test_a_version_that_somebody_else_wrote_freezes_the_table_and_is_no_failure(
    ledger: Ledger, tmp_path: Path
) -> None:
    table = table_behind(ledger, tmp_path, "t", 1)
    write_foreign(table, 1)
    before = (table / "_delta_log" / commit_names(2)[1]).read_bytes()
    first, second = ledger.reconcile(), ledger.reconcile()
    assert [report.tables[0].outcome for report in (first, second)] == ["frozen", "frozen"]
    assert [[alert.kind for alert in report.alerts] for report in (first, second)] == [["frozen"], ["frozen"]]
    assert "was written by somebody else" in (first.tables[0].error or "")
    assert (table / "_delta_log" / commit_names(2)[1]).read_bytes() == before


def test_a_watch_outlives_connections_that_the_server_ends(
    postgres: PostgresServer, ledger_uri: Callable[[str], str], tmp_path: Path
) -> None:
    with connect(ledger_uri("postgres")) as ledger:
        table = table_behind(ledger, tmp_path, "t", 1)
        database = ledger.uri.partition("?")[0].rpartition("/")[2]
        notifier, stop, rounds = Notifier(ledger.uri), threading.Event(), 0

        def each(_: ReconcileReport | None) -> None:
            nonlocal rounds
            rounds += 1
            if rounds == 1:
                with delayed():
                    commit(ledger, "t", 2)
                with psycopg.connect(postgres.conninfo(), autocommit=True) as other:
                    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
                    assert other.execute(query, [database]).fetchall()
            elif rounds == 4:
                stop.set()

        watch(ledger._ctx, Thresholds(), notifier, 0.01, stop, each)
        assert (len(log_of(table)), notifier.active, ledger.status().versions) == (3, (), 0)
