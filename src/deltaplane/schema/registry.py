"""All declared tables as one set, with the promises they make about each other."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter

from deltaplane.errors import DeclarationError, RegistryError
from deltaplane.schema.keys import ForeignKey
from deltaplane.schema.names import QualifiedName
from deltaplane.schema.table import DeltaTable
from deltaplane.schema.waiver import Waiver

__all__ = ["Registry"]

Key = tuple[str, str, str]


class Registry:
    """The tables that belong together.

    Args:
        *tables: Tables to register at once.
        namespaces: When given, the only `catalog.schema` (or `catalog`) places tables may be declared in.
        owner: When given, the registry claims every table that carries this owner mark: one that is no longer
            declared is planned to be dropped (and blocked by rule DS101 until waived). Left out, nothing is
            dropped.
    """

    def __init__(
        self, *tables: DeltaTable, namespaces: Iterable[str] | str | None = None, owner: str | None = None
    ) -> None:
        allowed = [namespaces] if isinstance(namespaces, str) else namespaces
        self.namespaces = None if allowed is None else frozenset(place.casefold() for place in allowed)
        self.owner = owner
        self._tables: dict[Key, DeltaTable] = {}
        self._locations: dict[str, DeltaTable] = {}
        self._waivers: set[Waiver] = set()
        self.register(*tables)

    def register(self, *tables: DeltaTable) -> None:
        """Add tables. The order does not matter.

        Raises:
            RegistryError: A name or a location is taken, or the namespace policy forbids the place.
        """
        for table in tables:
            if not isinstance(table, DeltaTable):
                raise RegistryError(
                    f"{table!r} is not a DeltaTable. Register declarations of deltaplane.schema."
                )
            self._require_free(table)
            self._require_namespace(table)
            self._tables[table.qualified_name.key] = table
            if table.location:
                self._locations[normal_location(table.location)] = table

    def waive(self, code: str, table: str, *, reason: str, column: str | None = None) -> None:
        """Set a rule aside for a table or one of its columns. The reason is reported with the plan."""
        self._waivers.add(Waiver(code, table, column, reason))

    @property
    def tables(self) -> tuple[DeltaTable, ...]:
        """The tables by name, whatever the order of registration was."""
        return tuple(self._tables[key] for key in sorted(self._tables))

    @property
    def waivers(self) -> tuple[Waiver, ...]:
        """The waivers in a stable order."""
        return tuple(sorted(self._waivers, key=lambda w: (w.code, w.table, w.column or "", w.reason)))

    def __iter__(self) -> Iterator[DeltaTable]:
        return iter(self.tables)

    def __len__(self) -> int:
        return len(self._tables)

    def __contains__(self, name: object) -> bool:
        if isinstance(name, DeltaTable):
            return self._tables.get(name.qualified_name.key) == name
        if isinstance(name, QualifiedName):
            return name.key in self._tables
        return isinstance(name, str) and any(str(t.qualified_name) == name for t in self._tables.values())

    def get(self, name: QualifiedName) -> DeltaTable | None:
        """Return the declaration of that name, ignoring case."""
        return self._tables.get(name.key)

    def dependencies(self) -> dict[Key, frozenset[Key]]:
        """Check every foreign key and return, for each table, the tables it points to.

        Raises:
            RegistryError: A key points to nothing, to the wrong columns, or in a circle.
        """
        graph = {key: frozenset(self._targets(table)) for key, table in self._tables.items()}
        try:
            tuple(TopologicalSorter({k: v - {k} for k, v in graph.items()}).static_order())
        except CycleError as cycle:
            path = " -> ".join(str(self._tables[key].qualified_name) for key in cycle.args[1])
            raise RegistryError(
                f"Foreign keys go in a circle: {path}. Nothing was changed. Remove one of these keys."
            ) from None
        return graph

    def merged_names(self, catalogs: Mapping[str, str]) -> None:
        """Refuse two tables that become one when their catalogs are mapped to the engine's.

        Args:
            catalogs: The engine's catalog for each declared one.
        """
        seen: dict[Key, DeltaTable] = {}
        for table in self.tables:
            mapped = QualifiedName(catalogs.get(table.catalog, table.catalog), table.schema, table.name)
            other = seen.setdefault(mapped.key, table)
            if other is not table:
                raise RegistryError(
                    f"{other.qualified_name} and {table.qualified_name} are the same table here, because "
                    f"catalogs "
                    f"{other.catalog} and {table.catalog} both map to {mapped.catalog}. Nothing was changed. "
                    "Register one of them, or map the catalogs apart in [catalogs] of deltaplane.toml."
                )

    def _targets(self, table: DeltaTable) -> Iterator[Key]:
        for key in table.foreign_keys:
            target = self._resolve(table, key)
            _require_matching_columns(table, key, target)
            yield target.qualified_name.key

    def _resolve(self, table: DeltaTable, key: ForeignKey) -> DeltaTable:
        try:
            name = QualifiedName.parse(key.references, catalog=table.catalog, schema=table.schema)
        except DeclarationError as error:
            raise RegistryError(f"{table.qualified_name}: foreign key {key.name}: {error}") from None
        target = self._tables.get(name.key)
        if target is None:
            raise RegistryError(
                f"{table.qualified_name}: foreign key {key.name} points to {name}, which is not registered. "
                "Register that table, or correct the name."
            )
        return target

    def _require_free(self, table: DeltaTable) -> None:
        name = table.qualified_name
        other = self._tables.get(name.key)
        if other is not None:
            raise RegistryError(
                f"{name} is registered already (as {other.qualified_name}; Spark ignores case). "
                "Register each table once."
            )
        if table.location and (twin := self._locations.get(normal_location(table.location))):
            raise RegistryError(
                f"{name} and {twin.qualified_name} have the same location {table.location}: that would "
                f"be one "
                "physical table with two declarations. Give one of them another location."
            )

    def _require_namespace(self, table: DeltaTable) -> None:
        if self.namespaces is None:
            return
        place = f"{table.catalog}.{table.schema}".casefold()
        if place not in self.namespaces and table.catalog.casefold() not in self.namespaces:
            allowed = ", ".join(sorted(self.namespaces))
            raise RegistryError(
                f"{table.qualified_name}: this registry allows tables only in {allowed}. "
                "Move the table, or add its place to namespaces=."
            )


def _require_matching_columns(table: DeltaTable, key: ForeignKey, target: DeltaTable) -> None:
    label = f"{table.qualified_name}: foreign key {key.name}"
    there = key.referenced_columns or target.primary_key
    if not there:
        raise RegistryError(
            f"{label} points to {target.qualified_name}, which has no primary key. "
            "Declare one there, or name the columns in referenced_columns=."
        )
    if len(there) != len(key.columns):
        raise RegistryError(
            f"{label} has {len(key.columns)} columns, and the key of {target.qualified_name} has "
            f"{len(there)}."
            " Give the same number on both sides."
        )
    for mine, theirs in zip(key.columns, there, strict=True):
        target_column, own_column = target.column(theirs), table.column(mine)
        if target_column is None:
            raise RegistryError(
                f"{label} points to column {theirs}, which {target.qualified_name} does not have."
            )
        if own_column is not None and own_column.type != target_column.type:
            raise RegistryError(
                f"{label}: {mine} is {own_column.type} and {target.qualified_name}.{theirs} is "
                f"{target_column.type}. "
                "Declare the same type on both sides."
            )


def normal_location(location: str) -> str:
    text = location.removeprefix("file://").removeprefix("file:")
    scheme, separator, rest = text.partition("://")
    if separator:
        return f"{scheme.casefold()}://{posixpath.normpath(rest)}"
    return posixpath.normpath(text)
