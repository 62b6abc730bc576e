"""The statistics of one data file, as Delta writes them.

Where two readers could take a value differently, it is left out or widened, never wrong: no maximum for a
column with NaN, which some call the greatest value and some call none; timestamps to the millisecond, the
greatest rounded up; long texts cut, the greatest with a character behind it that nothing cut off was above.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltaplane.log.jsonlines import dump_json
from deltaplane.log.schema_json import LeafColumn

__all__ = ["cut_maximum", "cut_minimum", "file_statistics"]

PREFIX = 32
_MOST = 2 * PREFIX
_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_DAY = dt.date(1970, 1, 1)


class _Plain(Decimal):
    """A decimal that is written without an exponent."""

    def __str__(self) -> str:
        return format(self, "f")


def file_statistics(table: pa.Table, columns: Sequence[LeafColumn], *, tight: bool = False) -> str:
    """The statistics of a file as JSON text.

    Args:
        table: The rows of the file, under the names that the files use.
        columns: The columns to describe.
        tight: Say that the bounds are tight, as tables with deletion vectors want it.
    """
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for column in columns:
        values = _leaf(table, column.physical)
        _put(nulls, column.physical, values.null_count)
        low, high = _ends(values)
        _put(least, column.physical, low)
        _put(greatest, column.physical, high)
    stats = {"numRecords": table.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}
    return dump_json({**stats, "tightBounds": True} if tight else stats)


def _leaf(table: pa.Table, path: Sequence[str]) -> pa.ChunkedArray:
    column = table.column(path[0])
    return pc.struct_field(column, list(path[1:])) if len(path) > 1 else column


def _put(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    if value is None:
        return
    for name in path[:-1]:
        values = values.setdefault(name, {})
    values[path[-1]] = value


def _ends(values: pa.ChunkedArray) -> tuple[Any, Any]:
    """The least and the greatest value as JSON has them; None where there is none or none is safe."""
    kind = values.type
    types = pa.types
    if len(values) == values.null_count:
        return None, None
    if types.is_floating(kind):
        return _float_ends(values)
    if types.is_timestamp(kind):
        return _timestamp_ends(values)
    if types.is_string(kind):
        low, high = _min_max(values)
        return cut_minimum(low), cut_maximum(high)
    if types.is_date(kind):
        low, high = _min_max(values.cast(pa.int32()))
        return _date_text(low), _date_text(high)
    if types.is_decimal(kind):
        low, high = _min_max(values)
        return _Plain(low), _Plain(high)
    return _min_max(values) if types.is_integer(kind) else (None, None)


def _min_max(values: pa.ChunkedArray) -> tuple[Any, Any]:
    found = pc.min_max(values).as_py()
    return found["min"], found["max"]


def _float_ends(values: pa.ChunkedArray) -> tuple[float | None, float | None]:
    low, high = _min_max(values)
    has_nan = pc.any(pc.is_nan(values)).as_py()
    # The two zeros are equal, but not to every reader: the range includes both.
    lowest = -0.0 if low == 0 else low
    highest = 0.0 if high == 0 else high
    return (
        lowest if math.isfinite(low) else None,
        highest if math.isfinite(high) and not has_nan else None,
    )


def _timestamp_ends(values: pa.ChunkedArray) -> tuple[str | None, str | None]:
    low, high = _min_max(values.cast(pa.int64()))
    zone = "Z" if values.type.tz else ""
    return _timestamp_text(low // 1000, zone), _timestamp_text(-(-high // 1000), zone)


def _timestamp_text(millis: int, zone: str) -> str | None:
    try:
        moment = _EPOCH + dt.timedelta(milliseconds=millis)
    except OverflowError:
        return None
    return moment.isoformat(timespec="milliseconds") + zone


def _date_text(days: int) -> str | None:
    try:
        return (_EPOCH_DAY + dt.timedelta(days=days)).isoformat()
    except OverflowError:
        return None


def cut_minimum(text: str) -> str:
    """The first characters of the least text: not above it."""
    return text[:PREFIX]


def cut_maximum(text: str) -> str | None:
    """The first characters of the greatest text and one above what follows; None where that fails."""
    if len(text) <= PREFIX:
        return text
    for end in range(PREFIX, min(len(text), _MOST)):
        if text[end] < "\x7f":
            return text[:end] + "\x7f"
        if text[end] < "\U0010ffff":
            return text[:end] + "\U0010ffff"
    return text if len(text) <= _MOST else None
