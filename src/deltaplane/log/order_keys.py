"""Values of every type as signed 64-bit integers that keep their order.

One index in SQL then serves every type. A key may be the same for two different values (text beyond eight
bytes, decimals beyond the precision of a double) but never in the wrong order.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from decimal import Decimal
from typing import Any

__all__ = [
    "INT64_MAX",
    "INT64_MIN",
    "clamp",
    "day_number",
    "double_key",
    "exact_number",
    "key_kind",
    "order_key",
    "parse_moment",
    "text_key",
]

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
_INTEGERS = frozenset(("byte", "short", "integer", "long"))
_KINDS = {
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ntz": "timestamp",
    "float": "single",
    "double": "double",
    "string": "text",
}
_NUMBER = re.compile(r"\s*[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\s*", re.ASCII)
_MOMENT = re.compile(
    r"\s*([+-]?)(\d{4,7})-(\d{1,2})-(\d{1,2})"
    r"(?:[T ](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:[.,](\d{1,9}))?)?)?)?"
    r"\s*(Z|UTC|[+-]\d{2}(?::?\d{2})?)?\s*",
    re.ASCII,
)
_SPECIAL = {
    "nan": math.nan,
    "infinity": math.inf,
    "+infinity": math.inf,
    "-infinity": -math.inf,
    "inf": math.inf,
    "+inf": math.inf,
    "-inf": -math.inf,
}


def clamp(number: int) -> int:
    """The nearest signed 64-bit integer."""
    return min(max(number, INT64_MIN), INT64_MAX)


def key_kind(delta_type: str) -> str | None:
    """Which order a type's keys are in: only keys of one kind compare. None for types without keys."""
    if delta_type in _INTEGERS:
        return "integer"
    return "decimal" if delta_type.startswith("decimal") else _KINDS.get(delta_type)


def order_key(value: Any, delta_type: str) -> int | None:
    """The key of one value.

    Args:
        value: A value as JSON has it, or its text as in partition values.
        delta_type: The type of the column as in the schema.

    Returns:
        The key, or None when the value is absent or is not of that type.
    """
    kind = key_kind(delta_type)
    if value is None or kind is None:
        return None
    if kind == "integer":
        return _integer_key(value)
    if kind == "text":
        return text_key(value) if isinstance(value, str) else None
    if kind == "date":
        return _date_key(value)
    if kind == "timestamp":
        return _timestamp_key(value, delta_type)
    if kind == "boolean":
        return _boolean_key(value)
    number = _float(value)
    if number is None or (kind == "decimal" and math.isnan(number)):
        return None
    return double_key(_single(number) if delta_type == "float" else number)


def _integer_key(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return clamp(value)
    number = exact_number(value)
    return clamp(int(number)) if number is not None and number == number.to_integral_value() else None


def exact_number(value: Any) -> Decimal | None:
    """A finite number as it is written; None for anything else, and for numbers beyond any column."""
    if isinstance(value, bool) or (isinstance(value, str) and not _NUMBER.fullmatch(value)):
        return None
    try:
        number = Decimal(value.strip() if isinstance(value, str) else value)
    except (ArithmeticError, TypeError, ValueError):
        return None
    # With a larger exponent its digits would not fit in memory.
    return number if number.is_finite() and abs(number.adjusted()) < 400 else None


def _boolean_key(value: Any) -> int | None:
    if isinstance(value, bool):
        return int(value)
    return {"true": 1, "false": 0}.get(value.strip().lower()) if isinstance(value, str) else None


def _float(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        return _SPECIAL.get(value.strip().lower())
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):
        return None


def _single(number: float) -> float:
    """The nearest 32-bit float: statistics of such columns may have fewer digits than their doubles."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return rounded


def double_key(number: float) -> int:
    """The key of a double: NaN is the greatest, and the two zeros are one."""
    if math.isnan(number):
        return 0x7FF8000000000000
    bits: int = struct.unpack("<q", struct.pack("<d", number + 0.0))[0]
    return bits if bits >= 0 else bits ^ INT64_MAX


def text_key(text: str, fill: bytes = b"\0") -> int:
    """The key of a text: its first eight bytes in UTF-8, whose order is the order of code points."""
    head = text[:8].encode("utf-8", "surrogatepass")[:8].ljust(8, fill)
    return int.from_bytes(head, "big") - 2**63


def day_number(year: int, month: int, day: int) -> int | None:
    """Days since 1970-01-01 in the proleptic Gregorian calendar; None when there is no such day."""
    if not 1 <= month <= 12:
        return None
    # The calendar repeats every 400 years, so any year has a twin that datetime can handle.
    cycles, twin = divmod(year - 2000, 400)
    try:
        base = dt.date(twin + 2000, month, day).toordinal()
    except ValueError:
        return None
    return base - 719163 + cycles * 146097


def parse_moment(text: str) -> tuple[int, str] | None:
    """A date or time as text: microseconds since 1970, and the zone as written ('' for none).

    The zone is already subtracted. None when the text is no such thing.
    """
    match = _MOMENT.fullmatch(text)
    if match is None:
        return None
    sign, year, month, day, hour, minute, second, fraction, zone = match.groups()
    days = day_number(-int(year) if sign == "-" else int(year), int(month), int(day))
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    if days is None or hours > 23 or minutes > 59 or seconds > 59:
        return None
    micros = int((fraction or "").ljust(6, "0")[:6])
    total = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000 + micros
    return total - _zone_minutes(zone or "") * 60_000_000, zone or ""


def _zone_minutes(zone: str) -> int:
    if zone in ("", "Z", "UTC"):
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    return (-1 if zone[0] == "-" else 1) * (int(digits[:2]) * 60 + int(digits[2:]))


def _date_key(value: Any) -> int | None:
    moment = parse_moment(value) if isinstance(value, str) else None
    if moment is None or moment[1]:
        return None
    days, rest = divmod(moment[0], 86_400_000_000)
    return clamp(days) if rest == 0 else None


def _timestamp_key(value: Any, delta_type: str) -> int | None:
    moment = parse_moment(value) if isinstance(value, str) else None
    if moment is None:
        return None
    if delta_type == "timestamp_ntz" and moment[1] not in ("", "Z"):
        return None
    return clamp(moment[0])
