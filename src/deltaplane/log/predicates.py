"""Which files a predicate can rule out.

`prunable_ranges` is for the index: a range of keys per column that every matching row must lie in.
`keep_mask` asks the statistics themselves, for the files that the index left. Neither ever drops a
file with a matching row; both may keep one without.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltaplane.errors import PredicateError
from deltaplane.log.bounds import PruningColumn
from deltaplane.log.literals import value_ranks
from deltaplane.log.matching import Columns, FileFacts, may_match, rough_mask
from deltaplane.log.order_keys import INT64_MAX, INT64_MIN, key_kind, text_key
from deltaplane.log.predicate_sql import parse_sql
from deltaplane.log.predicate_tree import (
    And,
    Compare,
    Constant,
    Opaque,
    Or,
    Predicate,
    Value,
    all_of,
    any_of,
    columns_of,
)
from deltaplane.log.stats_json import map_json

__all__ = ["ColumnRange", "Predicate", "columns_of", "keep_mask", "parse_predicate", "prunable_ranges"]

_SIGNS = {"=": "=", "==": "=", "!=": "<>", "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_PIECE = 65_536
_FEW = 5_000
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
        PredicateError: It is neither.
    """
    if isinstance(predicate, Predicate):
        return predicate
    if isinstance(predicate, str):
        return parse_sql(predicate)
    if isinstance(predicate, list | tuple):
        if predicate and all(isinstance(part, list) for part in predicate):
            return any_of(all_of(_triple(item) for item in part) for part in predicate)
        return all_of(_triple(item) for item in predicate)
    raise PredicateError(_form(predicate))


def _form(predicate: Any) -> str:
    return (
        f"The predicate {predicate!r:.200} cannot be read. Nothing was read. Write SQL text such as "
        """"day >= '2024-01-01'", or a list such as [("day", ">=", "2024-01-01")]."""
    )


def _triple(item: Any) -> Predicate:
    if not isinstance(item, list | tuple) or len(item) != 3 or not isinstance(item[0], str):
        raise PredicateError(_form(item))
    name, operator, value = item[0], str(item[1]).strip().lower(), item[2]
    if operator in _SIGNS:
        return _single_test(name, _SIGNS[operator], value)
    if operator in ("in", "not in") and isinstance(value, list | tuple | set | frozenset):
        if operator == "in":
            return any_of(_single_test(name, "=", one) for one in value)
        return all_of(_single_test(name, "<>", one) for one in value)
    raise PredicateError(_form(item))


def _single_test(name: str, operator: str, value: Any) -> Predicate:
    if value is None:
        return Constant(False)
    return Compare((name,), operator, value) if isinstance(value, Value) else Opaque(f"{name} {operator}")


def prunable_ranges(predicate: Predicate, columns: Sequence[PruningColumn]) -> list[ColumnRange]:
    """Ranges that every matching row lies in, at most one per column; none when nothing can be said.

    A predicate that no row satisfies gives one range without keys.
    """
    by_id = {column.id: column for column in columns}
    ranges = _ranges(predicate, Columns(columns))
    if ranges is None:
        return [ColumnRange(column.id, INT64_MAX, INT64_MIN) for column in columns[:1]]
    return [
        ColumnRange(number, a, b)
        for number, (a, b) in ranges.items()
        if (a, b) != (INT64_MIN, INT64_MAX) and not (b == INT64_MAX and by_id[number].may_hide_nan)
    ]


def _ranges(predicate: Predicate, columns: Columns) -> Ranges | None:
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


def _compare_ranges(compare: Compare, columns: Columns) -> Ranges:
    column = columns.find(compare.column)
    value = value_ranks(compare.value, column.type) if column else None
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


def keep_mask(table: pa.Table, predicate: Predicate, columns: Sequence[PruningColumn]) -> pa.BooleanArray:
    """Which files can hold a matching row, by everything that their statistics and partition values say.

    Args:
        table: File rows with the columns `stats`, JSON text, and `partition_values`, JSON text or a map.
        predicate: What rows must satisfy.
        columns: The columns that may be named; a name that is not among them rules nothing out.
    """
    found = Columns(columns)
    pieces = [
        _piece_mask(_texts(table, "stats", start), _texts(table, "partition_values", start), predicate, found)
        for start in range(0, table.num_rows, _PIECE)
    ]
    return pa.concat_arrays(pieces) if pieces else pa.array([], pa.bool_())


def _texts(table: pa.Table, name: str, start: int) -> pa.StringArray:
    piece = pa.concat_arrays(table.column(name).slice(start, _PIECE).chunks)
    return map_json(piece) if pa.types.is_map(piece.type) else piece.cast(pa.string())


def _piece_mask(
    stats: pa.StringArray, values: pa.StringArray, predicate: Predicate, columns: Columns
) -> pa.BooleanArray:
    rough = rough_mask(stats, values, predicate, columns)
    used = [column for column in map(columns.find, columns_of(predicate)) if column is not None]
    in_files = any(key_kind(column.type) == "text" and not column.partition for column in used)
    # Text has more to say than its first bytes; worth the time where most files are out already.
    if not in_files or rough.true_count > _FEW:
        return rough
    kept = rough.to_pylist()
    for row in pc.indices_nonzero(rough).to_pylist():
        kept[row] = may_match(predicate, FileFacts(stats[row].as_py(), values[row].as_py(), columns))
    return pa.array(kept, pa.bool_())
