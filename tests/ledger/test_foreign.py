"""Outside writers: their commits are noticed before ours, imported, refused, or reported as divergence."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deltaplane.errors import (
    CommitConflict,
    CorruptLog,
    ForeignCommit,
    TableFrozen,
    UnsafePath,
    UnsupportedTable,
)
from deltaplane.ledger import Ledger, connect
from ledger.conftest import SCHEMA, add, remove
from ledger.independent_replay import replay_commits, replay_from_checkpoint
from ledger.unpublished import commit, delayed

ROWS = pa.table({"id": [1, 2], "name": ["a", "b"]}, schema=SCHEMA)


@pytest.fixture
def sqlite(ledger_uri: Callable[[str], str]) -> Iterator[Ledger]:
    """For what does not depend on the database."""
    with connect(ledger_uri("sqlite")) as opened:
        yield opened


def outside_commit(table: Path, version: int, actions: list[dict[str, Any]]) -> bytes:
    """A writer that knows nothing of the ledger."""
    place = table / "_delta_log" / f"{version:020d}.json"
    place.write_text("\n".join(json.dumps(action) for action in actions))
    return place.read_bytes()


def state_of(ledger: Ledger, table: Path) -> tuple[int, list[str]]:
    snapshot = ledger.snapshot(table)
    return snapshot.version, sorted(snapshot.files()["path"].to_pylist())


def test_a_foreign_commit_is_imported_before_our_next_one(ledger: Ledger, tmp_path: Path) -> None:
    table = tmp_path / "t"
    ledger.create(table, SCHEMA)
    write_deltalake(table, ROWS, mode="append")
    commit(ledger, str(table), 7)
    assert [entry.source for entry in ledger.history(table)] == ["ledger", "foreign", "ledger"]
    assert DeltaTable(table).version() == 2
    assert ledger.snapshot(table).num_files == 2
    assert ledger.verify(table, every=True).differences == ()


def test_bytes_of_a_foreign_commit_are_kept_as_they_are(ledger: Ledger, tmp_path: Path) -> None:
    table = tmp_path / "t"
    ledger.create(table, SCHEMA)
    content = outside_commit(table, 1, [{"unheardOf": {"a": [1.50, 1e400]}}, add(1)])
    assert ledger.refresh(table) == 1
    assert ledger.refresh(table) == 0
    assert ledger.read_commit(table, 1) == content


def test_a_stale_commit_loses_against_a_foreign_one(ledger: Ledger, tmp_path: Path) -> None:
    table = tmp_path / "t"
    ledger.create(table, SCHEMA)
    commit(ledger, str(table), 1)
    outside_commit(table, 2, [{"commitInfo": {"engineInfo": "their engine"}}, remove(1)])
    with pytest.raises(CommitConflict, match="their engine") as caught, ledger.transaction() as tx:
        tx.commit(str(table), [remove(1), add(2)])
    assert caught.value.version == 2
    assert state_of(ledger, table) == (2, [])


def test_a_table_may_refuse_outside_writers(ledger: Ledger, tmp_path: Path) -> None:
    table = tmp_path / "t"
    ledger.create(table, SCHEMA, foreign_commits="refuse")
    outside_commit(table, 1, [add(1)])
    with pytest.raises(ForeignCommit, match="version 1, and this table refuses"), ledger.transaction() as tx:
        tx.commit(str(table), [add(2)])
    assert ledger.latest_version(table) == 0
    assert "an outside writer" in ledger.verify(table).differences[0]
    assert ledger.refresh(table) == 1, "whoever decides takes it in"
    commit(ledger, str(table), 2)
    assert state_of(ledger, table) == (2, ["part-00001.parquet", "part-00002.parquet"])


FEATURES = {"readerFeatures": ["tomorrow"], "writerFeatures": ["tomorrow"]}
UNUSABLE: dict[str, tuple[list[dict[str, Any]], type[Exception]]] = {
    "a path that climbs out": ([add(1, path="../../etc/passwd")], UnsafePath),
    "a protocol from tomorrow": (
        [{"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **FEATURES}}],
        UnsupportedTable,
    ),
    "an add without a path": ([{"add": {"size": 1}}], CorruptLog),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_foreign_commit_that_cannot_be_used_stops_ours_and_changes_nothing(
    sqlite: Ledger, tmp_path: Path, case: str
) -> None:
    actions, error = UNUSABLE[case]
    table = tmp_path / "t"
    sqlite.create(table, SCHEMA)
    outside_commit(table, 1, actions)
    with pytest.raises(error), sqlite.transaction() as tx:
        tx.commit(str(table), [add(2)])
    assert (sqlite.latest_version(table), sqlite.snapshot(table).num_files) == (0, 0)


def test_a_foreign_commit_that_is_still_being_written_is_taken_when_it_is_whole(
    sqlite: Ledger, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    sqlite.create(table, SCHEMA)
    whole = outside_commit(table, 1, [add(1)])
    place = table / "_delta_log" / f"{1:020d}.json"
    place.write_bytes(whole[:40])
    with pytest.raises(CorruptLog):
        sqlite.refresh(table)
    assert sqlite.latest_version(table) == 0
    place.write_bytes(whole)
    assert sqlite.refresh(table) == 1


CONTRADICTIONS = {
    "added twice": [add(1), add(1, size=5)],
    "removed and added again": [remove(0), add(0, size=5)],
    "added and removed": [add(1), remove(1)],
    "removed twice": [remove(0), remove(0)],
    "removed without having been there": [remove(9)],
    "changed and removed": [add(0, size=5), remove(0)],
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_the_last_word_of_a_foreign_commit_counts_as_in_a_replay(
    ledger: Ledger, tmp_path: Path, case: str
) -> None:
    table = tmp_path / "t"
    ledger.create(table, SCHEMA, properties={"delta.checkpointInterval": "3"})
    commit(ledger, str(table), 0)
    outside_commit(table, 2, CONTRADICTIONS[case])
    commit(ledger, str(table), 20)
    assert ledger.verify(table, 2).differences == ()
    assert ledger.verify(table, 3).differences == (), "after a checkpoint as well"


def test_the_last_definition_in_a_foreign_commit_counts(ledger: Ledger, tmp_path: Path) -> None:
    table = tmp_path / "t"
    ledger.create(table, SCHEMA)
    found = json.loads((table / "_delta_log" / f"{0:020d}.json").read_text().splitlines()[2])["metaData"]
    protocols = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": version}} for version in (3, 4)]
    changes = [{"metaData": found | {"description": text}} for text in ("first", "last")]
    outside_commit(table, 1, [*protocols, *changes])
    assert ledger.refresh(table) == 1
    snapshot = ledger.snapshot(table)
    assert (snapshot.metadata.description, snapshot.protocol.min_writer_version) == ("last", 4)
    assert ledger.verify(table, every=True).differences == ()


def test_a_file_removed_twice_has_one_tombstone(ledger: Ledger, tmp_path: Path) -> None:
    table = tmp_path / "t"
    ledger.create(table, SCHEMA, properties={"delta.checkpointInterval": "4"})
    commit(ledger, str(table), 1)
    late = 4_000_000_000_000
    for version in (2, 3):
        outside_commit(table, version, [remove(1, deletionTimestamp=late + version)])
    commit(ledger, str(table), 2)
    assert replay_from_checkpoint(table, 4) == replay_commits(table, 4)


def test_the_time_of_a_foreign_commit_is_that_of_its_file(ledger: Ledger, tmp_path: Path) -> None:
    table = tmp_path / "t"
    ledger.create(table, SCHEMA)
    outside_commit(table, 1, [add(1)])
    written = ledger.snapshot(table, 0).timestamp + 40
    os.utime(table / "_delta_log" / f"{1:020d}.json", ns=(written * 1_000_000, written * 1_000_000))
    ledger._ctx.clock = lambda: written + 5_000
    ledger.refresh(table)
    assert ledger.snapshot(table, 1).timestamp == written


def test_a_foreign_file_in_the_place_of_a_ratified_version_freezes_before_the_next_commit(
    ledger: Ledger, tmp_path: Path
) -> None:
    table = tmp_path / "t"
    ledger.create(table, SCHEMA)
    with delayed():
        commit(ledger, str(table), 1)
    theirs = outside_commit(table, 1, [add(99)])
    with pytest.raises(TableFrozen, match="version 1"), ledger.transaction() as tx:
        tx.commit(str(table), [add(2)])
    assert ledger.latest_version(table) == 1, "nothing was ratified on top of a divergence"
    assert (table / "_delta_log" / f"{1:020d}.json").read_bytes() == theirs
    assert state_of(ledger, table) == (1, ["part-00001.parquet"]), "neither version is lost"
    with pytest.raises(TableFrozen), ledger.transaction() as tx:
        tx.commit(str(table), [add(3)])
    with pytest.raises(TableFrozen):
        ledger.release(table)
    assert ledger.audit_trail()[0].action == "freeze"


def test_divergence_behind_an_interrupted_publication_is_noticed_as_well(
    ledger: Ledger, tmp_path: Path
) -> None:
    """Version 1 is ours and was written without a note of it; version 2 is theirs."""
    table = tmp_path / "t"
    ledger.create(table, SCHEMA)
    with delayed():
        commit(ledger, str(table), 1, 2)
    (table / "_delta_log" / f"{1:020d}.json").write_bytes(ledger.read_commit(table, 1))
    outside_commit(table, 2, [add(99)])
    with pytest.raises(TableFrozen, match="version 2"), ledger.transaction() as tx:
        tx.commit(str(table), [add(3)])
    assert ledger.latest_version(table) == 2


def test_an_interrupted_publication_of_ours_is_no_divergence(ledger: Ledger, tmp_path: Path) -> None:
    table = tmp_path / "t"
    ledger.create(table, SCHEMA)
    with delayed():
        commit(ledger, str(table), 1)
    (table / "_delta_log" / f"{1:020d}.json").write_bytes(ledger.read_commit(table, 1))
    commit(ledger, str(table), 2)
    assert DeltaTable(table).version() == 2
    assert ledger.verify(table, every=True).differences == ()
