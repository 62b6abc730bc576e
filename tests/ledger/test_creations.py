"""What transactions that die leave of tables that they were about to make, where the ledger has no table."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

import pytest

from deltaplane.errors import CommitRefused
from deltaplane.ledger import Ledger
from deltaplane.ledger.alerts import Thresholds
from deltaplane.ledger.creations import missing_files, note_creation
from deltaplane.ledger.prepare import prepare_bytes
from deltaplane.ledger.reconcile import Grace, ReconcileReport, reconcile
from deltaplane.ledger.staged import staged_path
from deltaplane.log.jsonlines import dump_json
from ledger.conftest import add
from ledger.unpublished import table_behind

DAY = 86_400


def written(table: Path, name: str, age: float = 0) -> Path:
    """A file of Spark, some seconds old."""
    path = table / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"rows")
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def begun(ledger: Ledger, table: Path, age: float, files: list[str]) -> str:
    """A transaction that has staged the first version of a table and not ended."""
    name = str(uuid.uuid4())
    now = ledger._ctx.clock()
    note_creation(ledger._ctx, name, str(table), now - int(age * 1000))
    lines = "".join(dump_json({"add": {**add(1)["add"], "path": file}}) + "\n" for file in files)
    staged = table / staged_path(0, name)
    staged.parent.mkdir(parents=True, exist_ok=True)
    staged.write_text(lines)
    for file in files:
        written(table, file, age)
    return name


def later(ledger: Ledger) -> ReconcileReport:
    return reconcile(ledger._ctx, Thresholds(), grace=Grace(0, DAY * 1000))


def test_what_a_dead_transaction_left_goes_and_it_can_never_be_committed(
    ledger: Ledger, tmp_path: Path
) -> None:
    table_behind(ledger, tmp_path, "t", 0)
    table = tmp_path / "made"
    dead = begun(ledger, table, 25 * 3600, ["part-0.parquet", "day=1/part-1.parquet"])
    written(table, "day=1/.part-1.parquet.crc", 25 * 3600)
    assert later(ledger).abandoned == (str(table),)
    assert not table.exists()
    assert later(ledger).abandoned == ()
    with (
        pytest.raises(CommitRefused, match="was given up earlier"),
        ledger.transaction(transaction_id=dead) as tx,
    ):
        tx.commit("t", [add(1)])


def test_a_transaction_that_may_still_live_is_left_alone(ledger: Ledger, tmp_path: Path) -> None:
    table = tmp_path / "made"
    begun(ledger, table, 23 * 3600, ["part-0.parquet"])
    assert later(ledger).abandoned == ()
    assert (table / "part-0.parquet").exists()


def test_files_of_others_stay_while_somebody_makes_a_table_in_the_same_place(
    ledger: Ledger, tmp_path: Path
) -> None:
    """One that is not committed yet, and one that has not got to its commit."""
    table = tmp_path / "made"
    begun(ledger, table, 25 * 3600, ["part-0.parquet"])
    young = written(table, "part-1.parquet")
    mine = written(table, "notes.txt", 25 * 3600)
    assert later(ledger).abandoned == (str(table),)
    assert (young.exists(), mine.exists(), (table / "part-0.parquet").exists()) == (True, True, False)


def test_what_somebody_else_wrote_to_the_place_stays(ledger: Ledger, tmp_path: Path) -> None:
    """A day later nobody can tell whose files they are that no commit names."""
    table = tmp_path / "made"
    begun(ledger, table, 25 * 3600, ["part-0.parquet"])
    others = written(table, "part-7-of-somebody-else.parquet", 24.5 * 3600)
    assert later(ledger).abandoned == (str(table),)
    assert [file for file in table.rglob("*") if file.is_file()] == [others]


def test_a_table_that_was_made_is_not_touched(ledger: Ledger, tmp_path: Path) -> None:
    table = table_behind(ledger, tmp_path, "t", 0)
    name = str(uuid.uuid4())
    with ledger.transaction(transaction_id=name) as tx:
        tx.commit("t", [add(1)])
    note_creation(ledger._ctx, name, str(table), 0)
    kept = written(table, "part-9.parquet", 25 * 3600)
    assert later(ledger).abandoned == ()
    assert (kept.exists(), ledger.outcome(name)) == (True, True)


def test_files_of_a_clone_belong_to_the_table_it_was_made_from(ledger: Ledger, tmp_path: Path) -> None:
    source = written(tmp_path / "source", "part-0.parquet")
    table = tmp_path / "clone"
    begun(ledger, table, 25 * 3600, [])
    staged = next((table / "_delta_log/_staged_commits").iterdir())
    staged.write_text(dump_json({"add": {**add(1)["add"], "path": f"file://{source}"}}) + "\n")
    assert later(ledger).abandoned == (str(table),)
    assert (source.exists(), table.exists()) == (True, False)


def test_a_place_that_cannot_be_cleared_is_tried_again(ledger: Ledger, tmp_path: Path) -> None:
    """Also where the same transaction had a second one, which could be."""
    table, other = tmp_path / "made", tmp_path / "other"
    dead = begun(ledger, table, 25 * 3600, ["part-0.parquet"])
    note_creation(ledger._ctx, dead, str(other), 0)
    staged = next((table / "_delta_log/_staged_commits").iterdir())
    content = staged.read_text()
    staged.write_text("{not a commit")
    assert later(ledger).abandoned == (str(other),)
    staged.write_text(content)
    assert later(ledger).abandoned == (str(table),)


def test_missing_files_of_a_new_table_are_found(tmp_path: Path) -> None:
    lines = [{"add": {**add(1)["add"], "path": path}} for path in ("a%20b", "gone", "file:///elsewhere")]
    prepared = prepare_bytes("".join(dump_json(line) + "\n" for line in lines).encode(), "x")
    written(tmp_path, "a b")
    assert missing_files(str(tmp_path), prepared) == ["gone"]
    assert missing_files("s3://bucket/table", prepared) == []
