"""The log in plain files: other writers, faults of the storage, times of files, cleaned-up logs."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any

import deltalake
import pyarrow as pa
import pytest

from deltaplane.errors import (
    CommitConflict,
    CommitRefused,
    CorruptLog,
    LedgerError,
    NotADeltaTable,
    StorageError,
    UnsafePath,
    UnsupportedTable,
    VersionNotFound,
)
from deltaplane.ledger import FileTxnLog, Retries
from deltaplane.ledger.filelog import FileTransaction
from deltaplane.ledger.load import load_state
from deltaplane.ledger.storage import open_storage
from deltaplane.ledger.storage_local import LocalStorage
from deltaplane.log.replay import TableState
from deltaplane.testing.txnlog_parts.actions import SCHEMA, add, land, lines, paths, remove, vector
from golden import GoldenTable
from golden_answers import tables


@pytest.fixture
def log() -> FileTxnLog:
    return FileTxnLog(author="tester")


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def commit_file(place: str, version: int) -> Path:
    return Path(place) / "_delta_log" / f"{version:020d}.json"


def deltalake_paths(place: str, version: int | None = None) -> list[str]:
    uris = deltalake.DeltaTable(place, version=version).file_uris()
    return sorted(os.path.basename(uri) for uri in uris)


@pytest.mark.parametrize("table", tables("readable", "log_only"))
def test_a_golden_table_has_the_recorded_totals(table: GoldenTable, tmp_path: Path, log: FileTxnLog) -> None:
    place = table.path if table.packed is None else table.copy(tmp_path / "table")
    snapshot = log.snapshot(place)
    spark = table.expected()["spark"]
    totals = {"version": snapshot.version, "numFiles": snapshot.num_files, "sizeInBytes": snapshot.size_bytes}
    assert {key: spark[key] for key in totals if key in spark} == {k: totals[k] for k in totals if k in spark}
    assert snapshot.files().num_rows == snapshot.num_files


def test_tables_of_deltalake_are_read_at_every_version(log: FileTxnLog, place: str) -> None:
    rows = pa.table({"id": [1, 2], "name": ["a", "b"]})
    for mode in ("append", "append", "overwrite"):
        deltalake.write_deltalake(place, rows, mode=mode)
    assert log.latest_version(place) == 2
    for version in range(3):
        assert paths(log, place, version) == deltalake_paths(place, version)
    assert [entry.operation for entry in log.history(place)] == ["WRITE", "WRITE", "WRITE"]
    assert log.snapshot(place).num_records == 2


def test_deltalake_and_we_take_turns(log: FileTxnLog, place: str) -> None:
    log.create(place, SCHEMA)
    rows = pa.table({"id": pa.array([1], pa.int64()), "name": ["a"]})
    for number in range(1, 13):
        assert land(log, place, add(number)) == 2 * number - 1
        deltalake.write_deltalake(place, rows, mode="append")
    assert log.latest_version(place) == 24
    assert paths(log, place) == deltalake_paths(place)
    assert log.snapshot(place).num_files == 24


def test_a_checkpoint_holds_the_whole_state(log: FileTxnLog, place: str) -> None:
    log.create(
        place,
        SCHEMA,
        ["name"],
        {
            "delta.enableDeletionVectors": "true",
            "delta.feature.domainMetadata": "supported",
            "delta.checkpointInterval": "3",
            "delta.deletedFileRetentionDuration": "interval 100000 days",
        },
    )
    domain = {"domainMetadata": {"domain": "app.x", "configuration": "{}", "removed": False}}
    parts = [add(number, partitionValues={"name": value}) for number, value in enumerate(["ä", None, "%2F"])]
    land(log, place, *parts, domain, {"txn": {"appId": "app", "version": 3, "lastUpdated": 9}})
    marked = add(1, partitionValues={"name": None}, deletionVector=vector("one"), tags={"k": "v"})
    land(log, place, remove(1), marked)
    land(log, place, remove(0, extendedFileMetadata=True, partitionValues={"name": "ä"}, size=100))
    replayed = load_state(open_storage(place))
    for version in (0, 1, 2):
        commit_file(place, version).unlink()
    restored = load_state(open_storage(place))
    assert comparable(restored) == comparable(replayed)
    assert log.snapshot(place).version == 3
    with pytest.raises(VersionNotFound):
        log.snapshot(place, 1)
    assert land(log, place, add(9, partitionValues={"name": "x"})) == 4


def comparable(state: TableState) -> dict[str, Any]:
    """A state without dataChange and extra, which a checkpoint does not keep."""
    files = {
        key: (f.path, f.partition_values, f.size, f.modification_time, f.stats, f.tags, f.deletion_vector)
        for key, f in state.files.items()
    }
    gone = {key: (f.path, f.deletion_timestamp, f.deletion_vector) for key, f in state.tombstones.items()}
    return {
        "version": state.version,
        "protocol": state.protocol,
        "metadata": state.metadata,
        "files": files,
        "tombstones": gone,
        "transactions": state.transactions,
        "domains": state.domains,
    }


def test_expired_tombstones_stay_out_of_the_checkpoint(log: FileTxnLog, place: str) -> None:
    log.create(place, SCHEMA, properties={"delta.checkpointInterval": "3"})
    land(log, place, add(1), add(2))
    now = log.snapshot(place).timestamp
    land(log, place, remove(1, deletionTimestamp=now - 30 * 86_400_000), remove(2, deletionTimestamp=now))
    land(log, place, add(3))
    for version in (0, 1, 2, 3):
        commit_file(place, version).unlink()
    assert [key[0] for key in load_state(open_storage(place)).tombstones] == ["part-00002.parquet"]


def test_deltalake_reads_our_checkpoint_without_the_commits(log: FileTxnLog, place: str) -> None:
    log.create(place, SCHEMA)
    for number in range(1, 12):
        land(log, place, add(number))
    for version in range(10):
        commit_file(place, version).unlink()
    assert deltalake_paths(place) == paths(log, place)
    assert len(paths(log, place)) == 11


def test_what_was_cleaned_up_is_not_promised(log: FileTxnLog, place: str) -> None:
    log.create(place, SCHEMA, properties={"delta.checkpointInterval": "2"})
    for number in range(1, 5):
        land(log, place, add(number))
    first = log.history(place)[-1].timestamp
    for version in (0, 1, 2):
        commit_file(place, version).unlink()
    assert [entry.version for entry in log.history(place)] == [4, 3]
    assert log.snapshot(place, 2).num_files == 2
    assert log.snapshot(place, 2).timestamp > 0
    with pytest.raises(VersionNotFound, match="earliest"):
        log.snapshot(place, timestamp=first)
    with pytest.raises(VersionNotFound):
        log.read_commit(place, 2)
    with pytest.raises(CommitConflict, match="somebody else"):
        land(log, place, add(9), expected_version=1)


def test_file_times_that_contradict_the_order_are_put_in_order(log: FileTxnLog, place: str) -> None:
    log.create(place, SCHEMA)
    for number in range(1, 4):
        land(log, place, add(number))
    for version, seconds in enumerate((1000, 900, 2000, 1500)):
        os.utime(commit_file(place, version), (seconds, seconds))
    times = [log.snapshot(place, version).timestamp for version in range(4)]
    assert times == [1_000_000, 1_000_001, 2_000_000, 2_000_001]
    found = [log.snapshot(place, timestamp=t).version for t in (1_000_000, 1_500_000, 2_000_000, 9_000_000)]
    assert found == [0, 1, 2, 3]
    with pytest.raises(VersionNotFound):
        log.snapshot(place, timestamp=999_999)


def test_in_commit_times_count_where_files_were_copied_later(log: FileTxnLog, place: str) -> None:
    clock = iter([1_000_000, 1_000_000, 2_000_000, 1_500_000, 3_000_000]).__next__
    stepping = FileTxnLog(clock=clock)
    stepping.create(place, SCHEMA, properties={"delta.enableInCommitTimestamps": "true"})
    for number in range(1, 4):
        land(stepping, place, add(number))
    told = [lines(log.read_commit(place, v))[0]["commitInfo"]["inCommitTimestamp"] for v in range(4)]
    assert told == [1_000_000, 2_000_000, 2_000_001, 3_000_000]
    assert [log.snapshot(place, timestamp=time).version for time in told] == [0, 1, 2, 3]
    assert log.snapshot(place, timestamp=1_999_999).version == 0


class FaultyStorage(LocalStorage):
    """Fails where it is told to."""

    before_put: Callable[[str], None] | None = None
    after_put: Callable[[str], None] | None = None
    no_sink = False

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if self.before_put:
            self.before_put(path)
        written = super().put_if_absent(path, data)
        if self.after_put:
            self.after_put(path)
        return written

    def open_sink(self, path: str) -> AbstractContextManager[IO[bytes]]:
        if self.no_sink:
            raise StorageError(f"{path}: the disk is full.")
        return super().open_sink(path)


@pytest.fixture
def faulty(log: FileTxnLog, place: str, monkeypatch: pytest.MonkeyPatch) -> FaultyStorage:
    """The table's storage, to be told where to fail."""
    log.create(place, SCHEMA, properties={"delta.checkpointInterval": "1"})
    storage = FaultyStorage(str(Path(place).resolve()))
    monkeypatch.setattr("deltaplane.ledger.filelog.open_storage", lambda root, options: storage)
    log._storages.clear()
    return storage


def failing(path: str) -> None:
    raise StorageError(f"{path}: the connection broke.")


def test_an_answer_that_is_lost_is_found_out(log: FileTxnLog, place: str, faulty: FaultyStorage) -> None:
    faulty.after_put = failing
    assert land(log, place, add(1)) == 1
    assert paths(log, place) == ["part-00001.parquet"]


def test_a_write_that_fails_leaves_nothing(log: FileTxnLog, place: str, faulty: FaultyStorage) -> None:
    faulty.before_put = failing
    with pytest.raises(StorageError, match="connection broke"):
        land(log, place, add(1))
    assert log.latest_version(place) == 0


def test_a_name_taken_at_the_last_moment_is_seen(log: FileTxnLog, place: str, faulty: FaultyStorage) -> None:
    def take(path: str) -> None:
        faulty.before_put = None
        land(FileTxnLog(author="faster"), place, add(2))

    faulty.before_put = take
    assert land(log, place, add(1)) == 2
    faulty.before_put = take
    with pytest.raises(CommitConflict, match=r"version 3 was taken by faster \(WRITE\)"):
        land(log, place, remove(1))
    assert paths(log, place) == ["part-00001.parquet", "part-00002.parquet"]


def test_trying_again_has_a_bound(place: str) -> None:
    log = FileTxnLog(retries=Retries(3, 0.001, 0.001))
    log.create(place, SCHEMA)
    storage = log._storage(place)
    attempts: list[str] = []
    storage.put_if_absent = lambda path, data: bool(attempts.append(path))  # type: ignore[method-assign]
    with pytest.raises(CommitConflict, match="given up after 3 attempts"):
        land(log, place, add(1))
    assert len(attempts) == 3


def test_a_failed_checkpoint_does_not_disturb_the_commit(
    log: FileTxnLog, place: str, faulty: FaultyStorage, caplog: pytest.LogCaptureFixture
) -> None:
    faulty.no_sink = True
    with caplog.at_level(logging.WARNING, "deltaplane"):
        assert land(log, place, add(1)) == 1
    assert "the checkpoint of version 1 failed" in caplog.text
    assert paths(log, place) == ["part-00001.parquet"]


def test_two_creators_make_one_table(log: FileTxnLog, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FaultyStorage(str(Path(place).resolve()))
    monkeypatch.setattr("deltaplane.ledger.filelog.open_storage", lambda root, options: storage)

    def take(path: str) -> None:
        storage.before_put = None
        FileTxnLog().create(place, pa.schema([("theirs", pa.int32())]))

    storage.before_put = take
    with pytest.raises(LedgerError):
        log.create(place, SCHEMA)
    assert "theirs" in str(log.snapshot(place).schema_string)
    assert log.latest_version(place) == 0


WORKER = """
import sys
from deltaplane.ledger import FileTxnLog
from deltaplane.testing.txnlog_parts.actions import add, land
place, first = sys.argv[1], int(sys.argv[2])
for number in range(first, first + 10):
    land(FileTxnLog(), place, add(number))
"""


def test_processes_append_side_by_side(log: FileTxnLog, place: str) -> None:
    log.create(place, SCHEMA)
    command = [sys.executable, "-c", textwrap.dedent(WORKER), place]
    workers = [subprocess.Popen([*command, str(100 * number)]) for number in range(4)]
    assert [worker.wait(120) for worker in workers] == [0, 0, 0, 0]
    assert log.latest_version(place) == 40
    wanted = [f"part-{100 * worker + number:05d}.parquet" for worker in range(4) for number in range(10)]
    assert paths(log, place) == deltalake_paths(place) == wanted


def test_a_table_with_an_unknown_feature_is_refused(log: FileTxnLog, place: str) -> None:
    log.create(place, SCHEMA)
    features = '"readerFeatures":["fromTheFuture"],"writerFeatures":["fromTheFuture"]'
    protocol = f'{{"protocol":{{"minReaderVersion":3,"minWriterVersion":7,{features}}}}}\n'
    commit_file(place, 1).write_text(protocol)
    with pytest.raises(UnsupportedTable, match="fromTheFuture"):
        log.snapshot(place)
    with pytest.raises(UnsupportedTable, match="fromTheFuture"):
        land(log, place, add(1))
    assert log.snapshot(place, 0).version == 0


def test_a_folder_may_be_allowed(log: FileTxnLog, place: str, tmp_path: Path) -> None:
    log.create(place, SCHEMA)
    beside = add(1, path=f"file://{tmp_path}/source/x.parquet")
    with pytest.raises(UnsafePath):
        land(log, place, beside)
    assert land(FileTxnLog(allow_paths=[str(tmp_path / "source")]), place, beside) == 1


def test_a_damaged_commit_is_named(log: FileTxnLog, place: str) -> None:
    log.create(place, SCHEMA)
    land(log, place, add(1))
    commit_file(place, 1).write_bytes(b'{"add":')
    for ask in (lambda: log.snapshot(place), lambda: log.history(place), lambda: land(log, place, add(2))):
        with pytest.raises(CorruptLog, match=r"00000000000000000001\.json"):
            ask()
    assert log.latest_version(place) == 1


def test_a_missing_commit_is_named(log: FileTxnLog, place: str) -> None:
    log.create(place, SCHEMA)
    land(log, place, add(1))
    land(log, place, add(2))
    commit_file(place, 1).unlink()
    for ask in (lambda: log.snapshot(place), lambda: land(log, place, add(3))):
        with pytest.raises(CorruptLog, match="version 1 is"):
            ask()


def test_a_table_deleted_underneath_is_told_of(log: FileTxnLog, place: str) -> None:
    log.create(place, SCHEMA)
    transaction = log.transaction()
    transaction.commit(place, [add(1)])
    commit_file(place, 0).unlink()
    with pytest.raises(NotADeltaTable), transaction:
        pass
    assert not commit_file(place, 1).exists()


def test_the_refusal_of_a_second_table_shows_the_way(log: FileTxnLog, place: str) -> None:
    for name in (place, f"{place}2"):
        log.create(name, SCHEMA)
    transaction = log.transaction()
    transaction.commit(place, [add(1)])
    with pytest.raises(CommitRefused, match=r"one commit to one table.*use a ledger.*ledger\.adopt"):
        transaction.commit(f"{place}2", [add(1)])
    transaction.rollback()
    assert isinstance(transaction, FileTransaction)
    assert [log.latest_version(name) for name in (place, f"{place}2")] == [0, 0]


def test_who_and_why_stand_in_the_commit(log: FileTxnLog, place: str) -> None:
    log.create(place, SCHEMA)
    land(log, place, add(1), message="first load")
    land(log, place, add(2), author="ada")
    told = [lines(log.read_commit(place, version))[0]["commitInfo"] for version in (1, 2)]
    assert [(info.get("userName"), info.get("userMetadata")) for info in told] == [
        ("tester", "first load"),
        ("ada", None),
    ]


def test_secrets_stay_out_of_the_representation() -> None:
    keys = {"access_key_id": "user", "secret_access_key": "hush"}
    log = FileTxnLog({**keys, "endpoint": "http://127.0.0.1:1", "region": "x", "allow_http": "true"})
    log._storage("s3://bucket/table")
    assert "hush" not in repr(log)
    assert "s3://bucket/table" in repr(log)
