from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot.dialects.spark import Spark

from deltaplane.errors import PredicateError
from deltaplane.log import predicate_sql
from deltaplane.log.bounds import bounds_of, comparable_columns, stab_ranges, width_class
from deltaplane.log.matching import Columns, FileFacts, may_match
from deltaplane.log.order_keys import INT64_MAX, INT64_MIN, order_key
from deltaplane.log.predicate_tree import And, Compare, Constant, IsNull, NotNull, Opaque, Or
from deltaplane.log.predicates import ColumnRange, columns_of, keep_mask, parse_predicate, prunable_ranges
from deltaplane.log.schema_json import schema_string_of

SCHEMA = pa.schema(
    [
        pa.field("i", pa.int64()),
        pa.field("d", pa.float64()),
        pa.field("c", pa.decimal128(30, 18)),
        pa.field("s", pa.string()),
        pa.field("day", pa.date32()),
        pa.field("ts", pa.timestamp("us", "UTC")),
        pa.field("b", pa.bool_()),
        pa.field("n", pa.struct([pa.field("x", pa.int32())])),
        pa.field("p", pa.string()),
        pa.field("q", pa.int64()),
    ]
)
COLUMNS = comparable_columns(schema_string_of(SCHEMA), ["p", "q"])
ID = {".".join(column.path): column.id for column in COLUMNS}


# Reading


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i >= 5", Compare(("i",), ">=", 5)),
        ("5 > i", Compare(("i",), "<", 5)),
        ("i = -2.5", Compare(("i",), "=", Decimal("-2.5"))),
        ("i = 7L", Compare(("i",), "=", 7)),
        ("c = 1.5BD", Compare(("c",), "=", Decimal("1.5"))),
        ("a.b.`c d` = 'x'", Compare(("a", "b", "c d"), "=", "x")),
        ("a.b.c.d.e = 'x'", Compare(("a", "b", "c", "d", "e"), "=", "x")),
        ("NOT (i > 1 OR s = 'a')", And((Compare(("i",), "<=", 1), Compare(("s",), "<>", "a")))),
        ("NOT (i > 1 AND s = 'a')", Or((Compare(("i",), "<=", 1), Compare(("s",), "<>", "a")))),
        ("i BETWEEN 1 AND 2", And((Compare(("i",), ">=", 1), Compare(("i",), "<=", 2)))),
        ("i NOT BETWEEN 1 AND 2", Or((Compare(("i",), "<", 1), Compare(("i",), ">", 2)))),
        ("s IN ('a', 'b')", Or((Compare(("s",), "=", "a"), Compare(("s",), "=", "b")))),
        ("s NOT IN ('a', NULL)", And((Compare(("s",), "<>", "a"), Constant(False)))),
        ("i = NULL", Constant(False)),
        ("NOT (i = NULL)", Constant(False)),
        ("i IS NULL", IsNull(("i",))),
        ("i IS NOT NULL", NotNull(("i",))),
        ("i <=> NULL", IsNull(("i",))),
        ("i <=> 5", Compare(("i",), "=", 5)),
        ("NOT (i <=> 5)", Or((Compare(("i",), "<>", 5), IsNull(("i",))))),
        ("day = DATE '2024-01-02'", Compare(("day",), "=", dt.date(2024, 1, 2))),
        ("ts < TIMESTAMP '2024-01-02 03:04:05'", Compare(("ts",), "<", dt.datetime(2024, 1, 2, 3, 4, 5))),
        (
            "ts < TIMESTAMP '2024-01-02T03:04:05+01:00'",
            Compare(("ts",), "<", dt.datetime(2024, 1, 2, 2, 4, 5, tzinfo=dt.UTC)),
        ),
        ("s LIKE 'ab%c'", And((Compare(("s",), ">=", "ab"), Compare(("s",), "<", "ac")))),
        ("b", Compare(("b",), "=", True)),
        ("NOT b", Compare(("b",), "=", False)),
        ("TRUE", Constant(True)),
        ("false", Constant(False)),
    ],
)
def test_sql_becomes_a_tree_without_not(text: str, expected: object) -> None:
    assert parse_predicate(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "s NOT LIKE 'a%'", "s LIKE '%a'", "upper(s) = 'A'", "i = d", "i % 2 = 0", "CAST(i AS INT) = 1",
        "i IN (SELECT 1)", "day > current_date()", "b IS TRUE", "CAST('5.7' AS INT) = i", "s RLIKE 'a'",
        "s NOT ILIKE 'a'", "s LIKE ANY ('a', 'b')", "s LIKE 'a!%' ESCAPE '!'", "i IS DISTINCT FROM 5",
    ],
)  # fmt: skip
def test_what_statistics_cannot_answer_is_opaque(text: str) -> None:
    assert isinstance(parse_predicate(text), Opaque)


@pytest.mark.parametrize("text", ["", "i >", "DROP TABLE t", "SELECT 1", "i > 5; j > 6", "i > 5 -- \n; x"])
def test_what_is_no_condition_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(PredicateError, match=r"cannot be read.*WHERE clause"):
        parse_predicate(text)


def test_lists_are_conjunctions_and_lists_of_lists_disjunctions() -> None:
    one = [("i", ">=", 5), ("s", "in", ["a", "b"]), ("day", "!=", dt.date(2024, 1, 1))]
    first = And(
        (
            Compare(("i",), ">=", 5),
            Or((Compare(("s",), "=", "a"), Compare(("s",), "=", "b"))),
            Compare(("day",), "<>", dt.date(2024, 1, 1)),
        )
    )
    assert parse_predicate(one) == first
    assert parse_predicate([one, [("i", "not in", (1,))]]) == Or((first, Compare(("i",), "<>", 1)))
    assert list(columns_of(first)) == [("i",), ("s",), ("s",), ("day",)]


@pytest.mark.parametrize("wrong", [5, [("i", "~", 1)], [("i", ">")], [(1, "=", 1)], [("i", "in", 5)]])
def test_other_lists_are_refused(wrong: Any) -> None:
    with pytest.raises(PredicateError, match="a list such as"):
        parse_predicate(wrong)


# Ranges for the index


def ranges(text: str) -> list[ColumnRange]:
    return prunable_ranges(parse_predicate(text), COLUMNS)


def key(value: object, delta_type: str) -> int:
    found = order_key(value, delta_type)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i >= 5 AND i < 7", [("i", 5, 7)]),
        ("i >= 5.5", [("i", 5, INT64_MAX)]),
        ("I = '5'", [("i", 5, 5)]),
        ("n.x = 3 AND upper(s) = 'A'", [("n.x", 3, 3)]),
        ("i IN (3, 9) OR i = 20", [("i", 3, 20)]),
        ("i = 3 OR s = 'a'", []),
        ("(i = 3 AND s = 'a') OR (i = 4 AND day = '1970-01-02')", [("i", 3, 4)]),
        ("i = 3 OR 1 = 2", []),
        ("i = 3 OR FALSE", [("i", 3, 3)]),
        ("i <> 3", []),
        ("i IS NULL", []),
        ("unknown = 3", []),
        ("s = 5", []),
        ("day >= TIMESTAMP '1970-01-02 12:00:00'", [("day", 1, INT64_MAX)]),
        ("ts <= '1970-01-01T00:00:01Z'", [("ts", INT64_MIN, 1_000_000)]),
        ("b = true", [("b", 1, 1)]),
        ("q > 3", [("q", 3, INT64_MAX)]),
        ("FALSE", [("i", INT64_MAX, INT64_MIN)]),
        ("i > 5 AND i < 3", [("i", 5, 3)]),
        ("d > 5", []),
        ("d = 'NaN'", []),
    ],
)
def test_ranges_hold_every_matching_row(text: str, expected: list[tuple[str, int, int]]) -> None:
    assert ranges(text) == [ColumnRange(ID[name], a, b) for name, a, b in expected]


def test_a_double_is_pruned_from_above_only_together_with_an_upper_end() -> None:
    low, high = key(5, "double"), key(6.5, "double")
    assert ranges("d > 5 AND d <= 6.5") == [ColumnRange(ID["d"], low, high)]
    assert ranges("d <= 6.5") == [ColumnRange(ID["d"], INT64_MIN, high)]


# Files


def files(*rows: tuple[Mapping[str, Any] | None, Mapping[str, str | None]]) -> pa.Table:
    return pa.table(
        {
            "stats": pa.array([None if s is None else json.dumps(s) for s, _ in rows], pa.string()),
            "partition_values": pa.array([json.dumps(v) for _, v in rows], pa.string()),
        }
    )


def kept(text: str, *rows: tuple[Mapping[str, Any] | None, Mapping[str, str | None]]) -> list[bool]:
    found: list[bool] = keep_mask(files(*rows), parse_predicate(text), COLUMNS).to_pylist()
    return found


SMALL = (
    {
        "numRecords": 2,
        "minValues": {"i": 1, "s": "a"},
        "maxValues": {"i": 3, "s": "c"},
        "nullCount": {"i": 0, "s": 1},
    },
    {"p": "eu"},
)
LARGE = (
    {
        "numRecords": 2,
        "minValues": {"i": 7, "s": "x"},
        "maxValues": {"i": 7, "s": "z"},
        "nullCount": {"i": 0, "s": 0},
    },
    {"p": "us"},
)
NULLS = ({"numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {"i": 2, "s": 2}}, {"p": None})
SILENT = (None, {"p": "us"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i = 2", [True, False, False, True]),
        ("i < 1", [False, False, False, True]),
        ("i <= 1", [True, False, False, True]),
        ("i > 3", [False, True, False, True]),
        ("i <> 7", [True, False, False, True]),
        ("NOT i = 7", [True, False, False, True]),
        ("i IN (0, 5, 7)", [False, True, False, True]),
        ("i IS NULL", [False, False, True, True]),
        ("i IS NOT NULL", [True, True, False, True]),
        ("s IS NULL", [True, False, True, True]),
        ("p = 'eu'", [True, False, False, False]),
        ("p <> 'eu'", [False, True, False, True]),
        ("p IS NULL", [False, False, True, False]),
        ("p IS NOT NULL", [True, True, False, True]),
        ("i = 2 OR p = 'us'", [True, True, False, True]),
        ("i = 2 AND p = 'us'", [False, False, False, True]),
        ("upper(s) = 'A' AND p = 'us'", [False, True, False, True]),
        ("s LIKE 'c%'", [True, False, False, True]),
        ("nothing = 1", [True, True, True, True]),
        ("FALSE", [False, False, False, False]),
    ],
)
def test_a_file_is_kept_unless_its_statistics_rule_it_out(text: str, expected: list[bool]) -> None:
    assert kept(text, SMALL, LARGE, NULLS, SILENT) == expected


def test_a_cut_maximum_does_not_rule_out_what_was_cut_off() -> None:
    long = "x" * 31 + "?" + "\ufffd"
    stats = {"numRecords": 1, "minValues": {"s": "x" * 32}, "maxValues": {"s": long}, "nullCount": {"s": 0}}
    real = "x" * 31 + "\U0001f600 and more"
    assert kept(f"s = '{real}'", (stats, {})) == [True]
    assert kept("s > 'y'", (stats, {})) == [False]


def test_nan_beyond_the_maximum_is_not_lost() -> None:
    stats = {"numRecords": 2, "minValues": {"d": 1.0}, "maxValues": {"d": 1.0}, "nullCount": {"d": 0}}
    assert kept("d > 5", (stats, {})) == [True]
    assert kept("d <> 1", (stats, {})) == [True]
    assert kept("d < 1", (stats, {})) == [False]


def test_many_files_are_answered_as_each_alone() -> None:
    """More files than are looked at one by one: then text is compared by its first bytes only."""
    values = ["common prefix a", "common prefix b"]
    stats = [
        {"numRecords": 1, "minValues": {"s": v}, "maxValues": {"s": v}, "nullCount": {"s": 0}} for v in values
    ]
    few = [(one, {}) for one in stats]
    assert kept("s = 'common prefix b'", *few) == [False, True]
    assert kept("s = 'common prefix b'", *few * 40_000) == [True, True] * 40_000
    assert kept("s = 'other'", *few * 40_000) == [False, False] * 40_000


# No file with a matching row is ever dropped, whoever wrote the statistics

Row = dict[str, Any]
UTC = dt.UTC
EPOCH = dt.datetime(1970, 1, 1, tzinfo=UTC)
LONG = "a" * 31


def near(*values: Any) -> st.SearchStrategy[Any]:
    """Few values, close together, so that rows, bounds and literals meet."""
    return st.sampled_from(values)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "i": near(-(2**63), -1, 0, 1, 2, 2**53, 2**53 + 1, 2**63 - 1),
    "d": near(-math.inf, -1.0, -0.0, 0.0, 0.1, 1.5, math.inf, math.nan),
    "c": st.one_of(
        near(Decimal("0.1"), Decimal("1.5"), Decimal("-2")),
        st.integers(10**29, 10**29 + 3).map(lambda n: Decimal(n).scaleb(-18)),
        st.integers(123456789012345678, 10**19).map(lambda n: Decimal(n).scaleb(-18)),
    ),
    "s": near("", "a", "\ufffd", "\U0001f600", *(LONG + end for end in ("\U0001f600b", "bc", "b\U0001f600"))),
    "day": near(*(dt.date(1970, 1, day) for day in (1, 2, 3))),
    "ts": near(*(EPOCH + dt.timedelta(microseconds=us) for us in (-1001, -1, 0, 1, 999, 1000, 1001, 1999))),
    "b": st.booleans(),
    "n.x": near(-1, 0, 1),
    "p": near("eu", "us", "a b", "NULL"),
    "q": near(-1, 0, 1),
}  # fmt: skip
LITERALS = {
    **VALUES,
    "i": st.one_of(VALUES["i"], near(Decimal("-0.5"), Decimal("0.5"), Decimal("1.5"))),
    "d": near(-1.0, 0.0, 0.1, 1.5),
}
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda x, y: bool(x == y),
    "<>": lambda x, y: bool(x != y),
    "<": lambda x, y: bool(x < y),
    "<=": lambda x, y: bool(x <= y),
    ">": lambda x, y: bool(x > y),
    ">=": lambda x, y: bool(x >= y),
}


def literal(value: Any) -> str:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, dt.datetime):
        return f"TIMESTAMP '{value.isoformat()}'"
    if isinstance(value, dt.date):
        return f"DATE '{value}'"
    return format(value, "f") if isinstance(value, Decimal) else repr(value)


@st.composite
def comparisons(draw: st.DrawFn, names: Sequence[str]) -> tuple[Any, ...]:
    name = draw(st.sampled_from(names))
    kind = draw(st.sampled_from(["compare", "compare", "compare", "in", "between", "null"]))
    if kind == "compare":
        return "compare", name, draw(st.sampled_from(sorted(OPERATORS))), draw(LITERALS[name])
    if kind == "in":
        return "in", name, draw(st.lists(LITERALS[name], min_size=1, max_size=3))
    return (
        ("between", name, draw(LITERALS[name]), draw(LITERALS[name])) if kind == "between" else ("null", name)
    )


def conditions(names: Sequence[str]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.recursive(
        comparisons(names),
        lambda inner: st.one_of(
            st.tuples(st.just("not"), inner),
            st.tuples(st.sampled_from(["and", "or"]), inner, inner),
        ),
        max_leaves=3,
    )


def sql(condition: tuple[Any, ...]) -> str:
    kind = condition[0]
    if kind == "not":
        return f"NOT ({sql(condition[1])})"
    if kind in ("and", "or"):
        return f"({sql(condition[1])}) {kind.upper()} ({sql(condition[2])})"
    name = condition[1]
    if kind == "compare":
        return f"{name} {condition[2]} {literal(condition[3])}"
    if kind == "in":
        return f"{name} IN ({', '.join(map(literal, condition[2]))})"
    return (
        f"{name} BETWEEN {literal(condition[2])} AND {literal(condition[3])}"
        if kind == "between"
        else f"{name} IS NULL"
    )


def compared(value: Any, operator: str, other: Any, nan_is_greatest: bool) -> bool:
    if isinstance(value, float):
        if math.isnan(value):
            return operator in ("<>", ">", ">=") if nan_is_greatest else operator == "<>"
        other = float(other)
    return OPERATORS[operator](value, other)


def truth(condition: tuple[Any, ...], row: Row, nan: bool) -> bool | None:
    """Three-valued logic, as SQL has it."""
    kind = condition[0]
    if kind == "not":
        inner = truth(condition[1], row, nan)
        return None if inner is None else not inner
    if kind in ("and", "or"):
        sides = [truth(condition[1], row, nan), truth(condition[2], row, nan)]
        decisive = kind == "or"
        return decisive if decisive in sides else None if None in sides else not decisive
    value = row[condition[1]]
    if kind == "null":
        return value is None
    if value is None:
        return None
    if kind == "compare":
        return compared(value, condition[2], condition[3], nan)
    if kind == "in":
        return any(compared(value, "=", other, nan) for other in condition[2])
    return compared(value, ">=", condition[2], nan) and compared(value, "<=", condition[3], nan)


def spark_max(text: str) -> str:
    """The maximum as older Delta writers cut it: 32 UTF-16 units, and U+FFFD."""
    units = text.encode("utf-16-le")
    if len(units) <= 64:
        return text
    return (
        units[:64].decode("utf-16-le", "replace").replace("\ufffd", "?") + "\ufffd"
        if "\ufffd" not in text
        else text
    )


def stat(name: str, values: Sequence[Any], writer: str, greatest: bool) -> Any:
    pick = max if greatest else min
    if name == "d":
        numbers = [v for v in values if not math.isnan(v)]
        if writer == "spark" and greatest and len(numbers) < len(values):
            return "NaN"
        if not numbers:
            return "NaN" if writer == "spark" else None
        found = pick(numbers)
        return ("Infinity" if found > 0 else "-Infinity") if math.isinf(found) else found
    found = pick(values)
    if name == "c":
        unscaled = int(found.scaleb(18))
        return (
            unscaled / 10**18 if writer == "parquet" else int(found) if found == int(found) else float(found)
        )
    if name == "s" and writer == "spark":
        return spark_max(found) if greatest else found[:16]
    if name == "ts":
        return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return str(found) if name == "day" else found


def statistics(rows: Sequence[Row], writer: str) -> dict[str, Any]:
    stats: dict[str, Any] = {"numRecords": len(rows), "minValues": {}, "maxValues": {}, "nullCount": {}}
    for name in VALUES:
        if name in ("p", "q"):
            continue
        values = [row[name] for row in rows if row[name] is not None]
        entries = {"nullCount": len(rows) - len(values)}
        if values and not (name == "b" and writer == "spark"):
            entries["minValues"] = stat(name, values, writer, False)
            entries["maxValues"] = stat(name, values, writer, True)
        for part, value in entries.items():
            if name == "n.x":
                stats[part]["n"] = {"x": value}
            elif value is not None:
                stats[part][name] = value
    return stats


Written = tuple[list[Row], dict[str, Any] | None, dict[str, str | None]]


@st.composite
def written_files(draw: st.DrawFn, names: Sequence[str]) -> Written:
    """A file with values in these columns and null in all others."""
    drawn = {name: st.one_of(VALUES[name], st.none()) for name in names}
    partition = {name: draw(drawn[name]) if name in drawn else None for name in ("p", "q")}
    one = st.fixed_dictionaries({name: value for name, value in drawn.items() if name not in partition})
    nothing = dict.fromkeys(VALUES)
    rows = [{**nothing, **row, **partition} for row in draw(st.lists(one, min_size=1, max_size=3))]
    writer = draw(st.sampled_from(["spark", "parquet"]))
    stats = statistics(rows, writer)
    return rows, stats, {name: None if v is None else str(v) for name, v in partition.items()}


def check_nothing_is_lost(written: Sequence[Written], condition: tuple[Any, ...], nan: bool) -> None:
    predicate = parse_predicate(sql(condition))
    mask = keep_mask(
        files(*[(stats, values) for _, stats, values in written]), predicate, COLUMNS
    ).to_pylist()
    wanted = prunable_ranges(predicate, COLUMNS)
    columns = Columns(COLUMNS)
    for kept_by_statistics, (rows, stats, values) in zip(mask, written, strict=True):
        exact = may_match(predicate, FileFacts(json.dumps(stats), json.dumps(values), columns))
        assert kept_by_statistics == exact, (sql(condition), stats)
        if not any(truth(condition, row, nan) for row in rows):
            continue
        found = {b.column_id: (b.lo, b.hi) for b in bounds_of(json.dumps(stats), values, COLUMNS)}
        assert kept_by_statistics, (sql(condition), stats)
        for one in wanted:
            lo, hi = found[one.column_id]
            scans = {k: (start, end) for k, start, end in stab_ranges(one.a, one.b)}
            start, end = scans[width_class(lo, hi)]
            assert start <= lo <= end, (sql(condition), stats, one)
            assert hi >= one.a, (sql(condition), stats, one)


@pytest.mark.parametrize("name", sorted(VALUES))
@settings(max_examples=120, deadline=None)
@given(st.data(), st.booleans())
def test_a_file_with_a_matching_value_is_never_pruned(name: str, data: st.DataObject, nan: bool) -> None:
    written = data.draw(written_files([name]))
    check_nothing_is_lost([written], data.draw(conditions([name])), nan)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(written_files(sorted(VALUES)), min_size=1, max_size=2), conditions(sorted(VALUES)), st.booleans()
)
def test_a_file_with_a_matching_row_is_never_pruned(
    written: list[Written], condition: tuple[Any, ...], nan: bool
) -> None:
    check_nothing_is_lost(written, condition, nan)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 100), min_size=1, max_size=20), st.integers(0, 100), st.integers(0, 10))
def test_files_without_a_matching_row_are_pruned_where_the_statistics_are_exact(
    values: list[int], start: int, width: int
) -> None:
    rows = [
        ({"numRecords": 1, "minValues": {"i": v}, "maxValues": {"i": v}, "nullCount": {"i": 0}}, {})
        for v in values
    ]
    text = f"i >= {start} AND i < {start + width}"
    assert kept(text, *rows) == [start <= v < start + width for v in values]


SIMPLE = [
    "id = 5",
    "  id=-5 ",
    "id == 007 AND name <> 'x y' and _c1>='a''",
    "a < 1 AND b <= 2 AND c > 3 AND d >= 4 AND e != 5",
    "name = ''",
    "name = 'a%_\"$ü'",
    "id = 1 AND",
    "id = 1 OR id = 2",
    "id = 5L",
    "id = 5.0",
    "id = 1 2",
    "t.id = 1",
    "`id` = 1",
    "5 = id",
    "name = 'a\\\\'",
    "name = 'a' 'b'",
    "and = 1",
    "id = --5",
    "id = 99999999999999999999999",
]


@pytest.mark.parametrize(
    "text", SIMPLE + [f"{word} = 1" for word in sorted(Spark.Tokenizer.KEYWORDS) if word.isidentifier()]
)
def test_what_is_read_without_the_parser_is_what_the_parser_reads(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcome() -> object:
        try:
            return parse_predicate(text)
        except PredicateError as error:
            return str(error)

    quick = outcome()
    monkeypatch.setattr(predicate_sql, "_simple", lambda _: None)
    assert quick == outcome()


def test_ordinary_comparisons_do_without_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicate_sql.sqlglot, "parse", None)
    assert parse_predicate("id = 500 AND name >= 'x'") == And(
        (Compare(("id",), "=", 500), Compare(("name",), ">=", "x"))
    )
