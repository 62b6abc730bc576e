"""A Delta table as it should be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from deltaplane.errors import DeclarationError
from deltaplane.schema.column import Column
from deltaplane.schema.expressions import canonical, parses, references
from deltaplane.schema.frozen import FrozenMap, text_map
from deltaplane.schema.keys import Check, ForeignKey, Unique
from deltaplane.schema.names import QualifiedName, constraint_name, normal_path, split_path
from deltaplane.schema.types import (
    Array,
    Binary,
    Boolean,
    DataType,
    Field,
    Map,
    Struct,
    Variant,
    first_duplicate,
    require_name,
    require_text,
    walk,
)
from deltaplane.sqltext import quote_identifier

__all__ = ["DeltaTable"]

_NOT_CLUSTERABLE = (Array, Map, Struct, Variant, Boolean, Binary)
_NOT_PARTITIONABLE = (Array, Map, Struct, Variant)
# Each is set through something else, so that there is one way to say it.
_RESERVED_PROPERTIES = {
    "deltaplane.": "deltaplane keeps its own notes there",
    "delta.constraints.": "declare it in checks=",
    "delta.feature.": "declare it in features=",
    "delta.minreaderversion": "declare features=, and the protocol follows",
    "delta.minwriterversion": "declare features=, and the protocol follows",
    "delta.columnmapping.maxcolumnid": "Delta sets it by itself",
    "delta.rowtracking.materialized": "Delta sets it by itself",
    "delta.incommittimestampenablement": "Delta sets it by itself",
    "delta.redirect": "Delta sets it by itself",
    "spark.": "Spark keeps its own notes there",
    "option.": "Spark keeps its own notes there",
    "view.": "Spark keeps its own notes there",
}
_RESERVED_NAMES = {
    "comment": "declare it in comment=",
    "location": "declare it in location=",
    "owner": "the catalog sets it by itself",
    "provider": "the catalog sets it by itself",
    "external": "the catalog sets it by itself",
    "is_managed_location": "the catalog sets it by itself",
    "clusteringcolumns": "declare it in clustered_by=",
}


@dataclass(frozen=True)
class DeltaTable:
    """A declared table. It checks itself when it is made.

    Attributes:
        catalog: On open-source Spark mapped to the session's catalog by configuration.
        schema: A missing one is created as a planned action.
        name: The table's name.
        columns: In the order the table should show them.
        primary_key: Column names.
        foreign_keys: `ForeignKey` values.
        unique: `Unique` values, or tuples of column names.
        checks: `Check` values, or SQL texts.
        partitioned_by: Column names. Excludes `clustered_by`.
        clustered_by: Up to four columns, or nested fields as `"s.a"`.
        properties: Table properties, such as `{"delta.enableChangeDataFeed": "true"}`.
        features: Names of table features to support, such as `"deletionVectors"`.
        comment: Shown by every catalog.
        location: Where the files live; left out, the catalog decides.
        tags: Labels. SQL tags on Databricks, table properties on open-source Spark.
    """

    catalog: str
    schema: str
    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    unique: tuple[Unique, ...] = ()
    checks: tuple[Check, ...] = ()
    partitioned_by: tuple[str, ...] = ()
    clustered_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=FrozenMap)
    features: tuple[str, ...] = ()
    comment: str | None = None
    location: str | None = None
    tags: Mapping[str, str] = field(default_factory=FrozenMap)

    def __init__(
        self,
        catalog: str,
        schema: str,
        name: str,
        columns: Iterable[Column],
        primary_key: Iterable[str] | str = (),
        foreign_keys: Iterable[ForeignKey] = (),
        unique: Iterable[Unique | Iterable[str]] = (),
        checks: Iterable[Check | str] = (),
        partitioned_by: Iterable[str] | str = (),
        clustered_by: Iterable[str] | str = (),
        properties: Mapping[str, Any] | None = None,
        features: Iterable[str] | str = (),
        comment: str | None = None,
        location: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "catalog", catalog)
        put(self, "schema", schema)
        put(self, "name", name)
        put(self, "columns", _columns(name, columns))
        require_text(f"comment of table {name}", comment)
        put(self, "primary_key", _names(primary_key))
        put(self, "foreign_keys", tuple(foreign_keys))
        put(self, "unique", tuple(u if isinstance(u, Unique) else Unique(u) for u in unique))
        put(self, "checks", tuple(c if isinstance(c, Check) else Check(c) for c in checks))
        put(self, "partitioned_by", _names(partitioned_by))
        put(self, "clustered_by", tuple(self._path(key) for key in _names(clustered_by)))
        put(self, "properties", text_map(f"properties of table {name}", _property_texts(properties)))
        put(self, "features", tuple(sorted(set(_names(features)))))
        put(self, "comment", comment or None)
        put(self, "location", location)
        put(self, "tags", text_map(f"tags of table {name}", tags))
        self._name_constraints()
        _validate(self)

    def _name_constraints(self) -> None:
        put = object.__setattr__
        put(self, "checks", tuple(replace(c, name=c.name or self._check_name(c)) for c in self.checks))
        put(
            self,
            "unique",
            tuple(
                Unique(u.columns, u.name or constraint_name("uq", self.name, *u.columns)) for u in self.unique
            ),
        )
        named = []
        for fk in self.foreign_keys:
            name = fk.name or constraint_name("fk", self.name, *fk.columns, "to", fk.references)
            named.append(ForeignKey(fk.columns, fk.references, fk.referenced_columns, name))
        put(self, "foreign_keys", tuple(named))

    def _check_name(self, check: Check) -> str:
        return constraint_name("ck", self.name, canonical(check.expression))

    def _path(self, key: str) -> str:
        return quote_identifier(key) if "." in key and self.column(key) else normal_path(key)

    @cached_property
    def qualified_name(self) -> QualifiedName:
        """The table's full name."""
        return QualifiedName(self.catalog, self.schema, self.name)

    @cached_property
    def primary_key_name(self) -> str | None:
        """The derived name of the primary key, or None without one."""
        return constraint_name("pk", self.name, *self.primary_key) if self.primary_key else None

    def column(self, name: str) -> Column | None:
        """Return the column of that name, ignoring case."""
        wanted = name.casefold()
        return next((c for c in self.columns if c.name.casefold() == wanted), None)

    def type_at(self, path: str) -> DataType | None:
        """Return the type of a column or of a nested field written as `s.a`."""
        first, *rest = split_path(path)
        column = self.column(first)
        found: DataType | None = column.type if column else None
        for name in rest:
            fields = found.fields if isinstance(found, Struct) else ()
            found = next((f.type for f in fields if f.name.casefold() == name.casefold()), None)
        return found


def _names(value: Iterable[str] | str) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else tuple(value)
    for name in names:
        require_name("a name in a list", name)
    return names


def _columns(table: str, columns: object) -> tuple[Column, ...]:
    if not isinstance(columns, Iterable) or isinstance(columns, str):
        raise DeclarationError(
            f"table {table}: columns={columns!r} is not a list. Write columns=[Column(…), …]."
        )
    return tuple(columns)


def _property_texts(properties: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Numbers and truth values are written the way Delta writes them; everything else must be text."""
    if not isinstance(properties, Mapping):
        return properties
    return {key: _property_text(value) for key, value in properties.items()}


def _property_text(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _validate(table: DeltaTable) -> None:
    name = table.qualified_name
    if not table.columns:
        raise DeclarationError(f"{name}: a table needs at least one column. Add one to columns=[…].")
    for column in table.columns:
        if not isinstance(column, Column):
            raise DeclarationError(f"{name}: {column!r} is not a Column. Write Column(name, type).")
    duplicate = first_duplicate(c.name for c in table.columns)
    if duplicate:
        raise DeclarationError(
            f"{name}: column {duplicate} is declared twice (Spark ignores upper and lower case). "
            "Rename one of the two."
        )
    _validate_references(table)
    _validate_layout(table)
    _validate_constraints(table)
    _validate_properties(table)
    _validate_renames(table)


def _validate_references(table: DeltaTable) -> None:
    name = table.qualified_name
    groups = [("primary_key", table.primary_key), ("partitioned_by", table.partitioned_by)]
    groups += [(f"unique {u.name}", u.columns) for u in table.unique]
    groups += [(f"foreign key {fk.name}", fk.columns) for fk in table.foreign_keys]
    for what, columns in groups:
        for column in columns:
            if table.column(column) is None:
                raise DeclarationError(
                    f"{name}: {what} names column {column}, which is not declared. {_hint(table)}"
                )
        duplicate = first_duplicate(columns)
        if duplicate:
            raise DeclarationError(f"{name}: {what} names column {duplicate} twice. Remove one.")
    for column in table.clustered_by:
        if table.type_at(column) is None:
            raise DeclarationError(
                f"{name}: clustered_by names column {column}, which is not declared. {_hint(table)}"
            )
    for check in table.checks:
        _require_known(table, f"check {check.name}", check.expression)
    for declared in table.columns:
        if declared.generated is not None:
            _require_known(table, f"generated column {declared.name}", declared.generated)


def _require_known(table: DeltaTable, what: str, expression: str) -> None:
    if not parses(expression):
        return
    for path in sorted(references(expression)):
        if table.column(path[0]) is None:
            raise DeclarationError(
                f"{table.qualified_name}: {what} ({expression}) uses column {'.'.join(path)}, which is "
                f"not declared. "
                f"{_hint(table)}"
            )


def _hint(table: DeltaTable) -> str:
    shown = ", ".join(c.name for c in table.columns[:8])
    return f"Declared columns: {shown}{', …' if len(table.columns) > 8 else ''}."


def _validate_layout(table: DeltaTable) -> None:
    name = table.qualified_name
    if table.partitioned_by and table.clustered_by:
        raise DeclarationError(
            f"{name}: a table is either partitioned ({', '.join(table.partitioned_by)}) or clustered "
            f"({', '.join(table.clustered_by)}), not both. Keep one of partitioned_by and clustered_by."
        )
    for column in table.partitioned_by:
        _refuse_type(table, column, _NOT_PARTITIONABLE, "partitioned by")
    if table.partitioned_by and len(table.partitioned_by) == len(table.columns):
        raise DeclarationError(
            f"{name}: every column is a partition column, which leaves nothing to store in the files. "
            "Leave at least one column out of partitioned_by."
        )
    for column in table.clustered_by:
        _refuse_type(table, column, _NOT_CLUSTERABLE, "clustered by")
    duplicate = first_duplicate(table.clustered_by)
    if duplicate:
        raise DeclarationError(f"{name}: clustered_by names column {duplicate} twice. Remove one.")


def _refuse_type(table: DeltaTable, column: str, refused: tuple[type[DataType], ...], what: str) -> None:
    data_type = table.type_at(column)
    if isinstance(data_type, refused):
        raise DeclarationError(
            f"{table.qualified_name}: column {column} is {data_type}, and a table cannot be {what} that "
            f"type. "
            "Choose a column of another type."
        )


def _validate_constraints(table: DeltaTable) -> None:
    names = [c.name for c in table.checks] + [u.name for u in table.unique]
    names += [fk.name for fk in table.foreign_keys]
    duplicate = first_duplicate(name for name in names if name)
    if duplicate:
        raise DeclarationError(
            f"{table.qualified_name}: two constraints are called {duplicate}. Remove one, or name them apart."
        )
    for check in table.checks:
        if (check.name or "").startswith("deltaplane_"):
            raise DeclarationError(
                f"{table.qualified_name}: check {check.name}: names that begin with deltaplane_ are "
                f"reserved. "
                "Choose another name."
            )
    for column in table.primary_key:
        declared = table.column(column)
        if declared and isinstance(declared.type, Array | Map | Struct | Variant):
            raise DeclarationError(
                f"{table.qualified_name}: column {column} is {declared.type} and cannot be part of the "
                f"primary key. "
                "Choose a column of a simple type."
            )


def _validate_properties(table: DeltaTable) -> None:
    if table.location is not None and not re.match(r"/|[A-Za-z][A-Za-z0-9+.-]*:", table.location):
        raise DeclarationError(
            f"{table.qualified_name}: location {table.location!r} depends on where the program runs. "
            "Write an absolute path or a URI."
        )
    for key in table.properties:
        instead = _RESERVED_NAMES.get(key.casefold())
        for reserved, reason in _RESERVED_PROPERTIES.items():
            instead = reason if key.casefold().startswith(reserved) else instead
        if instead:
            raise DeclarationError(
                f"{table.qualified_name}: property {key} is reserved: {instead}. Take it out of properties."
            )
    _validate_stats_columns(table)


def _validate_stats_columns(table: DeltaTable) -> None:
    stats = table.properties.get("delta.dataSkippingStatsColumns", "")
    for column in (part.strip() for part in stats.split(",") if part.strip()):
        if table.type_at(column) is None:
            raise DeclarationError(
                f"{table.qualified_name}: delta.dataSkippingStatsColumns names column {column}, which is not "
                f"declared. {_hint(table)}"
            )


def _validate_renames(table: DeltaTable) -> None:
    def refuse(where: str, old: str) -> DeclarationError:
        return DeclarationError(
            f"{table.qualified_name}: two columns {where}say renamed_from={old!r}. Only one can be its "
            f"successor."
        )

    duplicate = first_duplicate(c.renamed_from for c in table.columns if c.renamed_from)
    if duplicate:
        raise refuse("", duplicate)
    for column in table.columns:
        for fields in _structs(column.type):
            duplicate = first_duplicate(f.renamed_from for f in fields if f.renamed_from)
            if duplicate:
                raise refuse(f"inside {column.name} ", duplicate)


def _structs(data_type: DataType) -> Iterable[tuple[Field, ...]]:
    return (inner.fields for inner in walk(data_type) if isinstance(inner, Struct))
