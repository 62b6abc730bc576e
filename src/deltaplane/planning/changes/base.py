"""What all changes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from deltaplane.schema import QualifiedName

__all__ = ["Change", "Cost", "NamedColumnChange", "Path", "PathChange", "show_path"]

Cost = Literal["metadata", "feature", "rewrite", "destructive"]
Path = tuple[str, ...]


def show_path(path: Path) -> str:
    """Write a column path the way people say it: `s.a`."""
    return ".".join(path)


@dataclass(frozen=True)
class Change:
    """Base of all changes.

    Attributes:
        table: The table it concerns.
    """

    table: QualifiedName
    kind: ClassVar[str] = ""

    @property
    def cost(self) -> Cost:
        """What it takes: metadata only, a new feature, a rewrite of data, or a loss of data."""
        return "metadata"

    @property
    def consequence(self) -> str | None:
        """What people should know before they agree."""
        return None

    @property
    def subject(self) -> str:
        """What inside the table is concerned; decides the alphabetical order."""
        return ""

    @property
    def summary(self) -> str:
        """One line for people."""
        return self.kind.replace("_", " ")


@dataclass(frozen=True)
class PathChange(Change):
    """A change of the column or nested field at `path`."""

    path: Path

    @property
    def subject(self) -> str:
        return show_path(self.path)


@dataclass(frozen=True)
class NamedColumnChange(Change):
    """A change of the top-level column `column`."""

    column: str

    @property
    def subject(self) -> str:
        return self.column
