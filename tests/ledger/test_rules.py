"""What no commit made of actions may hold. Each refusal says what, and leaves the table as it was."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from deltaplane.errors import CommitRefused, CorruptLog, DeltaplaneError, UnsafePath
from deltaplane.ledger import Ledger, connect
from deltaplane.ledger.filelog import FileTxnLog
from deltaplane.ledger.model import CommitResult
from deltaplane.ledger.prepare import prepare_bytes
from deltaplane.ledger.rules import is_partition_value
from deltaplane.log.actions import AddFile, CommitInfo
from deltaplane.log.jsonlines import action_to_dict
from ledger.conftest import SCHEMA, add, remove

BIG = 2**63
DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]
VECTOR = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with connect(f"deltasql://sqlite/{tmp_path}/ledger.db") as opened:
        yield opened


@pytest.fixture
def table(ledger: Ledger, tmp_path: Path) -> str:
    ledger.create(tmp_path / "t", SCHEMA, name="t")
    return "t"


def land(ledger: Ledger | FileTxnLog, table: str, *actions: Any, **options: Any) -> None:
    with ledger.transaction() as tx:
        tx.commit(table, list(actions), **options)


def refused(ledger: Ledger, table: str, *actions: Any, kind: type[DeltaplaneError] = CommitRefused) -> str:
    before = ledger.latest_version(table)
    with pytest.raises(kind) as refusal:
        land(ledger, table, *actions)
    assert ledger.latest_version(table) == before
    assert "Nothing was" in str(refusal.value)
    return str(refusal.value)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        ({"commitInfo": {"metrics": {"rate": math.nan}}}, "commitInfo.metrics.rate is nan"),
        ({"commitInfo": {"a": [1, math.inf]}}, r"commitInfo.a[1] is inf"),
        (CommitInfo({"rate": Decimal("-Infinity")}), "commitInfo.rate is -Infinity"),
        (add(1, future={"x": math.nan}), "add.future.x is nan"),
        ({"new": math.nan}, "new is nan"),
        ({"new": {"x": b"bytes"}}, "new.x is of type bytes"),
        (add(1, tags={"x": {1}}), "add.tags.x is of type set"),
        ({"new": {1: 2}}, "new has the name 1, which must be text"),
        ({"new": DEEP}, "is nested too deeply"),
        (add(1, size=BIG), "add.size is beyond 64 bits"),
        (add(1, size=str(BIG)), "add.size is beyond 64 bits"),
        (add(1, baseRowId=-BIG - 1), "add.baseRowId is beyond 64 bits"),
        ({"txn": {"appId": "x", "version": BIG}}, "txn.version is beyond 64 bits"),
        ({"txn": {"appId": "x\0", "version": 1}}, "txn.appId holds a NUL character"),
        (add(1, path="a\0b"), "add.path holds a NUL character"),
        (add(1, path="a\ud800"), "add.path holds half of a surrogate pair"),
        ({"commitInfo": {"operation": "W\0"}}, "commitInfo.operation holds a NUL"),
        ({"commitInfo": {"operation": 5}}, "commitInfo.operation must be text"),
        ({"commitInfo": 5}, "commitInfo must be an object"),
        (None, "NoneType is not an action"),
        ("add", "str is not an action"),
        (
            AddFile(None, {}, 1),  # type: ignore[arg-type]
            "add has no path",
        ),
        ({"checkpointMetadata": {"version": 1}}, "checkpointMetadata belongs in a checkpoint"),
        (
            {"sidecar": {"path": "x", "sizeInBytes": 1, "modificationTime": 1}},
            "sidecar belongs in a checkpoint",
        ),
    ],
)
def test_value_that_a_log_cannot_hold_is_refused(
    ledger: Ledger, table: str, action: Any, message: str
) -> None:
    told = refused(ledger, table, action)
    assert told.startswith("t: action 1: ")
    assert message in told


@pytest.mark.parametrize("actions", [None, "add", b"add", {"add": {}}, 5])
def test_what_is_no_list_of_actions_is_refused(ledger: Ledger, table: str, actions: Any) -> None:
    told = r"t: a commit is a list of actions.*Nothing was written"
    with pytest.raises(CommitRefused, match=told), ledger.transaction() as tx:
        tx.commit(table, actions)
    assert ledger.latest_version(table) == 0


@pytest.mark.parametrize("version", ["0", 0.0, True, 2**70, -(2**70)])
def test_expected_version_that_is_no_number_is_refused(ledger: Ledger, table: str, version: Any) -> None:
    with pytest.raises(CommitRefused, match="expected_version must be a whole number"):
        land(ledger, table, add(1), expected_version=version)
    assert ledger.latest_version(table) == 0


@pytest.mark.parametrize(
    "words", [{"message": 5}, {"message": "a\0"}, {"author": "\ud800"}, {"author": b"x"}]
)
def test_words_that_cannot_be_kept_are_refused(ledger: Ledger, words: Any) -> None:
    with pytest.raises(CommitRefused, match=f"The transaction: {next(iter(words))} .*Nothing was written"):
        ledger.transaction(**words)


def test_table_of_an_impossible_path_is_refused(ledger: Ledger) -> None:
    with pytest.raises(CommitRefused, match="path holds a NUL"):
        land(ledger, "a\0b", add(1))


def test_transaction_without_commits_has_an_empty_result(ledger: Ledger, table: str) -> None:
    with ledger.transaction() as tx:
        tx.snapshot(table)
    assert tx.result == CommitResult(tx.transaction_id, {})
    with ledger.transaction() as tx:
        tx.rollback()
    assert tx.result is None


@pytest.mark.parametrize(
    "action",
    [
        add(1, size=BIG),
        {"txn": {"appId": "x", "version": BIG}},
        add(1, deletionVector=VECTOR | {"cardinality": BIG}),
        {"commitInfo": {"inCommitTimestamp": BIG}},
    ],
)
def test_number_beyond_64_bits_in_the_bytes_of_a_writer_names_the_file(action: dict[str, Any]) -> None:
    with pytest.raises(CorruptLog, match=r"^7\.json.*: .* is beyond 64 bits"):
        prepare_bytes(json.dumps(action).encode(), "7.json")


def test_bytes_of_a_writer_may_hold_what_we_would_not_write() -> None:
    content = b'{"commitInfo":{"rate":NaN,"big":99999999999999999999}}\n'
    assert prepare_bytes(content, "7.json").content == content


def test_deletion_vector_needs_its_feature(ledger: Ledger, table: str) -> None:
    assert "feature deletionVectors" in refused(ledger, table, add(1, deletionVector=VECTOR))


def test_domain_needs_a_feature(ledger: Ledger, table: str, tmp_path: Path) -> None:
    domain = {"domainMetadata": {"domain": "app.x", "configuration": "{}", "removed": False}}
    assert "feature domainMetadata" in refused(ledger, table, domain)
    ledger.create(tmp_path / "rows", SCHEMA, properties={"delta.enableRowTracking": "true"}, name="rows")
    land(ledger, "rows", domain)
    assert sorted(ledger.snapshot("rows").domains) == ["app.x"]


@pytest.mark.parametrize("form", ["{}", "./{}", "%5Fdelta_log/x", "{root}/{}", "file://{root}/{}"])
@pytest.mark.parametrize("kind", ["add", "cdc"])
def test_data_file_in_the_log_is_refused(
    ledger: Ledger, table: str, tmp_path: Path, form: str, kind: str
) -> None:
    path = form.format("_delta_log/x.parquet", root=tmp_path / "t")
    body = add(1, path=path)["add"] | {"dataChange": kind == "add"}
    assert "lies in _delta_log" in refused(ledger, table, {kind: body})


def test_change_file_outside_the_table_is_refused(ledger: Ledger, table: str) -> None:
    body = {"path": "../x.parquet", "partitionValues": {}, "size": 1, "dataChange": False}
    assert "leaves the table's folder" in refused(ledger, table, {"cdc": body}, kind=UnsafePath)


GOOD = {
    "byte": ["-128", "127"],
    "integer": ["1", "-1", "2147483647"],
    "long": [str(2**63 - 1)],
    "date": ["2024-02-29", "1582-10-04"],
    "timestamp": ["2024-01-01 00:00:00", "2024-01-01T00:00:00.000001Z"],
    "timestamp_ntz": ["2024-01-01 00:00:00.5"],
    "boolean": ["true", "false"],
    "decimal(5,2)": ["1.50", "-999.99", "0.00"],
    "decimal(5,0)": ["12"],
    "double": ["1.5", "NaN", "-Infinity"],
    "string": ["anything", " "],
    "binary": ["x"],
}
BAD = {
    "byte": ["128", "x"],
    "integer": ["1.0", "1e2", " 1", "2147483648", "9" * 5000],
    "long": [str(2**63), "null"],
    "date": ["2023-02-29", "yesterday", "2024-01-01 00:00:00"],
    "timestamp": ["noon", "2024-01-01 25:00:00", "2024-01-01", "2024-01-01T00:00:00"],
    "timestamp_ntz": ["2024-01-01 00:00:00+02:00", "2024-01-01T00:00:00"],
    "boolean": ["1", "yes"],
    "decimal(5,2)": ["1.505", "1.5", "1", "1E+2", "1000.00", "NaN", "x"],
    "double": ["x"],
}


@pytest.mark.parametrize(
    ("kind", "text"), [(kind, text) for kind in GOOD for text in (*GOOD[kind], "", None)]
)
def test_partition_value_of_its_type_is_taken(kind: str, text: str | None) -> None:
    assert is_partition_value(text, kind)


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in BAD.items() for text in texts])
def test_partition_value_of_another_type_is_not(kind: str, text: str) -> None:
    assert not is_partition_value(text, kind)


def test_partition_value_that_cannot_be_read_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    ledger.create(tmp_path / "p", SCHEMA.append(pa.field("day", pa.date32())), ["day"], name="p")
    assert "'soon' for day, which is no date" in refused(ledger, "p", add(1, partitionValues={"day": "soon"}))
    land(ledger, "p", add(1, partitionValues={"day": None}), add(2, partitionValues={"day": "2024-01-01"}))
    assert DeltaTable(str(tmp_path / "p")).version() == 1


def metadata(ledger: Ledger | FileTxnLog, table: str, **changes: Any) -> dict[str, Any]:
    body = action_to_dict(ledger.snapshot(table).metadata)["metaData"]
    return {"metaData": body | changes}


def struct(*fields: Any) -> str:
    return json.dumps({"type": "struct", "fields": list(fields)})


def column(name: str, kind: Any = "long", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}} | more


TWO = [column("id"), column("name", "string")]
INNER = {"type": "struct", "fields": [column("x"), column("X")]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schemaString": ""}, "the schema is not JSON"),
        ({"schemaString": "junk"}, "the schema is not JSON"),
        ({"schemaString": "[1]"}, "the schema has no type"),
        ({"schemaString": '"long"'}, "the schema has no columns"),
        ({"schemaString": struct()}, "the schema has no columns"),
        ({"schemaString": struct(column("id", "int128"))}, "column id has the type 'int128'"),
        ({"schemaString": struct(column("id", "decimal(39,0)"))}, "'decimal(39,0)'"),
        ({"schemaString": struct(column("id", {"type": "list"}))}, "column id has no type"),
        ({"schemaString": struct(column("id"), column("ID"))}, "two columns named 'ID'"),
        ({"schemaString": struct(column("s", INNER))}, "column s has two columns named 'X'"),
        (
            {
                "schemaString": struct(
                    column("s", {"type": "array", "elementType": INNER, "containsNull": True})
                )
            },
            "column s.element has two columns named 'X'",
        ),
        ({"schemaString": struct({"name": "id", "type": "long"})}, "does not say whether it has nulls"),
        ({"schemaString": struct(column("a\ud800"))}, "surrogate"),
        ({"schemaString": struct(column("a", metadata={"x": math.nan}))}, "is nan"),
        ({"partitionColumns": ["absent"]}, "not one of its columns (id, name)"),
        ({"partitionColumns": ["id", "name"]}, "every column is to partition"),
        ({"partitionColumns": ["id", "id"]}, "partition the table twice"),
        (
            {"schemaString": struct(column("id"), column("s", INNER | {"fields": [column("x")]}))}
            | {"partitionColumns": ["s"]},
            "s is to partition the table and is no plain value",
        ),
        ({"format": {"provider": "orc", "options": {}}}, "the format is 'orc'"),
        ({"id": "another"}, "metaData.id is 'another'"),
        ({"configuration": {"delta.checkpointInterval": "0"}}, "must be a whole number from 1"),
        ({"configuration": {"delta.logRetentionDuration": "soon"}}, "an interval such as"),
        ({"configuration": {"delta.deletedFileRetentionDuration": "1 month"}}, "an interval such as"),
        ({"configuration": {"delta.appendOnly": "yes"}}, "It is one of: true, false"),
        ({"configuration": {"delta.appendOnly": None}}, "has no value"),
        ({"configuration": {"delta.columnMapping.mode": "names"}}, "It is one of: none, name, id"),
        ({"configuration": {"delta.columnMapping.mode": "name"}}, "id has no delta.columnMapping.id"),
        ({"configuration": {"delta.enableDeletionVectors": "true"}}, "needs the feature deletionVectors"),
        ({"configuration": {"delta.enableChangeDataFeed": "true"}}, "needs the feature changeDataFeed"),
    ],
)
def test_definition_that_breaks_the_table_is_refused(
    ledger: Ledger, table: str, changes: dict[str, Any], message: str
) -> None:
    assert message in refused(ledger, table, metadata(ledger, table, **changes))


def test_definition_that_a_table_can_have_is_taken(ledger: Ledger, table: str, tmp_path: Path) -> None:
    wider = struct(
        *TWO, column("deep", {"type": "array", "elementType": "decimal(5,2)", "containsNull": True})
    )
    properties = {"delta.appendOnly": "TRUE", "delta.checkpointInterval": "5", "team": "red"}
    land(ledger, table, metadata(ledger, table, schemaString=wider, configuration=properties))
    assert [field.name for field in DeltaTable(str(tmp_path / "t")).schema().fields] == ["id", "name", "deep"]


def test_partitioning_changes_only_without_the_older_files(
    ledger: Ledger, table: str, tmp_path: Path
) -> None:
    land(ledger, table, add(1))
    changed = metadata(ledger, table, partitionColumns=["name"])
    assert "has 1 files written so" in refused(ledger, table, changed)
    files = FileTxnLog()
    with pytest.raises(CommitRefused, match="has 1 files written so"):
        land(files, str(tmp_path / "t"), changed)
    land(ledger, table, changed, remove(1), add(2, partitionValues={"name": "x"}))
    assert ledger.snapshot(table).partition_columns == ["name"]


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        ({"minReaderVersion": 1, "minWriterVersion": 2}, "drops"),
        (
            {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": [],
                "writerFeatures": ["appendOnly", "invariants"],
            },
            "drops deletionVectors",
        ),
        (
            {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": [],
                "writerFeatures": ["appendOnly", "deletionVectors", "invariants"],
            },
            "readers must know deletionVectors",
        ),
    ],
)
def test_protocol_is_not_lowered(
    ledger: Ledger, tmp_path: Path, protocol: dict[str, Any], message: str
) -> None:
    properties = {"delta.feature.deletionVectors": "supported"}
    ledger.create(tmp_path / "v", SCHEMA, properties=properties, name="v")
    assert message in refused(ledger, "v", {"protocol": protocol})


def test_legacy_protocol_is_not_lowered(ledger: Ledger, table: str) -> None:
    told = refused(ledger, table, {"protocol": {"minReaderVersion": 1, "minWriterVersion": 1}})
    assert "the new protocol has a lower version" in told
