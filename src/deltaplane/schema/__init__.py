"""What a table should be: types, columns, keys, tables and the registry that holds them."""

from deltaplane.schema.column import Column
from deltaplane.schema.keys import Check, ForeignKey, Identity, Unique
from deltaplane.schema.names import QualifiedName
from deltaplane.schema.registry import Registry
from deltaplane.schema.table import DeltaTable
from deltaplane.schema.types import (
    Array,
    Binary,
    Boolean,
    Byte,
    Char,
    DataType,
    Date,
    Decimal,
    Double,
    Field,
    Float,
    Integer,
    Long,
    Map,
    Short,
    String,
    Struct,
    Timestamp,
    TimestampNtz,
    Varchar,
    Variant,
)
from deltaplane.schema.typetext import parse_type
from deltaplane.schema.waiver import Waiver

__all__ = [
    "Array",
    "Binary",
    "Boolean",
    "Byte",
    "Char",
    "Check",
    "Column",
    "DataType",
    "Date",
    "Decimal",
    "DeltaTable",
    "Double",
    "Field",
    "Float",
    "ForeignKey",
    "Identity",
    "Integer",
    "Long",
    "Map",
    "QualifiedName",
    "Registry",
    "Short",
    "String",
    "Struct",
    "Timestamp",
    "TimestampNtz",
    "Unique",
    "Varchar",
    "Variant",
    "Waiver",
    "parse_type",
]
