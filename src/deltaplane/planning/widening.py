"""Which type may become which: the matrix of Delta's type widening."""

from __future__ import annotations

from typing import Literal

from deltaplane.schema import (
    Byte,
    Char,
    DataType,
    Date,
    Decimal,
    Double,
    Float,
    Integer,
    Long,
    Short,
    String,
    TimestampNtz,
    Varchar,
)

__all__ = ["Widening", "widening"]

Widening = Literal["free", "feature", "none"]

_INTEGER_DIGITS = {Byte: 3, Short: 5, Integer: 10, Long: 20}
_ORDER: tuple[type[DataType], ...] = (Byte, Short, Integer, Long)


def widening(old: DataType, new: DataType) -> Widening:
    """Tell how `old` can become `new`: freely, with delta.enableTypeWidening, or not at all."""
    if _is_longer_text(old, new):
        return "free"
    if type(old) in _INTEGER_DIGITS:
        return "feature" if _widens_integer(old, new) else "none"
    if isinstance(old, Float) and isinstance(new, Double):
        return "feature"
    if isinstance(old, Decimal) and isinstance(new, Decimal):
        return "feature" if _widens_decimal(old, new) else "none"
    if isinstance(old, Date) and isinstance(new, TimestampNtz):
        return "feature"
    return "none"


def _is_longer_text(old: DataType, new: DataType) -> bool:
    if isinstance(old, Varchar):
        return isinstance(new, String) or (isinstance(new, Varchar) and new.length > old.length)
    if isinstance(old, Char):
        return isinstance(new, String) or (isinstance(new, Varchar) and new.length >= old.length)
    return False


def _widens_integer(old: DataType, new: DataType) -> bool:
    if type(new) in _ORDER:
        return _ORDER.index(type(new)) > _ORDER.index(type(old))
    if isinstance(new, Double):
        return not isinstance(old, Long)
    if isinstance(new, Decimal):
        # Spark stores tinyint and smallint as int, so they too need the ten digits of an int.
        digits = max(_INTEGER_DIGITS[type(old)], 10)
        return new.precision - new.scale >= digits
    return False


def _widens_decimal(old: Decimal, new: Decimal) -> bool:
    more_scale = new.scale - old.scale
    more_precision = new.precision - old.precision
    return more_precision >= more_scale >= 0 and more_precision > 0
