"""What happens when two want to commit, and what no commit may do."""

from __future__ import annotations

from typing import Any

from deltaplane.errors import CommitConflict, CommitRefused, UnsafePath, UnsupportedTable
from deltaplane.ledger.ports import TxnLog
from deltaplane.testing.txnlog_parts.actions import (
    SCHEMA,
    OpenFiles,
    Refusal,
    add,
    foreign_commit,
    land,
    log_names,
    paths,
    refused,
    remove,
    vector,
)

__all__ = ["ConflictBehaviours", "RefusalBehaviours"]


def _metadata(log: TxnLog, place: str, **configuration: str) -> dict[str, Any]:
    """The table's own metadata, with another property."""
    now = log.snapshot(place).metadata
    body = {"id": now.id, "format": {"provider": "parquet", "options": {}}, "schemaString": now.schema_string}
    known = dict(now.configuration) | configuration
    return {"metaData": body | {"partitionColumns": list(now.partition_columns), "configuration": known}}


class ConflictBehaviours:
    """Somebody else was faster."""

    def _race(self, log: TxnLog, place: str, ours: list[Any], theirs: list[Any], **who: str) -> int | None:
        """Commit `theirs` while a transaction with `ours` is open; the version where ours lands."""
        with log.transaction() as transaction:
            transaction.commit(place, ours)
            land(log, place, *theirs, **who)
        assert transaction.result is not None
        (version,) = transaction.result.versions.values()
        return version

    def _lost(self, log: TxnLog, place: str, ours: list[Any], theirs: list[Any], **who: str) -> Refusal:
        """The same race when ours cannot land; nothing but theirs is there afterwards."""
        before = log.latest_version(place)
        with refused(CommitConflict) as refusal:
            self._race(log, place, ours, theirs, **who)
        assert log.latest_version(place) == before + 1
        return refusal

    def test_the_expected_version_is_met(self, log: TxnLog, place: str) -> None:
        """The commit lands right after it."""
        log.create(place, SCHEMA)
        assert land(log, place, add(1), expected_version=0) == 1
        assert land(log, place, remove(1), expected_version=1) == 2

    def test_an_expected_version_that_has_passed_is_a_conflict(self, log: TxnLog, place: str) -> None:
        """Also for an append, which could be moved otherwise."""
        log.create(place, SCHEMA)
        land(log, place, add(1), author="ada")
        with refused(CommitConflict) as refusal:
            land(log, place, add(2), expected_version=0)
        assert (refusal.error.version, "ada" in refusal.error.winner) == (1, True)
        assert paths(log, place) == ["part-00001.parquet"]

    def test_an_expected_version_that_is_not_there_yet_is_a_conflict(self, log: TxnLog, place: str) -> None:
        """Nobody can have read it."""
        log.create(place, SCHEMA)
        with refused(CommitConflict) as refusal:
            land(log, place, add(1), expected_version=7)
        assert "7" in str(refusal)
        assert log.latest_version(place) == 0

    def test_an_append_moves_behind_another(self, log: TxnLog, place: str) -> None:
        """Both files are there, in the order of the commits."""
        log.create(place, SCHEMA)
        assert self._race(log, place, [add(1)], [add(2)]) == 2
        assert paths(log, place, 1) == ["part-00002.parquet"]
        assert paths(log, place, 2) == ["part-00001.parquet", "part-00002.parquet"]

    def test_an_append_moves_behind_a_removal(self, log: TxnLog, place: str) -> None:
        """It depends on nothing in the table."""
        log.create(place, SCHEMA)
        land(log, place, add(1))
        assert self._race(log, place, [add(2)], [remove(1)]) == 3
        assert paths(log, place) == ["part-00002.parquet"]

    def test_an_append_moves_behind_a_foreign_one(self, log: TxnLog, place: str, files: OpenFiles) -> None:
        """An outside writer is a writer like any other."""
        log.create(place, SCHEMA)
        with log.transaction() as transaction:
            transaction.commit(place, [add(1)])
            foreign_commit(files, place, 1, add(2))
        assert transaction.result is not None
        assert list(transaction.result.versions.values()) == [2]
        assert paths(log, place) == ["part-00001.parquet", "part-00002.parquet"]

    def test_a_removal_does_not_move_behind_a_foreign_commit(
        self, log: TxnLog, place: str, files: OpenFiles
    ) -> None:
        """The winner is named by its program, for that is all it tells."""
        log.create(place, SCHEMA)
        land(log, place, add(1))
        with refused(CommitConflict) as refusal, log.transaction() as transaction:
            transaction.commit(place, [remove(1)])
            foreign_commit(files, place, 2, add(2))
        assert "outsider" in str(refusal)
        assert paths(log, place) == ["part-00001.parquet", "part-00002.parquet"]

    def test_a_conflict_names_the_winner(self, log: TxnLog, place: str) -> None:
        """Who, what and which version."""
        log.create(place, SCHEMA)
        land(log, place, add(1))
        theirs = [{"commitInfo": {"operation": "OPTIMIZE"}}, add(2)]
        refusal = self._lost(log, place, [remove(1)], theirs, author="nightly-load")
        error = refusal.error
        assert (error.table, error.version) == (log.snapshot(place).location, 2)
        assert "nightly-load (OPTIMIZE) at 20" in error.winner
        assert "Nothing was written" in str(refusal)
        assert paths(log, place) == ["part-00001.parquet", "part-00002.parquet"]

    def test_the_same_file_is_not_removed_twice(self, log: TxnLog, place: str) -> None:
        """The second remover hears of the first."""
        log.create(place, SCHEMA)
        land(log, place, add(1))
        self._lost(log, place, [remove(1)], [remove(1)])
        assert paths(log, place) == []

    def test_an_append_does_not_move_behind_a_new_schema(self, log: TxnLog, place: str) -> None:
        """Its files may not fit any more."""
        log.create(place, SCHEMA)
        refusal = self._lost(log, place, [add(1)], [_metadata(log, place, team="red")], author="ada")
        assert "schema" in str(refusal)
        assert paths(log, place) == []

    def test_an_append_does_not_move_behind_a_new_protocol(self, log: TxnLog, place: str) -> None:
        """Its writer may not know what is asked now."""
        log.create(place, SCHEMA)
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly"]}
        refusal = self._lost(log, place, [add(1)], [{"protocol": protocol}])
        assert "protocol" in str(refusal)

    def test_an_application_does_not_advance_twice(self, log: TxnLog, place: str) -> None:
        """The same work would count twice."""
        log.create(place, SCHEMA)
        progress = {"txn": {"appId": "stream", "version": 1}}
        refusal = self._lost(log, place, [add(1), progress], [add(2), progress])
        assert "stream" in str(refusal)
        assert paths(log, place) == ["part-00002.parquet"]

    def test_two_applications_do_not_disturb_each_other(self, log: TxnLog, place: str) -> None:
        """Each advances."""
        log.create(place, SCHEMA)
        ours, theirs = ({"txn": {"appId": name, "version": 1}} for name in ("ours", "theirs"))
        assert self._race(log, place, [add(1), ours], [add(2), theirs]) == 2
        assert sorted(log.snapshot(place).transactions) == ["ours", "theirs"]

    def test_a_change_of_a_domain_does_not_move(self, log: TxnLog, place: str) -> None:
        """It was made from what was there."""
        log.create(place, SCHEMA, properties={"delta.feature.domainMetadata": "supported"})
        domain = {"domainMetadata": {"domain": "app.x", "configuration": "1", "removed": False}}
        self._lost(log, place, [add(1), domain], [add(2)])
        assert dict(log.snapshot(place).domains) == {}

    def test_an_append_with_a_new_schema_does_not_move(self, log: TxnLog, place: str) -> None:
        """Even when its writer calls it blind, as Delta's writers do."""
        log.create(place, SCHEMA)
        told = {"commitInfo": {"operation": "WRITE", "isBlindAppend": True}}
        self._lost(log, place, [told, add(1), _metadata(log, place, team="blue")], [add(2)])
        assert "team" not in log.snapshot(place).metadata.configuration

    def test_a_removal_called_blind_does_not_move(self, log: TxnLog, place: str) -> None:
        """What a commit does counts for more than what it says."""
        log.create(place, SCHEMA)
        land(log, place, add(1))
        told = {"commitInfo": {"operation": "WRITE", "isBlindAppend": True}}
        self._lost(log, place, [told, add(3), remove(1)], [add(2)])

    def test_an_append_that_is_not_blind_does_not_move(self, log: TxnLog, place: str) -> None:
        """Its writer says that it read the table."""
        log.create(place, SCHEMA)
        told = {"commitInfo": {"operation": "MERGE", "isBlindAppend": False}}
        self._lost(log, place, [told, add(1)], [add(2)])

    def test_numbered_rows_do_not_move(self, log: TxnLog, place: str) -> None:
        """Two commits would use the same row ids."""
        log.create(place, SCHEMA, properties={"delta.enableRowTracking": "true"})
        ours, theirs = (add(number, baseRowId=0, defaultRowCommitVersion=1) for number in (1, 2))
        refusal = self._lost(log, place, [ours], [theirs])
        assert "rows" in str(refusal)

    def test_an_append_gets_a_time_of_its_own_when_it_moves(self, log: TxnLog, place: str) -> None:
        """In a table that keeps the time in its commits."""
        log.create(place, SCHEMA, properties={"delta.enableInCommitTimestamps": "true"})
        assert self._race(log, place, [add(1)], [add(2)]) == 2
        times = [entry.timestamp for entry in log.history(place)]
        assert times == sorted(set(times), reverse=True)


class RefusalBehaviours:
    """What no commit may do. Each refusal leaves the table as it was."""

    def _refused(
        self, log: TxnLog, place: str, files: OpenFiles, kind: type[Exception], *actions: Any
    ) -> Refusal:
        before = log.latest_version(place), log_names(files, place)
        with refused(kind) as refusal:
            land(log, place, *actions)
        assert (log.latest_version(place), log_names(files, place)) == before
        return refusal

    def test_an_append_only_table_keeps_its_data(self, log: TxnLog, place: str, files: OpenFiles) -> None:
        """A rewrite that changes no data is allowed."""
        log.create(place, SCHEMA, properties={"delta.appendOnly": "true"})
        land(log, place, add(1))
        refusal = self._refused(log, place, files, CommitRefused, remove(1))
        assert "append-only" in str(refusal)
        assert land(log, place, remove(1, dataChange=False), add(2, dataChange=False)) == 2

    def test_an_unknown_file_cannot_be_removed(self, log: TxnLog, place: str, files: OpenFiles) -> None:
        """Neither one that never was nor one that went, nor one with another deletion vector."""
        log.create(place, SCHEMA, properties={"delta.enableDeletionVectors": "true"})
        land(log, place, add(1), add(2))
        land(log, place, remove(1))
        for gone in (remove(9), remove(1), remove(2, deletionVector=vector("other"))):
            refusal = self._refused(log, place, files, CommitRefused, gone)
            assert gone["remove"]["path"] in str(refusal)

    def test_contradictory_actions_are_refused(self, log: TxnLog, place: str, files: OpenFiles) -> None:
        """A file twice, or two of what there is one of."""
        log.create(place, SCHEMA)
        land(log, place, add(1))
        metadata, info = _metadata(log, place), {"commitInfo": {"operation": "WRITE"}}
        protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
        for pair in ([add(2), add(2)], [remove(1), add(1)], [metadata] * 2, [protocol] * 2, [info] * 2):
            self._refused(log, place, files, CommitRefused, *pair)

    def test_malformed_actions_are_refused(self, log: TxnLog, place: str, files: OpenFiles) -> None:
        """With the place of the fault."""
        log.create(place, SCHEMA)
        wrong: list[dict[str, Any]] = [
            {},
            {"add": {}},
            {"add": {"path": "x.parquet", "partitionValues": {}, "dataChange": True}},
            add(1, size="many"),
            add(1, size=-1),
            add(1, partitionValues=[1]),
            {"remove": {"dataChange": True}},
            {"txn": {"appId": "x"}},
            {"protocol": {"minReaderVersion": "one", "minWriterVersion": 2}},
            {"add": 5},
        ]
        for action in wrong:
            refusal = self._refused(log, place, files, CommitRefused, add(7), action)
            assert "action 2" in str(refusal), action

    def test_a_path_outside_the_table_is_refused(self, log: TxnLog, place: str, files: OpenFiles) -> None:
        """However it is written."""
        log.create(place, SCHEMA)
        for path in (
            "../x.parquet",
            "a/../../x.parquet",
            "%2e%2e/x.parquet",
            "/etc/passwd",
            "file:///etc/passwd",
            "s3://elsewhere/x.parquet",
            "%2Fetc/passwd",
        ):
            self._refused(log, place, files, UnsafePath, add(1, path=path))

    def test_partition_values_have_to_fit(self, log: TxnLog, place: str, files: OpenFiles) -> None:
        """Exactly the columns that the table is partitioned by."""
        log.create(place, SCHEMA, ["name"])
        for values in ({}, {"id": "1"}, {"name": "x", "id": "1"}):
            refusal = self._refused(log, place, files, CommitRefused, add(1, partitionValues=values))
            assert "name" in str(refusal)
        assert land(log, place, add(1, partitionValues={"name": "x"})) == 1

    def test_numbered_rows_need_their_numbers(self, log: TxnLog, place: str, files: OpenFiles) -> None:
        """In a table that tracks rows."""
        log.create(place, SCHEMA, properties={"delta.enableRowTracking": "true"})
        self._refused(log, place, files, CommitRefused, add(1))

    def test_an_unknown_feature_is_refused(self, log: TxnLog, place: str, files: OpenFiles) -> None:
        """Nobody here could keep its rules."""
        log.create(place, SCHEMA)
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["fromTheFuture"]}
        refusal = self._refused(log, place, files, UnsupportedTable, {"protocol": protocol})
        assert "fromTheFuture" in str(refusal)
