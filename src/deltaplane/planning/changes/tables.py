"""Changes of the table as a whole: its existence, layout, constraints, properties and words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from deltaplane.planning.changes.base import Change, Cost
from deltaplane.planning.features import property_features
from deltaplane.planning.observed import Key, Pending
from deltaplane.schema import Check, DeltaTable
from deltaplane.schema.frozen import FrozenMap

__all__ = [
    "AddCheck",
    "AddKey",
    "ClearNotes",
    "CreateSchema",
    "CreateTable",
    "DropCheck",
    "DropKey",
    "DropTable",
    "EnableFeature",
    "Repartition",
    "SetClustering",
    "SetProperties",
    "SetTableComment",
    "SetTags",
    "UnsetProperties",
]


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
class ClearNotes(Change):
    """Remove notes of an interrupted run whose steps are all done."""

    done: Pending
    kind: ClassVar[str] = "clear_notes"

    @property
    def summary(self) -> str:
        return "clear the notes of an interrupted run"


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
        old = f"partitioned by {', '.join(self.before)}" if self.before else "without partitions"
        new = f"partitioned by {', '.join(self.after)}" if self.after else "without partitions"
        return f"rewrite the table {new} (was {old})"


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
