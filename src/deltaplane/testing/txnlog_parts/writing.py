"""What a commit does, and how a transaction ends."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from deltaplane.errors import CommitConflict, CommitRefused, LedgerError
from deltaplane.ledger.ports import TxnLog
from deltaplane.log.schema_json import schema_string_of
from deltaplane.testing.txnlog_parts.actions import (
    SCHEMA,
    OpenFiles,
    active,
    add,
    land,
    lines,
    log_names,
    paths,
    refused,
    remove,
)

__all__ = ["ContentBehaviours", "TransactionBehaviours"]

IN_COMMIT_TIME = {"delta.enableInCommitTimestamps": "true"}


class ContentBehaviours:
    """What stands in a commit, and what becomes of it."""

    def test_a_commit_info_is_added(self, log: TxnLog, place: str) -> None:
        """As the first action, with who, what and which transaction."""
        log.create(place, SCHEMA)
        with log.transaction(author="ada") as transaction:
            transaction.commit(place, [add(1)])
        first, second = lines(log.read_commit(place, 1))
        info = first["commitInfo"]
        assert {key: info[key] for key in ("operation", "isBlindAppend", "txnId", "userName")} == {
            "operation": "WRITE",
            "isBlindAppend": True,
            "txnId": transaction.transaction_id,
            "userName": "ada",
        }
        assert info["timestamp"] > 0
        assert second == add(1)

    def test_what_the_writer_says_is_kept(self, log: TxnLog, place: str) -> None:
        """Ours only fills what is missing."""
        log.create(place, SCHEMA)
        told = {"operation": "MERGE", "isBlindAppend": False, "userMetadata": "why", "deep": {"a": [1, 2.50]}}
        land(log, place, {"commitInfo": told}, add(1))
        info = lines(log.read_commit(place, 1))[0]["commitInfo"]
        assert {key: info[key] for key in told} == told
        assert "txnId" in info

    def test_unknown_actions_and_fields_are_kept(self, log: TxnLog, place: str) -> None:
        """They are of a newer writer, and mean something to others."""
        log.create(place, SCHEMA)
        newer = {"somethingNew": {"deep": [1, {"x": None}]}}
        land(log, place, add(1, futureField={"a": 1.10}), newer)
        _, *rest = lines(log.read_commit(place, 1))
        assert add(1, futureField={"a": 1.10}) in rest
        assert newer in rest
        assert paths(log, place) == ["part-00001.parquet"]

    def test_applications_tell_their_progress(self, log: TxnLog, place: str) -> None:
        """Each has its own, and the last one counts."""
        log.create(place, SCHEMA)
        land(log, place, add(1), {"txn": {"appId": "a", "version": 1, "lastUpdated": 5}})
        land(log, place, add(2), {"txn": {"appId": "b", "version": 7}})
        land(log, place, add(3), {"txn": {"appId": "a", "version": 2}})
        asked = [
            {name: (txn.version, txn.last_updated) for name, txn in found.items()}
            for found in (log.snapshot(place, version).transactions for version in (1, 3))
        ]
        assert asked == [{"a": (1, 5)}, {"a": (2, None), "b": (7, None)}]

    def test_domains_are_set_and_removed(self, log: TxnLog, place: str) -> None:
        """A removed one is gone, and comes back when it is set again."""
        log.create(place, SCHEMA, properties={"delta.feature.domainMetadata": "supported"})
        for configuration, removed in (("one", False), ("one", True), ("two", False)):
            domain = {"domain": "app.x", "configuration": configuration, "removed": removed}
            land(log, place, {"domainMetadata": domain})
        asked = [
            {name: domain.configuration for name, domain in log.snapshot(place, version).domains.items()}
            for version in range(4)
        ]
        assert asked == [{}, {"app.x": "one"}, {}, {"app.x": "two"}]

    def test_a_new_schema_counts_from_its_version_on(self, log: TxnLog, place: str) -> None:
        """Older versions keep the older one."""
        log.create(place, SCHEMA)
        before = log.snapshot(place).metadata
        wider = schema_string_of(SCHEMA.append(pa.field("more", pa.float64())))
        land(log, place, self._metadata(before, wider, dict(before.configuration)))
        assert log.snapshot(place, 0).schema_string == before.schema_string
        assert log.snapshot(place, 1).schema_string == wider

    @staticmethod
    def _metadata(before: Any, schema: str, configuration: dict[str, str]) -> dict[str, Any]:
        body = {"id": before.id, "format": {"provider": "parquet", "options": {}}, "schemaString": schema}
        body |= {"partitionColumns": list(before.partition_columns), "configuration": configuration}
        return {"metaData": body}

    def test_a_new_protocol_counts_from_its_version_on(self, log: TxnLog, place: str) -> None:
        """With its features."""
        log.create(place, SCHEMA)
        features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
        land(log, place, {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}})
        before, after = log.snapshot(place, 0).protocol, log.snapshot(place, 1).protocol
        assert (before.min_reader_version, before.reader_features) == (1, None)
        assert (after.min_reader_version, after.min_writer_version) == (3, 7)
        assert after.writer_features == ("deletionVectors",)

    def test_in_commit_times_strictly_increase(self, log: TxnLog, place: str) -> None:
        """They stand first in the commit, and are the commit's time for everybody."""
        log.create(place, SCHEMA, properties=IN_COMMIT_TIME)
        for number in range(1, 6):
            land(log, place, add(number))
        told = [lines(log.read_commit(place, version))[0]["commitInfo"] for version in range(6)]
        stamps = [info["inCommitTimestamp"] for info in told]
        assert stamps == sorted(set(stamps))
        assert [log.snapshot(place, version).timestamp for version in range(6)] == stamps
        assert [log.snapshot(place, timestamp=stamp).version for stamp in stamps] == list(range(6))

    def test_in_commit_times_that_come_later_say_since_when(self, log: TxnLog, place: str) -> None:
        """The commits before carry none, and readers must not look for it."""
        log.create(place, SCHEMA)
        land(log, place, add(1))
        before = log.snapshot(place).metadata
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}
        land(log, place, {"protocol": protocol}, self._metadata(before, before.schema_string, IN_COMMIT_TIME))
        land(log, place, add(2))
        stamp = lines(log.read_commit(place, 2))[0]["commitInfo"]["inCommitTimestamp"]
        assert dict(log.snapshot(place).metadata.configuration) == IN_COMMIT_TIME | {
            "delta.inCommitTimestampEnablementVersion": "2",
            "delta.inCommitTimestampEnablementTimestamp": str(stamp),
        }
        times = [entry.timestamp for entry in reversed(log.history(place))]
        assert [log.snapshot(place, timestamp=time).version for time in times] == [0, 1, 2, 3]

    def test_a_file_may_come_back(self, log: TxnLog, place: str) -> None:
        """After it was removed, and then it is one file again."""
        log.create(place, SCHEMA)
        land(log, place, add(1))
        land(log, place, remove(1))
        land(log, place, add(1, size=5))
        sizes = [[row["size"] for row in active(log, place, version)] for version in range(4)]
        assert sizes == [[], [101], [], [5]]
        assert log.snapshot(place).size_bytes == 5

    def test_a_file_may_be_told_of_again(self, log: TxnLog, place: str) -> None:
        """The newer words count, and it stays one file."""
        log.create(place, SCHEMA)
        land(log, place, add(1))
        land(log, place, add(1, size=7, stats=None))
        sizes = [[row["size"] for row in active(log, place, version)] for version in range(3)]
        assert sizes == [[], [101], [7]]
        snapshot = log.snapshot(place)
        assert (snapshot.num_files, snapshot.size_bytes, snapshot.num_records) == (1, 7, None)

    def test_a_commit_may_be_large(self, log: TxnLog, place: str) -> None:
        """Five thousand files come at once, and go at once."""
        log.create(place, SCHEMA)
        land(log, place, *(add(number) for number in range(5000)))
        assert log.snapshot(place).num_files == 5000
        assert paths(log, place) == [f"part-{number:05d}.parquet" for number in range(5000)]
        land(log, place, *(remove(number) for number in range(4999)))
        assert paths(log, place) == ["part-04999.parquet"]


class TransactionBehaviours:
    """All of it or nothing."""

    def test_a_transaction_tells_where_it_landed(self, log: TxnLog, place: str) -> None:
        """Under the id that history shows."""
        log.create(place, SCHEMA)
        with log.transaction() as transaction:
            transaction.commit(place, [add(1)])
            assert transaction.result is None
        assert transaction.result is not None
        assert transaction.result.transaction_id == transaction.transaction_id
        assert transaction.result.versions == {log.snapshot(place).location: 1}
        assert transaction.result.unpublished == {}
        assert log.history(place)[0].transaction_id == transaction.transaction_id

    def test_nothing_shows_before_the_end(self, log: TxnLog, place: str, files: OpenFiles) -> None:
        """Neither to us nor to others."""
        log.create(place, SCHEMA)
        with log.transaction() as transaction:
            transaction.commit(place, [add(1)])
            assert log.latest_version(place) == 0
            assert log_names(files, place) == ["00000000000000000000.json"]
        assert log.latest_version(place) == 1

    def test_a_transaction_without_a_commit_does_nothing(self, log: TxnLog, place: str) -> None:
        """Its result names no version."""
        log.create(place, SCHEMA)
        with log.transaction() as transaction:
            transaction.snapshot(place)
        assert transaction.result is not None
        assert (transaction.result.versions, transaction.result.unpublished) == ({}, {})
        assert log.latest_version(place) == 0

    def test_an_exception_writes_nothing(self, log: TxnLog, place: str, files: OpenFiles) -> None:
        """And goes on to the caller."""
        log.create(place, SCHEMA)
        with refused(ZeroDivisionError), log.transaction() as transaction:
            transaction.commit(place, [add(1)])
            raise ZeroDivisionError
        assert transaction.result is None
        assert log.latest_version(place) == 0
        assert log_names(files, place) == ["00000000000000000000.json"]

    def test_a_rollback_writes_nothing(self, log: TxnLog, place: str) -> None:
        """Inside the block or without one."""
        log.create(place, SCHEMA)
        with log.transaction() as transaction:
            transaction.commit(place, [add(1)])
            transaction.rollback()
        assert transaction.result is None
        assert log.latest_version(place) == 0

    def test_a_transaction_is_used_once(self, log: TxnLog, place: str) -> None:
        """After its end, however that came, it refuses everything."""
        log.create(place, SCHEMA)
        with log.transaction() as committed:
            committed.commit(place, [add(1)])
        rolled_back = log.transaction()
        rolled_back.rollback()
        for ended in (committed, rolled_back):
            with refused(LedgerError):
                ended.commit(place, [add(2)])
            with refused(LedgerError):
                ended.snapshot(place)
            with refused(LedgerError):
                ended.rollback()
            with refused(LedgerError):
                ended.__enter__()
        assert log.latest_version(place) == 1

    def test_a_transaction_reads_as_of_the_first_mention(self, log: TxnLog, place: str) -> None:
        """What others commit meanwhile is not seen inside."""
        log.create(place, SCHEMA)
        with log.transaction() as transaction:
            assert transaction.snapshot(place).version == 0
            land(log, place, add(1))
            assert transaction.snapshot(place).version == 0
            assert transaction.snapshot(place).num_files == 0
        assert log.latest_version(place) == 1

    def test_several_commits_to_a_table_where_that_is_possible(self, log: TxnLog, place: str) -> None:
        """One version each, in order; otherwise the second is refused and the first does not take place."""
        log.create(place, SCHEMA)
        possible = log.capabilities.many_commits
        with refused(_Done if possible else CommitRefused) as refusal:
            with log.transaction() as transaction:
                transaction.commit(place, [add(1)])
                transaction.commit(place, [add(2)])
            raise _Done
        assert log.latest_version(place) == (2 if possible else 0)
        assert possible or "ledger" in str(refusal)

    def test_several_tables_where_that_is_possible(self, log: TxnLog, place: str) -> None:
        """Together; otherwise the second is refused with the advice to use a ledger."""
        other = f"{place}-other"
        log.create(place, SCHEMA)
        log.create(other, SCHEMA)
        possible = log.capabilities.many_tables
        with refused(_Done if possible else CommitRefused) as refusal:
            with log.transaction() as transaction:
                transaction.commit(place, [add(1)])
                transaction.commit(other, [add(2)])
            raise _Done
        landed = [log.latest_version(place), log.latest_version(other)]
        assert landed == ([1, 1] if possible else [0, 0])
        assert possible or "ledger" in str(refusal)

    def test_several_tables_stay_as_they_are_when_one_conflicts(self, log: TxnLog, place: str) -> None:
        """Also where only one table is possible, for then the second is refused."""
        other = f"{place}-other"
        log.create(place, SCHEMA)
        log.create(other, SCHEMA)
        land(log, other, add(1))
        expected = CommitConflict if log.capabilities.many_tables else CommitRefused
        with refused(expected), log.transaction() as transaction:
            transaction.commit(place, [add(1)])
            transaction.commit(other, [add(2)], expected_version=0)
        assert [log.latest_version(place), log.latest_version(other)] == [0, 1]

    def test_a_crowd_of_appends_all_land(self, log: TxnLog, place: str) -> None:
        """Eight threads with ten appends each: none is lost, none fails, none comes twice."""
        log.create(place, SCHEMA)

        def work(thread: int) -> list[int]:
            return [land(log, place, add(100 * thread + number)) for number in range(10)]

        with ThreadPoolExecutor(8) as pool:
            versions = [version for found in pool.map(work, range(8)) for version in found]
        assert sorted(versions) == list(range(1, 81))
        assert log.latest_version(place) == 80
        wanted = [f"part-{100 * thread + number:05d}.parquet" for thread in range(8) for number in range(10)]
        assert paths(log, place) == wanted
        assert [entry.facts.adds for entry in log.history(place, 80)] == [1] * 80


class _Done(Exception):
    """The block went through to its end."""
