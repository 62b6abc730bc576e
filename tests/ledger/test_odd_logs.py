"""Logs with values that no database holds, with empty commits, and adoptions that cannot finish."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deltaplane.errors import CorruptLog, LedgerError, TableNotManaged
from deltaplane.ledger import Ledger
from deltaplane.ledger.leases import lease
from ledger.conftest import SCHEMA, add

FIRST = [
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
    {
        "metaData": {
            "id": "8c3a1f6e-7d2b-4f0e-9a5c-1b2d3e4f5a6b",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": '{"type":"struct","fields":[]}',
            "partitionColumns": [],
            "configuration": {},
        }
    },
]


def log_of(folder: Path, *commits: list[dict[str, object]] | str) -> str:
    log = folder / "table" / "_delta_log"
    log.mkdir(parents=True)
    for version, commit in enumerate(commits):
        text = commit if isinstance(commit, str) else "".join(json.dumps(line) + "\n" for line in commit)
        (log / f"{version:020d}.json").write_text(text)
    return str(folder / "table")


def sized(number: int, size: int) -> dict[str, object]:
    return {"add": {**add(number)["add"], "size": size}}


def test_sizes_that_sum_up_to_more_than_a_database_holds_are_refused(ledger: Ledger, tmp_path: Path) -> None:
    table = log_of(tmp_path, FIRST, [sized(1, 2**63 - 1)], [sized(2, 1)])
    with pytest.raises(CorruptLog, match="more than 64 bits can hold"):
        ledger.adopt(table)
    ledger.create(str(tmp_path / "own"), SCHEMA, name="own")
    with ledger.transaction() as tx:
        tx.commit("own", [sized(1, 2**63 - 1)])
    with pytest.raises(CorruptLog, match=r"own.*more than 64 bits"), ledger.transaction() as tx:
        tx.commit("own", [sized(2, 1)])
    assert ledger.snapshot("own").version == 1


@pytest.mark.parametrize("path", ["half\ud800", "nul\0"])
def test_a_path_that_is_no_text_is_refused(ledger: Ledger, tmp_path: Path, path: str) -> None:
    table = log_of(tmp_path, FIRST, [{"add": {**add(1)["add"], "path": path}}])
    with pytest.raises(CorruptLog, match="add: path holds"):
        ledger.adopt(table)


def test_an_adoption_that_was_interrupted_can_be_given_up(ledger: Ledger, tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    table = log_of(tmp_path, FIRST, [add(1)])
    with pytest.raises(KeyboardInterrupt):
        ledger.adopt(table, progress=interrupt)
    assert [found.state for found in ledger.tables()] == ["adopting"]
    with lease(ledger._ctx, f"adopt:{table}", 60), pytest.raises(LedgerError, match="another process"):
        ledger.release(table)
    ledger.release(table)
    assert ledger.tables() == []
    with pytest.raises(TableNotManaged):
        ledger.release(table)
    assert ledger.adopt(table).version == 1


@pytest.mark.parametrize("content", ["", "\n", "{}\n"])
def test_a_commit_without_actions_is_no_difference(ledger: Ledger, tmp_path: Path, content: str) -> None:
    table = log_of(tmp_path, FIRST, content, [add(1)])
    ledger.adopt(table)
    with ledger.transaction() as tx:
        tx.commit(table, [add(2)])
    assert ledger.verify(table, every=True).differences == ()
