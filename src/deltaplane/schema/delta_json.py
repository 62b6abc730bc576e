"""Delta's schemaString: columns read back from the JSON that the transaction log keeps."""

from __future__ import annotations

import json
from typing import Any

from deltaplane.errors import CatalogError
from deltaplane.schema.column import Column
from deltaplane.schema.expressions import strip_outer_parentheses
from deltaplane.schema.keys import Identity
from deltaplane.schema.types import Array, Char, DataType, Field, Map, Struct, Varchar
from deltaplane.schema.typetext import parse_type

__all__ = ["columns_from_schema_string"]

_CHAR_VARCHAR = "__CHAR_VARCHAR_TYPE_STRING"


def columns_from_schema_string(text: str) -> tuple[Column, ...]:
    """Return the columns of a table.

    Raises:
        CatalogError: The text is not a schema, or has a type this version does not know.
    """
    try:
        return tuple(_column(field) for field in json.loads(text)["fields"])
    except (ValueError, KeyError, TypeError) as error:
        raise CatalogError(f"The table's schema cannot be read ({type(error).__name__}: {error}).") from None


def _column(field: dict[str, Any]) -> Column:
    metadata = field.get("metadata") or {}
    data_type = _type(field["type"])
    if _CHAR_VARCHAR in metadata:
        data_type = _overlay(data_type, parse_type(metadata[_CHAR_VARCHAR]))
    identity = None
    if "delta.identity.start" in metadata:
        identity = Identity(
            int(metadata["delta.identity.start"]),
            int(metadata["delta.identity.step"]),
            not metadata.get("delta.identity.allowExplicitInsert", False),
        )
    return Column(
        field["name"],
        data_type,
        field.get("nullable", True),
        metadata.get("comment"),
        default=_default(metadata.get("CURRENT_DEFAULT")),
        generated=metadata.get("delta.generationExpression"),
        identity=identity,
    )


def _default(text: str | None) -> str | None:
    """Defaults that are more than a literal are stored in parentheses; nobody wrote those."""
    return None if text is None else strip_outer_parentheses(text)


def _type(value: Any) -> DataType:
    if isinstance(value, str):
        return parse_type(value)
    kind = value["type"]
    if kind == "array":
        return Array(_type(value["elementType"]))
    if kind == "map":
        return Map(_type(value["keyType"]), _type(value["valueType"]))
    return Struct(
        Field(
            inner["name"],
            _type(inner["type"]),
            inner.get("nullable", True),
            (inner.get("metadata") or {}).get("comment"),
        )
        for inner in value["fields"]
    )


def _overlay(stored: DataType, declared: DataType) -> DataType:
    """Put char and varchar, which Delta stores as string, back into a type."""
    if isinstance(declared, Char | Varchar):
        return declared
    if isinstance(stored, Array) and isinstance(declared, Array):
        return Array(_overlay(stored.element, declared.element))
    if isinstance(stored, Map) and isinstance(declared, Map):
        return Map(_overlay(stored.key, declared.key), _overlay(stored.value, declared.value))
    if isinstance(stored, Struct) and isinstance(declared, Struct):
        # A rename inside the struct leaves the old name in this text, so the fields go by place.
        return (
            Struct(
                Field(f.name, _overlay(f.type, d.type), f.nullable, f.comment)
                for f, d in zip(stored.fields, declared.fields, strict=False)
            )
            if len(stored.fields) == len(declared.fields)
            else stored
        )
    return stored
