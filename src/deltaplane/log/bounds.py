"""What a file's statistics say about its columns, as intervals of keys that SQL can index.

Every file has one interval [lo, hi] per indexed column. Where the statistics do not tell, it is the whole
line, so the file is never pruned by that column. Where every row is null, it is empty (lo > hi): no
comparison can be true there.

Finding the intervals that overlap a range is a range scan per width: an interval of class k is shorter than
2^k, so one that reaches `a` begins after a - 2^k. `stab_ranges` gives these scans.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deltaplane.errors import UnsupportedTable
from deltaplane.log.jsonlines import parse_json
from deltaplane.log.order_keys import INT64_MAX, INT64_MIN, clamp, key_kind, order_key, parse_moment, text_key
from deltaplane.log.schema_json import LeafColumn, leaf_columns, statistics_columns

__all__ = [
    "CLASSES",
    "DECIMAL_SLACK",
    "TIMESTAMP_SLACK",
    "Bound",
    "Interval",
    "PruningColumn",
    "Rank",
    "bounds_of",
    "column_id",
    "comparable_columns",
    "interval_of",
    "parse_stats",
    "partition_interval",
    "pruning_columns",
    "stab_ranges",
    "successor",
    "width_class",
]

CLASSES = 65
# Writers cut timestamps to milliseconds, the greatest one too.
TIMESTAMP_SLACK = 1000
# Some writers pass decimals through a double, twice rounded.
DECIMAL_SLACK = 2
_TRUNCATED = 32
_OLD_TIE_BREAKER = "\ufffd"

Rank = int | str
"""A value in the order of its column: text as it is, everything else as its key."""


@dataclass(frozen=True, slots=True)
class PruningColumn:
    """A column whose statistics can rule files out.

    Attributes:
        id: The same for the same physical column and kind of key in every version of a table. Another kind of
            key (after a change from int to double, say) is another id, because the two cannot be compared.
        path: Its names from the outside in.
        physical: The same as in statistics and partition values.
        type: Its type as in the schema.
        partition: True when its value is in the log, exact.
    """

    id: int
    path: tuple[str, ...]
    physical: tuple[str, ...]
    type: str
    partition: bool = False

    @property
    def may_hide_nan(self) -> bool:
        """True when values above the greatest one in the statistics are possible.

        Writers disagree: Spark counts NaN as the greatest value, and those that take the statistics from
        Parquet leave it out.
        """
        return self.type in ("float", "double") and not self.partition


@dataclass(frozen=True, slots=True)
class Bound:
    """The interval of one column in one file."""

    column_id: int
    lo: int
    hi: int
    null_count: int | None = None


@dataclass(frozen=True, slots=True)
class Interval:
    """What is known of one column in one file.

    Attributes:
        low: No value is below; None when not known.
        high: No value is above, in the form of a rank; None when not known.
        high_key: The same as a key.
        null_count: How many rows are null; None when not known.
        all_null: True when it is known that there is no value at all.
    """

    low: Rank | None = None
    high: Rank | None = None
    high_key: int = INT64_MAX
    null_count: int | None = None
    all_null: bool = False

    @property
    def low_key(self) -> int:
        """The least key that a value can have."""
        if self.low is None:
            return INT64_MIN
        return text_key(self.low) if isinstance(self.low, str) else self.low


def column_id(physical: Sequence[str], delta_type: str) -> int:
    """The id of a column: 47 bits, derived from what must be equal for keys to be comparable."""
    text = "\0".join((str(key_kind(delta_type)), *physical))
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return int.from_bytes(digest, "big") >> 1


def _pruning_column(leaf: LeafColumn) -> PruningColumn:
    return PruningColumn(
        column_id(leaf.physical, leaf.type), leaf.path, leaf.physical, leaf.type, leaf.partition
    )


def comparable_columns(
    schema_string: str, partition_columns: Sequence[str] = ()
) -> tuple[PruningColumn, ...]:
    """Every column that a predicate can be checked against, whether it is indexed or not."""
    leaves = leaf_columns(schema_string, partition_columns)
    return tuple(_pruning_column(leaf) for leaf in leaves if leaf.comparable)


def pruning_columns(
    schema_string: str,
    partition_columns: Sequence[str],
    configuration: Mapping[str, str],
    limit: int = 8,
    clustering: Sequence[Sequence[str]] = (),
) -> tuple[PruningColumn, ...]:
    """The columns worth an index: partition columns, clustering columns, then the first with statistics.

    Args:
        schema_string: The schema as in the log.
        partition_columns: Their names.
        configuration: The table's properties.
        limit: At most so many columns.
        clustering: The physical paths of the clustering columns, as the domain metadata has them.
    """
    leaves = leaf_columns(schema_string, partition_columns)
    wanted = [tuple(path) for path in clustering]
    ordered = [
        *(leaf for leaf in leaves if leaf.partition),
        *(leaf for path in wanted for leaf in leaves if leaf.physical == path),
        *_measured(schema_string, partition_columns, configuration),
    ]
    chosen: dict[int, PruningColumn] = {}
    for leaf in ordered:
        if leaf.comparable and len(chosen) < limit:
            column = _pruning_column(leaf)
            chosen.setdefault(column.id, column)
    return tuple(chosen.values())


def _measured(
    schema_string: str, partition_columns: Sequence[str], configuration: Mapping[str, str]
) -> tuple[LeafColumn, ...]:
    try:
        return statistics_columns(schema_string, partition_columns, configuration)
    except UnsupportedTable:
        # A property that a writer must refuse: here it only means that fewer files can be ruled out.
        return ()


def parse_stats(text: str | None) -> Mapping[str, Any]:
    """The statistics of a file; what cannot be read tells nothing, as for every Delta reader."""
    if not text:
        return {}
    try:
        stats = parse_json(text)
    except (ValueError, RecursionError):
        return {}
    return stats if (type(stats) is dict or isinstance(stats, Mapping)) else {}


def bounds_of(
    stats: str | None, partition_values: Mapping[str, str | None], columns: Sequence[PruningColumn]
) -> list[Bound]:
    """The bounds of one file, one for each column and in their order."""
    parsed = parse_stats(stats) if any(not column.partition for column in columns) else {}
    return [_bound(column.id, interval_of(parsed, partition_values, column)) for column in columns]


def _bound(number: int, interval: Interval) -> Bound:
    if interval.all_null:
        return Bound(number, INT64_MAX, INT64_MIN, interval.null_count)
    return Bound(number, interval.low_key, interval.high_key, interval.null_count)


def interval_of(
    stats: Mapping[str, Any], partition_values: Mapping[str, str | None], column: PruningColumn
) -> Interval:
    """What statistics and partition values say about one column."""
    if column.partition:
        return partition_interval(partition_values, column)
    low = _at(stats.get("minValues"), column.physical)
    high = _at(stats.get("maxValues"), column.physical)
    nulls = _count(_at(stats.get("nullCount"), column.physical))
    if low is None and high is None:
        return Interval(
            null_count=nulls, all_null=nulls is not None and nulls == _count(stats.get("numRecords"))
        )
    return _value_interval(low, high, nulls, column.type)


def partition_interval(partition_values: Mapping[str, str | None], column: PruningColumn) -> Interval:
    """What the partition value says: it is the value of every row. An empty text stands for null."""
    name = column.physical[0]
    if name not in partition_values:
        return Interval()
    text = partition_values[name]
    if text is None or text == "":
        return Interval(all_null=True)
    key = order_key(text, column.type)
    if key is None:
        return Interval(null_count=0)
    rank = text if key_kind(column.type) == "text" else key
    return Interval(rank, rank, key, 0)


def _value_interval(low: Any, high: Any, nulls: int | None, delta_type: str) -> Interval:
    kind = key_kind(delta_type)
    low_key, high_key = _stat_key(low, delta_type), _stat_key(high, delta_type)
    if kind == "text" and high_key is not None:
        high_key = _text_high_key(high)
    if low_key is not None and high_key is not None and low_key > high_key:
        # A mistake of the writer's: it tells nothing.
        return Interval(null_count=nulls)
    if kind == "text":
        ceiling = None if high_key is None else _text_ceiling(high)
        return Interval(
            None if low_key is None else low, ceiling, INT64_MAX if high_key is None else high_key, nulls
        )
    slack = {"timestamp": TIMESTAMP_SLACK, "decimal": DECIMAL_SLACK}.get(str(kind), 0)
    floor = DECIMAL_SLACK if kind == "decimal" else 0
    lowest = None if low_key is None else clamp(low_key - floor)
    highest = None if high_key is None else clamp(high_key + slack)
    return Interval(lowest, highest, INT64_MAX if highest is None else highest, nulls)


def _stat_key(value: Any, delta_type: str) -> int | None:
    if delta_type == "timestamp" and isinstance(value, str):
        # Without a zone it is not known which zone the writer was in.
        moment = parse_moment(value)
        if moment is None or not moment[1]:
            return None
    return order_key(value, delta_type)


def _at(values: Any, path: Sequence[str]) -> Any:
    for name in path:
        if not (type(values) is dict or isinstance(values, Mapping)):
            return None
        values = values.get(name)
    return None if isinstance(values, Mapping | list) else values


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text_high_key(high: str) -> int:
    """The key of the greatest text that a cut maximum can stand for."""
    prefix = high.rstrip(_OLD_TIE_BREAKER)
    return text_key(high) if prefix == high else text_key(prefix, b"\xff")


def _text_ceiling(high: str) -> str | None:
    """A text that nothing in the file is above; None when there is no such text.

    Older writers cut the maximum and added U+FFFD, which is not above every character that they cut off, and
    could cut a character in two, which leaves a question mark.
    """
    prefix = high.rstrip(_OLD_TIE_BREAKER)
    if prefix != high:
        return successor(prefix.removesuffix("?"))
    return successor(high) if len(high) >= _TRUNCATED else high


def successor(prefix: str) -> str | None:
    """The least text above everything that begins with the prefix; None when there is none."""
    prefix = prefix.rstrip("\U0010ffff")
    if not prefix:
        return None
    code = ord(prefix[-1]) + 1
    # Surrogates are no characters; the next one after them is.
    return prefix[:-1] + chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)


def width_class(lo: int, hi: int) -> int:
    """How wide an interval is: 0 for a point, k when hi - lo is below 2^k and not below 2^(k-1)."""
    return (hi - lo).bit_length()


def stab_ranges(a: int, b: int) -> list[tuple[int, int, int]]:
    """The scans that find every interval overlapping [a, b]: (class, lo from, lo to), each with `hi >= a`."""
    if a > b:
        return []
    return [(width, clamp(a - 2**width + 1), b) for width in range(CLASSES)]
