"""Checkpoints of every writer there is give the same actions, by rows and by columns."""

from __future__ import annotations

import datetime as dt
import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from deltaplane.errors import CorruptLog
from deltaplane.log.actions import (
    Action,
    AddFile,
    DeletionVector,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    UnknownAction,
)
from deltaplane.log.checkpoint_read import iter_checkpoint_actions, iter_checkpoint_tables
from deltaplane.log.checkpoint_schema import (
    FILE_BATCH,
    TOMBSTONE_BATCH,
    add_files,
    file_batch,
    remove_files,
)
from deltaplane.log.checkpoint_write import write_classic
from deltaplane.log.stats_json import partition_json, struct_json
from golden import golden_root, golden_tables, needs_golden

# The checkpoint of this table, which every reader refuses, has a metaData without a schema.
WITHOUT_SCHEMA = "deltalog-state-reconstruction-from-checkpoint-missing-protocol"


def golden_checkpoints() -> list[Path]:
    root = golden_root()
    found = sorted(root.glob("*/*/delta/_delta_log/**/*.parquet")) if root else []
    return [path for path in found if WITHOUT_SCHEMA not in path.parts]


def read(content: Any, **options: Any) -> list[Action]:
    return list(iter_checkpoint_actions(content, "the checkpoint", **options))


def parquet(columns: dict[str, pa.Array], **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, **options)
    return sink.getvalue()


def without_details(action: Action) -> Action:
    """What a batch can hold of a file action."""
    if not isinstance(action, AddFile | RemoveFile):
        return action
    vector = action.deletion_vector and replace(action.deletion_vector, extra={})
    plain = replace(action, deletion_vector=vector, extra={})
    return replace(plain, data_change=False) if isinstance(plain, AddFile) else replace(plain, stats=None)


@needs_golden
def test_every_golden_checkpoint_is_read_with_all_its_files() -> None:
    paths = golden_checkpoints()
    assert len(paths) > 100
    for path in paths:
        with path.open("rb") as file:
            kinds = [action.kind for action in iter_checkpoint_actions(file, str(path))]
        table = pq.read_table(path)
        rows = {name: len(table) - table[name].null_count for name in table.column_names}
        assert {name: kinds.count(name) for name in rows} == rows, path


@needs_golden
def test_columns_and_rows_say_the_same_about_every_golden_checkpoint() -> None:
    for path in golden_checkpoints():
        content = path.read_bytes()
        pieces = list(iter_checkpoint_tables(content, str(path), batch_rows=7))
        by_columns: list[Action] = [action for piece in pieces for action in piece.others]
        by_columns += [action for piece in pieces for action in add_files(piece.files)]
        by_columns += [action for piece in pieces for action in remove_files(piece.tombstones)]
        by_rows = [without_details(action) for action in read(content, batch_rows=7)]
        order = {"add": 1, "remove": 2}
        assert by_columns == sorted(by_rows, key=lambda action: order.get(action.kind, 0)), path


@needs_golden
def test_statistics_and_partition_values_of_golden_checkpoints_are_those_that_spark_sees() -> None:
    compared = 0
    for table in golden_tables("readable", "log_only"):
        expected = {(row["path"], row["stats"]) for row in table.expected_files() if row.get("stats")}
        paths = {path for path, _ in expected}
        values = {row["path"]: row["partitionValues"] for row in table.expected_files()}
        for path in sorted(table.path.glob("_delta_log/**/*.parquet")):
            for action in read(path.read_bytes()):
                # A file with a deletion vector may have had other statistics at the time of the checkpoint.
                if (
                    isinstance(action, AddFile)
                    and action.path in paths
                    and not _has_newer_vector(table, action)
                ):
                    assert (action.path, action.stats) in expected, path
                    assert dict(action.partition_values) == values[action.path], path
                    compared += 1
    assert compared > 500


def _has_newer_vector(table: Any, action: AddFile) -> bool:
    vectors = [row.get("deletionVector") for row in table.expected_files() if row["path"] == action.path]
    own = action.deletion_vector.path_or_inline_dv if action.deletion_vector else None
    return own not in [vector and vector["pathOrInlineDv"] for vector in vectors]


@needs_golden
def test_typed_partition_values_of_a_golden_checkpoint_give_the_texts_that_stand_beside_them() -> None:
    root = golden_root()
    assert root is not None
    folder = root / "trino/deltalake__partition_values_parsed_all_types/delta/_delta_log"
    file = pq.ParquetFile(
        folder / "00000000000000000003.checkpoint.parquet", coerce_int96_timestamp_unit="us"
    )
    adds = file.read(columns=["add"])["add"].combine_chunks().drop_null()
    parsed, written = (
        pc.struct_field(adds, "partitionValues_parsed"),
        pc.struct_field(adds, "partitionValues"),
    )
    rebuilt = [json.loads(text) for text in partition_json(parsed, {".part_timestamp"}).to_pylist()]
    assert _comparable(rebuilt) == _comparable([dict(row) for row in written.to_pylist()])


def _comparable(rows: list[dict[str, str | None]]) -> list[dict[str, Any]]:
    """Points in time have two forms in the protocol, and numbers have many."""
    for row in rows:
        for name in ("part_float", "part_double"):
            row[name] = row[name] and str(float(row[name] or 0))
        stamp = row["part_timestamp"]
        row["part_timestamp"] = stamp and stamp.replace(" ", "T").rstrip("Z").removesuffix(".0")
    return rows


ADD = AddFile("a.parquet", {}, 10, 20, False)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (pa.array([2**63 - 1]), "9223372036854775807"),
        (pa.array([Decimal("-12.50")], pa.decimal128(20, 2)), "-12.50"),
        (pa.array([1.0]), "1.0"),
        (pa.array([0.1], pa.float32()), "0.1"),
        (pa.array([1e300]), "1e+300"),
        (pa.array([float("nan")]), '"NaN"'),
        (pa.array([float("-inf")]), '"-Infinity"'),
        (pa.array([True]), "true"),
        (pa.array([dt.date(2024, 2, 29)]), '"2024-02-29"'),
        (pa.array([dt.date(1, 1, 1)]), '"0001-01-01"'),
        (pa.array([1_000], pa.timestamp("us", "UTC")), '"1970-01-01T00:00:00.001Z"'),
        (pa.array([1_001], pa.timestamp("us", "UTC")), '"1970-01-01T00:00:00.001001Z"'),
        (pa.array([0], pa.timestamp("us")), '"1970-01-01T00:00:00.000"'),
        (pa.array(['quote " back \\ line \n é 漢 😀']), '"quote \\" back \\\\ line \\n é 漢 😀"'),
        (pa.array([{"in": 1}]), '{"in":1}'),
        (pa.array([{"in": None}], pa.struct([("in", pa.int32())])), "{}"),
    ],
)
def test_struct_statistics_become_the_text_that_delta_writes(values: pa.Array, text: str) -> None:
    stats = pa.StructArray.from_arrays([pa.array([3]), values], ["numRecords", "x"])
    adds = pa.array([{"path": "a.parquet", "size": 10, "modificationTime": 20}])
    add = pa.StructArray.from_arrays(
        [*adds.flatten(), stats], ["path", "size", "modificationTime", "stats_parsed"]
    )
    content = parquet({"add": add})
    assert read(content) == [replace(ADD, stats=f'{{"numRecords":3,"x":{text}}}')]


def test_int96_timestamps_in_statistics_are_points_in_time_of_any_century() -> None:
    stamps = pa.array([dt.datetime(9999, 12, 31, 23, 59, 59), dt.datetime(1, 1, 1)], pa.timestamp("us"))
    stats = pa.StructArray.from_arrays([stamps], ["ts"])
    add = pa.StructArray.from_arrays([pa.array(["a", "b"]), stats], ["path", "stats_parsed"])
    texts = [action.stats for action in read(parquet({"add": add}, use_deprecated_int96_timestamps=True))]
    assert texts == ['{"ts":"9999-12-31T23:59:59.000Z"}', '{"ts":"0001-01-01T00:00:00.000Z"}']


def test_binary_values_lists_and_null_fields_stay_out_of_rebuilt_statistics() -> None:
    stats = pa.array(
        [{"bin": b"\xff", "list": [1], "deep": {"bin": b"x"}, "kept": 1, "null": None}],
        pa.struct(
            [
                ("bin", pa.binary()),
                ("list", pa.list_(pa.int32())),
                ("deep", pa.struct([("bin", pa.binary())])),
                ("kept", pa.int32()),
                ("null", pa.int32()),
            ]
        ),
    )
    assert struct_json(stats).to_pylist() == ['{"kept":1}']


def test_rows_whose_statistics_are_null_keep_their_place() -> None:
    stats = pa.array([None, {"n": {"a": None}}, {"n": {"a": 1}}, {"n": None}])
    assert struct_json(stats).to_pylist() == [None, '{"n":{}}', '{"n":{"a":1}}', "{}"]


def test_text_statistics_win_and_struct_statistics_fill_the_gaps() -> None:
    add = pa.array(
        [
            {"path": "a", "stats": '{"numRecords":1}', "stats_parsed": {"numRecords": 7}},
            {"path": "b", "stats": None, "stats_parsed": {"numRecords": 2}},
            {"path": "c", "stats": None, "stats_parsed": None},
        ]
    )
    texts = [action.stats for action in read(parquet({"add": add}))]
    assert texts == ['{"numRecords":1}', '{"numRecords":2}', None]


def test_partition_values_that_exist_only_as_a_struct_become_texts() -> None:
    values = pa.array(
        [
            {"d": dt.date(2024, 1, 2), "n": 5, "t": dt.datetime(2024, 1, 2, 3, 4, 5), "s": 'a"b'},
            {"d": None, "n": -1, "t": dt.datetime(2024, 1, 2, 3, 4, 5, 120), "s": None},
        ]
    )
    add = pa.StructArray.from_arrays([pa.array(["a", "b"]), values], ["path", "partitionValues_parsed"])
    assert [action.partition_values for action in read(parquet({"add": add}))] == [
        {"d": "2024-01-02", "n": "5", "t": "2024-01-02 03:04:05", "s": 'a"b'},
        {"d": None, "n": "-1", "t": "2024-01-02 03:04:05.00012", "s": None},
    ]


def test_maps_with_other_keys_in_every_row_are_read() -> None:
    maps = [[("b", "1"), ("a", None)], [], [("c", 'x"')], None, [("b", "2"), ("a", "3")]]
    columns = {"path": pa.array(list("vwxyz")), "tags": pa.array(maps, pa.map_(pa.string(), pa.string()))}
    add = pa.StructArray.from_arrays(list(columns.values()), list(columns))
    tags = [action.tags for action in read(parquet({"add": add}))]
    assert tags == [None if row is None else dict(row) for row in maps]


def test_missing_columns_are_columns_of_nulls() -> None:
    content = parquet({"add": pa.array([{"path": "a"}, None]), "remove": pa.array([None, {"path": "b"}])})
    assert read(content) == [AddFile("a", data_change=False), RemoveFile("b", data_change=False)]


def test_fields_that_the_protocol_does_not_name_are_kept_with_the_actions() -> None:
    vector = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 4, "cardinality": 2, "maxRowIndex": 9}
    content = parquet(
        {
            "add": pa.array(
                [{"path": "a", "deletionVector": vector, "dataChange": True, "novel": 1}, None, None]
            ),
            "remove": pa.array([None, {"path": "b", "stats": "{}", "numRecords": 3}, None]),
            "rowIdHighWaterMark": pa.array([None, None, {"value": 5}]),
        }
    )
    assert read(content) == [
        UnknownAction("rowIdHighWaterMark", {"value": 5}),
        AddFile(
            "a",
            data_change=True,
            deletion_vector=DeletionVector("i", "x", 4, 2, extra={"maxRowIndex": 9}),
            extra={"novel": 1},
        ),
        RemoveFile("b", data_change=False, stats="{}", extra={"numRecords": 3}),
    ]


def test_a_struct_of_nulls_is_no_action() -> None:
    kind = pa.struct([("path", pa.string()), ("size", pa.int64())])
    txn = pa.array([{"appId": None}, {"appId": "x", "version": 1}])
    content = parquet({"add": pa.array([{"path": None, "size": None}, None], kind), "txn": txn})
    assert read(content) == [SetTransaction("x", 1)]


def test_a_file_action_without_a_path_is_damage() -> None:
    with pytest.raises(CorruptLog, match=r"^the checkpoint: 1 add action\(s\) have no path$"):
        read(parquet({"add": pa.array([{"path": None, "size": 1}])}))


def test_a_parquet_file_of_something_else_is_refused() -> None:
    with pytest.raises(CorruptLog, match=r"not a checkpoint: its columns are \['id'\]"):
        read(parquet({"id": pa.array([1])}))


def _classic(count: int) -> bytes:
    adds = [
        AddFile(f"part-{at}.parquet", {"p": str(at % 3)}, at, at, False, f'{{"n":{at}}}')
        for at in range(count)
    ]
    sink = io.BytesIO()
    write_classic(sink, [Protocol(1, 2), Metadata("id", "{}")], [file_batch(adds)], [])
    return sink.getvalue()


def test_a_checkpoint_cut_off_anywhere_is_damage_and_never_a_shorter_table() -> None:
    content = _classic(50)
    for length in range(0, len(content), 97):
        with pytest.raises(CorruptLog, match=r"^the checkpoint: "):
            read(content[:length])


def test_a_damaged_page_is_damage_and_never_other_files() -> None:
    content = _classic(2_000)
    whole = read(content)
    metadata = pq.read_metadata(io.BytesIO(content))
    group = metadata.row_group(1)
    refused = 0
    for column in (group.column(at) for at in range(group.num_columns)):
        # The middle of the page's values, behind its header.
        at = column.data_page_offset + column.total_compressed_size * 3 // 4
        damaged = content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :]
        try:
            assert read(damaged) == whole, column.path_in_schema
        except CorruptLog:
            refused += 1
    assert refused > 5


def test_a_failing_disk_is_not_taken_for_damage() -> None:
    class Failing(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise ConnectionResetError("the store went away")

    with pytest.raises(ConnectionResetError):
        read(Failing(_classic(1)))


def test_batches_bound_what_is_in_memory() -> None:
    content = _classic(1_000)
    pieces = list(iter_checkpoint_tables(content, "the checkpoint", batch_rows=100))
    assert max(piece.files.num_rows for piece in pieces) <= 100
    assert sum(piece.files.num_rows for piece in pieces) == 1_000
    assert {piece.files.schema for piece in pieces} == {FILE_BATCH}
    assert {piece.tombstones.schema for piece in pieces} == {TOMBSTONE_BATCH}
