"""A finding: one rule that fired, where, and whether somebody set it aside."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from deltaplane.planning.changes import Change
from deltaplane.planning.rules.catalogue import RULES, Severity
from deltaplane.schema import QualifiedName, Waiver

__all__ = ["Finding", "finding"]


@dataclass(frozen=True)
class Finding:
    """A rule that fired.

    Attributes:
        code: The rule.
        severity: `error`, `warning` or `info`.
        table: The table.
        column: The column, field or property it is about, or None.
        text: What was found, with names and numbers.
        remedy: What to do.
        waived: The reason it was set aside, or None.
        keep: Whether a waiver leaves the table as it is here, instead of letting the change run.
        about: The changes it is about.
    """

    code: str
    severity: Severity
    table: QualifiedName
    column: str | None
    text: str
    remedy: str
    waived: str | None = None
    keep: bool = field(default=False, compare=False, repr=False)
    about: tuple[Change, ...] = field(default=(), compare=False, repr=False)

    @property
    def blocks(self) -> bool:
        """Whether the table stays untouched because of it."""
        return self.severity == "error" and self.waived is None

    def waived_by(self, waivers: tuple[Waiver, ...]) -> Finding:
        """Return the finding with the reason of the first waiver that covers it."""
        for waiver in waivers:
            if waiver.covers(self.code, self.table.parts, self.column):
                return replace(self, waived=waiver.reason)
        return self

    def __str__(self) -> str:
        place = f"{self.table}" + (f".{self.column}" if self.column else "")
        return f"{self.code} {self.severity} {place}: {self.text}"


def finding(
    code: str,
    table: QualifiedName,
    column: str | None,
    text: str,
    *about: Change,
    severity: Severity | None = None,
    remedy: str | None = None,
    keep: bool | None = None,
) -> Finding:
    """Make a finding with the severity and remedy of its rule."""
    rule = RULES[code]
    keeps = rule.on_waiver == "keep" if keep is None else keep
    return Finding(
        code, severity or rule.severity, table, column, text, remedy or rule.remedy, None, keeps, tuple(about)
    )
