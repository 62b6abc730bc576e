"""Commits that transactions have staged in a table's folder, when the table leaves the ledger."""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from deltaplane.errors import StorageError
from deltaplane.ledger import Ledger, release
from deltaplane.ledger.staged import staged_path


@pytest.fixture
def table(tmp_path: Path, ledger: Ledger) -> Path:
    write_deltalake(tmp_path / "table", pa.table({"id": [1]}))
    ledger.adopt(tmp_path / "table")
    return tmp_path / "table"


def test_release_takes_away_what_ended_transactions_staged(ledger: Ledger, table: Path) -> None:
    """What an open one staged is its driver's, and what others keep there is theirs."""
    ended, running = str(uuid.uuid4()), str(uuid.uuid4())
    ledger.outcome(ended)
    names = [staged_path(1, ended), staged_path(2, ended), staged_path(1, running)]
    storage = ledger.context.storage(str(table))
    for name in (*names, "_delta_log/_staged_commits/4.spark.json"):
        storage.put(name, b"{}")
    ledger.release(table)
    left = sorted(file.name for file in (table / "_delta_log/_staged_commits").iterdir())
    assert left == [staged_path(1, running).rpartition("/")[2], "4.spark.json"]


def test_release_holds_when_staged_files_cannot_be_taken_away(
    ledger: Ledger, table: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:

    def fail(*_: object) -> None:
        raise StorageError("the disk is gone")

    monkeypatch.setattr(release, "clear_staged", fail)
    ledger.release(table)
    assert ledger.tables() == []
    assert "are left behind: the disk is gone" in caplog.text
