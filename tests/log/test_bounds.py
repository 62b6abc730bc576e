from __future__ import annotations

import json
import math
import struct
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltaplane.log.bounds import (
    Bound,
    bounds_of,
    column_id,
    pruning_columns,
    stab_ranges,
    successor,
    width_class,
)
from deltaplane.log.bounds_batch import bounds_batch
from deltaplane.log.order_keys import INT64_MAX, INT64_MIN, day_number, order_key
from deltaplane.log.schema_json import schema_string_of

UNKNOWN = (INT64_MIN, INT64_MAX)
ALL_NULL = (INT64_MAX, INT64_MIN)
KEYS = st.one_of(
    st.integers(INT64_MIN, INT64_MAX), st.integers(-5, 5), st.sampled_from([INT64_MIN, INT64_MAX])
)
SCHEMA = pa.schema(
    [
        pa.field("i", pa.int64()),
        pa.field("f", pa.float32()),
        pa.field("d", pa.float64()),
        pa.field("c", pa.decimal128(38, 10)),
        pa.field("s", pa.string()),
        pa.field("day", pa.date32()),
        pa.field("ts", pa.timestamp("us", "UTC")),
        pa.field("ntz", pa.timestamp("us")),
        pa.field("b", pa.bool_()),
        pa.field("n", pa.struct([pa.field("x", pa.int64())])),
        pa.field("p", pa.date32()),
        pa.field("q", pa.string()),
    ]
)
COLUMNS = pruning_columns(schema_string_of(SCHEMA), ["p", "q"], {}, limit=20)


def bound(stats: object, name: str, values: dict[str, str | None] | None = None) -> tuple[int, int]:
    column = next(c for c in COLUMNS if ".".join(c.path) == name)
    [found] = bounds_of(stats if isinstance(stats, str) else json.dumps(stats), values or {}, [column])
    assert found.column_id == column.id
    return found.lo, found.hi


def about(
    name: str, low: object, high: object, nulls: int | None = 0, records: int = 10
) -> dict[str, object]:
    stats: dict[str, object] = {"numRecords": records}
    for key, value in (("minValues", low), ("maxValues", high), ("nullCount", nulls)):
        if value is not None:
            stats[key] = {name: value}
    return stats


# Order keys


@pytest.mark.parametrize(
    ("delta_type", "values"),
    [
        ("long", [-(2**70), INT64_MIN, -1, 0, "7", Decimal("1E+3"), INT64_MAX, 2**70]),
        ("date", ["-0044-03-15", "0001-01-01", "1969-12-31", "1970-01-01", "2024-02-29", "+10000-01-01"]),
        (
            "timestamp",
            [
                "1970-01-01T01:30:00+02:00",
                "1969-12-31T23:59:59.999999Z",
                "1970-01-01 00:00:00",
                "2020-01-01T00:00:00.5Z",
            ],
        ),
        ("timestamp_ntz", ["1960-01-01T00:00:00", "1970-01-01 00:00:00.000001", "2020-01-01T00:00:00Z"]),
        ("boolean", [False, True]),
        ("double", ["-Infinity", -1e308, -1.0, "-5e-324", 0.0, 5e-324, Decimal("1.5"), 2, "Infinity", "NaN"]),
        ("float", [-3.5e39, -1.0, 0.1, 0.2, "+Infinity", math.nan]),
        ("decimal(38,10)", [Decimal("-1e28"), "-0.0000000001", 0, "0.1", Decimal("12345678901234567890.5")]),
        ("string", ["", "a", "ab", "b", "é", "\ufffd", "\U0001f600", "\U0010ffff"]),
    ],
)
def test_keys_keep_the_order_of_values(delta_type: str, values: list[object]) -> None:
    keys = [order_key(value, delta_type) for value in values]
    assert None not in keys
    assert keys == sorted(keys)  # type: ignore[type-var]
    # The cases are far enough apart to have keys of their own, but for those beyond 64 bits.
    assert len(set(keys)) >= len(keys) - 2


@pytest.mark.parametrize(
    ("value", "delta_type", "key"),
    [
        ("1970-01-02", "date", 1),
        ("1970-01-01T00:00:00.001Z", "timestamp", 1000),
        ("1970-01-01 00:00:00.000001", "timestamp", 1),
        ("1969-12-31T16:00:00.000-08:00", "timestamp", 0),
        (-0.0, "double", 0),
        (True, "boolean", 1),
        ("true", "boolean", 1),
        (2**80, "long", INT64_MAX),
        ("\0" * 8, "string", INT64_MIN),
    ],
)
def test_keys_are_what_is_documented(value: object, delta_type: str, key: int) -> None:
    assert order_key(value, delta_type) == key


@pytest.mark.parametrize(
    ("value", "delta_type"),
    [
        (None, "long"), (True, "long"), (5.5, "long"), ("x", "long"), ("1_000", "long"), ("٣", "double"),
        ("2024-02-30", "date"), ("2024-01-01T00:00:01", "date"), (5, "date"), (5, "string"), (b"x", "binary"),
        ("25:00", "timestamp"), ("NaN", "decimal(10,2)"), ("1e999999999", "integer"), ([1], "array"),
    ],
)  # fmt: skip
def test_what_is_not_of_the_type_has_no_key(value: object, delta_type: str) -> None:
    assert order_key(value, delta_type) is None


@given(st.floats(), st.floats())
def test_doubles_are_ordered_with_nan_last(a: float, b: float) -> None:
    first, second = order_key(a, "double"), order_key(b, "double")
    assert first is not None
    assert second is not None
    expected = (math.isnan(a), 0.0 if math.isnan(a) else a) < (math.isnan(b), 0.0 if math.isnan(b) else b)
    assert (first < second) is expected


@given(
    st.decimals(allow_nan=False, allow_infinity=False, places=18),
    st.decimals(allow_nan=False, allow_infinity=False, places=2),
)
def test_decimals_are_never_out_of_order(a: Decimal, b: Decimal) -> None:
    low, high = sorted((a, b))
    assert order_key(low, "decimal(38,18)") <= order_key(high, "decimal(38,18)")  # type: ignore[operator]


@given(st.text(max_size=12), st.text(max_size=12))
def test_texts_are_never_out_of_order(a: str, b: str) -> None:
    low, high = sorted((a, b), key=lambda text: text.encode("utf-8", "surrogatepass"))
    assert order_key(low, "string") <= order_key(high, "string")  # type: ignore[operator]


@given(st.dates())
def test_days_are_counted_as_python_counts_them(day) -> None:  # type: ignore[no-untyped-def]
    assert day_number(day.year, day.month, day.day) == day.toordinal() - 719163


# Bounds of one file


def test_plain_statistics_become_an_interval() -> None:
    stats = json.dumps(about("i", -3, 9007199254740993, 4))
    [column] = [c for c in COLUMNS if c.path == ("i",)]
    assert bounds_of(stats, {}, [column]) == [Bound(column.id, -3, 9007199254740993, 4)]


@pytest.mark.parametrize(
    ("stats", "name", "expected"),
    [
        ({}, "i", UNKNOWN),
        (None, "i", UNKNOWN),
        ("", "i", UNKNOWN),
        ("{not json", "i", UNKNOWN),
        ("[1]", "i", UNKNOWN),
        ({"numRecords": 3}, "i", UNKNOWN),
        (about("i", 1, None), "i", (1, INT64_MAX)),
        (about("i", None, 5), "i", (INT64_MIN, 5)),
        (about("i", None, None, 10), "i", ALL_NULL),
        (about("i", None, None, 9), "i", UNKNOWN),
        (about("i", None, None, None), "i", UNKNOWN),
        (about("i", 1, 5, 10), "i", (1, 5)),
        (about("i", 7, 5), "i", UNKNOWN),
        (about("i", "x", 5), "i", (INT64_MIN, 5)),
        (about("i", 2**65, 2**66), "i", (INT64_MAX, INT64_MAX)),
        ({**about("i", 1, 5), "tightBounds": False}, "i", (1, 5)),
        (about("n", {"x": 1}, {"x": 5}, None), "n.x", (1, 5)),
        (about("n", 1, 5, None), "n.x", UNKNOWN),
        (about("d", "NaN", "NaN"), "d", (0x7FF8000000000000,) * 2),
        (about("ts", "1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.002Z"), "ts", (1000, 3000)),
        (about("ts", "1970-01-01T00:00:00.001", "1970-01-01T00:00:00.002"), "ts", UNKNOWN),
        (about("ntz", "1970-01-01T00:00:00.001", "1970-01-01T00:00:00.002"), "ntz", (1000, 3000)),
        (about("ntz", "1970-01-01", "1970-01-01"), "ntz", (0, 1000)),
        ('{"numRecords":1,"minValues":{"i":1}} and more', "i", (1, INT64_MAX)),
    ],
)  # fmt: skip
def test_bounds_say_no_more_than_the_statistics(stats: object, name: str, expected: tuple[int, int]) -> None:
    assert bound("" if stats is None else stats, name) == expected


def test_a_cut_maximum_covers_everything_that_begins_with_it() -> None:
    low, high = bound(about("s", "ab", "ab\ufffd"), "s")
    assert low == order_key("ab", "string")
    assert high >= order_key("ab\U0001f600", "string")  # type: ignore[operator]
    assert high < order_key("ac", "string")  # type: ignore[operator]


def test_decimals_that_went_through_a_double_stay_inside() -> None:
    exact = Decimal("0.1234567890123456789")
    low, high = bound(about("c", float(exact), float(exact)), "c")
    assert low < order_key(exact, "decimal(38,19)") < high  # type: ignore[operator]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"p": "1970-01-11"}, (10, 10)),
        ({"p": None}, ALL_NULL),
        ({"p": ""}, ALL_NULL),
        ({}, UNKNOWN),
        ({"p": "__HIVE_DEFAULT_PARTITION__"}, UNKNOWN),
    ],
)
def test_partition_values_are_exact(values: dict[str, str | None], expected: tuple[int, int]) -> None:
    assert bound({}, "p", values) == expected


# The same, many at once

_VALUES = {
    "i": st.one_of(st.integers(-(2**63), 2**63 - 1), st.just(2**64)),
    "f": st.one_of(st.floats(width=32, allow_nan=False, allow_infinity=False), st.just("NaN")),
    "d": st.one_of(
        st.floats(allow_nan=False, allow_infinity=False), st.integers(-9, 9), st.just("-Infinity")
    ),
    "c": st.one_of(st.integers(-(10**20), 10**20), st.floats(-1e20, 1e20)),
    "s": st.one_of(st.text(max_size=10), st.text(max_size=3).map(lambda t: t + "\ufffd"), st.just("\ud800")),
    "day": st.one_of(st.dates().map(str), st.just("+12345-01-01")),
    "ts": st.one_of(
        st.datetimes().map(lambda t: t.isoformat(timespec="milliseconds") + "Z"),
        st.datetimes().map(lambda t: t.isoformat(timespec="microseconds") + "+05:30"),
        st.just("2020-01-01T00:00:00"),
    ),
    "ntz": st.datetimes().map(lambda t: t.isoformat(timespec="milliseconds")),
    "b": st.booleans(),
    "n": st.one_of(st.fixed_dictionaries({"x": st.integers(-9, 9)}), st.none(), st.just({})),
}
_PARTIAL = st.fixed_dictionaries({}, optional=_VALUES)
_STATS = st.one_of(
    st.sampled_from([None, "", "{}", "null", "{", '{"numRecords":1}\n', '{"numRecords":1}{"numRecords":2}']),
    st.just('{"numRecords":1} and more'),
    st.fixed_dictionaries(
        {"numRecords": st.integers(0, 3)},
        optional={
            "minValues": _PARTIAL,
            "maxValues": _PARTIAL,
            "nullCount": st.fixed_dictionaries({}, optional={name: st.integers(0, 3) for name in "ifdcsb"}),
            "tightBounds": st.booleans(),
        },
    ).map(json.dumps),
)  # fmt: skip
_PARTITIONS = st.one_of(
    st.none(),
    st.just("{}"),
    st.fixed_dictionaries(
        {}, optional={"p": st.one_of(st.none(), st.just(""), st.dates().map(str)), "q": st.text(max_size=9)}
    ).map(json.dumps),
)


@given(st.lists(st.tuples(_STATS, _PARTITIONS), max_size=8))
def test_a_batch_says_the_same_as_each_file(files: list[tuple[str | None, str | None]]) -> None:
    stats, values = [pa.array([file[i] for file in files], pa.string()) for i in (0, 1)]
    found = {(r["row"], r["column_id"]): r for r in bounds_batch(stats, values, COLUMNS).to_pylist()}
    expected = {
        (row, one.column_id): {
            "row": row,
            "column_id": one.column_id,
            "lo": one.lo,
            "hi": one.hi,
            "width_class": width_class(one.lo, one.hi),
        }
        for row, (text, partitions) in enumerate(files)
        for one in bounds_of(text, json.loads(partitions or "{}"), COLUMNS)
    }
    assert found == expected


def test_odd_rows_among_many_do_not_shift_the_others() -> None:
    texts = [json.dumps(about("i", row, row + 1)) for row in range(3000)]
    texts[1000], texts[2000] = json.dumps(about("i", 2**70, 2**71)), "   "
    [column] = [c for c in COLUMNS if c.path == ("i",)]
    batch = bounds_batch(
        pa.chunked_array([texts[:1500], texts[1500:]]), pa.nulls(3000, pa.string()), [column], 7
    )
    expected = [(row, row + 1) for row in range(3000)]
    expected[1000], expected[2000] = (INT64_MAX, INT64_MAX), UNKNOWN
    assert list(zip(batch["lo"].to_pylist(), batch["hi"].to_pylist(), strict=True)) == expected
    assert batch["row"].to_pylist() == list(range(7, 3007))


# Stabbing


@given(KEYS, KEYS)
def test_width_class_is_the_bit_length(x: int, y: int) -> None:
    lo, hi = min(x, y), max(x, y)
    k = width_class(lo, hi)
    assert 0 <= k <= 64
    assert hi - lo < 2**k
    assert k == 0 or hi - lo >= 2 ** (k - 1)


@given(st.lists(st.tuples(KEYS, KEYS), max_size=20), KEYS, KEYS)
def test_the_scans_find_exactly_the_overlapping_intervals(
    pairs: list[tuple[int, int]], a: int, b: int
) -> None:
    # Pairs in either order: an empty interval (lo > hi) has to stay out unless the range is the whole line.
    intervals = [(lo, hi) if lo <= hi else ALL_NULL for lo, hi in pairs]
    scans = stab_ranges(a, b)
    found = [
        (lo, hi)
        for lo, hi in intervals
        if any(width_class(lo, hi) == k and start <= lo <= end and hi >= a for k, start, end in scans)
    ]
    assert found == [(lo, hi) for lo, hi in intervals if a <= b and lo <= b and hi >= a]
    assert all(INT64_MIN <= start <= INT64_MAX and INT64_MIN <= end <= INT64_MAX for _, start, end in scans)


# Which columns


def test_partition_columns_come_first_then_clustering_then_the_first_comparable() -> None:
    schema = pa.schema(
        [
            ("bin", pa.binary()),
            ("a", pa.int32()),
            ("l", pa.list_(pa.int64())),
            ("z", pa.string()),
            ("p", pa.string()),
            ("b", pa.date32()),
        ]
    )
    found = pruning_columns(schema_string_of(schema), ["p"], {}, limit=3, clustering=[("z",)])
    assert [(c.path, c.type, c.partition) for c in found] == [
        (("p",), "string", True),
        (("z",), "string", False),
        (("a",), "integer", False),
    ]


def test_columns_without_statistics_are_not_indexed() -> None:
    text = schema_string_of(pa.schema([("a", pa.int32()), ("b", pa.int32()), ("c", pa.int32())]))
    few = pruning_columns(text, [], {"delta.dataSkippingNumIndexedCols": "1"})
    named = pruning_columns(text, [], {"delta.dataSkippingStatsColumns": "c, `b`"})
    assert ([c.path for c in few], [c.path for c in named]) == ([("a",)], [("b",), ("c",)])


def test_char_and_collated_columns_are_not_indexed() -> None:
    def field(name: str, metadata: dict[str, object]) -> dict[str, object]:
        return {"name": name, "type": "string", "nullable": True, "metadata": metadata}

    fields = [
        field("fixed", {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"}),
        field("short", {"__CHAR_VARCHAR_TYPE_STRING": "varchar(5)"}),
        field("german", {"__COLLATIONS": {"german": "ICU.DE"}}),
    ]
    found = pruning_columns(json.dumps({"type": "struct", "fields": fields}), [], {})
    assert [c.path for c in found] == [("short",)]


def test_a_column_keeps_its_id_until_its_keys_mean_something_else() -> None:
    assert column_id(("a",), "integer") == column_id(("a",), "long")
    assert column_id(("a",), "decimal(5,0)") == column_id(("a",), "decimal(10,2)")
    # After a change of type, keys made with the old type would be wrong for the new values.
    kinds = ("long", "float", "double", "decimal(10,0)", "date", "timestamp_ntz", "string")
    assert len({column_id(("a",), kind) for kind in kinds}) == len(kinds)
    assert column_id(("a", "b"), "long") != column_id(("a.b",), "long")


@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4), st.text(max_size=3)
)
def test_the_successor_is_above_everything_with_that_prefix(prefix: str, rest: str) -> None:
    above = successor(prefix)
    assert above is None or prefix + rest < above


def test_a_32_bit_float_is_rounded_before_it_is_placed() -> None:
    single = struct.unpack("<f", struct.pack("<f", 0.1))[0]
    assert order_key(Decimal("0.1"), "float") == order_key(single, "double")
