"""Changes of columns and nested fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from deltaplane.planning.changes.base import Change, Cost, NamedColumnChange, Path, PathChange, show_path
from deltaplane.schema import Column, DataType, Field, Identity

__all__ = [
    "AddColumn",
    "Backfill",
    "ChangeGeneration",
    "ChangeType",
    "DropColumn",
    "DropDefault",
    "DropNotNull",
    "HoldNotNull",
    "ReleaseNotNull",
    "RenameColumn",
    "Reorder",
    "SetColumnComments",
    "SetDefault",
]


@dataclass(frozen=True)
class AddColumn(Change):
    """Add a column or nested field.

    Attributes:
        parent: The struct it goes into; empty for a column of the table.
        column: The new column. For a nested field only name, type, nullable and comment count.
        after: The sibling it follows, `""` for the first place.
        at_end: Whether that is the end anyway, so that no position need be given.
        not_null_held: Whether a CHECK will hold its NOT NULL.
    """

    parent: Path
    column: Column
    after: str = ""
    at_end: bool = False
    not_null_held: bool = False
    kind: ClassVar[str] = "add_column"

    @property
    def cost(self) -> Cost:
        return "metadata" if self.column.default is None else "rewrite"

    @property
    def consequence(self) -> str | None:
        if self.column.default is None:
            return None
        return "rows that exist are updated once, so that they carry the default too"

    @property
    def path(self) -> Path:
        """Where the new column will be."""
        return (*self.parent, self.column.name)

    @property
    def subject(self) -> str:
        return show_path(self.path)

    @property
    def summary(self) -> str:
        text = f"add column {self.subject} {self.column.type}"
        if self.not_null_held:
            text += " NOT NULL"
        if self.column.default is not None:
            text += f" DEFAULT {self.column.default}"
        if not self.at_end:
            text += f" after {self.after}" if self.after else " first"
        return text


@dataclass(frozen=True)
class Backfill(NamedColumnChange):
    """Finish an interrupted add: give the default to rows without a value, then forbid null if declared."""

    hold_not_null: bool = False
    kind: ClassVar[str] = "backfill"

    @property
    def cost(self) -> Cost:
        return "rewrite"

    @property
    def summary(self) -> str:
        return f"finish column {self.column}: give its default to rows without a value"


@dataclass(frozen=True)
class RenameColumn(PathChange):
    """Rename a column or nested field through column mapping.

    Attributes:
        path: Where it is now.
        new_name: What its last part becomes.
        via: A temporary name, when only the case changes.
    """

    new_name: str
    via: str | None = None
    kind: ClassVar[str] = "rename_column"

    @property
    def consequence(self) -> str | None:
        return "queries and streams that use the old name fail until they are changed"

    @property
    def summary(self) -> str:
        return f"rename column {self.subject} to {self.new_name}"


@dataclass(frozen=True)
class ChangeType(PathChange):
    """Give a column, field, element, key or value another type."""

    old: DataType
    new: DataType
    kind: ClassVar[str] = "change_type"

    @property
    def summary(self) -> str:
        return f"change type of {self.subject} from {self.old} to {self.new}"


@dataclass(frozen=True)
class DropNotNull(PathChange):
    """Let a column be empty."""

    kind: ClassVar[str] = "drop_not_null"

    @property
    def summary(self) -> str:
        return f"let {self.subject} be null"


@dataclass(frozen=True)
class HoldNotNull(PathChange):
    """Forbid null in a column: with SET NOT NULL where that exists, with a CHECK elsewhere."""

    resumed: bool = False
    kind: ClassVar[str] = "hold_not_null"

    @property
    def summary(self) -> str:
        return f"forbid null in {self.subject}"


@dataclass(frozen=True)
class ReleaseNotNull(NamedColumnChange):
    """Take away the CHECK that holds a NOT NULL.

    Attributes:
        column: The column.
        constraint: The name of the CHECK.
        until: The column whose NOT NULL is restored later in the same plan, or None when it is gone for good.
    """

    constraint: str
    until: str | None = None
    kind: ClassVar[str] = "release_not_null"

    @property
    def summary(self) -> str:
        if self.until is not None:
            return f"release the NOT NULL of {self.column} while it is changed"
        return f"let {self.column} be null"


@dataclass(frozen=True)
class SetDefault(NamedColumnChange):
    """Give a column a default for rows to come."""

    default: str
    kind: ClassVar[str] = "set_default"

    @property
    def summary(self) -> str:
        return f"set default of {self.column} to {self.default}"


@dataclass(frozen=True)
class DropDefault(NamedColumnChange):
    """Take a column's default away."""

    kind: ClassVar[str] = "drop_default"

    @property
    def summary(self) -> str:
        return f"drop default of {self.column}"


@dataclass(frozen=True)
class ChangeGeneration(NamedColumnChange):
    """A generation expression or identity that differs. Delta allows neither after creation."""

    old: str | Identity | None
    new: str | Identity | None
    kind: ClassVar[str] = "change_generation"

    @property
    def summary(self) -> str:
        return f"change how {self.column} is generated"


@dataclass(frozen=True)
class Reorder(Change):
    """Move columns of the table, or fields of one struct.

    Attributes:
        parent: The struct; empty for the table itself.
        moves: Pairs of a name and the sibling it goes after (`""` for the first place), in the order to run.
    """

    parent: Path
    moves: tuple[tuple[str, str], ...]
    kind: ClassVar[str] = "reorder"

    @property
    def subject(self) -> str:
        return show_path(self.parent)

    @property
    def summary(self) -> str:
        moved = ", ".join(f"{name} {'after ' + after if after else 'first'}" for name, after in self.moves)
        return f"move {moved}" + (f" in {self.subject}" if self.parent else "")


@dataclass(frozen=True)
class SetColumnComments(Change):
    """Set or clear comments of columns, all in one statement."""

    comments: tuple[tuple[Path, str | None], ...]
    kind: ClassVar[str] = "set_column_comments"

    @property
    def subject(self) -> str:
        return show_path(self.comments[0][0])

    @property
    def summary(self) -> str:
        return "comment on " + ", ".join(show_path(path) for path, _ in self.comments)


@dataclass(frozen=True)
class DropColumn(PathChange):
    """Drop a column or nested field. Its values can be had back only through RESTORE."""

    dropped: Column | Field = field(compare=False)
    kind: ClassVar[str] = "drop_column"

    @property
    def cost(self) -> Cost:
        return "destructive"

    @property
    def consequence(self) -> str | None:
        return "its values can be had back only with RESTORE, until VACUUM and retention remove them"

    @property
    def summary(self) -> str:
        return f"drop column {self.subject}"
