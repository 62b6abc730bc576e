"""New tables: mapped columns, what cannot be created, and names that can be told from paths."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from deltaplane.embedded import write_arrow
from deltaplane.errors import (
    CommitRefused,
    ConfigError,
    DeltaplaneError,
    StorageError,
    TableAlreadyManaged,
)
from deltaplane.ledger import Ledger, connect
from deltaplane.log.schema_json import every_field
from ledger.conftest import SCHEMA

INNER = pa.struct([("a", pa.int64()), ("b", pa.string())])
NESTED = pa.schema(
    [
        ("day", pa.string()),
        ("id", pa.int64()),
        ("s", INNER),
        ("many", pa.list_(INNER)),
        ("by", pa.map_(pa.string(), INNER)),
    ]
)
MODE = "delta.columnMapping.mode"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with connect(f"deltasql://sqlite/{tmp_path}/ledger.db") as opened:
        yield opened


@pytest.mark.parametrize("mode", ["name", "id", "NAME"])
def test_every_field_of_a_mapped_table_has_a_number_and_a_name_in_files(
    ledger: Ledger, tmp_path: Path, mode: str
) -> None:
    snapshot = ledger.create(tmp_path / "t", NESTED, ["day"], {MODE: mode})
    keys = [field["metadata"] for _, field in every_field(snapshot.metadata.schema_string)]
    assert sorted(key["delta.columnMapping.id"] for key in keys) == list(range(1, 12))
    names = {key["delta.columnMapping.physicalName"] for key in keys}
    assert len(names) == 11
    assert all(name.startswith("col-") for name in names)
    assert dict(snapshot.metadata.configuration) == {
        MODE: mode.lower(),
        "delta.columnMapping.maxColumnId": "11",
    }
    assert DeltaTable(str(tmp_path / "t")).version() == 0


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_table_is_written_and_read_by_others(ledger: Ledger, tmp_path: Path, mode: str) -> None:
    rows = [
        {"day": "mon", "id": 1, "s": {"a": 1, "b": "x"}, "many": [{"a": 2, "b": None}]},
        {"day": "tue", "id": 2, "s": {"a": 3, "b": "y"}, "many": []},
    ]
    data = pa.Table.from_pylist(rows, pa.schema(list(NESTED)[:4]))
    path = tmp_path / "t"
    write_arrow(ledger, path, data, partition_by=["day"], properties={MODE: mode})
    by_day = dict(ledger.snapshot(path).files()["partition_values"].to_pylist()[0])
    assert [name.startswith("col-") for name in by_day] == [True]
    builder = QueryBuilder().register("t", DeltaTable(str(path)))
    found = builder.execute("select day, id, s, many from t order by id").read_all()
    assert pa.table(found).to_pylist() == rows


def test_numbers_that_a_schema_brings_are_kept(ledger: Ledger, tmp_path: Path) -> None:
    known = {"delta.columnMapping.id": 7, "delta.columnMapping.physicalName": "old"}
    fields = [
        {"name": "a", "type": "long", "nullable": True, "metadata": known},
        {"name": "b", "type": "long", "nullable": True, "metadata": {}},
    ]
    snapshot = ledger.create(
        tmp_path / "t", json.dumps({"type": "struct", "fields": fields}), properties={MODE: "name"}
    )
    first, second = (field["metadata"] for _, field in every_field(snapshot.metadata.schema_string))
    assert first == known
    assert second["delta.columnMapping.id"] == 8
    assert snapshot.metadata.configuration["delta.columnMapping.maxColumnId"] == "8"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"schema": None}, "the schema is of type NoneType"),
        ({"schema": {"id": "long"}}, "the schema is of type dict"),
        ({"schema": "junk"}, "the schema is not JSON"),
        ({"schema": pa.schema([])}, "the schema has no columns"),
        ({"schema": pa.schema([("a", pa.int64()), ("A", pa.int64())])}, "two columns named 'A'"),
        ({"partition_by": "id"}, "partition_by is a list of column names"),
        ({"partition_by": None}, "partition_by is a list of column names"),
        ({"properties": [1]}, "properties are names with values"),
        ({"properties": {"x": None}}, "properties are names with values"),
        ({"partition_by": ["absent"]}, "not one of its columns"),
        ({"partition_by": ["id", "name"]}, "every column is to partition"),
        ({"properties": {MODE: "names"}}, "It is one of: none, name, id"),
        ({"properties": {"delta.checkpointInterval": "0"}}, "a whole number from 1"),
        ({"properties": {"delta.appendOnly": "yes"}}, "It is one of: true, false"),
        ({"message": 5}, "message must be text"),
        ({"author": "a\0"}, "author holds a NUL"),
        ({"description": "a\ud800"}, "surrogate"),
    ],
)
def test_definition_that_cannot_be_is_refused_without_a_trace(
    ledger: Ledger, tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(CommitRefused, match="Nothing was written") as refusal:
        ledger.create(tmp_path / "t", **({"schema": SCHEMA} | wrong))
    assert message in str(refusal.value)
    assert ledger.tables() == []
    assert not (tmp_path / "t").exists()


def test_policy_that_does_not_exist_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="import, refuse"):
        ledger.create(tmp_path / "t", SCHEMA, foreign_commits="maybe")
    assert ledger.tables() == []


def test_place_that_cannot_be_written_is_noticed_before_the_table_exists(
    ledger: Ledger, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    for place in ("/proc/nope/x", tmp_path / "file" / "t"):
        with pytest.raises(StorageError):
            ledger.create(place, SCHEMA)
    assert ledger.tables() == []


def test_trying_a_place_leaves_nothing_there(ledger: Ledger, tmp_path: Path) -> None:
    ledger.create(tmp_path / "t", SCHEMA)
    assert [file.name for file in (tmp_path / "t" / "_delta_log").iterdir()] == [f"{0:020d}.json"]


NAMES = [
    "",
    " ",
    "a/b",
    "a\\b",
    "a\0b",
    "a\nb",
    "\x7f",
    "deltasql://sqlite/x#t",
    "s3:x",
    "..",
    "~x",
    "\ud800",
    5,
]


@pytest.mark.parametrize("name", NAMES)
def test_name_that_is_taken_for_something_else_is_refused(ledger: Ledger, tmp_path: Path, name: Any) -> None:
    path = tmp_path / "t"
    with pytest.raises(ConfigError, match="the table's name"):
        ledger.create(path, SCHEMA, name=name)
    ledger.create(path, SCHEMA, name="sales.orders")
    with pytest.raises(ConfigError, match="the table's name"):
        ledger.configure("sales.orders", name=name)
    assert ledger.snapshot("sales.orders").location == str(path)
    ledger.release("sales.orders")
    with pytest.raises(ConfigError, match="the table's name"):
        ledger.adopt(path, name=name)
    assert ledger.tables() == []


def test_name_is_not_the_path_of_another_table(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ledger.create("orders", SCHEMA)
    ledger.create("others", SCHEMA, name="others")
    with pytest.raises(ConfigError, match="the path of another table"):
        ledger.create("more", SCHEMA, name="orders")
    with pytest.raises(ConfigError, match="the path of another table"):
        ledger.configure("others", name="orders")
    assert sorted(Path(table.location).name for table in ledger.tables()) == ["orders", "others"]


def test_place_is_not_the_name_of_another_table(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.create(tmp_path / "a", SCHEMA, name="orders")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TableAlreadyManaged, match="orders"):
        ledger.create("orders", SCHEMA)
    with pytest.raises(TableAlreadyManaged, match="orders"):
        ledger.create(tmp_path / "b", SCHEMA, name="orders")
    assert not (tmp_path / "orders").exists()
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("path", ["a\0b", "a\ud800"])
def test_impossible_path_is_refused(ledger: Ledger, path: str) -> None:
    with pytest.raises(DeltaplaneError, match="create: path holds"):
        ledger.create(path, SCHEMA)
    with pytest.raises(DeltaplaneError, match="adopt: path holds"):
        ledger.adopt(path)
    with pytest.raises(ConfigError, match=r"path or name .* holds"):
        ledger.snapshot(path)
