"""What a log tells of its tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from deltaplane.errors import CommitRefused, LedgerError, VersionNotFound
from deltaplane.ledger.names import commit_path
from deltaplane.ledger.ports import TxnLog
from deltaplane.log.schema_json import schema_string_of
from deltaplane.testing.txnlog_parts.actions import (
    SCHEMA,
    OpenFiles,
    ReadOutside,
    active,
    add,
    land,
    log_names,
    paths,
    refused,
    remove,
    vector,
)

__all__ = ["FileBehaviours", "ReadingBehaviours"]

FILES = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("modification_time", pa.int64()),
        ("partition_values", pa.map_(pa.string(), pa.string())),
        ("num_records", pa.int64()),
        ("stats", pa.string()),
        (
            "deletion_vector",
            pa.struct(
                [
                    ("storageType", pa.string()),
                    ("pathOrInlineDv", pa.string()),
                    ("offset", pa.int64()),
                    ("sizeInBytes", pa.int64()),
                    ("cardinality", pa.int64()),
                ]
            ),
        ),
    ]
)


class ReadingBehaviours:
    """Versions, times, history."""

    def test_a_new_table_is_at_version_0_and_empty(self, log: TxnLog, place: str) -> None:
        """With the columns that it was given."""
        made = log.create(place, SCHEMA)
        assert (made.version, made.num_files, made.size_bytes, made.files().num_rows) == (0, 0, 0, 0)
        assert log.latest_version(place) == 0
        assert made.schema_string == schema_string_of(SCHEMA)
        assert made.partition_columns == []

    def test_a_new_table_keeps_its_definition(self, log: TxnLog, place: str) -> None:
        """Partitioning, properties and comment."""
        log.create(place, SCHEMA, ["name"], {"delta.appendOnly": "true", "team": "blue"}, description="who")
        metadata = log.snapshot(place).metadata
        assert metadata.partition_columns == ("name",)
        assert dict(metadata.configuration) == {"delta.appendOnly": "true", "team": "blue"}
        assert metadata.description == "who"

    def test_a_table_is_not_created_over_another(self, log: TxnLog, place: str) -> None:
        """The one that is there stays as it is."""
        before = log.create(place, SCHEMA)
        with refused(log.capabilities.taken):
            log.create(place, pa.schema([("other", pa.int32())]))
        assert log.snapshot(place) == before

    def test_an_impossible_definition_leaves_nothing(self, log: TxnLog, place: str, files: OpenFiles) -> None:
        """Not even a folder with a log."""
        with refused(CommitRefused) as unknown:
            log.create(place, SCHEMA, partition_by=["day"])
        with refused(CommitRefused):
            log.create(place, SCHEMA, partition_by=["id", "name"])
        assert "day" in str(unknown)
        assert log_names(files, place) == []

    def test_a_missing_table_is_told_apart(self, log: TxnLog, place: str) -> None:
        """By every way of asking for it."""
        absent = log.capabilities.absent
        with refused(absent):
            log.latest_version(place)
        with refused(absent):
            log.snapshot(place)
        with refused(absent):
            log.history(place)
        with refused(absent):
            log.read_commit(place, 0)
        with refused(absent), log.transaction() as transaction:
            transaction.commit(place, [add(1)])

    def test_versions_come_in_order(self, log: TxnLog, place: str, files: OpenFiles) -> None:
        """Each commit is one version after the last, and one file."""
        log.create(place, SCHEMA)
        assert [land(log, place, add(number)) for number in range(1, 4)] == [1, 2, 3]
        assert log.latest_version(place) == 3
        assert log_names(files, place) == [f"{version:020d}.json" for version in range(4)]

    def test_every_version_stays_readable(self, log: TxnLog, place: str) -> None:
        """With its own files and totals."""
        log.create(place, SCHEMA)
        land(log, place, add(1), add(2))
        land(log, place, remove(1), add(3))
        land(log, place, remove(2), remove(3))
        expected = [set(), {1, 2}, {2, 3}, set()]
        for version, numbers in enumerate(expected):
            snapshot = log.snapshot(place, version)
            assert paths(log, place, version) == [f"part-{number:05d}.parquet" for number in sorted(numbers)]
            assert snapshot.version == version
            assert (snapshot.num_files, snapshot.size_bytes) == (
                len(numbers),
                sum(100 + number for number in numbers),
            )

    def test_a_snapshot_does_not_move(self, log: TxnLog, place: str) -> None:
        """Files are those of its version, also when they are asked for later."""
        log.create(place, SCHEMA)
        land(log, place, add(1))
        snapshot = log.snapshot(place)
        land(log, place, remove(1), add(2))
        assert snapshot.files()["path"].to_pylist() == ["part-00001.parquet"]

    def test_a_version_that_is_not_there_is_named(self, log: TxnLog, place: str) -> None:
        """Neither before the first nor after the last."""
        log.create(place, SCHEMA)
        for version in (-1, 1, 10**9):
            with refused(VersionNotFound) as refusal:
                log.snapshot(place, version)
            assert str(version) in str(refusal)
            with refused(VersionNotFound):
                log.read_commit(place, version)

    def test_every_version_is_found_by_its_time(self, log: TxnLog, place: str) -> None:
        """And a millisecond earlier is the version before."""
        log.create(place, SCHEMA)
        for number in range(1, 4):
            land(log, place, add(number))
        times = [entry.timestamp for entry in reversed(log.history(place))]
        assert times == sorted(set(times))
        assert [log.snapshot(place, version).timestamp for version in range(4)] == times
        assert [log.snapshot(place, timestamp=time).version for time in times] == [0, 1, 2, 3]
        assert [log.snapshot(place, timestamp=time - 1).version for time in times[1:]] == [0, 1, 2]
        assert log.snapshot(place, timestamp=times[-1] + 86_400_000).version == 3

    def test_a_time_may_be_text_or_a_datetime(self, log: TxnLog, place: str) -> None:
        """Without a zone it is UTC."""
        log.create(place, SCHEMA)
        land(log, place, add(1))
        moment = datetime.fromtimestamp(log.snapshot(place, 0).timestamp / 1000, UTC)
        for given in (moment, moment.isoformat(), moment.replace(tzinfo=None).isoformat()):
            assert log.snapshot(place, timestamp=given).version == 0

    def test_a_time_before_the_first_version_is_refused(self, log: TxnLog, place: str) -> None:
        """And so is what is no time, and a time beside a version."""
        first = log.create(place, SCHEMA).timestamp
        moments: list[Any] = [first - 1, "2001-01-01", "yesterday", float("nan")]
        for given in moments:
            with refused(VersionNotFound):
                log.snapshot(place, timestamp=given)
        with refused(VersionNotFound):
            log.snapshot(place, 0, first)

    def test_history_is_newest_first(self, log: TxnLog, place: str) -> None:
        """With who, why and what."""
        log.create(place, SCHEMA, author="ada", message="begin")
        land(log, place, add(1), author="ben", message="first load")
        told = {"commitInfo": {"operation": "DELETE"}}
        land(log, place, told, remove(1), author="cleo", message="went wrong")
        shown = [(e.version, e.operation, e.author, e.message) for e in log.history(place)]
        assert shown == [
            (2, "DELETE", "cleo", "went wrong"),
            (1, "WRITE", "ben", "first load"),
            (0, "CREATE TABLE", "ada", "begin"),
        ]
        assert [(e.facts.adds, e.facts.removes) for e in log.history(place)] == [(0, 1), (1, 0), (0, 0)]
        assert [entry.version for entry in log.history(place, limit=2)] == [2, 1]
        wrong: list[Any] = [0, -1, "x"]
        for limit in wrong:
            with refused(LedgerError):
                log.history(place, limit=limit)

    def test_history_counts_files_where_it_says_so(self, log: TxnLog, place: str) -> None:
        """Otherwise it leaves them open."""
        log.create(place, SCHEMA)
        land(log, place, add(1), add(2))
        counted = [(2, 203), (0, 0)] if log.capabilities.history_counts else [(None, None)] * 2
        assert [(entry.num_files, entry.size_bytes) for entry in log.history(place)] == counted

    def test_a_commit_is_read_as_it_is_published(self, log: TxnLog, place: str, files: OpenFiles) -> None:
        """To the byte."""
        log.create(place, SCHEMA)
        land(log, place, add(1))
        for version in (0, 1):
            assert log.read_commit(place, version) == files(place).read(commit_path(version))


class FileBehaviours:
    """The files of a snapshot."""

    def test_files_have_a_schema_of_their_own(self, log: TxnLog, place: str) -> None:
        """The same on every log, and for no file as for many."""
        assert log.create(place, SCHEMA, ["name"]).files().schema == FILES
        land(log, place, add(1, partitionValues={"name": "x"}), add(2, partitionValues={"name": None}))
        found = log.snapshot(place).files()
        assert found.schema == FILES
        assert [row | {"stats": None} for row in active(log, place)] == [
            self._row(1, [("name", "x")]),
            self._row(2, [("name", None)]),
        ]
        assert found["stats"].to_pylist()[0].startswith('{"numRecords"')

    @staticmethod
    def _row(number: int, values: list[tuple[str, str | None]]) -> dict[str, Any]:
        return {
            "path": f"part-{number:05d}.parquet",
            "size": 100 + number,
            "modification_time": 1_700_000_000_000 + number,
            "partition_values": values,
            "num_records": 10,
            "stats": None,
            "deletion_vector": None,
        }

    def test_a_predicate_never_loses_a_file(self, log: TxnLog, place: str) -> None:
        """It leaves out what the statistics rule out, and keeps what has none."""
        log.create(place, SCHEMA)
        land(log, place, *(add(number) for number in range(50)), add(77, stats=None))
        cases: dict[str, set[int]] = {
            "id = 123": {12},
            "id >= 480": {48, 49},
            "id < 15": {0, 1},
            "id > 95 AND id <= 110": {9, 10, 11},
            "id = 5 OR id = 499": {0, 49},
            "id = 5000": set(),
        }
        for predicate, numbers in cases.items():
            kept = set(log.snapshot(place).files(predicate)["path"].to_pylist())
            assert kept == {f"part-{number:05d}.parquet" for number in numbers | {77}}, predicate
        kept = set(log.snapshot(place).files([("id", "=", 123)])["path"].to_pylist())
        assert kept == {"part-00012.parquet", "part-00077.parquet"}
        assert log.snapshot(place).files("upper(name) = 'X'").num_rows == 51

    def test_a_predicate_on_a_partition_column_chooses_partitions(self, log: TxnLog, place: str) -> None:
        """By their values, and together with statistics."""
        log.create(place, SCHEMA, ["name"])
        land(log, place, *(add(n, partitionValues={"name": "ab"[n % 2]}) for n in range(6)))
        land(log, place, add(6, partitionValues={"name": None}))
        for predicate, numbers in {
            "name = 'a'": (0, 2, 4),
            "name = 'b' AND id < 20": (1,),
            "name IS NULL": (6,),
            "name = 'none'": (),
        }.items():
            kept = sorted(log.snapshot(place).files(predicate)["path"].to_pylist())
            assert kept == [f"part-{number:05d}.parquet" for number in numbers], predicate

    def test_a_predicate_sees_the_version_it_is_asked_at(self, log: TxnLog, place: str) -> None:
        """Neither files that went nor files that came later."""
        log.create(place, SCHEMA)
        land(log, place, add(1))
        land(log, place, remove(1), add(1, path="again.parquet"))
        asked = [log.snapshot(place, version).files("id = 15")["path"].to_pylist() for version in (0, 1, 2)]
        assert asked == [[], ["part-00001.parquet"], ["again.parquet"]]

    def test_records_are_counted_where_all_files_tell(self, log: TxnLog, place: str) -> None:
        """One file without statistics leaves the number open."""
        log.create(place, SCHEMA)
        land(log, place, add(1), add(2))
        assert log.snapshot(place).num_records == 20
        land(log, place, add(3, stats=None))
        assert log.snapshot(place).num_records is None

    def test_statistics_stay_as_the_writer_wrote_them(self, log: TxnLog, place: str) -> None:
        """Also junk, large numbers and odd spacing."""
        texts = ['{"numRecords": 9007199254740993 }', "junk", "{}", '{"numRecords":1.0,"x":"é\\u0000"}']
        log.create(place, SCHEMA)
        land(log, place, *(add(number, stats=text) for number, text in enumerate(texts)))
        assert [row["stats"] for row in active(log, place)] == texts
        assert active(log, place)[0]["num_records"] == 9007199254740993

    def test_odd_paths_stay_as_the_writer_wrote_them(self, log: TxnLog, place: str) -> None:
        """Encoded or not, in any script; what is encoded differs from what is not."""
        odd = ["größe/日本.parquet", "a%20b.parquet", "a b.parquet", "day=2024%252F1/x.parquet", "it's,{x}#1"]
        log.create(place, SCHEMA)
        land(log, place, *(add(number, path=path) for number, path in enumerate(odd)))
        assert paths(log, place) == sorted(odd)
        land(log, place, remove(0, path="a%20b.parquet"))
        assert paths(log, place) == sorted(set(odd) - {"a%20b.parquet"})

    def test_a_file_is_known_by_path_and_deletion_vector(self, log: TxnLog, place: str) -> None:
        """A new vector replaces the file without one; the removal has to name the right one."""
        log.create(place, SCHEMA, properties={"delta.enableDeletionVectors": "true"})
        land(log, place, add(1), add(2))
        land(log, place, remove(1), add(1, deletionVector=vector("first")))
        assert [row["deletion_vector"] for row in active(log, place)] == [vector("first"), None]
        with refused(CommitRefused):
            land(log, place, remove(1))
        second = add(1, deletionVector=vector("second"))
        land(log, place, remove(1, deletionVector=vector("first")), second)
        assert [row["deletion_vector"] for row in active(log, place, 3)] == [vector("second"), None]
        assert [row["deletion_vector"] for row in active(log, place, 1)] == [None, None]
        assert log.snapshot(place).num_files == 2

    def test_an_outside_reader_sees_the_same_files(
        self, log: TxnLog, place: str, outside: ReadOutside
    ) -> None:
        """At every version, before and after a checkpoint."""
        log.create(place, SCHEMA, properties={"delta.checkpointInterval": "5"})
        for number in range(1, 8):
            land(log, place, add(number), *([remove(number - 1)] if number % 3 == 0 else []))
        for version in range(8):
            assert outside(place, version) == set(paths(log, place, version)), version

    def test_a_checkpoint_comes_at_the_interval(self, log: TxnLog, place: str, files: OpenFiles) -> None:
        """And changes nothing for readers."""
        log.create(place, SCHEMA, properties={"delta.checkpointInterval": "2"})
        land(log, place, add(1), {"txn": {"appId": "app", "version": 4}})
        before = log.snapshot(place)
        land(log, place, add(2))
        names = log_names(files, place)
        assert [name for name in names if "checkpoint" in name] == [
            "00000000000000000002.checkpoint.parquet",
            "_last_checkpoint",
        ]
        after = log.snapshot(place)
        assert after.transactions == before.transactions
        assert paths(log, place) == ["part-00001.parquet", "part-00002.parquet"]

    def test_a_checkpoint_has_the_form_that_the_table_asks_for(
        self, log: TxnLog, place: str, files: OpenFiles
    ) -> None:
        """Version 2, with sidecars."""
        wanted = {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "2"}
        log.create(place, SCHEMA, properties=wanted)
        land(log, place, add(1))
        land(log, place, add(2))
        top = [name for name in log_names(files, place) if name.endswith(".parquet")]
        sidecars = list(files(place).list("_delta_log/_sidecars"))
        assert (len(top), len(sidecars)) == (1, 1)
        assert paths(log, place) == ["part-00001.parquet", "part-00002.parquet"]
