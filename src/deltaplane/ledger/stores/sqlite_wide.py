"""Wide reads from SQLite as Arrow, without a Python object for every value.

SQLite itself glues the values of a chunk together: texts without a separator beside the list of their
lengths, numbers
with commas. Both become Arrow arrays in one step each. A driver that brings an SQLite library of its own
would be as
fast, but two copies of SQLite in one process destroy each other's file locks, and with them the database.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["column_names", "packed_batch", "row_batches"]

_NUMBERS = frozenset(
    (
        "added_version",
        "base_row_id",
        "beyond_file",
        "default_row_commit_version",
        "deletion_timestamp",
        "file_id",
        "file_key",
        "first_added",
        "first_file",
        "last_added",
        "modification_time",
        "num_records",
        "num_rows",
        "size",
    )
)
_ROWS = 20_000


def column_names(connection: sqlite3.Connection, text: str, values: Mapping[str, Any]) -> list[str]:
    """The columns that a statement gives."""
    cursor = connection.execute(f"SELECT * FROM ({text}) LIMIT 0", values)  # noqa: S608 - our own statement
    return [column[0] for column in cursor.description]


def packed_batch(
    connection: sqlite3.Connection, text: str, names: Sequence[str], values: Mapping[str, Any]
) -> pa.RecordBatch:
    """All rows of a statement, which must be few enough for the memory, as one batch."""
    parts = ", ".join(_packed(name) for name in names)
    row = connection.execute(f"SELECT count(*), {parts} FROM ({text})", values).fetchone()  # noqa: S608
    given = iter(row[1:])
    arrays = []
    for name in names:
        if row[0] == 0:
            arrays.append(pa.array([], _kind(name)))
        elif name in _NUMBERS:
            arrays.append(_numbers(next(given)))
        else:
            arrays.append(_texts(next(given), next(given)))
    return pa.RecordBatch.from_arrays(arrays, names=list(names))


def _packed(name: str) -> str:
    if name in _NUMBERS:
        return f"group_concat({name})"
    return f"CAST(group_concat({name}, '') AS BLOB), group_concat(length(CAST({name} AS BLOB)))"


def _kind(name: str) -> pa.DataType:
    if name == "content":
        return pa.binary()
    return pa.int64() if name in _NUMBERS else pa.string()


def _numbers(listed: str) -> pa.Array:
    return pc.cast(pc.split_pattern(pa.array([listed]), ",").values, pa.int64())


def _texts(glued: bytes | None, lengths: str) -> pa.Array:
    sizes = _numbers(lengths)
    ends = pc.cast(pc.cumulative_sum(sizes), pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.StringArray.from_buffers(len(sizes), offsets.buffers()[1], pa.py_buffer(glued or b""))


def row_batches(
    connection: sqlite3.Connection, text: str, values: Mapping[str, Any]
) -> Iterator[pa.RecordBatch]:
    """The rows of a statement in their own order, a bounded number at a time."""
    cursor = connection.execute(text, values)
    names = [column[0] for column in cursor.description]
    while rows := cursor.fetchmany(_ROWS):
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, _kind(name)) for name, column in zip(names, columns, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=names)
