"""Predicates written in the SQL of Spark, kept as far as statistics can answer them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Tokenizer

from deltaplane.errors import PredicateError
from deltaplane.log.bounds import successor
from deltaplane.log.order_keys import parse_moment
from deltaplane.log.predicate_tree import (
    OPPOSITE,
    Compare,
    Constant,
    IsNull,
    NotNull,
    Opaque,
    Predicate,
    Value,
    all_of,
    any_of,
)

__all__ = ["parse_sql"]

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_FLIPPED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_TIMESTAMPS = frozenset(("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ"))
_TEXTS = frozenset(("TEXT", "VARCHAR"))
_NUMBERS = frozenset((*_INTEGER_BITS, "DOUBLE", "DECIMAL"))
_EPOCH = dt.datetime(1970, 1, 1)
_NULL = object()
_UNDERSTOOD = frozenset(("this", "expression", "expressions", "low", "high"))
# Conditions that are no comparison, but can be part of one: statistics do not answer them.
_CONDITIONS = (exp.Condition, exp.Predicate, exp.Func)


_SIGNS = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TEST = re.compile(r"\s*([A-Za-z_]\w*)\s*(==|=|<>|!=|<=|>=|<|>)\s*(?:(-?\d+)|'([^'\\\n]*)')\s*", re.ASCII)
# Words of Spark's own that are no words of SQL; as a name they need quotes.
_SPARK_WORDS = frozenset(("DECLARE", "MINUS", "REFRESH", "SERDEPROPERTIES"))
_AND = re.compile(r"\bAND\b", re.ASCII | re.IGNORECASE)


def parse_sql(text: str) -> Predicate:
    """Read a condition, such as "day >= DATE '2024-01-01' AND region IN ('eu', 'us')".

    Raises:
        PredicateError: The text is not one condition.
    """
    simple = _simple(text)
    if simple is not None:
        return simple
    try:
        parsed = sqlglot.parse(text, dialect="spark")
    except (SqlglotError, RecursionError) as error:
        raise PredicateError(_refusal(text, str(error).splitlines()[0])) from None
    found = parsed[0] if len(parsed) == 1 else None
    if not isinstance(found, _CONDITIONS):
        raise PredicateError(_refusal(text, "it is not one condition"))
    return _build(found, False)


def _simple(text: str) -> Predicate | None:
    """Comparisons of columns with numbers and texts, joined by AND: loading the dialect takes longer than
    finding the files. None for everything else.
    """
    tests: list[Predicate] = []
    position = 0
    while found := _TEST.match(text, position):
        name, sign, number, word = found.groups()
        if name.upper() in Tokenizer.KEYWORDS or name.upper() in _SPARK_WORDS:
            return None
        tests.append(Compare((name,), _SIGNS[sign], word if number is None else int(number)))
        if found.end() == len(text):
            return all_of(tests) if len(tests) > 1 else tests[0]
        joined = _AND.match(text, found.end())
        if joined is None:
            return None
        position = joined.end()
    return None


def _refusal(text: str, cause: str) -> str:
    return (
        f"The predicate {text!r:.200} cannot be read: {cause}. Nothing was read. "
        "Write a condition as in a WHERE clause of Spark, such as: day >= '2024-01-01' AND region = 'eu'"
    )


def _build(node: exp.Expr, negated: bool) -> Predicate:
    if isinstance(node, exp.Paren):
        return _build(node.this, negated)
    if isinstance(node, exp.Not):
        return _build(node.this, not negated)
    if isinstance(node, exp.And | exp.Or):
        parts = [_build(part, negated) for part in node.flatten()]
        # De Morgan: a negated conjunction is a disjunction of negations.
        return all_of(parts) if isinstance(node, exp.And) is not negated else any_of(parts)
    if isinstance(node, exp.Boolean):
        return Constant(bool(node.this) is not negated)
    if isinstance(node, exp.Null):
        return Constant(False)
    return _leaf(node, negated)


def _leaf(node: exp.Expr, negated: bool) -> Predicate:
    if any(value for name, value in node.args.items() if name not in _UNDERSTOOD):
        # The parser keeps some words, such as NOT in NOT LIKE, as marks on the node.
        return _whole_column(node, negated)
    operator = _OPERATORS.get(type(node))
    if operator is not None:
        return _comparison(node.this, operator, node.expression, negated)
    if isinstance(node, exp.In) and node.expressions:
        parts = [_comparison(node.this, "=", item, negated) for item in node.expressions]
        return all_of(parts) if negated else any_of(parts)
    if isinstance(node, exp.Between):
        ends = ((">=", node.args["low"]), ("<=", node.args["high"]))
        parts = [_comparison(node.this, sign, end, negated) for sign, end in ends]
        return any_of(parts) if negated else all_of(parts)
    if isinstance(node, exp.Is | exp.NullSafeEQ):
        return _null_test(node, negated)
    if isinstance(node, exp.Like | exp.StartsWith) and not negated:
        return _prefix(node)
    return _whole_column(node, negated)


def _whole_column(node: exp.Expr, negated: bool) -> Predicate:
    """A column alone is a condition when it is a boolean; anything else is opaque."""
    column = _column(node)
    return Compare(column, "=", not negated) if column else Opaque(node.sql("spark"))


def _comparison(left: exp.Expr, operator: str, right: exp.Expr, negated: bool) -> Predicate:
    if _column(left) is None:
        left, operator, right = right, _FLIPPED[operator], left
    column, value = _column(left), _value(right)
    if value is _NULL:
        # Nothing equals null and nothing differs from it: the answer is unknown, negated or not.
        return Constant(False)
    if column is None or value is None:
        return Opaque(left.sql("spark"))
    assert isinstance(value, Value)
    return Compare(column, OPPOSITE[operator] if negated else operator, value)


def _null_test(node: exp.Expr, negated: bool) -> Predicate:
    column, value = _column(node.this), _value(node.expression)
    if column is None or value is None:
        return Opaque(node.sql("spark"))
    if value is _NULL:
        return NotNull(column) if negated else IsNull(column)
    if isinstance(node, exp.Is):
        return Opaque(node.sql("spark"))
    assert isinstance(value, Value)
    if negated:
        return any_of((Compare(column, "<>", value), IsNull(column)))
    return Compare(column, "=", value)


def _prefix(node: exp.Expr) -> Predicate:
    column, pattern = _column(node.this), _value(node.expression)
    if column is None or not isinstance(pattern, str):
        return Opaque(node.sql("spark"))
    plain = pattern
    if isinstance(node, exp.Like):
        stops = [pattern.index(sign) for sign in "%_\\" if sign in pattern]
        plain = pattern[: min(stops)] if stops else pattern
    end = successor(plain)
    parts: list[Predicate] = [Compare(column, ">=", plain)]
    if end is not None:
        parts.append(Compare(column, "<", end))
    return all_of(parts) if plain else Opaque(node.sql("spark"))


def _column(node: exp.Expr) -> tuple[str, ...] | None:
    if isinstance(node, exp.Paren):
        return _column(node.this)
    if isinstance(node, exp.Dot):
        inner = _column(node.this)
        tail = node.expression
        return (*inner, tail.name) if inner and isinstance(tail, exp.Identifier) else None
    if isinstance(node, exp.Column) and all(isinstance(part, exp.Identifier) for part in node.parts):
        return tuple(part.name for part in node.parts)
    return None


def _value(node: exp.Expr) -> Value | object | None:
    """The value of a literal; _NULL for NULL, None for what is no literal."""
    if isinstance(node, exp.Paren):
        return _value(node.this)
    if isinstance(node, exp.Null):
        return _NULL
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Literal):
        return str(node.this) if node.is_string else _number(str(node.this))
    if isinstance(node, exp.Neg):
        value = _value(node.this)
        numeric = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
        return -value if numeric else None  # type: ignore[operator]
    if isinstance(node, exp.Cast) and not node.args.get("format"):
        return _cast(_value(node.this), node.to)
    return None


def _number(text: str) -> int | Decimal | None:
    try:
        return int(text) if text.isascii() and text.isdigit() else Decimal(text)
    except InvalidOperation:
        return None


def _cast(value: Value | object | None, target: exp.DataType) -> Value | None:
    kind = target.this.name if hasattr(target.this, "name") else str(target.this)
    if isinstance(value, str) and kind in _TEXTS and not target.expressions:
        return value
    if isinstance(value, str) and (kind == "DATE" or kind in _TIMESTAMPS):
        return _moment(value, kind)
    if kind in _NUMBERS and isinstance(value, int | Decimal | str) and not isinstance(value, bool):
        number = _number(str(value))
        return None if number is None else _numeric_cast(Decimal(number), kind, target.expressions)
    return None


def _moment(text: str, kind: str) -> dt.date | dt.datetime | None:
    found = parse_moment(text)
    if found is None:
        return None
    micros, zone = found
    try:
        moment = _EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError:
        return None
    if kind == "DATE":
        return None if zone else moment.date()
    if kind == "TIMESTAMPNTZ":
        return None if zone else moment
    return moment.replace(tzinfo=dt.UTC) if zone else moment


def _numeric_cast(number: Decimal, kind: str, parameters: Sequence[exp.Expr]) -> Value | None:
    """The number as that type, where it fits without rounding; a double is rounded as everywhere."""
    if kind == "DOUBLE":
        return float(number)
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    if kind == "DECIMAL":
        scale = int(parameters[1].name) if len(parameters) > 1 else 0
        return number if -exponent <= scale else None
    whole = number == number.to_integral_value()
    return int(number) if whole and abs(number) < 2 ** (_INTEGER_BITS[kind] - 1) else None
