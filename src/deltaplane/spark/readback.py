"""From what a catalog says to an `ObservedTable`. Pure: the adapters fetch, this understands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from deltaplane.errors import CatalogError, DeltaplaneError
from deltaplane.planning.features import Protocol
from deltaplane.planning.observed import Key, ObservedTable, is_not_null_check, keys_to_declaration
from deltaplane.planning.properties import is_server_property
from deltaplane.schema import Check, DeltaTable, QualifiedName
from deltaplane.schema.delta_json import columns_from_schema_string
from deltaplane.schema.frozen import FrozenMap
from deltaplane.spark import notes

__all__ = ["RawTable", "observed_from"]

_CONSTRAINT = "delta.constraints."


@dataclass(frozen=True)
class RawTable:
    """What the catalog says about one table, before it is understood.

    Attributes:
        keys: Keys as the catalog keeps them; None where they are kept in properties.
        tags: Tags by column (None for the table), likewise.
    """

    schema_string: str
    properties: Mapping[str, str]
    partition_columns: Sequence[str] = ()
    clustering_columns: Sequence[str] = ()
    comment: str | None = None
    location: str | None = None
    external: bool = False
    reader: int = 1
    writer: int = 2
    features: Sequence[str] = ()
    version: int = 0
    num_files: int = 0
    size_bytes: int = 0
    keys: tuple[Key, ...] | None = None
    tags: Mapping[str | None, Mapping[str, str]] | None = field(default=None)


def observed_from(name: QualifiedName, raw: RawTable) -> ObservedTable:
    """Understand what the catalog says.

    Raises:
        CatalogError: It says something this version cannot represent.
    """
    try:
        return _observed(name, raw)
    except CatalogError:
        raise
    except DeltaplaneError as error:
        raise CatalogError(f"{name} has something that cannot be declared: {error}") from None


def _observed(name: QualifiedName, raw: RawTable) -> ObservedTable:
    checks, held = _checks(raw.properties)
    keys = notes.keys_from(raw.properties) if raw.keys is None else raw.keys
    column_tags = notes.column_tags_from(raw.properties)
    table_tags: Mapping[str, str] = notes.tags_from(raw.properties)
    if raw.tags is not None:
        column_tags = {c.casefold(): FrozenMap(t) for c, t in raw.tags.items() if c is not None}
        table_tags = raw.tags.get(None, {})
    columns = tuple(
        replace(
            column,
            nullable=column.nullable and column.name.casefold() not in held,
            tags=column_tags.get(column.name.casefold(), FrozenMap()),
        )
        for column in columns_from_schema_string(raw.schema_string)
    )
    present = {column.name.casefold() for column in columns}
    primary, unique, foreign = keys_to_declaration(
        tuple(key for key in keys if all(c.casefold() in present for c in key.columns))
    )
    table = DeltaTable(
        *name.parts,
        columns,
        primary_key=primary,
        unique=unique,
        foreign_keys=foreign,
        checks=checks,
        partitioned_by=raw.partition_columns,
        clustered_by=raw.clustering_columns,
        properties={key: value for key, value in raw.properties.items() if not is_server_property(key)},
        comment=raw.comment,
        location=raw.location,
        tags=table_tags,
    )
    return ObservedTable(
        table=table,
        protocol=Protocol(raw.reader, raw.writer, frozenset(raw.features)),
        not_null_checks=FrozenMap({c: n for c, n in held.items() if c in present}),
        owner=raw.properties.get(notes.OWNER),
        managed_properties=notes.managed_from(raw.properties),
        pending=notes.pending_from(raw.properties),
        external=raw.external,
        version=raw.version,
        num_files=raw.num_files,
        size_bytes=raw.size_bytes,
    )


def _checks(properties: Mapping[str, str]) -> tuple[list[Check], dict[str, str]]:
    """Split constraints into checks proper and those that hold a NOT NULL."""
    checks: list[Check] = []
    held: dict[str, str] = {}
    for key, expression in sorted(properties.items()):
        if not key.startswith(_CONSTRAINT):
            continue
        check = Check(expression, key.removeprefix(_CONSTRAINT))
        column = is_not_null_check(check)
        if column is None:
            checks.append(check)
        else:
            held[column] = check.name or ""
    return checks, held
