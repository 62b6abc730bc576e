"""A waiver: a rule that is set aside for one table or column, with the reason."""

from __future__ import annotations

import re
from dataclasses import dataclass

from deltaplane.errors import DeclarationError
from deltaplane.schema.types import require_text

__all__ = ["Waiver"]


@dataclass(frozen=True, order=True)
class Waiver:
    """Sets one rule aside.

    Attributes:
        code: The rule, such as `DS102`.
        table: `name`, `schema.name` or `catalog.schema.name`.
        column: The column or nested field (`s.a`) it is limited to; None means the whole table.
        reason: Why. It is printed wherever the finding would have been.
    """

    code: str
    table: str
    column: str | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        for label, text in (("code", self.code), ("table", self.table), ("column", self.column)):
            require_text(f"waiver: {label}", text)
        if not isinstance(self.reason, str):
            raise DeclarationError(
                f"waiver {self.code} on {self.table}: the reason {self.reason!r} is not text."
            )
        if not re.fullmatch(r"[A-Z]{2}\d{3}", self.code):
            raise DeclarationError(
                f"waiver {self.code!r}: a rule code looks like DS102. See the list of rules."
            )
        if not self.reason.strip():
            raise DeclarationError(
                f"waiver {self.code} on {self.table}: say why. A waiver without a reason is not accepted."
            )

    def covers(self, code: str, table_parts: tuple[str, ...], column: str | None) -> bool:
        """Tell whether this waiver sets aside a finding of `code` there."""
        if code != self.code:
            return False
        mine = [part.strip("`").casefold() for part in self.table.split(".")]
        theirs = [part.casefold() for part in table_parts][-len(mine) :]
        if mine != theirs:
            return False
        return self.column is None or (column is not None and self.column.casefold() == column.casefold())
