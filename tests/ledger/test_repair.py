"""Repair: after a divergence one of the two is kept, the other is not lost, and everything agrees again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deltaplane.errors import ConfigError, TableFrozen
from deltaplane.ledger import Ledger
from deltaplane.ledger.repair import REPLACED_FOLDER
from ledger.conftest import SCHEMA, add, remove
from ledger.independent_replay import replay_commits
from ledger.test_adopt import fingerprint, log_file
from ledger.test_foreign import outside_commit, state_of
from ledger.test_stateful import check_every_version
from ledger.unpublished import commit, delayed


@pytest.fixture
def diverged(ledger: Ledger, tmp_path: Path) -> Path:
    """The ledger has ratified versions 3 and 4; an outside writer has put a 3, a 4 and a 5 of its own."""
    table = tmp_path / "t"
    ledger.create(table, SCHEMA, properties={"delta.checkpointInterval": "2"})
    commit(ledger, str(table), 1, 2)
    with delayed():
        commit(ledger, str(table), 3)
        with ledger.transaction() as tx:
            tx.commit(str(table), [remove(1), add(4), {"txn": {"appId": "ours", "version": 1}}])
    outside_commit(table, 3, [remove(2), add(30)])
    outside_commit(table, 4, [add(2), {"txn": {"appId": "theirs", "version": 1}}])
    outside_commit(table, 5, [remove(1)])
    with pytest.raises(TableFrozen), ledger.transaction() as tx:
        tx.commit(str(table), [add(9)])
    return table


@pytest.mark.parametrize("keep", ["ledger", "log"])
def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    ledger: Ledger, diverged: Path, keep: str
) -> None:
    before, audit = fingerprint(diverged), len(ledger.audit_trail())
    plan = ledger.repair(diverged, keep)
    assert not plan.done
    assert plan.actions
    assert (fingerprint(diverged), len(ledger.audit_trail())) == (before, audit)
    assert ledger.tables()[0].state == "frozen"
    assert ledger.repair(diverged, keep, dry_run=False).actions == plan.actions


def test_keeping_the_ledger_moves_the_other_files_aside(ledger: Ledger, diverged: Path) -> None:
    theirs = {version: log_file(diverged, version).read_bytes() for version in (3, 4, 5)}
    ledger.repair(diverged, "ledger", dry_run=False, author="me")
    aside = {int(file.stem): file.read_bytes() for file in (diverged / REPLACED_FOLDER).rglob("*.json")}
    assert aside == theirs, "nothing of theirs is lost"
    files = ["part-00002.parquet", "part-00003.parquet", "part-00004.parquet"]
    assert state_of(ledger, diverged) == (4, files)
    assert ledger.audit_trail()[0].author == "me"
    commit(ledger, str(diverged), 50)
    check_every_version(ledger, diverged, [replay_commits(diverged, version) for version in range(6)])


def test_keeping_the_log_takes_the_other_versions_in(ledger: Ledger, diverged: Path) -> None:
    before = fingerprint(diverged)
    ledger.repair(diverged, "log", dry_run=False)
    assert fingerprint(diverged) == before
    assert state_of(ledger, diverged) == (5, ["part-00002.parquet", "part-00030.parquet"])
    assert set(ledger.snapshot(diverged).transactions) == {"theirs"}
    commit(ledger, str(diverged), 50)
    check_every_version(ledger, diverged, [replay_commits(diverged, version) for version in range(7)])


def test_nothing_to_repair_is_nothing_to_do(ledger: Ledger, tmp_path: Path) -> None:
    ledger.create(tmp_path / "t", SCHEMA)
    before = fingerprint(tmp_path / "t")
    assert ledger.repair(tmp_path / "t", "ledger", dry_run=False).actions == ()
    assert fingerprint(tmp_path / "t") == before


def test_repair_needs_a_decision(ledger: Ledger, tmp_path: Path) -> None:
    ledger.create(tmp_path / "t", SCHEMA)
    with pytest.raises(ConfigError, match='"ledger" or "log"'):
        ledger.repair(tmp_path / "t", "both")


def test_a_commit_that_was_changed_in_the_log_comes_back_from_the_ledger(
    ledger: Ledger, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    ledger.create(table, SCHEMA)
    commit(ledger, str(table), 1, 2, 3)
    ours = log_file(table, 2).read_bytes()
    outside_commit(table, 2, [add(99)])
    assert (
        ledger.verify(table).differences[0]
        == "version 2: the file in the log is not what the ledger ratified"
    )
    ledger.repair(table, "ledger", dry_run=False)
    assert log_file(table, 2).read_bytes() == ours
    assert ledger.verify(table, every=True).differences == ()
    assert DeltaTable(table).version() == 3


def test_a_commit_that_is_missing_from_the_log_comes_back_from_the_ledger(
    ledger: Ledger, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    ledger.create(table, SCHEMA)
    commit(ledger, str(table), 1, 2, 3)
    before = fingerprint(table)
    log_file(table, 2).unlink()
    with pytest.raises(ConfigError, match="version 2 is missing from the log"):
        ledger.repair(table, "log", dry_run=False)
    ledger.repair(table, "ledger", dry_run=False)
    after = fingerprint(table)
    assert {name: after[name] for name in before} == before
    assert ledger.verify(table, every=True).differences == ()


def test_a_log_that_was_changed_before_the_start_of_the_ledger_cannot_be_kept(
    ledger: Ledger, tmp_path: Path
) -> None:
    """The ledger began at a checkpoint: it has nothing to build those versions on."""
    table = tmp_path / "t"
    ledger.create(table, SCHEMA, properties={"delta.checkpointInterval": "3"})
    commit(ledger, str(table), 1, 2, 3, 4)
    ledger.release(table)
    log_file(table, 0).unlink()
    ledger.adopt(table)
    outside_commit(table, 2, [add(99)])
    assert not ledger.verify(table).ok
    with pytest.raises(ConfigError, match=r"release .* and adopt"):
        ledger.repair(table, "log", dry_run=False)
    assert ledger.snapshot(table).num_files == 4
    ledger.repair(table, "ledger", dry_run=False)
    assert ledger.verify(table, every=True).differences == ()


@pytest.mark.parametrize("keep", ["ledger", "log"])
def test_a_table_that_somebody_created_anew_can_be_kept_either_way(
    ledger: Ledger, tmp_path: Path, keep: str
) -> None:
    table = tmp_path / "t"
    ledger.create(table, SCHEMA)
    commit(ledger, str(table), 1)
    shutil.rmtree(table)
    other = pa.table({"other": ["x"], "day": [1]})
    write_deltalake(table, other, partition_by=["day"])
    write_deltalake(table, other, mode="append")
    ledger.repair(table, keep, dry_run=False)
    assert ledger.verify(table, every=True).differences == ()
    assert ledger.snapshot(table).num_files == (1 if keep == "ledger" else 2)
    if keep == "log":
        assert ledger.snapshot(table).files("day = 1").num_rows == 2
