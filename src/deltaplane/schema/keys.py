"""Keys, checks and identity: the constraints a table declares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltaplane.errors import DeclarationError
from deltaplane.schema.expressions import canonical, not_an_expression
from deltaplane.schema.types import require_text

if TYPE_CHECKING:
    from deltaplane.schema.table import DeltaTable

__all__ = ["Check", "ForeignKey", "Identity", "Unique"]


@dataclass(frozen=True)
class Identity:
    """Numbers that Delta hands out by itself. Only BIGINT columns can have them, and only from creation."""

    start: int = 1
    step: int = 1
    always: bool = True

    def __post_init__(self) -> None:
        for label, number in (("start", self.start), ("step", self.step)):
            if not isinstance(number, int) or isinstance(number, bool) or not -(2**63) <= number < 2**63:
                raise DeclarationError(
                    f"identity: the {label} {number!r} is not a BIGINT. Give a whole number."
                )
        if self.step == 0:
            raise DeclarationError("identity: the step cannot be 0. Use a positive or a negative number.")


@dataclass(frozen=True)
class Check:
    """A condition that every row must satisfy. Without a name, one is derived from the expression."""

    expression: str
    name: str | None = None

    def __post_init__(self) -> None:
        require_text("A CHECK", self.expression)
        if not self.expression.strip():
            raise DeclarationError("A CHECK needs an expression, for example Check('amount > 0').")
        problem = not_an_expression(self.expression)
        if problem:
            raise DeclarationError(
                f"CHECK ({self.expression}) is not one SQL expression: {problem}. Correct it."
            )
        if self.name is not None:
            # Delta stores the names of constraints in lower case.
            object.__setattr__(self, "name", self.name.lower())

    def same_rule(self, other: Check) -> bool:
        """Tell whether both demand the same of a row, whatever the spacing."""
        return canonical(self.expression) == canonical(other.expression)


@dataclass(frozen=True)
class Unique:
    """Columns whose values identify a row. Informational: neither Spark nor Databricks enforces it."""

    columns: tuple[str, ...]
    name: str | None = None

    def __init__(self, columns: Iterable[str] | str, name: str | None = None) -> None:
        object.__setattr__(self, "columns", (columns,) if isinstance(columns, str) else tuple(columns))
        object.__setattr__(self, "name", name)


@dataclass(frozen=True)
class ForeignKey:
    """Columns that point to the key of another table. Informational, as keys are on Databricks.

    Attributes:
        columns: The columns of this table.
        references: The other table: `name`, `schema.name`, `catalog.schema.name`, or the declaration itself.
        referenced_columns: The other table's columns; left out, its primary key.
        name: Left out, it is derived.
    """

    columns: tuple[str, ...]
    references: str
    referenced_columns: tuple[str, ...] = ()
    name: str | None = None

    def __init__(
        self,
        columns: Iterable[str] | str,
        references: str | DeltaTable,
        referenced_columns: Iterable[str] | str = (),
        name: str | None = None,
    ) -> None:
        as_tuple = (columns,) if isinstance(columns, str) else tuple(columns)
        referenced = (
            (referenced_columns,) if isinstance(referenced_columns, str) else tuple(referenced_columns)
        )
        object.__setattr__(self, "columns", as_tuple)
        if not isinstance(references, str) and not hasattr(references, "qualified_name"):
            raise DeclarationError(
                f"A foreign key references {references!r}, which is neither a table name nor a DeltaTable."
            )
        target = references if isinstance(references, str) else str(references.qualified_name)
        object.__setattr__(self, "references", target)
        object.__setattr__(self, "referenced_columns", referenced)
        object.__setattr__(self, "name", name)
        if not self.columns:
            raise DeclarationError(f"A foreign key to {target} names no column. Give at least one.")
        if referenced and len(referenced) != len(as_tuple):
            raise DeclarationError(
                f"A foreign key to {target} has {len(as_tuple)} columns here and {len(referenced)} there. "
                "Give the same number on both sides."
            )
