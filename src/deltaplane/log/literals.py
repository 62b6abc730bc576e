"""The values that a predicate compares with, in the order of the column's keys."""

from __future__ import annotations

import datetime as dt
import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from deltaplane.log.bounds import Rank
from deltaplane.log.order_keys import clamp, double_key, exact_number, key_kind, order_key, parse_moment
from deltaplane.log.predicate_tree import Value

__all__ = ["value_ranks"]

_DAY = 86_400_000_000
_EPOCH = dt.datetime(1970, 1, 1)


def value_ranks(value: Value, delta_type: str) -> tuple[Rank, Rank] | None:
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
