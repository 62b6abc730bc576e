"""Changes as values: what would happen to a table, without a word of SQL.

Every change knows its table, its cost and a sentence about itself. The order in which changes run is
decided in
`order.py`, what they look like as SQL in the adapters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from deltaplane.planning.features import property_features
from deltaplane.planning.observed import Key, Pending
from deltaplane.schema import Check, Column, DataType, DeltaTable, Field, Identity, QualifiedName
from deltaplane.schema.frozen import FrozenMap

__all__ = [
    "AddCheck",
    "AddColumn",
    "AddKey",
    "Backfill",
    "Change",
    "ChangeGeneration",
    "ChangeType",
    "ClearNotes",
    "CreateSchema",
    "CreateTable",
    "DropCheck",
    "DropColumn",
    "DropDefault",
    "DropKey",
    "DropNotNull",
    "DropTable",
    "EnableFeature",
    "HoldNotNull",
    "ReleaseNotNull",
    "RenameColumn",
    "Reorder",
    "Repartition",
    "SetClustering",
    "SetColumnComments",
    "SetDefault",
    "SetProperties",
    "SetTableComment",
    "SetTags",
    "UnsetProperties",
]

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
class CreateSchema(Change):
    """Create a missing schema. `table.name` is `*`: it concerns all tables of the schema."""

    kind: ClassVar[str] = "create_schema"

    @property
    def summary(self) -> str:
        return f"create schema {self.table.catalog}.{self.table.schema}"


@dataclass(frozen=True)
class CreateTable(Change):
    """Create a table with everything it declares.

    Attributes:
        declaration: The table.
        owner: The owner mark it gets.
        implied: Properties it needs although nobody declared them.
    """

    declaration: DeltaTable
    owner: str
    implied: Mapping[str, str] = field(default_factory=FrozenMap)
    kind: ClassVar[str] = "create_table"

    @property
    def summary(self) -> str:
        columns = len(self.declaration.columns)
        return f"create table with {columns} column{'s' if columns != 1 else ''}"


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
class Backfill(Change):
    """Finish an interrupted add: give the default to rows without a value, then forbid null if declared."""

    column: str
    hold_not_null: bool = False
    kind: ClassVar[str] = "backfill"

    @property
    def cost(self) -> Cost:
        return "rewrite"

    @property
    def subject(self) -> str:
        return self.column

    @property
    def summary(self) -> str:
        return f"finish column {self.column}: give its default to rows without a value"


@dataclass(frozen=True)
class ClearNotes(Change):
    """Remove notes of an interrupted run whose steps are all done."""

    done: Pending
    kind: ClassVar[str] = "clear_notes"

    @property
    def summary(self) -> str:
        return "clear the notes of an interrupted run"


@dataclass(frozen=True)
class RenameColumn(Change):
    """Rename a column or nested field through column mapping.

    Attributes:
        path: Where it is now.
        new_name: What its last part becomes.
        via: A temporary name, when only the case changes.
    """

    path: Path
    new_name: str
    via: str | None = None
    kind: ClassVar[str] = "rename_column"

    @property
    def consequence(self) -> str | None:
        return "queries and streams that use the old name fail until they are changed"

    @property
    def subject(self) -> str:
        return show_path(self.path)

    @property
    def summary(self) -> str:
        return f"rename column {self.subject} to {self.new_name}"


@dataclass(frozen=True)
class ChangeType(Change):
    """Give a column, field, element, key or value another type."""

    path: Path
    old: DataType
    new: DataType
    kind: ClassVar[str] = "change_type"

    @property
    def subject(self) -> str:
        return show_path(self.path)

    @property
    def summary(self) -> str:
        return f"change type of {self.subject} from {self.old} to {self.new}"


@dataclass(frozen=True)
class DropNotNull(Change):
    """Let a column be empty."""

    path: Path
    kind: ClassVar[str] = "drop_not_null"

    @property
    def subject(self) -> str:
        return show_path(self.path)

    @property
    def summary(self) -> str:
        return f"let {self.subject} be null"


@dataclass(frozen=True)
class HoldNotNull(Change):
    """Forbid null in a column: with SET NOT NULL where that exists, with a CHECK elsewhere."""

    path: Path
    resumed: bool = False
    kind: ClassVar[str] = "hold_not_null"

    @property
    def subject(self) -> str:
        return show_path(self.path)

    @property
    def summary(self) -> str:
        return f"forbid null in {self.subject}"


@dataclass(frozen=True)
class ReleaseNotNull(Change):
    """Take away the CHECK that holds a NOT NULL.

    Attributes:
        column: The column.
        constraint: The name of the CHECK.
        until: The column whose NOT NULL is restored later in the same plan, or None when it is gone for good.
    """

    column: str
    constraint: str
    until: str | None = None
    kind: ClassVar[str] = "release_not_null"

    @property
    def subject(self) -> str:
        return self.column

    @property
    def summary(self) -> str:
        if self.until is not None:
            return f"release the NOT NULL of {self.column} while it is changed"
        return f"let {self.column} be null"


@dataclass(frozen=True)
class SetDefault(Change):
    """Give a column a default for rows to come."""

    column: str
    default: str
    kind: ClassVar[str] = "set_default"

    @property
    def subject(self) -> str:
        return self.column

    @property
    def summary(self) -> str:
        return f"set default of {self.column} to {self.default}"


@dataclass(frozen=True)
class DropDefault(Change):
    """Take a column's default away."""

    column: str
    kind: ClassVar[str] = "drop_default"

    @property
    def subject(self) -> str:
        return self.column

    @property
    def summary(self) -> str:
        return f"drop default of {self.column}"


@dataclass(frozen=True)
class ChangeGeneration(Change):
    """A generation expression or identity that differs. Delta allows neither after creation."""

    column: str
    old: str | Identity | None
    new: str | Identity | None
    kind: ClassVar[str] = "change_generation"

    @property
    def subject(self) -> str:
        return self.column

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
class SetTableComment(Change):
    """Set or clear the table's comment."""

    comment: str | None
    kind: ClassVar[str] = "set_table_comment"

    @property
    def summary(self) -> str:
        return "set the table comment" if self.comment else "clear the table comment"


@dataclass(frozen=True)
class AddCheck(Change):
    """Add a CHECK. Delta reads every row once to see that it holds."""

    check: Check
    restored: bool = False
    kind: ClassVar[str] = "add_check"

    @property
    def consequence(self) -> str | None:
        return "every row is read once to see that it holds"

    @property
    def subject(self) -> str:
        return self.check.name or ""

    @property
    def summary(self) -> str:
        return f"{'restore' if self.restored else 'add'} check {self.subject} ({self.check.expression})"


@dataclass(frozen=True)
class DropCheck(Change):
    """Drop a CHECK, for good or while a column it uses is changed."""

    check: Check
    temporary: bool = False
    kind: ClassVar[str] = "drop_check"

    @property
    def subject(self) -> str:
        return self.check.name or ""

    @property
    def summary(self) -> str:
        return f"drop check {self.subject}" + (" while its column is changed" if self.temporary else "")


@dataclass(frozen=True)
class AddKey(Change):
    """Add a primary, unique or foreign key."""

    key: Key
    kind: ClassVar[str] = "add_key"

    @property
    def subject(self) -> str:
        return self.key.name

    @property
    def summary(self) -> str:
        target = f" to {self.key.references}" if self.key.references else ""
        return f"add {self.key.kind} key ({', '.join(self.key.columns)}){target}"


@dataclass(frozen=True)
class DropKey(Change):
    """Drop a key."""

    key: Key
    kind: ClassVar[str] = "drop_key"

    @property
    def subject(self) -> str:
        return self.key.name

    @property
    def summary(self) -> str:
        return f"drop {self.key.kind} key ({', '.join(self.key.columns)})"


@dataclass(frozen=True)
class SetTags(Change):
    """Change the tags of the table (`column` None) or of a column."""

    column: str | None
    before: Mapping[str, str]
    after: Mapping[str, str]
    kind: ClassVar[str] = "set_tags"

    @property
    def subject(self) -> str:
        return self.column or ""

    @property
    def summary(self) -> str:
        place = f"column {self.column}" if self.column else "the table"
        shown = ", ".join(f"{k}={v}" for k, v in self.after.items()) or "none"
        return f"set tags of {place}: {shown}"


@dataclass(frozen=True)
class SetClustering(Change):
    """Cluster by other columns, or by none. Existing files stay as they are until OPTIMIZE FULL."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    kind: ClassVar[str] = "set_clustering"

    @property
    def consequence(self) -> str | None:
        return "files that exist stay as they are until OPTIMIZE … FULL" if self.after else None

    @property
    def summary(self) -> str:
        return f"cluster by {', '.join(self.after)}" if self.after else "stop clustering"


@dataclass(frozen=True)
class Repartition(Change):
    """Rewrite every row into another partitioning, in one commit.

    Attributes:
        before: The partition columns now.
        after: Those to be.
        not_null: Columns whose NOT NULL the rewrite loses, and that have to be held again.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    not_null: tuple[str, ...] = ()
    kind: ClassVar[str] = "repartition"

    @property
    def cost(self) -> Cost:
        return "rewrite"

    @property
    def consequence(self) -> str | None:
        return "one commit replaces every file; streams that read the table have to be restarted"

    @property
    def summary(self) -> str:
        old, new = (", ".join(columns) or "nothing" for columns in (self.before, self.after))
        return f"rewrite the table partitioned by {new} (was {old})"


@dataclass(frozen=True)
class SetProperties(Change):
    """Set table properties.

    Attributes:
        values: What to set.
        managed: All properties deltaplane manages on the table afterwards.
        implied: Set because another change needs it, although nobody declared it.
    """

    values: Mapping[str, str]
    managed: tuple[str, ...] = ()
    implied: bool = False
    kind: ClassVar[str] = "set_properties"

    @property
    def cost(self) -> Cost:
        if any(
            k.casefold() == "delta.columnmapping.mode" and v.casefold() == "none"
            for k, v in self.values.items()
        ):
            return "rewrite"
        return "feature" if property_features(self.values) else "metadata"

    @property
    def subject(self) -> str:
        return next(iter(self.values), "")

    @property
    def summary(self) -> str:
        return "set " + ", ".join(f"{key} = {value}" for key, value in self.values.items())


@dataclass(frozen=True)
class UnsetProperties(Change):
    """Take properties away that deltaplane had set."""

    keys: tuple[str, ...]
    managed: tuple[str, ...] = ()
    kind: ClassVar[str] = "unset_properties"

    @property
    def subject(self) -> str:
        return self.keys[0]

    @property
    def summary(self) -> str:
        return "unset " + ", ".join(self.keys)


@dataclass(frozen=True)
class EnableFeature(Change):
    """Add a table feature to the protocol."""

    feature: str
    kind: ClassVar[str] = "enable_feature"

    @property
    def cost(self) -> Cost:
        return "feature"

    @property
    def subject(self) -> str:
        return self.feature

    @property
    def summary(self) -> str:
        return f"enable feature {self.feature}"


@dataclass(frozen=True)
class DropColumn(Change):
    """Drop a column or nested field. Its values can be had back only through RESTORE."""

    path: Path
    dropped: Column | Field = field(compare=False)
    kind: ClassVar[str] = "drop_column"

    @property
    def cost(self) -> Cost:
        return "destructive"

    @property
    def consequence(self) -> str | None:
        return "its values can be had back only with RESTORE, until VACUUM and retention remove them"

    @property
    def subject(self) -> str:
        return show_path(self.path)

    @property
    def summary(self) -> str:
        return f"drop column {self.subject}"


@dataclass(frozen=True)
class DropTable(Change):
    """Drop a table that carries the registry's owner mark and is no longer declared."""

    owner: str | None
    size_bytes: int = 0
    kind: ClassVar[str] = "drop_table"

    @property
    def cost(self) -> Cost:
        return "destructive"

    @property
    def summary(self) -> str:
        return "drop table"
