"""One column of a declared table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from deltaplane.errors import DeclarationError
from deltaplane.schema.expressions import not_an_expression
from deltaplane.schema.frozen import FrozenMap, text_map
from deltaplane.schema.keys import Identity
from deltaplane.schema.types import DataType, Long, TypeLike, as_type, require_name, require_text

__all__ = ["Column"]


@dataclass(frozen=True)
class Column:
    """A column as it should be.

    Attributes:
        name: Its name. Spark ignores case when it looks a column up, and keeps it when it shows one.
        type: A type of `deltaplane.schema`, its class, or its text (`"decimal(10,2)"`).
        nullable: Whether rows may leave it empty.
        comment: Shown by every catalog.
        default: SQL for the value of rows that do not give one, such as `"0"` or `"current_timestamp()"`.
        generated: SQL over other columns. Only at the creation of a table.
        identity: `True` or `Identity(...)`. Only BIGINT, only at creation.
        renamed_from: The name it had before; turns a drop and an add into a rename.
        tags: Labels. SQL tags on Databricks, table properties on open-source Spark.
    """

    name: str
    type: DataType
    nullable: bool = True
    comment: str | None = None
    default: str | None = None
    generated: str | None = None
    identity: Identity | None = None
    renamed_from: str | None = None
    tags: Mapping[str, str] = field(default_factory=FrozenMap)

    def __init__(
        self,
        name: str,
        type: TypeLike,
        nullable: bool = True,
        comment: str | None = None,
        default: str | float | bool | None = None,
        generated: str | None = None,
        identity: Identity | bool | None = None,
        renamed_from: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        require_name("column", name)
        require_text(f"comment of column {name}", comment)
        require_text(f"generation expression of column {name}", generated)
        put = object.__setattr__
        put(self, "name", name)
        put(self, "type", as_type(type, f"column {name}"))
        put(self, "nullable", nullable)
        put(self, "comment", comment or None)
        put(self, "default", _default_text(name, default))
        put(self, "generated", generated)
        put(self, "identity", Identity() if identity is True else identity or None)
        put(self, "renamed_from", renamed_from)
        put(self, "tags", text_map(f"tags of column {name}", tags))
        self._validate()

    def _validate(self) -> None:
        if self.identity and not isinstance(self.type, Long):
            raise DeclarationError(
                f"column {self.name}: an identity must be BIGINT, and this one is {self.type}. Declare "
                f"it as Long()."
            )
        given = [
            label
            for label, value in (
                ("a default", self.default),
                ("a generation expression", self.generated),
                ("an identity", self.identity),
            )
            if value is not None
        ]
        if len(given) > 1:
            raise DeclarationError(
                f"column {self.name}: {' and '.join(given)} exclude each other. Keep one of them."
            )
        for label, text in (("default", self.default), ("generation expression", self.generated)):
            problem = not_an_expression(text) if text is not None else None
            if problem:
                raise DeclarationError(
                    f"column {self.name}: the {label} {text!r} is not one SQL expression: {problem}. "
                    f"Correct it."
                )
        if self.renamed_from is not None and self.renamed_from == self.name:
            raise DeclarationError(
                f"column {self.name}: renamed_from is its own name. Leave renamed_from out."
            )


def _default_text(name: str, default: str | float | bool | None) -> str | None:
    if default is None:
        return None
    if isinstance(default, bool):
        return "true" if default else "false"
    if isinstance(default, int | float):
        if isinstance(default, float) and not math.isfinite(default):
            raise DeclarationError(
                f"column {name}: the default {default!r} has no SQL literal. Write it as text: "
                f"\"double('NaN')\"."
            )
        return repr(default)
    if not isinstance(default, str) or not default.strip():
        raise DeclarationError(
            f"column {name}: the default {default!r} is not SQL. Write it as SQL text, for example "
            f'"\'new\'" or "0".'
        )
    return default.strip()
