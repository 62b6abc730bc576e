"""Declarations as Python: what `deltaplane pull` writes."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

from deltaplane.schema.column import Column
from deltaplane.schema.keys import Check, ForeignKey, Identity, Unique
from deltaplane.schema.names import constraint_name
from deltaplane.schema.table import DeltaTable
from deltaplane.schema.types import Array, Char, DataType, Decimal, Map, Struct, Varchar

__all__ = ["to_python"]

_HEADER = '''"""Tables of {place}, read from the catalog."""

import deltaplane as dp
from deltaplane.schema import (
{imports}
)
'''


def to_python(tables: Iterable[DeltaTable]) -> str:
    """Write a module that declares the tables and registers them in `registry`."""
    found = sorted(tables, key=lambda table: table.qualified_name.key)
    names: list[str] = []
    bodies = []
    used: set[str] = {"Column", "DeltaTable"}
    for table in found:
        names.append(_variable(table, names))
        bodies.append(f"{names[-1]} = {_table(table, used)}")
    place = ", ".join(sorted({f"{table.catalog}.{table.schema}" for table in found})) or "nothing"
    imports = "\n".join(f"    {name}," for name in sorted(used))
    head = _HEADER.format(place=place.replace('"', "'"), imports=imports)
    return "\n\n".join([head, *bodies, f"registry = dp.Registry({', '.join(names)})"]) + "\n"


def _variable(table: DeltaTable, taken: list[str]) -> str:
    base = re.sub(r"\W", "_", table.name).lower().strip("_") or "table"
    if base[0].isdigit() or keyword.iskeyword(base) or base in ("registry", "dp"):
        base = f"table_{base}"
    name, number = base, 2
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    return name


def _table(table: DeltaTable, used: set[str]) -> str:
    lines = [f"    catalog={table.catalog!r},", f"    schema={table.schema!r},", f"    name={table.name!r},"]
    lines += ["    columns=[", *(f"        {_column(column, used)}," for column in table.columns), "    ],"]
    if table.primary_key:
        lines.append(f"    primary_key={_tuple(table.primary_key)},")
    if table.foreign_keys:
        lines += [
            "    foreign_keys=[",
            *(f"        {_foreign(k, used)}," for k in table.foreign_keys),
            "    ],",
        ]
    if table.unique:
        lines += ["    unique=[", *(f"        {_unique(table, u, used)}," for u in table.unique), "    ],"]
    if table.checks:
        lines += ["    checks=[", *(f"        {_check(c, used)}," for c in table.checks), "    ],"]
    for name in ("partitioned_by", "clustered_by", "features"):
        values = getattr(table, name)
        if values:
            lines.append(f"    {name}={_tuple(values)},")
    for name in ("properties", "tags"):
        values = getattr(table, name)
        if values:
            lines += [f"    {name}={{", *(f"        {k!r}: {v!r}," for k, v in values.items()), "    },"]
    if table.comment:
        lines.append(f"    comment={table.comment!r},")
    if table.location:
        lines.append(f"    location={table.location!r},")
    return "\n".join(["DeltaTable(", *lines, ")"])


def _column(column: Column, used: set[str]) -> str:
    parts = [repr(column.name), _type(column.type, used)]
    if not column.nullable:
        parts.append("nullable=False")
    for name in ("comment", "default", "generated"):
        value = getattr(column, name)
        if value is not None:
            parts.append(f"{name}={value!r}")
    if column.identity is not None:
        parts.append(f"identity={_identity(column.identity, used)}")
    if column.tags:
        parts.append(f"tags={dict(column.tags)!r}")
    return f"Column({', '.join(parts)})"


def _identity(identity: Identity, used: set[str]) -> str:
    if identity == Identity():
        return "True"
    used.add("Identity")
    return f"Identity(start={identity.start}, step={identity.step}, always={identity.always})"


def _type(data_type: DataType, used: set[str]) -> str:
    name = type(data_type).__name__
    used.add(name)
    if isinstance(data_type, Decimal):
        return f"{name}({data_type.precision}, {data_type.scale})"
    if isinstance(data_type, Varchar | Char):
        return f"{name}({data_type.length})"
    if isinstance(data_type, Array):
        return f"{name}({_type(data_type.element, used)})"
    if isinstance(data_type, Map):
        return f"{name}({_type(data_type.key, used)}, {_type(data_type.value, used)})"
    if isinstance(data_type, Struct):
        used.add("Field")
        fields = []
        for field in data_type.fields:
            parts = [repr(field.name), _type(field.type, used)]
            parts += [] if field.nullable else ["nullable=False"]
            parts += [f"comment={field.comment!r}"] if field.comment else []
            fields.append(f"Field({', '.join(parts)})")
        return f"{name}([{', '.join(fields)}])"
    return f"{name}()"


def _check(check: Check, used: set[str]) -> str:
    used.add("Check")
    return f"Check({check.expression!r}, name={check.name!r})"


def _unique(table: DeltaTable, unique: Unique, used: set[str]) -> str:
    used.add("Unique")
    derived = constraint_name("uq", table.name, *unique.columns)
    name = "" if unique.name == derived else f", name={unique.name!r}"
    return f"Unique({_tuple(unique.columns)}{name})"


def _foreign(key: ForeignKey, used: set[str]) -> str:
    used.add("ForeignKey")
    parts = [_tuple(key.columns), repr(key.references)]
    if key.referenced_columns:
        parts.append(f"referenced_columns={_tuple(key.referenced_columns)}")
    return f"ForeignKey({', '.join(parts)}, name={key.name!r})"


def _tuple(values: tuple[str, ...]) -> str:
    return repr(tuple(values))
