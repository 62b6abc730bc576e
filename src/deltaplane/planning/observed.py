"""A table as it is: its declaration read back, and what only the running table knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from deltaplane.planning.codec import digest
from deltaplane.planning.features import Protocol
from deltaplane.schema import Check, DeltaTable, ForeignKey, QualifiedName, Unique
from deltaplane.schema.expressions import canonical
from deltaplane.schema.frozen import FrozenMap
from deltaplane.schema.names import constraint_name

__all__ = [
    "MAPPING_MODE",
    "Key",
    "ObservedTable",
    "Pending",
    "not_null_constraint",
    "table_keys",
]

MAPPING_MODE = "delta.columnMapping.mode"
NOT_NULL_PREFIX = "deltaplane_not_null"


@dataclass(frozen=True)
class Key:
    """A primary, unique or foreign key in one shape, as it is stored and compared."""

    kind: str
    name: str
    columns: tuple[str, ...]
    references: str | None = None
    referenced_columns: tuple[str, ...] = ()

    def same_as(self, other: Key) -> bool:
        """Tell whether both are the same key, ignoring the case of names."""
        return _folded(self) == _folded(other)


def _folded(key: Key) -> tuple[object, ...]:
    return (
        key.kind,
        key.name.casefold(),
        tuple(c.casefold() for c in key.columns),
        (key.references or "").casefold(),
        tuple(c.casefold() for c in key.referenced_columns),
    )


@dataclass(frozen=True)
class Pending:
    """What an interrupted run has still to do, written on the table before it began."""

    backfill: tuple[str, ...] = ()
    not_null: tuple[str, ...] = ()
    renames: Mapping[str, str] = field(default_factory=FrozenMap)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was left undone."""
        return not (self.backfill or self.not_null or self.renames)


@dataclass(frozen=True)
class ObservedTable:
    """A table as the catalog shows it.

    Attributes:
        table: Everything a declaration can say, read back.
        protocol: The protocol in force.
        not_null_checks: For each column whose NOT NULL is held by a CHECK, the name of that CHECK.
        owner: The owner mark, or None when the table was not created by deltaplane.
        managed_properties: The properties deltaplane has set, and may unset.
        pending: What an interrupted run left undone.
        external: Whether the table lives where somebody said, not where the catalog puts tables.
        version: The table's version when it was read.
        num_files: Active files.
        size_bytes: Their size.
    """

    table: DeltaTable
    protocol: Protocol = field(default_factory=Protocol)
    not_null_checks: Mapping[str, str] = field(default_factory=FrozenMap)
    owner: str | None = None
    managed_properties: frozenset[str] = frozenset()
    pending: Pending = Pending()
    external: bool = False
    version: int = 0
    num_files: int = 0
    size_bytes: int = 0

    @property
    def name(self) -> QualifiedName:
        """The table's name."""
        return self.table.qualified_name

    @property
    def is_mapped(self) -> bool:
        """Whether columns can be renamed and dropped without a rewrite."""
        return self.table.properties.get(MAPPING_MODE, "none").casefold() in ("name", "id")

    @property
    def fingerprint(self) -> str:
        """Changes when anything a plan depends on changes; not when rows are written."""
        return digest(replace(self, version=0, num_files=0, size_bytes=0))


def not_null_constraint(column: str) -> str:
    """Return the name of the CHECK that holds NOT NULL for a column."""
    return constraint_name(NOT_NULL_PREFIX, column.casefold())


def is_not_null_check(check: Check) -> str | None:
    """Return the column a NOT NULL check holds, or None when it is an ordinary check."""
    if not (check.name or "").startswith(NOT_NULL_PREFIX):
        return None
    words = canonical(check.expression)
    suffix = " is not null"
    if not words.endswith(suffix):
        return None
    column = words.removesuffix(suffix)
    return column[1:-1].replace("``", "`") if column.startswith("`") else column


def table_keys(table: DeltaTable) -> tuple[Key, ...]:
    """Return every key of a table in one shape, ordered by name."""
    keys: list[Key] = []
    if table.primary_key_name:
        keys.append(Key("primary", table.primary_key_name, table.primary_key))
    keys += [Key("unique", unique.name or "", unique.columns) for unique in table.unique]
    keys += [_foreign(table, fk) for fk in table.foreign_keys]
    return tuple(sorted(keys, key=lambda key: key.name))


def _foreign(table: DeltaTable, fk: ForeignKey) -> Key:
    target = QualifiedName.parse(fk.references, catalog=table.catalog, schema=table.schema)
    return Key("foreign", fk.name or "", fk.columns, str(target), fk.referenced_columns)


def keys_to_declaration(
    keys: tuple[Key, ...],
) -> tuple[tuple[str, ...], tuple[Unique, ...], tuple[ForeignKey, ...]]:
    """Return primary key, unique constraints and foreign keys as a declaration spells them."""
    primary = next((key.columns for key in keys if key.kind == "primary"), ())
    unique = tuple(Unique(key.columns, key.name) for key in keys if key.kind == "unique")
    foreign = tuple(
        ForeignKey(key.columns, key.references or "", key.referenced_columns, key.name)
        for key in keys
        if key.kind == "foreign"
    )
    return primary, unique, foreign
