"""A log that was tampered with: noticed before the next commit, and repaired without losing either side."""

from __future__ import annotations

import multiprocessing
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deltaplane.embedded import write_arrow
from deltaplane.errors import CorruptLog, LedgerUnavailable, NotADeltaTable, TableFrozen, VersionNotFound
from deltaplane.ledger import Ledger, connect
from ledger.conftest import SCHEMA, add
from ledger.unpublished import table_behind


def log_file(folder: Path, version: int) -> Path:
    return folder / "_delta_log" / f"{version:020d}.json"


@pytest.fixture
def table(ledger: Ledger, tmp_path: Path) -> Path:
    folder = tmp_path / "t"
    ledger.create(folder, SCHEMA, name="t")
    for number in range(3):
        commit(ledger, number)
    return folder


def commit(ledger: Ledger, number: int) -> None:
    with ledger.transaction(author="us") as tx:
        tx.commit("t", [add(number)])


@pytest.mark.parametrize("content", [b"", b'{"commitInfo":', b'{"commitInfo":{"operation":"OTHER"}}\n'])
def test_head_that_was_written_over_freezes_the_table_before_the_next_commit(
    ledger: Ledger, table: Path, content: bytes
) -> None:
    log_file(table, 3).write_bytes(content)
    with pytest.raises(TableFrozen, match="somebody wrote over it"):
        commit(ledger, 9)
    assert ledger.latest_version("t") == 3
    assert ledger.repair("t", "ledger", dry_run=False).done
    commit(ledger, 9)
    assert ledger.verify("t", every=True).ok


def test_damaged_log_cannot_be_kept_and_the_ledger_keeps_its_versions(ledger: Ledger, table: Path) -> None:
    log_file(table, 3).write_bytes(log_file(table, 3).read_bytes()[:50])
    with pytest.raises(CorruptLog, match=r"00003\.json"):
        ledger.repair("t", "log", dry_run=False)
    assert (ledger.latest_version("t"), ledger.snapshot("t").num_files) == (3, 3)
    ledger.repair("t", "ledger", dry_run=False)
    assert ledger.verify("t", every=True).ok


def test_table_that_was_replaced_as_a_whole_is_noticed_and_can_be_kept(ledger: Ledger, table: Path) -> None:
    shutil.rmtree(table)
    for number in range(5):
        write_deltalake(str(table), pa.table({"id": [number], "name": ["theirs"]}), mode="append")
    with pytest.raises(TableFrozen, match="somebody wrote over it"):
        ledger.refresh("t")
    ledger.repair("t", "log", dry_run=False)
    assert ledger.snapshot("t").num_files == len(DeltaTable(str(table)).file_uris()) == 5
    assert ledger.verify("t", every=True).ok


def test_empty_foreign_commit_is_one_that_is_not_finished(ledger: Ledger, table: Path) -> None:
    log_file(table, 4).write_bytes(b"")
    with pytest.raises(CorruptLog, match="has not finished"):
        ledger.refresh("t")
    assert ledger.latest_version("t") == 3


def test_two_repairs_keep_both_files_that_lost(ledger: Ledger, table: Path) -> None:
    for content in (b"first\n", b"the second\n"):
        log_file(table, 3).write_bytes(content)
        ledger.repair("t", "ledger", dry_run=False)
    kept = sorted(
        file.read_bytes() for file in (table / "_delta_log" / "_deltaplane_replaced").rglob("*.json")
    )
    assert kept == [b"first\n", b"the second\n"]


@pytest.mark.parametrize("name", ["00000000000000000009.checkpoint.parquet", "00000000000000000009.json"])
def test_files_that_mislead_readers_are_put_aside(ledger: Ledger, table: Path, name: str) -> None:
    (table / "_delta_log" / name).write_bytes(b'{"commitInfo":{}}\n')
    assert not ledger.verify("t").ok
    assert f"_delta_log/{name}" in ledger.repair("t", "ledger").actions[0]
    ledger.repair("t", "ledger", dry_run=False)
    assert ledger.verify("t", every=True).ok
    assert len(DeltaTable(str(table)).file_uris()) == 3


def test_checkpoint_that_lies_is_replaced_by_a_true_one(ledger: Ledger, table: Path) -> None:
    from deltaplane.ledger.checkpointing import write_checkpoint

    row = ledger.context.table("t")
    write_checkpoint(ledger.context, row, 1)
    shutil.copy(
        table / "_delta_log" / f"{1:020d}.checkpoint.parquet",
        table / "_delta_log" / f"{3:020d}.checkpoint.parquet",
    )
    assert not ledger.verify("t").ok
    ledger.repair("t", "ledger", dry_run=False)
    assert ledger.verify("t", every=True).ok
    assert len(DeltaTable(str(table)).file_uris()) == 3


def test_deleted_log_is_told_by_every_kind_of_verification(ledger: Ledger, table: Path) -> None:
    shutil.rmtree(table)
    for every in (False, True):
        assert any("the log is gone" in text for text in ledger.verify("t", every=every).differences)


def test_moment_inside_a_gap_of_an_adopted_log_leads_to_the_version_before(
    ledger: Ledger, tmp_path: Path
) -> None:
    folder = tmp_path / "gap"
    for number in range(9):
        write_deltalake(str(folder), pa.table({"id": [number]}), mode="append")
    DeltaTable(str(folder)).create_checkpoint()
    times = [file.stat().st_mtime_ns // 1_000_000 for file in sorted((folder / "_delta_log").glob("*.json"))]
    log_file(folder, 4).unlink()
    ledger.adopt(folder)
    assert ledger.snapshot(folder, timestamp=times[6]).version == 3
    with pytest.raises(VersionNotFound, match="a gap in the adopted log"):
        ledger.snapshot(folder, version=6)
    assert ledger.snapshot(folder).num_files == 9


def test_predicate_that_nothing_can_satisfy_gives_no_file_on_every_database(
    ledger: Ledger, tmp_path: Path
) -> None:
    write_arrow(ledger, tmp_path / "t", pa.table({"id": [1, 2]}), name="n")
    assert ledger.snapshot("n").files("id < 1 AND id > 5").num_rows == 0


def _commit_in_child(ledger: Ledger, answers: Any) -> None:
    try:
        commit(ledger, 7)
    except LedgerUnavailable as error:
        answers.put(str(error))
    else:
        answers.put("acknowledged")


def test_forked_child_of_a_duckdb_ledger_is_refused(tmp_path: Path) -> None:
    with connect(f"deltasql://duckdb/{tmp_path}/l.duckdb") as ledger:
        ledger.create(tmp_path / "t", SCHEMA, name="t")
        forking = multiprocessing.get_context("fork")
        answers = forking.Queue()
        child = forking.Process(target=_commit_in_child, args=(ledger, answers))
        child.start()
        assert "DuckDB serves one process" in answers.get(timeout=60)
        child.join(60)
        commit(ledger, 1)
        assert ledger.latest_version("t") == 1


def test_sqlite_ledger_whose_file_was_deleted_acknowledges_nothing_more(tmp_path: Path) -> None:
    with connect(f"deltasql://sqlite/{tmp_path}/l.db") as ledger:
        ledger.create(tmp_path / "t", SCHEMA, name="t")
        (tmp_path / "l.db").unlink()
        with pytest.raises(LedgerUnavailable, match="was deleted while it was open"):
            commit(ledger, 1)


def test_table_that_cannot_be_published_does_not_keep_the_others_back(ledger: Ledger, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        table_behind(ledger, tmp_path, name, 1)
    shutil.rmtree(tmp_path / "b")
    with pytest.raises(NotADeltaTable, match="folder is gone"):
        ledger.publish()
    assert [log_file(tmp_path / name, 1).exists() for name in ("a", "b", "c")] == [True, False, True]
