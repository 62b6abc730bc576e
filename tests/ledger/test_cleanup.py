"""Cleanup: a dry run first, only what has expired, and everybody still reads the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from deltaplane.ledger import Ledger
from deltaplane.ledger.load import load_state
from deltaplane.ledger.storage import open_storage
from ledger.conftest import SCHEMA, add, remove
from ledger.independent_replay import published_versions, replay_from_checkpoint
from ledger.test_adopt import fingerprint
from ledger.test_stateful import from_ledger
from ledger.unpublished import commit, log_of

DAY = 86_400_000
V2 = {"delta.checkpointPolicy": "v2"}
Later = Callable[[int], None]


def aged(ledger: Ledger, table: Path, **properties: str) -> Path:
    """Versions 0 to 5, a checkpoint every second version."""
    named = {f"delta.{name}": value for name, value in properties.items()}
    ledger.create(table, SCHEMA, properties={"delta.checkpointInterval": "2"} | named)
    commit(ledger, str(table), 1, 2, 3)
    with ledger.transaction() as tx:
        tx.commit(str(table), [remove(1), add(4)])
    commit(ledger, str(table), 5)
    return table


def pass_days(ledger: Ledger, days: int) -> None:
    before = ledger._ctx.clock
    ledger._ctx.clock = lambda: before() + days * DAY


def assert_readable(ledger: Ledger, table: Path, first: int, last: int) -> None:
    """The versions that are left read the same in the ledger, in the log and in deltalake."""
    for version in range(first, last + 1):
        files = sorted(ledger.snapshot(table, version).files()["path"].to_pylist())
        assert sorted(path for path, _ in load_state(open_storage(str(table)), version).files) == files
        replayed = replay_from_checkpoint(table, version)
        assert replayed is not None
        assert sorted(path for path, _ in replayed.files) == files
        assert (
            sorted(uri.rsplit("/", 1)[-1] for uri in DeltaTable(table, version=version).file_uris()) == files
        )
    assert ledger.verify(table, every=True).differences == ()


def test_nothing_expires_before_its_time(ledger: Ledger, tmp_path: Path) -> None:
    table = aged(ledger, tmp_path / "t")
    before = fingerprint(table)
    pass_days(ledger, 29)
    (report,) = ledger.cleanup(table, dry_run=False)
    assert (report.files, report.reason) == ((), "no checkpoint is older than the log retention")
    assert fingerprint(table) == before


def test_a_dry_run_names_what_would_go_and_deletes_nothing(ledger: Ledger, tmp_path: Path) -> None:
    table = aged(ledger, tmp_path / "t")
    before = fingerprint(table)
    pass_days(ledger, 31)
    (plan,) = ledger.cleanup(table)
    assert (plan.done, fingerprint(table)) == (False, before)
    (report,) = ledger.cleanup(table, dry_run=False)
    assert (report.done, report.files, report.bytes) == (True, plan.files, plan.bytes)
    assert set(before) - set(fingerprint(table)) == set(plan.files)


def test_what_the_newest_old_checkpoint_needs_is_kept(ledger: Ledger, tmp_path: Path) -> None:
    table = aged(ledger, tmp_path / "t")
    pass_days(ledger, 31)
    ledger.cleanup(table, dry_run=False)
    assert log_of(table) == [
        "00000000000000000004.checkpoint.parquet",
        "00000000000000000004.json",
        "00000000000000000005.json",
        "_last_checkpoint",
    ]
    assert_readable(ledger, table, 4, 5)
    assert ledger.snapshot(table, 1).num_files == 1, "the ledger keeps what it knows"
    assert ledger.audit_trail()[0].action == "cleanup"


def test_commits_go_on_after_a_cleanup(ledger: Ledger, tmp_path: Path) -> None:
    table = aged(ledger, tmp_path / "t")
    pass_days(ledger, 31)
    ledger.cleanup(table, dry_run=False)
    commit(ledger, str(table), 6, 7)
    assert published_versions(table) == [4, 5, 6, 7]
    assert_readable(ledger, table, 4, 7)


def test_only_versions_older_than_the_retention_go(ledger: Ledger, tmp_path: Path) -> None:
    table = aged(ledger, tmp_path / "t", logRetentionDuration="interval 2 days")
    pass_days(ledger, 3)
    commit(ledger, str(table), 6, 7, 8)
    ledger.cleanup(table, dry_run=False)
    assert published_versions(table) == [4, 5, 6, 7, 8]
    assert_readable(ledger, table, 4, 8)


def test_a_second_cleanup_finds_nothing(ledger: Ledger, tmp_path: Path) -> None:
    table = aged(ledger, tmp_path / "t")
    pass_days(ledger, 31)
    ledger.cleanup(table, dry_run=False)
    assert ledger.cleanup(table, dry_run=False)[0].files == ()


def test_a_table_may_forbid_cleanup(ledger: Ledger, tmp_path: Path) -> None:
    table = aged(ledger, tmp_path / "t", enableExpiredLogCleanup="false")
    pass_days(ledger, 31)
    (report,) = ledger.cleanup(table, dry_run=False)
    assert (report.files, report.reason) == ((), "delta.enableExpiredLogCleanup is false")
    assert published_versions(table) == [0, 1, 2, 3, 4, 5]


def test_sidecars_go_with_the_last_checkpoint_that_names_them(ledger: Ledger, tmp_path: Path) -> None:
    table = aged(ledger, tmp_path / "t", checkpointPolicy="v2")
    sidecars = table / "_delta_log" / "_sidecars"
    before = {file.name for file in sidecars.iterdir()}
    pass_days(ledger, 31)
    (plan,) = ledger.cleanup(table)
    ledger.cleanup(table, dry_run=False)
    left = {file.name for file in sidecars.iterdir()}
    assert left < before
    assert {Path(name).name for name in plan.files if "/_sidecars/" in name} == before - left
    assert_readable(ledger, table, 4, 5)


@pytest.mark.parametrize(
    "name",
    ["notes.txt", "_staged_commits/x.json", "_sidecars/somebody.parquet", "_deltaplane_replaced/0.json"],
)
def test_files_of_others_stay(ledger: Ledger, tmp_path: Path, name: str) -> None:
    table = aged(ledger, tmp_path / "t")
    stranger = table / "_delta_log" / name
    stranger.parent.mkdir(exist_ok=True)
    stranger.write_text("not ours")
    data = table / "part-00001.parquet"
    data.write_text("data")
    pass_days(ledger, 31)
    ledger.cleanup(table, dry_run=False)
    assert (stranger.read_text(), data.read_text()) == ("not ours", "data")


def test_a_cleaned_table_can_leave_and_come_back(ledger: Ledger, tmp_path: Path) -> None:
    table = aged(ledger, tmp_path / "t")
    pass_days(ledger, 31)
    ledger.cleanup(table, dry_run=False)
    before = from_ledger(ledger, table, 5)
    ledger.release(table)
    adoption = ledger.adopt(table)
    assert (adoption.base_version, adoption.version) == (4, 5)
    assert from_ledger(ledger, table, 5) == before


def test_cleanup_without_a_path_goes_over_every_table(ledger: Ledger, tmp_path: Path) -> None:
    tables = [aged(ledger, tmp_path / name) for name in ("a", "b")]
    pass_days(ledger, 31)
    reports = ledger.cleanup(dry_run=False)
    assert [(report.location, bool(report.files)) for report in reports] == [
        (str(table), True) for table in tables
    ]


def test_a_repaired_log_without_its_beginning_stays_readable(ledger: Ledger, tmp_path: Path) -> None:
    """The checkpoint at which the log begins goes aside with the differing commit, and is written anew."""
    table = aged(ledger, tmp_path / "t")
    pass_days(ledger, 31)
    ledger.cleanup(table, dry_run=False)
    place = table / "_delta_log" / f"{4:020d}.json"
    place.write_bytes(place.read_bytes() + b"\n")
    ledger.repair(table, "ledger", dry_run=False)
    assert DeltaTable(table).version() == 5
    assert ledger.verify(table, every=True).differences == ()
