from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from deltaplane.embedded import check_embedded_writable, write_files
from deltaplane.embedded.partitioning import folder_of, log_path, partition_text
from deltaplane.errors import CommitRefused, UnsupportedTable
from deltaplane.ledger.storage import Storage, open_storage
from deltaplane.log.actions import AddFile, Metadata, Protocol
from deltaplane.log.bounds import bounds_of, pruning_columns
from deltaplane.log.jsonlines import write_commit
from deltaplane.log.schema_json import schema_string_of

NOW = 1_700_000_000_000
UTC = pa.timestamp("us", "UTC")
PROTOCOL = Protocol(1, 2)
WITH_NTZ = Protocol(3, 7, ("timestampNtz",), ("timestampNtz",))
LONG = Decimal("12345678901234567890.123456789012345678")
STRANGE = "a b/c:é%=?#\"'{}[]^~&+;,@!$()*\\|<>`\n"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(tmp_path / "table")


def write(
    storage: Storage,
    data: Any,
    schema: pa.Schema | str | None = None,
    partitions: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
    **options: Any,
) -> list[AddFile]:
    return write_files(
        storage,
        data,
        schema_string=schema if isinstance(schema, str) else schema_string_of(schema or data.schema),
        partition_columns=partitions,
        configuration=configuration,
        clock_ms=lambda: NOW,
        **options,
    )


def publish(
    storage: Storage,
    actions: list[AddFile],
    schema: pa.Schema | str,
    partitions: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
    protocol: Protocol = PROTOCOL,
) -> None:
    text = schema if isinstance(schema, str) else schema_string_of(schema)
    metadata = Metadata("0", text, partition_columns=tuple(partitions), configuration=configuration or {})
    storage.put("_delta_log/00000000000000000000.json", write_commit([protocol, metadata, *actions]))


def data_files(storage: Storage) -> list[str]:
    return sorted(str(p.relative_to(storage.root)) for p in Path(storage.root).rglob("*.parquet"))


def rows(found: Any) -> list[dict[str, Any]]:
    return sorted(pa.table(found).to_pylist(), key=lambda row: row["id"])


def read_by_others(storage: Storage) -> list[list[dict[str, Any]]]:
    """The rows as deltalake and Polars see them."""
    return [
        rows(DeltaTable(storage.root).scan()),
        sorted(pl.read_delta(storage.root).to_dicts(), key=lambda row: row["id"]),
    ]


VALUES = pa.table(
    {
        "id": pa.array([1, 2, 3]),
        "s": [STRANGE, None, ""],
        "c": pa.array([LONG, None, Decimal("-0.5")], pa.decimal128(38, 18)),
        "ts": pa.array([1_577_840_461_123_456, -1, None], UTC),
        "ntz": pa.array([1_577_840_461_123_456, -1, None], pa.timestamp("us")),
        "day": [dt.date(1, 1, 1), dt.date(9999, 12, 31), None],
        "f": pa.array([0.1, None, -0.0], pa.float32()),
        "d": [math.inf, 1e-300, None],
        "b": [True, False, None],
        "bin": [b"\0\xff", b"", None],
        "small": pa.array([-128, 127, None], pa.int8()),
        "st": pa.array([{"a": 1, "b": {"c": "x"}}, None, {"a": None, "b": None}]),
        "l": [[1, None], None, []],
    }
)  # fmt: skip


def test_other_readers_see_the_rows_that_were_written(storage: Storage) -> None:
    actions = write(storage, VALUES)
    publish(storage, actions, VALUES.schema, protocol=WITH_NTZ)
    assert read_by_others(storage) == [VALUES.to_pylist()] * 2


def test_maps_and_nested_structs_survive(storage: Storage) -> None:
    kind = pa.map_(pa.string(), pa.list_(pa.struct([("x", pa.int64())])))
    table = pa.table({"id": [1, 2, 3], "m": pa.array([[("a", [{"x": 1}, None])], None, []], kind)})
    # A slice shares the memory of the whole: its children begin elsewhere.
    actions = [*write(storage, table.slice(1)), *write(storage, table.slice(0, 1))]
    publish(storage, actions, table.schema)
    assert rows(DeltaTable(storage.root).scan()) == table.to_pylist()


def test_an_action_says_what_is_in_the_file(storage: Storage) -> None:
    table = pa.table({"id": [1, 2], "p": ["x", "x"]})
    [action] = write(storage, table, partitions=["p"], configuration={"delta.enableDeletionVectors": "true"})
    [file] = data_files(storage)
    assert file.startswith("p=x/part-00000-")
    assert file.endswith("-c000.snappy.parquet")
    assert action == AddFile(
        path=file,
        partition_values={"p": "x"},
        size=(Path(storage.root) / file).stat().st_size,
        modification_time=NOW,
        stats='{"numRecords":2,"minValues":{"id":1},"maxValues":{"id":2},"nullCount":{"id":0},"tightBounds":true}',
    )
    parquet = pq.ParquetFile(Path(storage.root) / file)
    assert parquet.schema_arrow.names == ["id"]
    assert parquet.metadata.row_group(0).column(0).compression == "SNAPPY"


PARTITIONED = pa.table(
    {
        "id": pa.array(range(5)),
        "s": [STRANGE, None, "", "x", "__HIVE_DEFAULT_PARTITION__x"],
        "ts": pa.array([1_577_840_461_123_456, -62_135_596_800_000_000, None, 0, 0], UTC),
        "day": pa.array([0, -1, None, 1, 1], pa.date32()),
        "c": pa.array([Decimal("1.50"), Decimal("-0.01"), None, 0, 0], pa.decimal128(5, 2)),
        "b": [True, False, None, True, True],
        "n": pa.array([-128, 127, None, 0, 0], pa.int8()),
    }
)  # fmt: skip


def test_partitions_of_every_type_are_read_back(storage: Storage) -> None:
    columns = PARTITIONED.column_names[1:]
    actions = write(storage, PARTITIONED, partitions=columns)
    publish(storage, actions, PARTITIONED.schema, columns)
    # Delta cannot tell an empty text from null in a partition.
    expected = [{**row, "s": row["s"] or None} for row in PARTITIONED.to_pylist()]
    assert rows(DeltaTable(storage.root).scan()) == expected
    assert sorted(data_files(storage)) == sorted(unquote(action.path) for action in actions)


@pytest.mark.parametrize("column", ["s", "ts", "day", "c", "b", "n"])
def test_polars_reads_each_partition_type(storage: Storage, column: str) -> None:
    table = PARTITIONED.select(["id", column])
    publish(storage, write(storage, table, partitions=[column]), table.schema, [column])
    found = sorted(pl.read_delta(storage.root).to_dicts(), key=lambda row: row["id"])
    assert found == [{**row, column: row[column] if row[column] != "" else None} for row in table.to_pylist()]


def test_statistics_and_partition_values_become_bounds(storage: Storage) -> None:
    table = pa.table({"id": [5, 9], "day": pa.array([10, 10], pa.date32())})
    [action] = write(storage, table, partitions=["day"])
    columns = pruning_columns(schema_string_of(table.schema), ["day"], {})
    found = [(b.lo, b.hi, b.null_count) for b in bounds_of(action.stats, action.partition_values, columns)]
    assert found == [(10, 10, 0), (5, 9, 0)]


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, pa.string(), None),
        ("", pa.string(), None),
        (True, pa.bool_(), "true"),
        (-5, pa.int64(), "-5"),
        (1e20, pa.float64(), "1e+20"),
        (-0.0, pa.float64(), "0.0"),
        (math.nan, pa.float64(), "NaN"),
        (-math.inf, pa.float64(), "-Infinity"),
        (Decimal("0E-10"), pa.decimal128(20, 10), "0.0000000000"),
        (dt.date(33, 4, 3), pa.date32(), "0033-04-03"),
        (dt.datetime(2020, 1, 2, 3, 4, 5, 6), pa.timestamp("us"), "2020-01-02 03:04:05.000006"),
        (dt.datetime(2020, 1, 2, 3, 4, 5), pa.timestamp("us"), "2020-01-02 03:04:05"),
        (dt.datetime(33, 1, 2, 3, 4, 5, tzinfo=dt.UTC), UTC, "0033-01-02T03:04:05.000000Z"),
        (b"\x01a", pa.binary(), "\x01a"),
    ],
)
def test_partition_values_are_written_as_delta_writes_them(
    value: Any, kind: pa.DataType, text: str | None
) -> None:
    assert partition_text(value, kind) == text


def test_folders_are_escaped_as_hive_does_and_once_more_in_the_log() -> None:
    folder = folder_of(["a=b", "c"], ["x/y z:%é", None])
    assert folder == "a%3Db=x%2Fy z%3A%25é/c=__HIVE_DEFAULT_PARTITION__/"
    assert log_path(folder) == "a%253Db=x%252Fy%20z%253A%2525%C3%A9/c=__HIVE_DEFAULT_PARTITION__/"


def mapped_schema() -> str:
    def field(name: str, kind: Any, number: int) -> dict[str, Any]:
        keys = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
        return {"name": name, "type": kind, "nullable": True, "metadata": keys}

    inner = {"type": "struct", "fields": [field("x y", "long", 4)]}
    return json.dumps(
        {"type": "struct", "fields": [field("id", "long", 1), field("p", "string", 2), field("s", inner, 3)]}
    )


def test_mapped_columns_have_physical_names_and_ids_everywhere(storage: Storage) -> None:
    table = pa.table({"id": [1, 2], "p": ["a", None], "s": [{"x y": 7}, None]})
    mode = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "4"}
    actions = write(storage, table, mapped_schema(), ["p"], mode)
    assert [action.partition_values for action in actions] == [{"col-2": None}, {"col-2": "a"}]
    assert json.loads(actions[1].stats or "")["minValues"] == {"col-1": 1, "col-3": {"col-4": 7}}
    schema = pq.ParquetFile(Path(storage.root) / unquote(actions[1].path)).schema_arrow
    assert [(f.name, f.metadata[b"PARQUET:field_id"]) for f in schema] == [("col-1", b"1"), ("col-3", b"3")]
    assert schema.field("col-3").type.field(0).metadata == {b"PARQUET:field_id": b"4"}
    publish(storage, actions, mapped_schema(), ["p"], mode, Protocol(2, 5))
    assert rows(DeltaTable(storage.root).scan()) == table.to_pylist()


# Sizes


def test_files_are_rolled_by_rows_and_by_bytes(storage: Storage) -> None:
    table = pa.table({"id": range(1000)})
    by_rows = write(storage, table.to_reader(max_chunksize=300), table.schema, target_rows=400)
    by_bytes = write(storage, table, target_bytes=2400)
    counts = [json.loads(action.stats or "")["numRecords"] for action in by_rows]
    assert (counts, len(by_bytes)) == ([400, 400, 200], 4)
    publish(storage, by_rows, table.schema)
    assert rows(DeltaTable(storage.root).scan()) == table.to_pylist()


def test_many_partitions_stay_within_memory_and_lose_nothing(storage: Storage) -> None:
    table = pa.table({"id": range(600), "p": [i % 50 for i in range(600)]})
    actions = write(storage, table.to_batches(100), table.schema, ["p"], target_bytes=500)
    publish(storage, actions, table.schema, ["p"])
    assert rows(DeltaTable(storage.root).scan()) == table.to_pylist()
    assert len(actions) > 50


def test_frames_readers_and_iterables_are_taken_alike(storage: Storage) -> None:
    table = pa.table({"id": [1, 2]})
    forms = [
        table,
        table.to_batches()[0],
        table.to_reader(),
        [table],
        iter(table.to_batches()),
        pl.DataFrame(table),
    ]
    found = [[json.loads(a.stats or "") for a in write(storage, form, table.schema)] for form in forms]
    assert found == [found[0]] * len(forms)


def test_no_rows_make_no_file_but_are_checked(storage: Storage) -> None:
    empty = pa.table({"id": pa.array([], pa.int64())})
    assert write(storage, empty) == []
    with pytest.raises(CommitRefused, match="is not in the table"):
        write(storage, pa.table({"x": pa.array([], pa.int64())}), empty.schema)
    assert data_files(storage) == []


# Data that does not fit

STRICT = pa.schema(
    [
        pa.field("id", pa.int32(), False),
        pa.field("name", pa.string()),
        pa.field("at", UTC),
        pa.field("price", pa.decimal128(5, 2)),
        pa.field("place", pa.struct([pa.field("zip", pa.int64(), False), pa.field("city", pa.string())])),
        pa.field("tags", pa.list_(pa.field("element", pa.string(), False))),
    ]
)
ROW = {"id": pa.array([1])}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({**ROW, "extra": [1]}, r"column extra is not in the table"),
        ({"name": ["a"]}, r"column id is NOT NULL and is not in the data"),
        ({"id": pa.array([1, None])}, r"column id is NOT NULL, and 1 of 2 rows are null"),
        ({"id": [2**40]}, r"column id has a value that does not fit into int32"),
        ({"id": ["1"]}, r"column id is int32 in the table and string in the data"),
        ({"id": [1.0]}, r"column id is int32 in the table and double"),
        (
            {**ROW, "at": pa.array([0], pa.timestamp("us"))},
            r"column at is timestamp\[us, tz=UTC\] in the table and timestamp\[us\]",
        ),
        ({**ROW, "at": pa.array([1], pa.timestamp("ns", "UTC"))}, r"column at has a value that does not fit"),
        ({**ROW, "price": [Decimal("1.234")]}, r"column price has a value"),
        ({**ROW, "price": [1000]}, r"column price has a value"),
        ({**ROW, "place": [{"zip": None}]}, r"column place\.zip is NOT NULL"),
        ({**ROW, "place": [{"city": "x"}]}, r"column place\.zip is NOT NULL and is not in the data"),
        ({**ROW, "place": [{"zip": 1, "street": "x"}]}, r"column place\.street is not in the table"),
        ({**ROW, "tags": [["a", None]]}, r"column tags\.element is NOT NULL"),
        ({**ROW, "tags": ["a"]}, r"column tags is list"),
        ({**ROW, "ID": [1]}, r"column ID is in the data twice"),
    ],
)
def test_what_does_not_fit_is_refused_with_column_and_cause(
    storage: Storage, columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(CommitRefused, match=rf"(?s)orders: {message}.*Nothing was written"):
        write(storage, pa.table(columns), STRICT, table="orders")
    assert data_files(storage) == []


def test_what_fits_without_loss_is_converted(storage: Storage) -> None:
    given = pa.table(
        {
            "NAME": pa.array(["a"]).dictionary_encode(),
            "id": pa.array([7], pa.int64()),
            "at": pa.array([5], pa.timestamp("ms", "Europe/Berlin")),
            "price": pa.array([3], pa.int64()),
            "place": pa.array([{"zip": 1}], pa.struct([("zip", pa.int16())])),
        }
    )
    [action] = write(storage, given, STRICT)
    found = pq.read_table(Path(storage.root) / action.path)
    assert found.to_pylist() == [
        {
            "id": 7,
            "name": "a",
            "at": dt.datetime(1970, 1, 1, 0, 0, 0, 5000, dt.UTC),
            "price": Decimal("3.00"),
            "place": {"zip": 1, "city": None},
            "tags": None,
        }
    ]


def test_a_null_struct_may_have_null_where_its_field_may_not(storage: Storage) -> None:
    places = pa.array([None, {"zip": 1}], pa.struct([("zip", pa.int64())]))
    [action] = write(storage, pa.table({"id": [1, 2], "place": places}), STRICT)
    assert json.loads(action.stats or "")["nullCount"]["place"] == {"zip": 1, "city": 2}


def test_lengths_are_kept(storage: Storage) -> None:
    def schema(kind: str) -> str:
        keys = {"__CHAR_VARCHAR_TYPE_STRING": kind}
        return json.dumps(
            {
                "type": "struct",
                "fields": [{"name": "c", "type": "string", "nullable": True, "metadata": keys}],
            }
        )

    table = pa.table({"c": ["éa", None]})
    [padded] = write(storage, table, schema("char(3)"))
    assert pq.read_table(Path(storage.root) / padded.path).to_pylist() == [{"c": "éa "}, {"c": None}]
    with pytest.raises(CommitRefused, match=r"column c is varchar\(1\), and a text has 2 characters"):
        write(storage, table, schema("varchar(1)"))


def test_a_default_is_not_replaced_by_null(storage: Storage) -> None:
    keys = {"CURRENT_DEFAULT": "5"}
    fields = [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "n", "type": "long", "nullable": True, "metadata": keys},
    ]
    schema = json.dumps({"type": "struct", "fields": fields})
    with pytest.raises(CommitRefused, match="column n has a default and is not in the data"):
        write(storage, pa.table({"id": [1]}), schema)
    assert len(write(storage, pa.table({"id": [1], "n": [None]}), schema)) == 1


def test_an_empty_text_is_refused_where_the_partition_must_not_be_null(storage: Storage) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("p", pa.string(), False)])
    with pytest.raises(CommitRefused, match="partition column p is NOT NULL"):
        write(storage, pa.table({"id": [1], "p": [""]}), schema, ["p"])


def test_a_failure_half_way_leaves_no_files(storage: Storage) -> None:
    def pieces() -> Any:
        yield pa.table({"id": range(10)})
        assert len(data_files(storage)) == 2
        yield pa.table({"id": ["no number"]})

    with pytest.raises(CommitRefused):
        write(storage, pieces(), pa.schema([("id", pa.int64())]), target_rows=5)
    assert data_files(storage) == []


# Tables that ask for more

PLAIN = Metadata("0", schema_string_of(pa.schema([("a", pa.int64())])))


def with_field(kind: Any = "long", **keys: Any) -> Metadata:
    field = {"name": "a", "type": kind, "nullable": True, "metadata": keys}
    return replace(PLAIN, schema_string=json.dumps({"type": "struct", "fields": [field]}))


def features(*names: str) -> Protocol:
    return Protocol(3, 7, (), names)


def with_property(key: str, value: str) -> Metadata:
    return replace(PLAIN, configuration={key: value})


LIMITED = with_field(
    {"type": "array", "elementType": "string", "containsNull": True},
    __CHAR_VARCHAR_TYPE_STRING="array<varchar(3)>",
)
COLLATED = with_field("string", __COLLATIONS={"a": "x"})
POSITIVE = with_property("delta.constraints.Pos", "a > 0")
GENERATED = with_field(**{"delta.generationExpression": "b + 1"})
ICEBERG = with_property("delta.enableIcebergCompatV2", "true")


@pytest.mark.parametrize(
    ("protocol", "metadata", "feature", "message"),
    [
        (features("rowTracking", "domainMetadata"), PLAIN, "rowTracking", "the table feature rowTracking"),
        (features("somethingNew"), PLAIN, "somethingNew", "the table feature somethingNew"),
        (Protocol(1, 3), POSITIVE, "checkConstraints", r"the CHECK constraint Pos \(a > 0\)"),
        (Protocol(1, 2), with_field(**{"delta.invariants": "{}"}), "invariants", "the invariant of column a"),
        (Protocol(1, 4), GENERATED, "generatedColumns", r"generated column a \(b \+ 1\)"),
        (Protocol(1, 6), with_field(**{"delta.identity.start": 1}), "identityColumns", "identity column a"),
        (features("icebergCompatV2"), ICEBERG, "icebergCompatV2", "Iceberg"),
        (features("variantType"), with_field("variant"), "variantType", "column a of type variant"),
        (features("collations"), COLLATED, "collations", "collation of column a"),
        (Protocol(1, 2), LIMITED, "charVarchar", "length limits inside column a"),
    ],
)
def test_tables_that_ask_for_more_are_refused_by_name(
    protocol: Protocol, metadata: Metadata, feature: str, message: str
) -> None:
    with pytest.raises(UnsupportedTable, match=rf"orders: .*{message}.*Write it with Spark") as caught:
        check_embedded_writable(protocol, metadata, "orders")
    assert feature in caught.value.features


@pytest.mark.parametrize(
    "protocol",
    [
        Protocol(1, 2),
        Protocol(2, 6),
        features("appendOnly", "invariants", "checkConstraints", "generatedColumns", "identityColumns"),
        features("changeDataFeed", "columnMapping", "deletionVectors", "typeWidening", "allowColumnDefaults"),
        features("timestampNtz", "v2Checkpoint", "inCommitTimestamp", "clustering", "domainMetadata"),
        features("variantType", "icebergCompatV2", "vacuumProtocolCheck"),
    ],
)
def test_features_that_are_not_in_use_do_not_stop_the_writer(protocol: Protocol) -> None:
    check_embedded_writable(protocol, PLAIN)
    check_embedded_writable(protocol, with_field(CURRENT_DEFAULT="5"))
