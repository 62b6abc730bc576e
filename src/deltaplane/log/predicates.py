"""Which files a predicate can rule out.

`prunable_ranges` is for the index: a range of keys per column that every matching row must lie in.
`keep_mask` asks the statistics themselves, file by file, for those that the index left. Neither ever drops a
file with a matching row; both may keep one without.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

import pyarrow as pa

from deltaplane.errors import DeclarationError
from deltaplane.log.bounds import Interval, PruningColumn, Rank, interval_of, parse_stats
from deltaplane.log.jsonlines import parse_json
from deltaplane.log.order_keys import (
    INT64_MAX,
    INT64_MIN,
    clamp,
    double_key,
    exact_number,
    key_kind,
    order_key,
    parse_moment,
    text_key,
)
from deltaplane.log.predicate_sql import parse_sql
from deltaplane.log.predicate_tree import (
    And,
    Compare,
    Constant,
    IsNull,
    NotNull,
    Opaque,
    Or,
    Predicate,
    Value,
    all_of,
    any_of,
    columns_of,
)

__all__ = ["ColumnRange", "Predicate", "columns_of", "keep_mask", "parse_predicate", "prunable_ranges"]

_SIGNS = {"=": "=", "==": "=", "!=": "<>", "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_DAY = 86_400_000_000
_EPOCH = dt.datetime(1970, 1, 1)
Ranges = dict[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """The keys of one column that a matching row can have: a to b, both included. None when a > b."""

    column_id: int
    a: int
    b: int


def parse_predicate(predicate: Any) -> Predicate:
    """Read a predicate.

    Args:
        predicate: SQL text; or a list of (column, operator, value), which must all hold; or a list of such
            lists, of which one must hold. Operators: = == != <> < <= > >= in, not in.

    Raises:
        DeclarationError: It is neither.
    """
    if isinstance(predicate, Predicate):
        return predicate
    if isinstance(predicate, str):
        return parse_sql(predicate)
    if isinstance(predicate, list | tuple):
        if predicate and all(isinstance(part, list) for part in predicate):
            return any_of(all_of(_triple(item) for item in part) for part in predicate)
        return all_of(_triple(item) for item in predicate)
    raise DeclarationError(_form(predicate))


def _form(predicate: Any) -> str:
    return (
        f"The predicate {predicate!r:.200} cannot be read. Nothing was read. Write SQL text such as "
        """"day >= '2024-01-01'", or a list such as [("day", ">=", "2024-01-01")]."""
    )


def _triple(item: Any) -> Predicate:
    if not isinstance(item, list | tuple) or len(item) != 3 or not isinstance(item[0], str):
        raise DeclarationError(_form(item))
    name, operator, value = item[0], str(item[1]).strip().lower(), item[2]
    if operator in _SIGNS:
        return _single_test(name, _SIGNS[operator], value)
    if operator in ("in", "not in") and isinstance(value, list | tuple | set | frozenset):
        if operator == "in":
            return any_of(_single_test(name, "=", one) for one in value)
        return all_of(_single_test(name, "<>", one) for one in value)
    raise DeclarationError(_form(item))


def _single_test(name: str, operator: str, value: Any) -> Predicate:
    if value is None:
        return Constant(False)
    return Compare((name,), operator, value) if isinstance(value, Value) else Opaque(f"{name} {operator}")


class _Columns:
    """Finds the column that a predicate means: by its exact name, else without regard to case, else none."""

    def __init__(self, columns: Sequence[PruningColumn]) -> None:
        self._exact: dict[str, list[PruningColumn]] = {}
        self._folded: dict[str, list[PruningColumn]] = {}
        for column in columns:
            name = ".".join(column.path)
            self._exact.setdefault(name, []).append(column)
            self._folded.setdefault(name.casefold(), []).append(column)

    def find(self, path: tuple[str, ...]) -> PruningColumn | None:
        name = ".".join(path)
        found = self._exact.get(name) or self._folded.get(name.casefold()) or ()
        return found[0] if len(found) == 1 else None


def prunable_ranges(predicate: Predicate, columns: Sequence[PruningColumn]) -> list[ColumnRange]:
    """Ranges that every matching row lies in, at most one per column; none when nothing can be said.

    A predicate that no row satisfies gives one range without keys.
    """
    by_id = {column.id: column for column in columns}
    ranges = _ranges(predicate, _Columns(columns))
    if ranges is None:
        return [ColumnRange(column.id, INT64_MAX, INT64_MIN) for column in columns[:1]]
    return [
        ColumnRange(number, a, b)
        for number, (a, b) in ranges.items()
        if (a, b) != (INT64_MIN, INT64_MAX) and not (b == INT64_MAX and by_id[number].may_hide_nan)
    ]


def _ranges(predicate: Predicate, columns: _Columns) -> Ranges | None:
    """The ranges; None when no row can satisfy the predicate."""
    if isinstance(predicate, Constant):
        return {} if predicate.value else None
    if isinstance(predicate, Compare):
        return _compare_ranges(predicate, columns)
    if isinstance(predicate, And):
        return _intersection([_ranges(part, columns) for part in predicate.parts])
    if isinstance(predicate, Or):
        return _hull([_ranges(part, columns) for part in predicate.parts])
    return {}


def _compare_ranges(compare: Compare, columns: _Columns) -> Ranges:
    column = columns.find(compare.column)
    value = _value_ranks(compare.value, column.type) if column else None
    if column is None or value is None or compare.operator == "<>":
        return {}
    low, high = (text_key(rank) if isinstance(rank, str) else rank for rank in value)
    a = low if compare.operator in ("=", ">", ">=") else INT64_MIN
    b = high if compare.operator in ("=", "<", "<=") else INT64_MAX
    return {column.id: (a, b)}


def _intersection(parts: Sequence[Ranges | None]) -> Ranges | None:
    result: Ranges = {}
    for part in parts:
        if part is None:
            return None
        for number, (a, b) in part.items():
            lower, upper = result.get(number, (INT64_MIN, INT64_MAX))
            result[number] = max(a, lower), min(b, upper)
    return result


def _hull(parts: Sequence[Ranges | None]) -> Ranges | None:
    possible = [part for part in parts if part is not None]
    if not possible:
        return None
    common = set(possible[0]).intersection(*possible[1:])
    return {
        number: (min(part[number][0] for part in possible), max(part[number][1] for part in possible))
        for number in sorted(common)
    }


def _value_ranks(value: Value, delta_type: str) -> tuple[Rank, Rank] | None:
    """The ranks around a value, equal when the type can hold it exactly; None when they do not compare.

    Text is read as the column's type, as Spark does. Two values that different engines may take for one
    literal (a double and the nearest 32-bit float) both lie within.
    """
    kind = key_kind(delta_type)
    if kind == "text":
        return (value, value) if isinstance(value, str) else None
    if kind == "boolean":
        key = order_key(value, delta_type) if isinstance(value, bool | str) else None
        return None if key is None else (key, key)
    if kind in ("date", "timestamp"):
        return _moment_ranks(value, delta_type)
    # Statistics leave NaN and sometimes infinity out, so nothing follows from comparing with them.
    number = exact_number(value)
    if number is None or kind is None:
        return None
    if kind == "integer":
        return (
            clamp(int(number.to_integral_value(ROUND_FLOOR))),
            clamp(int(number.to_integral_value(ROUND_CEILING))),
        )
    return _double_ranks(number, delta_type)


def _double_ranks(number: Decimal, delta_type: str) -> tuple[int, int]:
    near = float(number)
    key = double_key(near)
    slack = 0 if math.isfinite(near) and Decimal(near) == number else 1
    keys = [key - slack, key + slack]
    if delta_type == "float":
        single = order_key(near, "float")
        keys.append(key if single is None else single)
    return min(keys), max(keys)


def _moment_ranks(value: Value, delta_type: str) -> tuple[int, int] | None:
    found = _micros(value)
    if found is None:
        return None
    micros, zoned = found
    if zoned and delta_type != "timestamp":
        # Which day or local time it is depends on the reader's zone.
        return None
    if delta_type == "date":
        return clamp(micros // _DAY), clamp(-(-micros // _DAY))
    return clamp(micros), clamp(micros)


def _micros(value: Value) -> tuple[int, bool] | None:
    if isinstance(value, str):
        moment = parse_moment(value)
        return None if moment is None else (moment[0], bool(moment[1]))
    if isinstance(value, dt.datetime):
        zoned = value.tzinfo is not None
        plain = value.astimezone(dt.UTC).replace(tzinfo=None) if zoned else value
        return (plain - _EPOCH) // dt.timedelta(microseconds=1), zoned
    if isinstance(value, dt.date):
        return (value.toordinal() - 719163) * _DAY, False
    return None


def keep_mask(table: pa.Table, predicate: Predicate, columns: Sequence[PruningColumn]) -> pa.BooleanArray:
    """Which files can hold a matching row, by everything that their statistics and partition values say.

    Args:
        table: File rows with the columns `stats` and `partition_values`, both JSON text.
        predicate: What rows must satisfy.
        columns: The columns that may be named; a name that is not among them rules nothing out.
    """
    found = _Columns(columns)
    used = [column for column in map(found.find, columns_of(predicate)) if column is not None]
    needs_stats = any(not column.partition for column in used)
    nothing = [None] * table.num_rows
    texts = table.column("stats").to_pylist() if needs_stats else nothing
    values = table.column("partition_values").to_pylist()
    return pa.array(
        [_may_match(predicate, _File(text, value, found)) for text, value in zip(texts, values, strict=True)],
        pa.bool_(),
    )


class _File:
    """The statistics of one file, read once."""

    def __init__(self, stats: str | None, partition_values: str | None, columns: _Columns) -> None:
        self._stats = parse_stats(stats)
        values = parse_json(partition_values) if partition_values else {}
        self._values: Mapping[str, str | None] = values if isinstance(values, Mapping) else {}
        self._columns = columns

    def about(self, path: tuple[str, ...]) -> tuple[PruningColumn, Interval] | None:
        column = self._columns.find(path)
        return None if column is None else (column, interval_of(self._stats, self._values, column))


def _may_match(predicate: Predicate, file: _File) -> bool:
    if isinstance(predicate, Constant):
        return predicate.value
    if isinstance(predicate, And):
        return all(_may_match(part, file) for part in predicate.parts)
    if isinstance(predicate, Or):
        return any(_may_match(part, file) for part in predicate.parts)
    if isinstance(predicate, Opaque):
        return True
    known = file.about(predicate.column)
    if known is None:
        return True
    column, interval = known
    if isinstance(predicate, IsNull):
        return interval.all_null or interval.null_count != 0
    if isinstance(predicate, NotNull):
        return not interval.all_null
    return _may_compare(predicate, column, interval)


def _may_compare(compare: Compare, column: PruningColumn, interval: Interval) -> bool:
    if interval.all_null:
        return False
    value = _value_ranks(compare.value, column.type)
    if value is None:
        return True
    # Keys of decimals can be equal for values that are not, so "below" is "not above" for them.
    exact = key_kind(column.type) != "decimal"
    sign = compare.operator
    if sign == "<>":
        ranks = {interval.low, interval.high, *value}
        return not exact or len(ranks) > 1 or column.may_hide_nan
    above = column.may_hide_nan and sign in (">", ">=")
    below_value = interval.low is None or _below(interval.low, value[1], exact and sign == "<")
    above_value = above or interval.high is None or _below(value[0], interval.high, exact and sign == ">")
    if sign in ("<", "<="):
        return below_value
    return above_value if sign in (">", ">=") else below_value and above_value


def _below(left: Rank, right: Rank, strictly: bool) -> bool:
    """Compare two ranks of one column, which are both text or both keys."""
    if isinstance(left, str) or isinstance(right, str):
        return str(left) < str(right) or (not strictly and left == right)
    return left < right or (not strictly and left == right)
