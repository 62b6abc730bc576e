"""Can a file hold a row that satisfies a predicate? Asked of one file exactly, and of many at once roughly.

The rough answer compares keys, which is exact for everything but text in the files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from deltaplane.log.bounds import Interval, PruningColumn, Rank, interval_of, parse_stats
from deltaplane.log.bounds_batch import Keys, stats_keys
from deltaplane.log.jsonlines import parse_json
from deltaplane.log.literals import value_ranks
from deltaplane.log.order_keys import key_kind, text_key
from deltaplane.log.predicate_tree import (
    And,
    Compare,
    Constant,
    IsNull,
    NotNull,
    Opaque,
    Or,
    Predicate,
    columns_of,
)

__all__ = ["Columns", "FileFacts", "may_match", "rough_mask"]


class Columns:
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


class FileFacts:
    """The statistics of one file, read once."""

    def __init__(
        self,
        stats: str | None,
        partition_values: str | Sequence[tuple[str, str | None]] | None,
        columns: Columns,
    ) -> None:
        self._stats = parse_stats(stats)
        self._values = _value_map(partition_values)
        self._columns = columns

    def about(self, path: tuple[str, ...]) -> tuple[PruningColumn, Interval] | None:
        column = self._columns.find(path)
        return None if column is None else (column, interval_of(self._stats, self._values, column))


def _value_map(values: str | Sequence[tuple[str, str | None]] | None) -> Mapping[str, str | None]:
    """Partition values from their JSON text, or from the pairs of a map."""
    if not isinstance(values, str):
        return dict(values or ())
    parsed = parse_json(values) if values else {}
    return parsed if isinstance(parsed, Mapping) else {}


def may_match(predicate: Predicate, file: FileFacts) -> bool:
    """Whether the file can hold a row for which the predicate is true; True when that is not known."""
    if isinstance(predicate, Constant):
        return predicate.value
    if isinstance(predicate, And):
        return all(may_match(part, file) for part in predicate.parts)
    if isinstance(predicate, Or):
        return any(may_match(part, file) for part in predicate.parts)
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
    value = value_ranks(compare.value, column.type)
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


def rough_mask(
    stats: pa.StringArray, partition_values: pa.StringArray, predicate: Predicate, columns: Columns
) -> pa.BooleanArray:
    """The same for many files: True wherever `may_match` is, and seldom elsewhere."""
    used = dict.fromkeys(column for column in map(columns.find, columns_of(predicate)) if column is not None)
    measured = [column for column in used if not column.partition]
    keys = dict(zip(measured, stats_keys(stats, measured), strict=True)) if measured else {}
    return _Chunk(partition_values, columns, keys).mask(predicate)


class _Chunk:
    """The statistics of many files as keys, by column."""

    def __init__(
        self, partition_values: pa.StringArray, columns: Columns, keys: Mapping[PruningColumn, Keys]
    ) -> None:
        self._columns = columns
        self._keys = keys
        self._rows = len(partition_values)
        self._encoded = partition_values.dictionary_encode(null_encoding="encode")
        self._distinct = [FileFacts(None, text, columns) for text in self._encoded.dictionary.to_pylist()]

    def mask(self, predicate: Predicate) -> pa.BooleanArray:
        if isinstance(predicate, And):
            return reduce(pc.and_, (self.mask(part) for part in predicate.parts), self._all(True))
        if isinstance(predicate, Or):
            return reduce(pc.or_, (self.mask(part) for part in predicate.parts), self._all(False))
        if isinstance(predicate, Constant | Opaque):
            return self._all(isinstance(predicate, Opaque) or predicate.value)
        column = self._columns.find(predicate.column)
        if column is None:
            return self._all(True)
        if column.partition:
            kept = [may_match(predicate, facts) for facts in self._distinct]
            return pa.array(kept, pa.bool_()).take(self._encoded.indices)
        return self._leaf(predicate, column)

    def _all(self, value: bool) -> pa.BooleanArray:
        return pa.repeat(pa.scalar(value), self._rows)

    def _leaf(self, predicate: Compare | IsNull | NotNull, column: PruningColumn) -> pa.BooleanArray:
        lo, hi, nulls = self._keys[column]
        some_value = pc.less_equal(lo, hi)
        if isinstance(predicate, IsNull):
            return pc.or_(pc.invert(some_value), pc.fill_null(pc.not_equal(nulls, 0), True))
        if isinstance(predicate, NotNull):
            return some_value
        value = value_ranks(predicate.value, column.type)
        if value is None:
            return some_value
        low, high = (text_key(rank) if isinstance(rank, str) else rank for rank in value)
        return pc.and_(some_value, _key_mask(predicate.operator, column, (lo, hi), (low, high)))


def _key_mask(
    sign: str, column: PruningColumn, bounds: tuple[pa.Array, pa.Array], value: tuple[int, int]
) -> pa.BooleanArray:
    lo, hi = bounds
    low, high = (pa.scalar(key, pa.int64()) for key in value)
    exact = key_kind(column.type) not in ("decimal", "text")
    if sign == "<>":
        known = exact and not column.may_hide_nan and value[0] == value[1]
        same = pc.and_(pc.equal(lo, low), pc.equal(hi, low))
        return pc.invert(same) if known else pa.repeat(pa.scalar(True), len(lo))
    below = pc.less(lo, high) if exact and sign == "<" else pc.less_equal(lo, high)
    if sign in ("<", "<="):
        return below
    above = pc.greater(hi, low) if exact and sign == ">" else pc.greater_equal(hi, low)
    if sign == "=":
        return pc.and_(below, above)
    return pa.repeat(pa.scalar(True), len(lo)) if column.may_hide_nan else above
