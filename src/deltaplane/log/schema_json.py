"""A table's schema as the log has it: schemaString to columns and to Arrow, and back.

A column has a name for people and, where the table maps columns, another one in files and statistics: its
physical name. Leaf columns are what statistics are about: the fields of structs are followed, arrays and maps
are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from deltaplane.errors import CommitRefused, CorruptLog, UnsupportedTable
from deltaplane.log.actions import Metadata
from deltaplane.log.jsonlines import dump_json, parse_json
from deltaplane.log.properties import data_skipping

__all__ = [
    "LeafColumn",
    "arrow_schema",
    "arrow_type",
    "every_field",
    "is_known_type",
    "leaf_columns",
    "maps_columns",
    "physical_name",
    "schema_fields",
    "schema_string_of",
    "statistics_columns",
]

_PHYSICAL_NAME = "delta.columnMapping.physicalName"
_FIELD_ID = "delta.columnMapping.id"
_FIXED_LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
_COLLATIONS = "__COLLATIONS"
_DECIMAL = re.compile(r"decimal(?:\(\s*(\d+)\s*(?:,\s*(-?\d+)\s*)?\))?")
_ARROW: dict[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
# Arrow types that Delta has under the same meaning, or can hold without loss.
_DELTA: dict[pa.DataType, str] = {
    **{arrow: name for name, arrow in _ARROW.items()},
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.date64(): "date",
    pa.float16(): "float",
    pa.uint8(): "short",
    pa.uint16(): "integer",
    pa.uint32(): "long",
    pa.uint64(): "decimal(20,0)",
}


@dataclass(frozen=True, slots=True)
class LeafColumn:
    """A column, or a field of a struct, that has values of its own.

    Attributes:
        path: Its names from the outside in.
        physical: The same with the names used in files and statistics.
        type: Its type as in the schema, such as decimal(10,2); 'array' or 'map' for those.
        nullable: False when it, or a struct around it, is declared NOT NULL all the way.
        partition: True when its values are in the log and not in the files.
        metadata: The field's metadata.
    """

    path: tuple[str, ...]
    physical: tuple[str, ...]
    type: str
    nullable: bool = True
    partition: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The dotted name."""
        return ".".join(self.path)

    @property
    def comparable(self) -> bool:
        """True when the order of its values is the order that a query compares by.

        CHAR is compared with blanks added and a collated text by its own rules, so the order of the
        statistics is not theirs.
        """
        if str(self.metadata.get(_FIXED_LENGTH, "")).startswith("char") or _COLLATIONS in self.metadata:
            return False
        return self.type not in ("binary", "array", "map") and is_known_type(self.type)


def is_known_type(name: str) -> bool:
    """True for a primitive type that this version can place in an order."""
    return name in _ARROW or _DECIMAL.fullmatch(name) is not None


def schema_fields(schema_string: str) -> list[dict[str, Any]]:
    """The top-level fields of a schemaString.

    Raises:
        CorruptLog: The text is not the schema of a table.
    """
    try:
        schema = parse_json(schema_string)
    except ValueError as error:
        raise CorruptLog("metaData.schemaString", f"it is not JSON: {error}") from None
    return _struct_fields(schema)


def _struct_fields(struct: Any) -> list[dict[str, Any]]:
    fields = struct.get("fields") if isinstance(struct, Mapping) else None
    if not isinstance(fields, list):
        raise CorruptLog("metaData.schemaString", f"not a struct with fields: {struct!r:.80}")
    for item in fields:
        if not isinstance(item, Mapping) or not isinstance(item.get("name"), str) or "type" not in item:
            raise CorruptLog("metaData.schemaString", f"a field without name or type: {item!r:.80}")
    return fields


def physical_name(field: Mapping[str, Any]) -> str:
    """The name of a field in files and statistics."""
    return str((field.get("metadata") or {}).get(_PHYSICAL_NAME, field["name"]))


def maps_columns(configuration: Mapping[str, str]) -> bool:
    """True when the table gives its columns other names in the files."""
    return configuration.get("delta.columnMapping.mode", "none").lower() in ("name", "id")


def every_field(schema_string: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """All fields, also those inside structs, arrays and maps, each with its dotted place."""
    for item in schema_fields(schema_string):
        yield from _inner_fields(item, item["name"])


def _inner_fields(item: dict[str, Any], place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield place, item
    for inner in _fields_within(item["type"]):
        yield from _inner_fields(inner, f"{place}.{inner['name']}")


def _fields_within(kind: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(kind, Mapping):
        return
    if kind.get("type") == "struct":
        yield from _struct_fields(kind)
    for part in ("elementType", "keyType", "valueType"):
        yield from _fields_within(kind.get(part))


def leaf_columns(schema_string: str, partition_columns: Sequence[str] = ()) -> tuple[LeafColumn, ...]:
    """All leaf columns, in the order of the schema."""
    partitions = frozenset(partition_columns)
    return tuple(
        leaf
        for item in schema_fields(schema_string)
        for leaf in _leaves(item, (), (), True, item["name"] in partitions)
    )


def _leaves(
    item: Mapping[str, Any], path: tuple[str, ...], physical: tuple[str, ...], required: bool, partition: bool
) -> Iterator[LeafColumn]:
    path = (*path, item["name"])
    physical = (*physical, physical_name(item))
    required = required and item.get("nullable") is False
    kind = item["type"]
    if isinstance(kind, Mapping) and kind.get("type") == "struct":
        for inner in _struct_fields(kind):
            yield from _leaves(inner, path, physical, required, partition)
        return
    name = str(kind.get("type")) if isinstance(kind, Mapping) else str(kind)
    yield LeafColumn(path, physical, name, not required, partition, item.get("metadata") or {})


def statistics_columns(
    schema_string: str, partition_columns: Sequence[str], configuration: Mapping[str, str]
) -> tuple[LeafColumn, ...]:
    """The leaf columns that a writer of this table collects statistics for.

    Raises:
        UnsupportedTable: The property that names them cannot be understood.
    """
    leaves = tuple(leaf for leaf in leaf_columns(schema_string, partition_columns) if not leaf.partition)
    named = Metadata(id="", schema_string=schema_string, name="the table", configuration=configuration)
    skipping = data_skipping(named)
    if skipping.columns is not None:
        wanted = skipping.columns
        return tuple(leaf for leaf in leaves if any(_covers(name, leaf.path) for name in wanted))
    return leaves if skipping.limit < 0 else leaves[: skipping.limit]


def _covers(name: tuple[str, ...], path: tuple[str, ...]) -> bool:
    return [part.casefold() for part in path[: len(name)]] == [part.casefold() for part in name]


def arrow_schema(schema_string: str, *, physical: bool = False, nullable: bool = False) -> pa.Schema:
    """The Arrow schema of a table.

    Args:
        schema_string: The schema as in the log.
        physical: Use the names and field ids of the files.
        nullable: Declare every field nullable, as Delta's data files do.

    Raises:
        UnsupportedTable: A column has a type that Arrow cannot hold.
    """
    return pa.schema([_arrow_field(item, physical, nullable) for item in schema_fields(schema_string)])


def _arrow_field(item: Mapping[str, Any], physical: bool, nullable: bool) -> pa.Field:
    name = physical_name(item) if physical else str(item["name"])
    number = (item.get("metadata") or {}).get(_FIELD_ID)
    # Only Parquet needs the ids; elsewhere they would make equal schemas differ.
    metadata = {"PARQUET:field_id": str(number)} if physical and number is not None else None
    return pa.field(
        name,
        arrow_type(item["type"], physical, nullable),
        nullable or item.get("nullable") is not False,
        metadata,
    )


def arrow_type(kind: Any, physical: bool = False, nullable: bool = False) -> pa.DataType:
    """The Arrow type of a type in a schema.

    Raises:
        UnsupportedTable: Arrow has no such type.
    """
    if isinstance(kind, str):
        return _primitive(kind)
    form = kind.get("type") if isinstance(kind, Mapping) else None
    if form == "struct":
        return pa.struct([_arrow_field(item, physical, nullable) for item in _struct_fields(kind)])
    if form == "array":
        element = arrow_type(kind["elementType"], physical, nullable)
        return pa.list_(pa.field("element", element, nullable or kind.get("containsNull") is not False))
    if form == "map":
        value = arrow_type(kind["valueType"], physical, nullable)
        return pa.map_(
            arrow_type(kind["keyType"], physical, nullable),
            pa.field("value", value, nullable or kind.get("valueContainsNull") is not False),
        )
    raise CorruptLog("metaData.schemaString", f"not a type: {kind!r:.80}")


def _primitive(name: str) -> pa.DataType:
    if name in _ARROW:
        return _ARROW[name]
    decimal = _DECIMAL.fullmatch(name)
    if decimal is None:
        raise UnsupportedTable(
            f"The table has a column of type {name}, which the embedded reader and writer do not know. "
            "Nothing was read or written. Use Spark for this table.",
            (name,),
        )
    return pa.decimal128(int(decimal[1] or 10), int(decimal[2] or 0))


def schema_string_of(schema: pa.Schema) -> str:
    """The schemaString for an Arrow schema.

    Raises:
        CommitRefused: A column has a type that Delta does not have.
    """
    return dump_json({"type": "struct", "fields": [_delta_field(item, item.name) for item in schema]})


def _delta_field(item: pa.Field, place: str) -> dict[str, Any]:
    return {
        "name": item.name,
        "type": _delta_type(item.type, place),
        "nullable": item.nullable,
        "metadata": {},
    }


def _delta_type(kind: pa.DataType, place: str) -> Any:
    if pa.types.is_dictionary(kind):
        return _delta_type(kind.value_type, place)
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_delta_field(item, f"{place}.{item.name}") for item in kind]}
    if pa.types.is_map(kind):
        return {
            "type": "map",
            "keyType": _delta_type(kind.key_type, f"{place}.key"),
            "valueType": _delta_type(kind.item_type, f"{place}.value"),
            "valueContainsNull": kind.item_field.nullable,
        }
    if _is_list(kind):
        element = _delta_type(kind.value_type, f"{place}.element")
        return {"type": "array", "elementType": element, "containsNull": kind.value_field.nullable}
    return _delta_primitive(kind, place)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _delta_primitive(kind: pa.DataType, place: str) -> str:
    if kind in _DELTA:
        return _DELTA[kind]
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= 38:
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_fixed_size_binary(kind):
        return "binary"
    raise CommitRefused(
        f"Column {place} has the Arrow type {kind}, and Delta has no such type. Nothing was written. "
        "Cast the column before you write it."
    )
