from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from deltaplane.embedded.statistics import cut_maximum, cut_minimum, file_statistics
from deltaplane.log.jsonlines import parse_json
from deltaplane.log.schema_json import leaf_columns, schema_string_of

UTC = pa.timestamp("us", "UTC")


def stats_text(table: pa.Table, **options: Any) -> str:
    return file_statistics(table, leaf_columns(schema_string_of(table.schema)), **options)


def stats(values: list[Any], kind: pa.DataType) -> tuple[Any, Any, Any]:
    found = parse_json(stats_text(pa.table({"c": pa.array(values, kind)})))
    return found["minValues"].get("c"), found["maxValues"].get("c"), found["nullCount"].get("c")


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int64(), [3, None, -(2**63)], (-(2**63), 3, 1)),
        (pa.int8(), [None, None], (None, None, 2)),
        (pa.string(), ["b", "", "é"], ("", "é", 0)),
        (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)], ("0001-01-01", "9999-12-31", 0)),
        (pa.date32(), [-1_000_000, 0], (None, "1970-01-01", 0)),
        (UTC, [1_001, 2_001], ("1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.003Z", 0)),
        (UTC, [-1, 2_000], ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.002Z", 0)),
        (UTC, [2**62, 0], ("1970-01-01T00:00:00.000Z", None, 0)),
        (pa.timestamp("us"), [1_001, 1_001], ("1970-01-01T00:00:00.001", "1970-01-01T00:00:00.002", 0)),
        (pa.float64(), [1.5, math.nan, None], (Decimal("1.5"), None, 1)),
        (pa.float64(), [math.nan], (None, None, 0)),
        (pa.float64(), [math.inf, 2.0], (Decimal("2.0"), None, 0)),
        (pa.float64(), [-math.inf, 2.0], (None, Decimal("2.0"), 0)),
        (pa.float32(), [0.1], (Decimal("0.10000000149011612"), Decimal("0.10000000149011612"), 0)),
        (pa.decimal128(38, 12), [Decimal("1e-12"), Decimal("12345678901234567890.5")],
         (Decimal("0.000000000001"), Decimal("12345678901234567890.500000000000"), 0)),
        (pa.bool_(), [True, None], (None, None, 1)),
        (pa.binary(), [b"a", None], (None, None, 1)),
        (pa.list_(pa.int64()), [[1], None], (None, None, 1)),
        (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None], (None, None, 1)),
    ],
)  # fmt: skip
def test_each_type_has_the_bounds_that_every_reader_can_trust(
    kind: pa.DataType, values: list[Any], expected: tuple[Any, Any, Any]
) -> None:
    assert stats(values, kind) == expected


def test_both_zeros_are_inside() -> None:
    text = stats_text(pa.table({"c": [0.0, -0.0]}))
    assert '"minValues":{"c":-0.0},"maxValues":{"c":0.0}' in text


def test_decimals_have_no_exponent() -> None:
    table = pa.table({"c": pa.array([Decimal("1e-12")], pa.decimal128(38, 12))})
    assert '"minValues":{"c":0.000000000001}' in stats_text(table)


def test_the_text_is_what_delta_writes() -> None:
    table = pa.table(
        {
            "id": [1, 2],
            "place": pa.array([("x", None), None], pa.struct([("city", pa.string()), ("zip", pa.int64())])),
            "empty": pa.array([None, None], pa.struct([("a", pa.int64())])),
        }
    )
    assert stats_text(table, tight=True) == (
        '{"numRecords":2,"minValues":{"id":1,"place":{"city":"x"}},"maxValues":{"id":2,"place":{"city":"x"}},'
        '"nullCount":{"id":0,"place":{"city":1,"zip":2},"empty":{"a":2}},"tightBounds":true}'
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a" * 32, "a" * 32),
        ("a" * 33, "a" * 32 + "\x7f"),
        ("a" * 32 + "\x7f", "a" * 32 + "\U0010ffff"),
        ("a" * 32 + "é", "a" * 32 + "\U0010ffff"),
        ("a" * 32 + "\U0010ffff" + "b", "a" * 32 + "\U0010ffff\x7f"),
        ("a" * 32 + "\U0010ffff", "a" * 32 + "\U0010ffff"),
        ("\U0010ffff" * 70, None),
        ("\U0001f600" * 33, "\U0001f600" * 32 + "\U0010ffff"),
    ],
)
def test_a_long_maximum_is_cut_with_something_above_it(text: str, expected: str | None) -> None:
    assert cut_maximum(text) == expected


@given(st.text(alphabet="a\x7fé\ufffd\U0001f600\U0010ffff", min_size=28, max_size=70), st.text(max_size=3))
def test_a_cut_text_still_bounds_what_it_was(text: str, rest: str) -> None:
    whole = text + rest
    high = cut_maximum(whole)
    assert cut_minimum(whole).encode() <= whole.encode()
    assert high is None or whole.encode() <= high.encode()


def test_deltalake_writes_the_same_for_the_same_rows(tmp_path: Path) -> None:
    table = pa.table(
        {
            "i": pa.array([1, None, 3]),
            "f": pa.array([0.1, 2, 3], pa.float32()),
            "d": [1.0, 2.5, -3.0],
            "z": [0.0, -0.0, 0.0],
            "c": pa.array([Decimal("1.25"), None, Decimal("-7.50")], pa.decimal128(10, 2)),
            "s": ["a", "é", None],
            "ts": pa.array([1_577_836_800_123_000, -1_000, None], UTC),
            "day": [dt.date(2020, 1, 1), dt.date(1960, 2, 29), None],
            "st": [{"a": 1, "b": {"c": "x"}}, None, {"a": None, "b": None}],
            "none": pa.array([None] * 3, pa.int64()),
        }
    )
    write_deltalake(str(tmp_path), table)
    lines = (tmp_path / "_delta_log/00000000000000000000.json").read_text().splitlines()
    [add] = [json.loads(line)["add"] for line in lines if line.startswith('{"add"')]
    assert json.loads(stats_text(table)) == json.loads(add["stats"])
