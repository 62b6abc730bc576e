"""Partition values: their text in the log, the folders named after them, and rows sorted into them."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from deltaplane.errors import CommitRefused

__all__ = ["PartitionKey", "folder_of", "log_path", "partition_text", "split_by_partition"]

PartitionKey = tuple[str | None, ...]
"""The partition values of one file as text, in the order of the partition columns; None for null."""

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
# The characters that Hive and Spark escape in the name of a folder.
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f" + "".join(map(chr, range(1, 32))))
_ROW = "__row"


def partition_text(value: Any, kind: pa.DataType) -> str | None:
    """The text of a partition value; None for null, and for an empty text, which Delta cannot tell from null.

    Instants are written in UTC with a Z, so that no reader takes them for its own local time.

    Raises:
        CommitRefused: Bytes that have no text.
    """
    if value is None or value in ("", b""):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dt.datetime):
        return _timestamp_text(value, zoned=kind.tz is not None)
    if isinstance(value, bytes):
        return _binary_text(value)
    return str(value)


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    # One zero: rows with 0.0 and -0.0 belong together.
    return repr(value + 0.0)


def _timestamp_text(value: dt.datetime, *, zoned: bool) -> str:
    if zoned:
        return value.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")
    text = value.isoformat(sep=" ", timespec="seconds")
    return f"{text}.{value.microsecond:06d}" if value.microsecond else text


def _binary_text(value: bytes) -> str:
    if not value.isascii():
        raise CommitRefused(
            f"A partition value is the bytes {value[:20]!r}, and Delta has a text only for bytes below 0x80. "
            "Nothing was written. Partition by a column of another type."
        )
    return value.decode("ascii")


def folder_of(columns: Sequence[str], key: PartitionKey) -> str:
    """The folder of a partition, such as 'day=2024-01-01/region=eu/'; '' without partition columns."""
    return "".join(f"{_escape(name)}={_folder_value(text)}/" for name, text in zip(columns, key, strict=True))


def _folder_value(text: str | None) -> str:
    return NULL_FOLDER if text is None else _escape(text)


def _escape(text: str) -> str:
    return "".join(f"%{ord(sign):02X}" if sign in _ESCAPED else sign for sign in text)


def log_path(path: str) -> str:
    """A file's path as the log has it: a URL, so the escapes in folder names are escaped again."""
    return quote(path, safe="/-_.~!$&()*+,;=@")


def split_by_partition(table: pa.Table, columns: Sequence[str]) -> Iterator[tuple[PartitionKey, pa.Table]]:
    """The rows of each partition, without the partition columns.

    A key may come twice: two values can have one text.
    """
    rest = table.drop_columns(list(columns))
    if not columns:
        yield (), rest
        return
    rows = pa.array(range(table.num_rows), pa.int64())
    numbered = table.select(list(columns)).append_column(_ROW, rows)
    groups = numbered.group_by(list(columns), use_threads=False).aggregate([(_ROW, "list")])
    texts = [_texts(groups, name) for name in columns]
    chosen = groups.column(f"{_ROW}_list").combine_chunks()
    for position, key in enumerate(zip(*texts, strict=True)):
        yield key, rest.take(chosen[position].values)


def _texts(groups: pa.Table, name: str) -> list[str | None]:
    column = groups.column(name)
    try:
        return [partition_text(value, column.type) for value in column.to_pylist()]
    except (OverflowError, ValueError):
        raise CommitRefused(
            f"Partition column {name} holds a date or time outside the years 1 to 9999. Nothing was written. "
            "Correct the value."
        ) from None


def partition_values(columns: Sequence[str], key: PartitionKey) -> Mapping[str, str | None]:
    """The partition values of an action."""
    return dict(zip(columns, key, strict=True))
