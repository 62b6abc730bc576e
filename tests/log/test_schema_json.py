from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from deltaplane.errors import CommitRefused, CorruptLog, UnsupportedTable
from deltaplane.log.schema_json import (
    arrow_schema,
    every_field,
    leaf_columns,
    maps_columns,
    schema_string_of,
    statistics_columns,
)


def field(name: str, kind: Any, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def mapped(name: str, kind: Any, number: int, nullable: bool = True) -> dict[str, Any]:
    keys = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    return {"name": name, "type": kind, "nullable": nullable, "metadata": keys}


def text(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "struct", "fields": list(fields)})


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


NESTED = text(
    mapped("id", "long", 1, nullable=False),
    mapped("place", struct(mapped("city", "string", 3), mapped("zip", "decimal(10,2)", 4)), 2),
    mapped("tags", {"type": "array", "elementType": "string", "containsNull": False}, 5),
    mapped("day", "date", 6),
)


def test_leaves_have_logical_and_physical_paths_in_the_order_of_the_schema() -> None:
    found = [(c.path, c.physical, c.type, c.nullable, c.partition) for c in leaf_columns(NESTED, ["day"])]
    assert found == [
        (("id",), ("col-1",), "long", False, False),
        (("place", "city"), ("col-2", "col-3"), "string", True, False),
        (("place", "zip"), ("col-2", "col-4"), "decimal(10,2)", True, False),
        (("tags",), ("col-5",), "array", True, False),
        (("day",), ("col-6",), "date", True, True),
    ]


def test_the_schema_of_the_files_has_physical_names_and_ids_and_takes_nulls() -> None:
    logical = pa.schema(
        [
            pa.field("id", pa.int64(), False),
            pa.field("place", pa.struct([("city", pa.string()), ("zip", pa.decimal128(10, 2))])),
            pa.field("tags", pa.list_(pa.field("element", pa.string(), False))),
            pa.field("day", pa.date32()),
        ]
    )
    files = arrow_schema(NESTED, physical=True, nullable=True)
    assert arrow_schema(NESTED) == logical
    assert files.names == ["col-1", "col-2", "col-5", "col-6"]
    assert [item.metadata[b"PARQUET:field_id"] for item in files] == [b"1", b"2", b"5", b"6"]
    assert [item.name for item in files.field("col-2").type] == ["col-3", "col-4"]
    assert all(item.nullable for item in files)
    assert files.field("col-5").type.value_field.nullable


EVERY_TYPE = pa.schema(
    [
        pa.field("string", pa.string()),
        pa.field("long", pa.int64(), False),
        pa.field("integer", pa.int32()),
        pa.field("short", pa.int16()),
        pa.field("byte", pa.int8()),
        pa.field("float", pa.float32()),
        pa.field("double", pa.float64()),
        pa.field("boolean", pa.bool_()),
        pa.field("binary", pa.binary()),
        pa.field("date", pa.date32()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
        pa.field("ntz", pa.timestamp("us")),
        pa.field("decimal", pa.decimal128(38, 18)),
        pa.field("list", pa.list_(pa.field("element", pa.struct([pa.field("x", pa.int64(), False)]), False))),
        pa.field("map", pa.map_(pa.string(), pa.field("value", pa.list_(pa.field("element", pa.date32()))))),
    ]
)


def test_arrow_to_delta_and_back_is_the_same() -> None:
    assert arrow_schema(schema_string_of(EVERY_TYPE)) == EVERY_TYPE


def test_the_schema_string_is_the_one_that_deltalake_writes(tmp_path) -> None:  # type: ignore[no-untyped-def]
    from deltalake import DeltaTable

    DeltaTable.create(str(tmp_path), EVERY_TYPE)
    log = (tmp_path / "_delta_log/00000000000000000000.json").read_text().splitlines()
    [metadata] = [json.loads(line)["metaData"] for line in log if "metaData" in line]
    assert json.loads(schema_string_of(EVERY_TYPE)) == json.loads(metadata["schemaString"])


@pytest.mark.parametrize(
    ("given", "delta"),
    [
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.dictionary(pa.int32(), pa.string()), "string"),
        (pa.uint8(), "short"),
        (pa.uint32(), "long"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.timestamp("ns", "Europe/Berlin"), "timestamp"),
        (pa.timestamp("s"), "timestamp_ntz"),
        (pa.date64(), "date"),
        (pa.decimal256(38, 2), "decimal(38,2)"),
        (pa.binary(4), "binary"),
    ],
)
def test_other_arrow_types_become_the_delta_type_that_holds_them(given: pa.DataType, delta: str) -> None:
    found = json.loads(schema_string_of(pa.schema([("c", given)])))
    assert found["fields"][0]["type"] == delta


@pytest.mark.parametrize("kind", [pa.null(), pa.time64("us"), pa.duration("s"), pa.decimal256(50, 2)])
def test_what_delta_does_not_have_is_refused_with_the_column(kind: pa.DataType) -> None:
    with pytest.raises(CommitRefused, match=r"Column a\.b has the Arrow type .* Cast the column"):
        schema_string_of(pa.schema([("a", pa.struct([("b", kind)]))]))


@pytest.mark.parametrize(
    "wrong", ["", "{", "null", '{"type":"struct"}', '{"type":"struct","fields":[{"name":"a"}]}', '"long"']
)
def test_a_broken_schema_is_a_corrupt_log(wrong: str) -> None:
    with pytest.raises(CorruptLog, match="schemaString"):
        leaf_columns(wrong)


def test_a_type_that_arrow_cannot_hold_is_named() -> None:
    with pytest.raises(UnsupportedTable, match="variant") as caught:
        arrow_schema(text(field("v", "variant")))
    assert caught.value.features == ("variant",)


def test_statistics_are_for_the_first_leaves_or_the_named_columns() -> None:
    many = text(field("p", "long"), *(field(f"c{i}", "long") for i in range(40)))
    nested = text(field("s", struct(field("a", "long"), field("b c", "long"))), field("t", "long"))

    def names(schema: str, **properties: str) -> list[str]:
        keys = {f"delta.dataSkipping{key}": value for key, value in properties.items()}
        return [leaf.name for leaf in statistics_columns(schema, ["p"], keys)]

    assert names(many) == [f"c{i}" for i in range(32)]
    assert names(many, NumIndexedCols="2") == ["c0", "c1"]
    assert len(names(many, NumIndexedCols="-1")) == 40
    assert names(nested, StatsColumns="s") == ["s.a", "s.b c"]
    assert names(nested, StatsColumns="s.`b c`, T") == ["s.b c", "t"]
    assert names(nested, StatsColumns="") == []


def test_every_field_is_found_wherever_it_is() -> None:
    inner = struct(field("x", "long", secret=1))
    schema = text(
        field("a", {"type": "array", "elementType": inner, "containsNull": True}),
        field("m", {"type": "map", "keyType": "string", "valueType": inner, "valueContainsNull": True}),
    )
    assert [place for place, _ in every_field(schema)] == ["a", "a.x", "m", "m.x"]


def test_mapping_is_on_for_name_and_id() -> None:
    modes = [{"delta.columnMapping.mode": mode} for mode in ("none", "name", "ID")]
    assert [maps_columns(mode) for mode in ({}, *modes)] == [False, False, True, True]
