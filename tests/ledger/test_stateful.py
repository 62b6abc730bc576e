"""Random histories: ledger, published log, deltalake and a plain model agree at every version.

A model in Python follows what was asked. Commits, groups, stale writers, foreign writers, crashes between any
two steps, divergence with repair, release and adoption come in any order.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from deltaplane import telemetry
from deltaplane.errors import CommitConflict, TableFrozen, TransactionConflict
from deltaplane.ledger import Ledger, completing, connect
from deltaplane.ledger.load import load_state
from deltaplane.ledger.storage import open_storage
from deltaplane.ledger.verify import ledger_files
from deltaplane.log.jsonlines import action_to_dict
from deltaplane.log.replay import TableState
from ledger.conftest import ENGINES, SCHEMA
from ledger.independent_replay import (
    RawAction,
    Replayed,
    commit_lines,
    file_of,
    key_of,
    metadata_of,
    protocol_of,
    published_versions,
    replay_commits,
    replay_from_checkpoint,
)

FAR_FUTURE = 4_000_000_000_000
"""Tombstones of this time never expire, so that checkpoints must keep them all."""
VALUES = ["a", "b", "", None, "x=y/z %20ü", '"quo\'te"', "back\\slash", " "]
PROFILES: dict[str, dict[str, str]] = {
    "plain": {},
    "partitioned": {},
    "vectors": {"delta.enableDeletionVectors": "true", "delta.feature.domainMetadata": "supported"},
    "timed": {"delta.enableInCommitTimestamps": "true", "delta.feature.domainMetadata": "supported"},
    "tracked": {"delta.enableRowTracking": "true"},
    "v2": {"delta.checkpointPolicy": "v2", "delta.enableDeletionVectors": "true"},
}
STEPS = [
    "foreign.imported",
    "commit.begin",
    "commit.rows_written",
    "commit.before_commit",
    "commit.ratified",
    "publish.file_written",
    "publish.marked",
    "checkpoint.written",
    "checkpoint.pointed",
]


ADOPTION_STEPS = ["adopt.entered", "adopt.commits", "adopt.checked", "adopt.managed"]


class Crash(BaseException):
    """The process ends here. No handler of the program may stop it."""


@dataclass
class ModelTable:
    """What must be there."""

    path: Path
    profile: str
    commits: list[list[RawAction]] = field(default_factory=list)
    states: list[Replayed] = field(default_factory=list)
    known: int = -1
    """The newest version that the ledger must know of."""
    next_row: int = 0

    def append(self, actions: list[RawAction]) -> None:
        before = self.states[-1] if self.states else Replayed()
        self.commits.append(actions)
        self.states.append(before.after(actions))

    def cut(self, version: int) -> None:
        del self.commits[version:], self.states[version:]

    @property
    def newest(self) -> int:
        return len(self.states) - 1

    @property
    def unseen(self) -> list[list[RawAction]]:
        """Commits of others that the ledger has not met."""
        return self.commits[self.known + 1 :]

    @property
    def pending(self) -> bool:
        """Whether the ledger has ratified more than is published."""
        return published_versions(self.path)[-1] < self.known

    def clashes(self, actions: list[RawAction]) -> bool:
        """Whether a commit made from what the ledger knows must lose."""
        if not self.unseen:
            return False
        winners = [action for commit in self.unseen for action in commit]
        apps = {a["txn"]["appId"] for a in winners if "txn" in a}
        return (
            not is_blind(actions)
            or self.profile == "tracked"
            or any("metaData" in action for action in winners)
            or any(a["txn"]["appId"] in apps for a in actions if "txn" in a)
        )


def is_blind(actions: list[RawAction]) -> bool:
    kinds = {kind for action in actions for kind in action}
    return (
        "add" in kinds
        and kinds <= {"add", "txn"}
        and all(a["add"]["dataChange"] for a in actions if "add" in a)
    )


class Histories(RuleBasedStateMachine):
    """One example: some tables, and whatever happens to them."""

    def __init__(self, uri: str) -> None:
        super().__init__()
        self.uri = uri
        self.root = Path(tempfile.mkdtemp(prefix="dpstate"))
        self.ledger: Ledger = connect(uri, author="machine")
        self.tables: list[ModelTable] = []
        self.file_number = 0

    # What happens

    @initialize(
        profiles=st.lists(st.sampled_from(sorted(PROFILES)), min_size=2, max_size=3),
        interval=st.integers(1, 5),
    )
    def create_tables(self, profiles: list[str], interval: int) -> None:
        for number, profile in enumerate(profiles):
            table = ModelTable(self.root / f"{number}-{profile}", profile)
            properties = PROFILES[profile] | {"delta.checkpointInterval": str(interval)}
            partitions = ["name"] if profile == "partitioned" else []
            self.ledger.create(table.path, SCHEMA, partitions, properties)
            table.append(commit_lines(table.path, 0))
            table.known = 0
            self.tables.append(table)

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        table = self._some_table(data)
        self._transaction(data, {id(table): (table, self._actions(data, table))})

    @rule(data=st.data())
    def commit_a_group(self, data: st.DataObject) -> None:
        chosen = data.draw(
            st.lists(st.sampled_from(range(len(self.tables))), min_size=2, unique=True), "tables"
        )
        tables = [self.tables[index] for index in chosen]
        self._transaction(data, {id(table): (table, self._actions(data, table)) for table in tables})

    @rule(data=st.data())
    def commit_from_a_stale_version(self, data: st.DataObject) -> None:
        table = self._some_table(data)
        if table.known < 1:
            return
        stale = data.draw(st.integers(0, table.known - 1), "stale version")
        with pytest.raises(CommitConflict), self.ledger.transaction() as tx:
            tx.commit(str(table.path), [self._add(data, table)], expected_version=stale)
        table.known = table.newest

    @rule(data=st.data())
    def outside_writer(self, data: st.DataObject) -> None:
        table = self._some_table(data)
        if table.pending:
            self.ledger.publish(table.path)
        self._foreign(data, table, table.newest + 1)

    @rule(data=st.data())
    def outside_deltalake(self, data: st.DataObject) -> None:
        table = self._some_table(data)
        if (
            table.profile not in ("plain", "partitioned")
            or len(table.states[-1].metadata["schema"]["fields"]) > 2
        ):
            return
        if table.pending:
            self.ledger.publish(table.path)
        rows = pa.table({"id": [1, 2], "name": ["x", "y"]}, schema=SCHEMA)
        write_deltalake(str(table.path), rows, mode=data.draw(st.sampled_from(["append", "overwrite"])))
        table.append(commit_lines(table.path, table.newest + 1))

    @rule(data=st.data(), keep=st.sampled_from(["ledger", "log"]))
    def diverge_and_repair(self, data: st.DataObject, keep: str) -> None:
        table = self._some_table(data)
        self.ledger.refresh(table.path)
        table.known = table.newest
        if not table.pending:
            crash = ("commit.ratified", 1)
            self._transaction(data, {0: (table, [self._add(data, table)])}, crash)
        ratified, first = list(table.commits), published_versions(table.path)[-1] + 1
        table.cut(first)
        self._foreign(data, table, first)
        theirs = (table.path / "_delta_log" / f"{first:020d}.json").read_bytes()
        with pytest.raises(TableFrozen), self.ledger.transaction() as tx:
            tx.commit(str(table.path), [self._add(data, table)])
        assert self.ledger.latest_version(table.path) == len(ratified) - 1, "nothing is ratified on top of it"
        assert not self.ledger.verify(table.path).ok
        assert not self.ledger.repair(table.path, keep).done
        kept = (table.path / "_delta_log" / f"{first:020d}.json").read_bytes()
        assert kept == theirs, "a dry run changes nothing"
        self.ledger.repair(table.path, keep, dry_run=False)
        if keep == "ledger":
            table.cut(first)
            for actions in ratified[first:]:
                table.append(actions)
        table.known = table.newest

    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        self.ledger.publish(self._some_table(data).path if data.draw(st.booleans()) else None)

    @rule(data=st.data())
    def refresh(self, data: st.DataObject) -> None:
        table = self._some_table(data)
        assert self.ledger.refresh(table.path) == len(table.unseen)
        table.known = table.newest

    @rule()
    def reconcile(self) -> None:
        self.ledger.reconcile(force=True)
        for table in self.tables:
            table.known = table.newest

    @rule(data=st.data())
    def release_and_adopt(self, data: st.DataObject) -> None:
        table = self._some_table(data)
        released = self.ledger.release(table.path)
        assert released.version == table.known
        assert published_versions(table.path)[-1] == table.newest
        crash = data.draw(st.none() | st.sampled_from(ADOPTION_STEPS), "crash")
        with crashing((crash, 1) if crash else None, []):
            try:
                adoption = self.ledger.adopt(table.path)
            except Crash:
                adoption = None
        if adoption is None:
            self.reconnect()
            if crash == "adopt.managed":
                table.known = table.newest
                return
            adoption = self.ledger.adopt(table.path)
        assert (adoption.version, adoption.base_version, adoption.notes) == (table.newest, 0, ())
        table.known = table.newest

    @rule()
    def reconnect(self) -> None:
        self.ledger.close()
        self.ledger = connect(self.uri, author="machine")

    # What must hold

    @invariant()
    def newest_versions_are_as_expected(self) -> None:
        for table in self.tables:
            assert self.ledger.latest_version(table.path) == table.known
            assert (
                from_ledger(self.ledger, table.path, table.known)
                == table.states[table.known].without_tombstones()
            )
            published = published_versions(table.path)
            assert published == list(range(len(published))), "versions are published in order, without a gap"

    def teardown(self) -> None:
        try:
            for table in self.tables:
                self.ledger.publish(table.path)
                self.ledger.refresh(table.path)
                check_every_version(self.ledger, table.path, table.states)
                if table.profile == "timed":
                    check_times_increase(table.path)
                self.ledger.release(table.path)
        finally:
            self.ledger.close()
            shutil.rmtree(self.root, ignore_errors=True)

    # How it is done

    def _some_table(self, data: st.DataObject) -> ModelTable:
        return self.tables[data.draw(st.integers(0, len(self.tables) - 1), "table")]

    def _transaction(
        self,
        data: st.DataObject,
        wanted: dict[int, tuple[ModelTable, list[RawAction]]],
        crash: tuple[str, int] | None = None,
    ) -> None:
        work = list(wanted.values())
        crash = crash or data.draw(st.none() | st.tuples(st.sampled_from(STEPS), st.integers(1, 3)), "crash")
        must_lose = any(table.clashes(actions) for table, actions in work)
        identity, lost, crashed, seen = str(uuid.uuid4()), False, False, []
        with crashing(crash, seen):
            try:
                with self.ledger.transaction(transaction_id=identity) as tx:
                    for table, actions in work:
                        tx.commit(str(table.path), actions)
            except CommitConflict as error:
                lost = isinstance(error, TransactionConflict) == (len(work) > 1)
            except Crash:
                crashed = True
        took_place = "commit.ratified" in seen
        assert took_place == (not must_lose) or crashed
        assert lost == must_lose or crashed
        if crashed:
            self.reconnect()
        assert self.ledger.outcome(identity) == took_place
        for table, actions in work:
            if took_place:
                table.append(actions)
            imported = self.ledger.latest_version(table.path)
            assert table.known <= imported <= table.newest
            assert crashed or imported == table.newest
            table.known = imported

    def _foreign(self, data: st.DataObject, table: ModelTable, version: int) -> None:
        """A plain writer with bytes of its own style; it knows nothing of the ledger."""
        actions: list[RawAction] = self._actions(data, table)
        info: dict[str, Any] = {"operation": "OUTSIDE", "engineInfo": "plain"}
        if table.profile == "timed":
            previous = commit_lines(table.path, version - 1)[0]["commitInfo"]["inCommitTimestamp"]
            info = {"inCommitTimestamp": previous + 1} | info
        actions = [{"commitInfo": info}, *actions, {"somethingNew": {"kept": True}}]
        lines = [json.dumps(action, indent=None, separators=(", ", " : ")) for action in actions]
        place = table.path / "_delta_log" / f"{version:020d}.json"
        with place.open("x") as file:
            file.write("\n".join(lines) + data.draw(st.sampled_from(["", "\n", "\n\n"])))
        table.append([a for a in actions if "somethingNew" not in a])

    def _actions(self, data: st.DataObject, table: ModelTable) -> list[RawAction]:
        """A commit that the protocol allows after the newest version."""
        state = table.states[-1]
        actions: list[RawAction] = [
            self._add(data, table) for _ in range(data.draw(st.integers(0, 2), "adds"))
        ]
        free = sorted(state.files)
        for _ in range(data.draw(st.integers(0, 2), "changes of files")):
            if not free:
                break
            key = free.pop(data.draw(st.integers(0, len(free) - 1)))
            actions += self._changed(data, table, key, state.files[key])
        paths = {path for path, _ in state.files}
        gone = sorted(path for path, vector in state.removed if path not in paths and not vector)
        if gone and data.draw(st.booleans(), "come back"):
            actions.append(self._add(data, table, gone[0]))
        if data.draw(st.integers(0, 3)) == 0:
            app = data.draw(st.sampled_from(["app-1", "app-2"]))
            actions.append({"txn": {"appId": app, "version": state.transactions.get(app, 0) + 1}})
        if table.profile in ("vectors", "timed") and data.draw(st.integers(0, 3)) == 0:
            domain = {
                "domain": data.draw(st.sampled_from(["d.1", "d.2"])),
                "configuration": f"{{{len(state.files)}}}",
            }
            actions.append({"domainMetadata": domain | {"removed": data.draw(st.booleans())}})
        if not actions or data.draw(st.integers(0, 7)) == 0:
            actions.append(self._metadata(data, state))
        return actions

    def _add(self, data: st.DataObject, table: ModelTable, path: str | None = None) -> RawAction:
        self.file_number += 1
        number = self.file_number
        lowest = 10 * number
        stats = {
            "numRecords": 10,
            "minValues": {"id": lowest},
            "maxValues": {"id": lowest + 9},
            "nullCount": {"id": 0},
        }
        body: dict[str, Any] = {
            "path": path or f"part%20{number}.parquet",
            "partitionValues": {},
            "size": 100 + number,
            "modificationTime": 1_700_000_000_000 + number,
            "dataChange": True,
        }
        if table.profile == "partitioned":
            body["partitionValues"] = {"name": data.draw(st.sampled_from(VALUES), "partition value")}
        if table.profile == "tracked":
            body |= {"baseRowId": 10 * table.next_row, "defaultRowCommitVersion": table.newest + 1}
            table.next_row += 1
        if data.draw(st.integers(0, 4)):
            body["stats"] = json.dumps(stats)
        return {"add": body}

    def _changed(
        self, data: st.DataObject, table: ModelTable, key: tuple[str, str], file: dict[str, Any]
    ) -> list[Any]:
        path, vector = key
        remove = {"path": path, "deletionTimestamp": FAR_FUTURE, "dataChange": True}
        if vector:
            remove["deletionVector"] = _vector(vector)
        if table.profile in ("vectors", "v2") and data.draw(st.booleans(), "delete rows"):
            self.file_number += 1
            body = {key: value for key, value in file.items() if value is not None} | {
                "path": path,
                "dataChange": True,
            }
            body["stats"] = json.dumps(file["stats"]) if file["stats"] else None
            body["deletionVector"] = _vector(
                f"uab{self.file_number:018d}@{data.draw(st.sampled_from([1, 40]))}"
            )
            return [{"remove": remove}, {"add": body}]
        if not vector and data.draw(st.integers(0, 3)) == 0:
            return [self._add(data, table, path)]
        return [{"remove": remove}]

    def _metadata(self, data: st.DataObject, state: Replayed) -> RawAction:
        now = state.metadata
        schema = now["schema"]
        if len(schema["fields"]) < 4 and data.draw(st.booleans(), "new column"):
            name = f"extra_{len(schema['fields'])}"
            fresh = {"name": name, "type": "long", "nullable": True, "metadata": {}}
            schema = schema | {"fields": [*schema["fields"], fresh]}
        interval = str(data.draw(st.integers(1, 5), "interval"))
        body = {
            "id": now["id"],
            "description": data.draw(st.sampled_from([None, "a table", "ein Käse"])),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(schema),
            "partitionColumns": now["partitionColumns"],
            "configuration": now["configuration"] | {"delta.checkpointInterval": interval},
        }
        return {"metaData": {name: value for name, value in body.items() if value is not None}}


@contextmanager
def crashing(crash: tuple[str, int] | None, seen: list[str]) -> Iterator[None]:
    """Raise at the n-th time that a step is passed; the steps passed are noted."""

    def listener(name: str, _: dict[str, Any]) -> None:
        seen.append(name)
        if crash is not None and (name, seen.count(name)) == crash:
            raise Crash

    stop = telemetry.listen(listener)
    try:
        yield
    finally:
        stop()


def _vector(unique_id: str) -> dict[str, Any]:
    base, _, offset = unique_id.partition("@")
    vector = {"storageType": base[0], "pathOrInlineDv": base[1:], "sizeInBytes": 40, "cardinality": 2}
    return vector | ({"offset": int(offset)} if offset else {})


# The same table through different eyes


def check_every_version(ledger: Ledger, path: Path, states: list[Replayed]) -> None:
    """Model, SQL, our replay, a foreign replay of commits and of checkpoints, and deltalake: all the same.

    Tombstones in checkpoints count only where they do not expire.
    """
    storage = open_storage(str(path))
    for version, expected in enumerate(states):
        assert replay_commits(path, version) == expected
        started = replay_from_checkpoint(path, version) or expected
        assert started == replace(expected, removed=expected.removed - _expiring(path, started))
        assert from_state(load_state(storage, version)) == started
        assert from_ledger(ledger, path, version) == expected.without_tombstones()
        assert from_deltalake(path, version) == shown_by_deltalake(expected)
    check_pruning(ledger, path, states[-1])
    verification = ledger.verify(path, every=True)
    assert verification.differences == ()
    assert verification.checked_versions == tuple(range(len(states)))


def _expiring(path: Path, started: Replayed) -> frozenset[tuple[str, str]]:
    """The files whose tombstones were old when they were written, as far as a checkpoint left them out."""
    lines = [line for version in published_versions(path) for line in commit_lines(path, version)]
    removes = [line["remove"] for line in lines if "remove" in line]
    old = {key_of(body) for body in removes if body.get("deletionTimestamp", 0) < FAR_FUTURE}
    return frozenset(old - started.removed)


def from_ledger(ledger: Ledger, path: Path, version: int) -> Replayed:
    """What SQL says: the wide read of a checkpoint, and the narrow one of `files()`, which must agree."""
    snapshot = ledger.snapshot(path, version)
    context = ledger._ctx
    wide = ledger_files(context, context.table(str(path)), version)
    files = {key: file_of(action_to_dict(file)["add"]) for key, file in wide.items()}
    narrow = {}
    for row in snapshot.files().to_pylist(maps_as_pydicts="strict"):
        body = {"path": row["path"], "deletionVector": row["deletion_vector"]}
        assert key_of(body) not in narrow, "a file is active once"
        narrow[key_of(body)] = (
            row["size"],
            row["partition_values"],
            row["stats"] and json.loads(row["stats"]),
        )
    assert narrow == {
        key: (file["size"], file["partitionValues"], file["stats"]) for key, file in files.items()
    }
    assert (snapshot.num_files, snapshot.size_bytes) == (
        len(files),
        sum(file["size"] for file in files.values()),
    )
    return Replayed(
        protocol_of(action_to_dict(snapshot.protocol)["protocol"]),
        metadata_of(action_to_dict(snapshot.metadata)["metaData"]),
        files,
        frozenset(),
        {app: transaction.version for app, transaction in snapshot.transactions.items()},
        {name: domain.configuration for name, domain in snapshot.domains.items()},
    )


def from_state(state: TableState) -> Replayed:
    protocol, metadata = state.checked("the log")
    return Replayed(
        protocol_of(action_to_dict(protocol)["protocol"]),
        metadata_of(action_to_dict(metadata)["metaData"]),
        {key: file_of(action_to_dict(file)["add"]) for key, file in state.files.items()},
        frozenset(state.tombstones),
        {app: transaction.version for app, transaction in state.transactions.items()},
        {name: domain.configuration for name, domain in state.domains.items()},
    )


def from_deltalake(path: Path, version: int) -> dict[str, Any]:
    table = DeltaTable(str(path), version=version)
    protocol, metadata = table.protocol(), table.metadata()
    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return {
        "protocol": (protocol.min_reader_version, protocol.min_writer_version),
        "features": (sorted(protocol.reader_features or ()), sorted(protocol.writer_features or ())),
        "schema": json.loads(table.schema().to_json()),
        "partitions": metadata.partition_columns,
        "configuration": metadata.configuration,
        "files": sorted((file["path"], file["size_bytes"]) for file in files),
        "transactions": [table.transaction_version(app) for app in ("app-1", "app-2")],
    }


def shown_by_deltalake(state: Replayed) -> dict[str, Any]:
    """The part of a table that deltalake shows."""
    return {
        "protocol": (state.protocol["reader"], state.protocol["writer"]),
        "features": (state.protocol["readerFeatures"], state.protocol["writerFeatures"]),
        "schema": state.metadata["schema"],
        "partitions": state.metadata["partitionColumns"],
        "configuration": state.metadata["configuration"],
        "files": sorted((path, file["size"]) for (path, _), file in state.files.items()),
        "transactions": [state.transactions.get(app) for app in ("app-1", "app-2")],
    }


def check_times_increase(path: Path) -> None:
    """In-commit timestamps strictly increase, whoever wrote the commit."""
    infos = [commit_lines(path, version)[0]["commitInfo"] for version in published_versions(path)]
    times = [info["inCommitTimestamp"] for info in infos]
    assert times == sorted(set(times))


def check_pruning(ledger: Ledger, path: Path, state: Replayed) -> None:
    """The index of statistics keeps every file that may hold the row, and no file that cannot."""
    for file in list(state.files.values())[:3]:
        wanted = file["stats"]["minValues"]["id"] if file["stats"] else 5
        found = ledger.snapshot(path).files(f"id = {wanted}")["path"].to_pylist()
        assert sorted(found) == sorted(
            path for (path, _), other in state.files.items() if _may_hold(other, wanted)
        )


def _may_hold(file: dict[str, Any], wanted: int) -> bool:
    stats = file["stats"]
    if not stats or "id" not in stats.get("minValues", {}):
        return True
    return bool(stats["minValues"]["id"] <= wanted <= stats["maxValues"]["id"])


def explore(uri: str, examples: int, steps: int) -> None:
    run_state_machine_as_test(
        lambda: Histories(uri),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )


def test_any_history_on_sqlite_reads_the_same_everywhere(ledger_uri: Callable[[str], str]) -> None:
    explore(ledger_uri("sqlite"), examples=20, steps=15)


@pytest.mark.parametrize("engine", ["duckdb", "postgres"])
def test_any_history_reads_the_same_everywhere(engine: str, ledger_uri: Callable[[str], str]) -> None:
    explore(ledger_uri(engine), examples=5, steps=12)


def test_any_history_with_large_versions_reads_the_same_everywhere(
    ledger_uri: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows follow the commits, and meet whatever comes next."""
    monkeypatch.setattr(completing, "LARGE", 2)
    explore(ledger_uri("sqlite"), examples=10, steps=15)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("engine", ENGINES)
def test_long_histories_read_the_same_everywhere(engine: str, ledger_uri: Callable[[str], str]) -> None:
    explore(ledger_uri(engine), examples=80 if engine == "sqlite" else 20, steps=40)
