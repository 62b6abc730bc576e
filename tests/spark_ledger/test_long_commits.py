"""Commits too long to be handed over as one text; the port is asked as Java asks it, without Spark."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from deltaplane.ledger import Ledger, connect
from deltaplane.spark.port import LedgerPort

FILES = 3_000
INFO = {"commitInfo": {"timestamp": 1_700_000_000_000, "operation": "WRITE"}}
FIRST = (
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
    {
        "metaData": {
            "id": "a",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": '{"type":"struct","fields":[]}',
            "partitionColumns": [],
            "configuration": {},
        }
    },
)


def lines_of(folder: Path, *actions: object) -> Path:
    file = folder / "lines.json"
    file.write_text("".join(json.dumps(action) + "\n" for action in (INFO, *actions)))
    return file


def removals() -> list[dict[str, object]]:
    return [
        {"remove": {"path": f"{n:05}.parquet", "dataChange": True, "deletionTimestamp": 1}}
        for n in range(FILES)
    ]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with connect(f"deltasql://sqlite/{tmp_path}/ledger.db") as opened:
        yield opened


@pytest.fixture
def table(tmp_path: Path, ledger: Ledger) -> Path:
    added = [
        {
            "add": {
                "path": f"{n:05}.parquet",
                "partitionValues": {},
                "size": 1,
                "modificationTime": 1,
                "dataChange": True,
            }
        }
        for n in range(FILES)
    ]
    log = tmp_path / "table" / "_delta_log"
    log.mkdir(parents=True)
    lines_of(tmp_path, *FIRST, *added).rename(log / f"{0:020}.json")
    ledger.adopt(str(log.parent))
    return log.parent


def commit(ledger: Ledger, table: Path, version: int, lines: Path) -> str | None:
    port = LedgerPort(ledger.context, (), ())
    return port.commit(f"{table}/_delta_log/{version:020}.json", None, str(lines), None, None)


def log_of(table: Path) -> list[str]:
    return sorted(os.listdir(table / "_delta_log"))


def test_a_long_commit_is_published_to_the_byte_and_leaves_nothing_else(
    ledger: Ledger, table: Path, tmp_path: Path
) -> None:
    lines = lines_of(tmp_path, *removals())
    assert commit(ledger, table, 1, lines) is None
    assert log_of(table) == [f"{0:020}.json", f"{1:020}.json"]
    assert (table / "_delta_log" / f"{1:020}.json").read_bytes() == lines.read_bytes()
    assert ledger.verify(str(table)).ok


def test_a_long_commit_that_is_lost_leaves_nothing_in_the_log(
    ledger: Ledger, table: Path, tmp_path: Path
) -> None:
    assert commit(ledger, table, 1, lines_of(tmp_path, *removals())) is None
    before = log_of(table)
    answer = commit(ledger, table, 1, lines_of(tmp_path, {"txn": {"appId": "a", "version": 1}}, *removals()))
    assert answer is not None
    assert answer.startswith("!lost:")
    assert log_of(table) == before


def test_a_long_commit_that_is_no_commit_leaves_nothing_in_the_log(
    ledger: Ledger, table: Path, tmp_path: Path
) -> None:
    answer = commit(ledger, table, 1, lines_of(tmp_path, {"add": {"size": 1}}, *removals()))
    assert answer is not None
    assert answer.startswith("!failed:")
    assert log_of(table) == [f"{0:020}.json"]
