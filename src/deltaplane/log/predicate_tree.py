"""Predicates as values, with negation already resolved.

A predicate is asked one question: can it be true for some row? Under SQL's three-valued logic NOT can be
pushed down to the comparisons, where it turns into the opposite comparison, so the tree needs no node for it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

__all__ = [
    "OPPOSITE",
    "And",
    "Compare",
    "Constant",
    "IsNull",
    "NotNull",
    "Opaque",
    "Or",
    "Predicate",
    "Value",
    "all_of",
    "any_of",
    "columns_of",
]

Value = bool | int | float | Decimal | str | dt.date | dt.datetime
"""What a column is compared with. A datetime without a zone is in UTC where the column is an instant."""

OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True, slots=True)
class Compare:
    """A column and a value; the operator is one of =, <>, <, <=, >, >=."""

    column: tuple[str, ...]
    operator: str
    value: Value


@dataclass(frozen=True, slots=True)
class IsNull:
    """The column is null."""

    column: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotNull:
    """The column is not null."""

    column: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class And:
    """Every part holds."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Some part holds."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Constant:
    """The same for every row: true or not (false and unknown are alike: no row passes)."""

    value: bool


@dataclass(frozen=True, slots=True)
class Opaque:
    """Something that statistics cannot answer."""

    text: str = ""


Predicate = Compare | IsNull | NotNull | And | Or | Constant | Opaque


def all_of(parts: Iterable[Predicate]) -> Predicate:
    """The conjunction of the parts."""
    found = tuple(parts)
    return found[0] if len(found) == 1 else And(found) if found else Constant(True)


def any_of(parts: Iterable[Predicate]) -> Predicate:
    """The disjunction of the parts."""
    found = tuple(parts)
    return found[0] if len(found) == 1 else Or(found) if found else Constant(False)


def columns_of(predicate: Predicate) -> Iterator[tuple[str, ...]]:
    """The columns that a predicate names, with repetitions."""
    if isinstance(predicate, And | Or):
        for part in predicate.parts:
            yield from columns_of(part)
    elif isinstance(predicate, Compare | IsNull | NotNull):
        yield predicate.column
