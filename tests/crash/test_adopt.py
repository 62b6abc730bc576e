"""A process is killed at every step of adoption: the table is managed whole or not at all, never touched."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from crash.child import SCHEMA
from crash.world import KILLS_BRIEF_ELSEWHERE, Ended, World, every_kill
from deltaplane.errors import TableNotManaged
from deltaplane.ledger import Ledger


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of six versions with a checkpoint at version 3."""
    folder = tmp_path_factory.mktemp("source") / "table"
    for number in range(6):
        rows = pa.table({"id": [number], "name": [f"row {number}"]}, schema=SCHEMA)
        write_deltalake(folder, rows, mode="append")
        if number == 3:
            DeltaTable(folder).create_checkpoint()
    return folder


def copied(source: Path, folder: Path, start: str) -> Path:
    """Either the whole log, or one whose first commits have been cleaned up."""
    shutil.copytree(source, folder)
    if start == "checkpoint":
        for version in range(3):
            (folder / "_delta_log" / f"{version:020d}.json").unlink()
    return folder


def fingerprint(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def assert_like_outside(ledger: Ledger, table: str, first: int, last: int) -> None:
    for version in {first, last}:
        outside = sorted(uri.rsplit("/", 1)[-1] for uri in DeltaTable(table, version=version).file_uris())
        ours = sorted(ledger.snapshot(table, version=version).files()["path"].to_pylist())
        assert outside == ours


@pytest.mark.parametrize("case", KILLS_BRIEF_ELSEWHERE)
@pytest.mark.parametrize(
    "start", ["checkpoint", pytest.param("commits", marks=[pytest.mark.slow, pytest.mark.exhaustive])]
)
def test_adoption_killed_at_every_step_goes_on_where_it_stopped(
    world: World, kind: str | None, start: str, source: Path
) -> None:
    with world.open() as ledger:
        assert ledger.tables() == []
    base = 3 if start == "checkpoint" else 0

    def work(number: int) -> Ended:
        table = str(copied(source, world.folder / f"adopted{number}", start))
        before = fingerprint(Path(table))
        world.tables[:] = [table]
        ended = world.run("adopt", f"adopt-{number}", kill_at=number, kind=kind, chunk=4)
        with world.open() as ledger:
            managed = {row.location for row in ledger.tables() if row.state == "managed"}
            if table not in managed:
                assert not ended.acknowledged
                with pytest.raises(TableNotManaged):
                    ledger.snapshot(table)
        if table not in managed:
            again = world.run("adopt", f"adopt-{number}", chunk=4)
            assert again.acknowledged == [{table: 5}]
        assert fingerprint(Path(table)) == before
        with world.open() as ledger:
            row = next(row for row in ledger.tables() if row.location == table)
            assert (row.base_version, row.head_version, row.published_version) == (base, 5, 5)
            assert_like_outside(ledger, table, base, 5)
            assert ledger.verify(table, every=True).differences == ()
            world.commit(ledger, f"adopt-{number}-after")
            assert_like_outside(ledger, table, 6, 6)
        return ended

    events = every_kill(work)
    steps = {event.removeprefix("step ") for event in events if event.startswith("step ")}
    assert {"adopt.entered", "adopt.commits", "adopt.checked", "adopt.managed"} <= steps
    assert ("adopt.base_chunk" in steps) is (start == "checkpoint")
