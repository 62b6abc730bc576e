"""The bounds of many files at once: the same answers as `bounds_of`, by columns instead of by rows.

Arrow reads the statistics of a whole chunk with the wanted fields declared. It refuses what it would have to
guess (an integer beyond 64 bits, "NaN" as text, a second key of the same name); the rows around it are then
read one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from deltaplane.log.bounds import (
    DECIMAL_SLACK,
    TIMESTAMP_SLACK,
    Interval,
    PruningColumn,
    bounds_of,
    partition_interval,
)
from deltaplane.log.jsonlines import parse_json
from deltaplane.log.order_keys import INT64_MAX, INT64_MIN, key_kind

__all__ = ["BOUNDS_SCHEMA", "Keys", "bounds_batch", "stats_keys"]

BOUNDS_SCHEMA = pa.schema([(name, pa.int64()) for name in ("row", "column_id", "lo", "hi", "width_class")])
_CHUNK = 65_536
_SMALL = 256
_READ_AS = {
    "integer": pa.int64(),
    "single": pa.float64(),
    "double": pa.float64(),
    "decimal": pa.float64(),
    "boolean": pa.bool_(),
}
_LOW = pa.scalar(INT64_MIN, pa.int64())
_HIGH = pa.scalar(INT64_MAX, pa.int64())
Keys = tuple[pa.Array, pa.Array, pa.Array]
"""Of one column in many files: the least and greatest keys, and how many rows are null (null: not known)."""


def bounds_batch(
    stats: pa.StringArray | pa.ChunkedArray,
    partition_values: pa.StringArray | pa.ChunkedArray,
    columns: Sequence[PruningColumn],
    first_row: int = 0,
) -> pa.RecordBatch:
    """The bounds of many files.

    Args:
        stats: The statistics as JSON text, null allowed.
        partition_values: The partition values as JSON text, null allowed.
        columns: The indexed columns.
        first_row: The number of the first row.

    Returns:
        A row for each file and column, with BOUNDS_SCHEMA; within a chunk ordered by column.
    """
    pieces: list[pa.RecordBatch] = []
    for start in range(0, len(stats), _CHUNK):
        texts, values = _whole(stats.slice(start, _CHUNK)), _whole(partition_values.slice(start, _CHUNK))
        rows = pa.array(range(first_row + start, first_row + start + len(texts)), pa.int64())
        for column, (lo, hi, _) in zip(columns, _chunk_keys(texts, values, columns), strict=True):
            number = pa.repeat(pa.scalar(column.id, pa.int64()), len(rows))
            pieces.append(
                pa.record_batch([rows, number, lo, hi, _width_classes(lo, hi)], schema=BOUNDS_SCHEMA)
            )
    return (
        pa.Table.from_batches(pieces, BOUNDS_SCHEMA).combine_chunks().to_batches()[0] if pieces else _none()
    )


def _none() -> pa.RecordBatch:
    return pa.record_batch([pa.array([], pa.int64())] * len(BOUNDS_SCHEMA), schema=BOUNDS_SCHEMA)


def _whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return array.chunk(0) if isinstance(array, pa.ChunkedArray) else array.cast(pa.string())


def _chunk_keys(stats: pa.Array, values: pa.Array, columns: Sequence[PruningColumn]) -> list[Keys]:
    partitions = iter(_partition_keys(values, [c for c in columns if c.partition]))
    measured = [column for column in columns if not column.partition]
    measures = iter(stats_keys(stats, measured) if measured else [])
    return [next(partitions) if column.partition else next(measures) for column in columns]


def _partition_keys(values: pa.Array, columns: Sequence[PruningColumn]) -> list[Keys]:
    if not columns:
        return []
    encoded = values.dictionary_encode(null_encoding="encode")
    distinct = [_object(text) for text in encoded.dictionary.to_pylist()]
    keys = [[_pair(partition_interval(found, column)) for found in distinct] for column in columns]
    return [
        (
            pa.array([lo for lo, _ in pairs], pa.int64()).take(encoded.indices),
            pa.array([hi for _, hi in pairs], pa.int64()).take(encoded.indices),
            pa.nulls(len(values), pa.int64()),
        )
        for pairs in keys
    ]


def _object(text: str | None) -> Mapping[str, str | None]:
    found = parse_json(text) if text else {}
    return found if isinstance(found, Mapping) else {}


def _pair(interval: Interval) -> tuple[int, int]:
    return (INT64_MAX, INT64_MIN) if interval.all_null else (interval.low_key, interval.high_key)


def stats_keys(stats: pa.StringArray, columns: Sequence[PruningColumn]) -> list[Keys]:
    """The keys that the statistics of many files say, for each column."""
    try:
        table = _read(stats, columns)
        return [_column_keys(table, column) for column in columns]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(stats) <= _SMALL:
            return _row_by_row(stats, columns)
    # A few odd rows must not make the rest slow.
    half = len(stats) // 2
    halves = zip(stats_keys(stats[:half], columns), stats_keys(stats[half:], columns), strict=True)
    return [_joined(first, second) for first, second in halves]


def _joined(first: Keys, second: Keys) -> Keys:
    lo, hi, nulls = (pa.concat_arrays(pair) for pair in zip(first, second, strict=True))
    return lo, hi, nulls


def _row_by_row(stats: pa.Array, columns: Sequence[PruningColumn]) -> list[Keys]:
    rows = [bounds_of(text, {}, columns) for text in stats.to_pylist()]
    return [
        (
            pa.array([row[i].lo for row in rows], pa.int64()),
            pa.array([row[i].hi for row in rows], pa.int64()),
            pa.array([row[i].null_count for row in rows], pa.int64()),
        )
        for i in range(len(columns))
    ]


def _read(stats: pa.Array, columns: Sequence[PruningColumn]) -> pa.Table:
    texts = pc.fill_null(stats, "{}")
    # One object a line, exactly: otherwise a row could take the place of another.
    if not pc.all(pc.starts_with(texts, "{")).as_py() or pc.any(pc.match_substring(texts, "\n")).as_py():
        raise pa.ArrowInvalid("not one object in each row")
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), "\n")
    content = joined[0].as_buffer()
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    table = pj.read_json(
        pa.BufferReader(content),
        read_options=pj.ReadOptions(block_size=max(4 * 2**20, 2 * longest + 2)),
        parse_options=pj.ParseOptions(
            explicit_schema=_stats_schema(columns), unexpected_field_behavior="ignore"
        ),
    )
    if table.num_rows != len(stats):
        raise pa.ArrowInvalid("not one object in each row")
    return table


def _stats_schema(columns: Sequence[PruningColumn]) -> pa.Schema:
    values = _nested({c.physical: _READ_AS.get(str(key_kind(c.type)), pa.string()) for c in columns})
    counts = _nested({c.physical: pa.int64() for c in columns})
    return pa.schema(
        [("numRecords", pa.int64()), ("minValues", values), ("maxValues", values), ("nullCount", counts)]
    )


def _nested(types: Mapping[tuple[str, ...], pa.DataType]) -> pa.DataType:
    groups: dict[str, dict[tuple[str, ...], pa.DataType]] = {}
    for path, kind in types.items():
        groups.setdefault(path[0], {})[path[1:]] = kind
    return pa.struct([(name, inner[()] if () in inner else _nested(inner)) for name, inner in groups.items()])


def _column_keys(table: pa.Table, column: PruningColumn) -> Keys:
    low, high, nulls = (
        _leaf(table, (part, *column.physical)) for part in ("minValues", "maxValues", "nullCount")
    )
    lo, hi = _key_arrays(low, high, column.type)
    records = _leaf(table, ("numRecords",))
    neither = pc.and_(pc.is_null(low), pc.is_null(high))
    empty = pc.and_(neither, pc.fill_null(pc.equal(nulls, records), False))
    # A minimum above the maximum is a mistake of the writer's and tells nothing.
    wrong = pc.fill_null(pc.greater(lo, hi), False)
    lo = pc.if_else(wrong, _LOW, pc.fill_null(_slack(lo, column.type, low=True), _LOW))
    hi = pc.if_else(wrong, _HIGH, pc.fill_null(_slack(hi, column.type, low=False), _HIGH))
    return pc.if_else(empty, _HIGH, lo), pc.if_else(empty, _LOW, hi), nulls


def _leaf(table: pa.Table, path: tuple[str, ...]) -> pa.Array:
    array = table.column(path[0]).combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0)
    for name in path[1:]:
        array = pc.struct_field(array, name)
    return array


def _key_arrays(low: pa.Array, high: pa.Array, delta_type: str) -> tuple[pa.Array, pa.Array]:
    kind = key_kind(delta_type)
    if kind == "text":
        return _text_keys(low, None), _text_keys(high, "\ufffd")
    convert: Any = {
        "integer": lambda a: a,
        "boolean": lambda a: a.cast(pa.int64()),
        "date": lambda a: a.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()),
        "timestamp": lambda a: _timestamps(a, delta_type),
    }.get(str(kind), lambda a: _double_keys(a, delta_type))
    return convert(low), convert(high)


def _timestamps(texts: pa.Array, delta_type: str) -> pa.Array:
    zone = "UTC" if delta_type == "timestamp" else None
    return texts.cast(pa.timestamp("us", zone)).cast(pa.int64())


def _double_keys(numbers: pa.Array, delta_type: str) -> pa.Array:
    if delta_type == "float":
        numbers = numbers.cast(pa.float32(), safe=False).cast(pa.float64())
    nan = pc.is_nan(numbers)
    bits = pc.add(numbers, 0.0).view(pa.int64())
    keys = pc.if_else(pc.less(bits, 0), pc.bit_wise_xor(bits, _HIGH), bits)
    return pc.if_else(nan, pa.scalar(0x7FF8000000000000, pa.int64()), keys)


def _text_keys(texts: pa.Array, tie_breaker: str | None) -> pa.Array:
    if tie_breaker is None:
        return _padded_keys(texts, b"\0")
    prefix = pc.utf8_rtrim(texts, tie_breaker)
    return pc.if_else(pc.equal(prefix, texts), _padded_keys(texts, b"\0"), _padded_keys(prefix, b"\xff"))


def _padded_keys(texts: pa.Array, fill: bytes) -> pa.Array:
    padded = pc.binary_join_element_wise(
        texts.cast(pa.binary()), pa.scalar(fill * 8, pa.binary()), pa.scalar(b"", pa.binary())
    )
    head = pc.binary_reverse(pc.binary_slice(padded, 0, 8)).cast(pa.binary(8))
    return pc.bit_wise_xor(head.view(pa.int64()), _LOW)


def _slack(keys: pa.Array, delta_type: str, *, low: bool) -> pa.Array:
    kind = key_kind(delta_type)
    if kind == "decimal":
        # Keys of doubles leave room at both ends, so this cannot overflow.
        return pc.subtract(keys, DECIMAL_SLACK) if low else pc.add(keys, DECIMAL_SLACK)
    if kind == "timestamp" and not low:
        return pc.add(keys, TIMESTAMP_SLACK)
    return keys


def _width_classes(lo: pa.Array, hi: pa.Array) -> pa.Array:
    """The bit length of hi - lo, which may need 65 bits: of its absolute value without a sign."""
    empty = pc.greater(lo, hi)
    least, most = pc.if_else(empty, hi, lo), pc.if_else(empty, lo, hi)
    rest = pc.subtract(most.view(pa.uint64()), least.view(pa.uint64()))
    width = pa.repeat(pa.scalar(0, pa.int64()), len(rest))
    for step in (32, 16, 8, 4, 2, 1):
        wide = pc.greater_equal(rest, pa.scalar(1 << step, pa.uint64()))
        width = pc.add(width, pc.if_else(wide, step, 0))
        rest = pc.if_else(wide, pc.shift_right(rest, pa.scalar(step, pa.uint64())), rest)
    return pc.add(width, rest.cast(pa.int64()))
