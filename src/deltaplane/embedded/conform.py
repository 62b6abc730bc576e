"""Arrow data brought to the schema of a table: the same columns, types and names as in its files.

What fits without loss is converted (an int64 that holds small numbers into an integer column, milliseconds
into microseconds). What does not is refused, with the column and the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltaplane.errors import CommitRefused
from deltaplane.log.schema_json import arrow_schema, arrow_type, physical_name, schema_fields

__all__ = ["Conformer"]

_LENGTH = re.compile(r"(var)?char\((\d+)\)")


class Conformer:
    """Brings batches to a table's schema, under the names that the files use."""

    def __init__(self, schema_string: str, table: str) -> None:
        self._fields = schema_fields(schema_string)
        self._table = table
        self.schema = arrow_schema(schema_string, physical=True, nullable=True)

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the table's columns, in their order.

        Raises:
            CommitRefused: A column is too many, missing, of another type, null or too long.
        """
        arrays = _children(batch.schema.names, batch.columns, batch.num_rows, self._fields, "", self._refuse)
        fitted = [
            _fit(array, item, item["name"], self._refuse, batch.num_rows, 0)
            for array, item in zip(arrays, self._fields, strict=True)
        ]
        return pa.record_batch(fitted, schema=self.schema)

    def _refuse(self, place: str, cause: str, remedy: str) -> CommitRefused:
        return CommitRefused(f"{self._table}: column {place} {cause}. Nothing was written. {remedy}")


def _children(
    names: Sequence[str],
    arrays: Sequence[pa.Array],
    rows: int,
    fields: Sequence[Mapping[str, Any]],
    prefix: str,
    refuse: Any,
) -> list[pa.Array]:
    """The given columns in the order of the wanted fields; null where one is left out."""
    given: dict[str, pa.Array] = {}
    for name, array in zip(names, arrays, strict=True):
        if name in given:
            raise refuse(prefix + name, "is in the data twice", "Give each column once.")
        given[name] = array
    exact = {item["name"] for item in fields}
    folded = {item["name"].casefold(): item["name"] for item in fields}
    matched: dict[str, pa.Array] = {}
    for name, array in given.items():
        wanted = name if name in exact else folded.get(name.casefold())
        if wanted is None:
            raise refuse(
                prefix + name,
                "is not in the table",
                f"Leave it out, or add it to the table first. The table has: {', '.join(sorted(exact))}.",
            )
        if wanted in matched:
            raise refuse(
                prefix + name, "is in the data twice, in different spelling", "Give each column once."
            )
        matched[wanted] = array
    return [_given_or_null(matched, item, rows, prefix, refuse) for item in fields]


def _given_or_null(
    matched: Mapping[str, pa.Array], item: Mapping[str, Any], rows: int, prefix: str, refuse: Any
) -> pa.Array:
    name = item["name"]
    if name in matched:
        return matched[name]
    if "CURRENT_DEFAULT" in (item.get("metadata") or {}):
        raise refuse(
            prefix + name,
            "has a default and is not in the data, and the embedded writer does not evaluate defaults",
            "Give the column, with nulls if they are meant, or write with Spark.",
        )
    if item.get("nullable") is False:
        raise refuse(prefix + name, "is NOT NULL and is not in the data", "Give the column.")
    return pa.nulls(rows)


def _fit(
    array: pa.Array, item: Mapping[str, Any], place: str, refuse: Any, rows: int, allowed_nulls: int
) -> pa.Array:
    """One column under its declared type; `allowed_nulls` rows are null because what is around them is."""
    kind = item["type"]
    fitted = _convert(array, kind, place, refuse)
    if item.get("nullable") is False and fitted.null_count > allowed_nulls:
        raise refuse(
            place,
            f"is NOT NULL, and {fitted.null_count - allowed_nulls} of {rows} rows are null",
            "Fill or drop them.",
        )
    length = _LENGTH.fullmatch(str((item.get("metadata") or {}).get("__CHAR_VARCHAR_TYPE_STRING", "")))
    return _limited(fitted, length, place, refuse) if length else fitted


def _limited(array: pa.Array, length: re.Match[str], place: str, refuse: Any) -> pa.Array:
    most = int(length[2])
    longest = pc.max(pc.utf8_length(array)).as_py() or 0
    if longest > most:
        raise refuse(place, f"is {length[0]}, and a text has {longest} characters", "Shorten it.")
    return array if length[1] else pc.utf8_rpad(array, most)


def _convert(array: pa.Array, kind: Any, place: str, refuse: Any) -> pa.Array:
    target = arrow_type(kind, physical=True, nullable=True)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if isinstance(kind, str):
        return _convert_primitive(array, target, place, refuse)
    form = kind["type"]
    if form == "struct" and pa.types.is_struct(array.type):
        return _convert_struct(array, kind["fields"], target, place, refuse)
    if form == "array" and _is_list(array.type):
        return _convert_list(array, kind, target, place, refuse)
    if form == "map" and pa.types.is_map(array.type):
        return _convert_map(array, kind, target, place, refuse)
    raise _mismatch(array.type, target, place, refuse)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _convert_struct(
    array: pa.StructArray, fields: Sequence[Mapping[str, Any]], target: pa.DataType, place: str, refuse: Any
) -> pa.Array:
    names = [array.type.field(i).name for i in range(array.type.num_fields)]
    children = _children(names, array.flatten(), len(array), fields, f"{place}.", refuse)
    fitted = [
        _fit(child, item, f"{place}.{item['name']}", refuse, len(array), array.null_count)
        for child, item in zip(children, fields, strict=True)
    ]
    wanted = [target.field(physical_name(item)) for item in fields]
    return pa.StructArray.from_arrays(fitted, fields=wanted, mask=array.is_null())


def _convert_list(
    array: pa.Array, kind: Mapping[str, Any], target: pa.DataType, place: str, refuse: Any
) -> pa.Array:
    element = {"type": kind["elementType"], "nullable": kind.get("containsNull") is not False}
    values = array.flatten()
    fitted = _fit(values, element, f"{place}.element", refuse, len(values), 0)
    return pa.ListArray.from_arrays(_offsets(array), fitted, type=target, mask=array.is_null())


def _convert_map(
    array: pa.MapArray, kind: Mapping[str, Any], target: pa.DataType, place: str, refuse: Any
) -> pa.Array:
    entry = pa.struct([pa.field("key", array.type.key_type, False), pa.field("value", array.type.item_type)])
    listed = array.cast(pa.list_(entry))
    keys, values = listed.flatten().flatten()
    key = {"type": kind["keyType"], "nullable": False}
    value = {"type": kind["valueType"], "nullable": kind.get("valueContainsNull") is not False}
    return pa.MapArray.from_arrays(
        _offsets(listed),
        _fit(keys, key, f"{place}.key", refuse, len(keys), 0),
        _fit(values, value, f"{place}.value", refuse, len(values), 0),
        type=target,
        mask=array.is_null(),
    )


def _offsets(array: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(array).cast(pa.int32()), 0)
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])


def _convert_primitive(array: pa.Array, target: pa.DataType, place: str, refuse: Any) -> pa.Array:
    if array.type == target:
        return array
    if not _may_convert(array.type, target):
        raise _mismatch(array.type, target, place, refuse)
    try:
        if pa.types.is_integer(array.type) and pa.types.is_decimal(target):
            # Arrow asks for room for every int64; whether these fit is seen in the second step.
            array = array.cast(pa.decimal128(min(38, 20 + target.scale), target.scale))
        return array.cast(target)
    except pa.ArrowInvalid as error:
        raise refuse(
            place,
            f"has a value that does not fit into {target}: {error}",
            "Correct the value, or change the column's type.",
        ) from None


def _mismatch(given: pa.DataType, target: pa.DataType, place: str, refuse: Any) -> CommitRefused:
    remedy = "Cast it before you write it."
    if pa.types.is_timestamp(given) and pa.types.is_timestamp(target):
        remedy = (
            "Say which time zone it is in: assume_timezone for local times, or cast to one without a zone."
        )
    refused: CommitRefused = refuse(place, f"is {target} in the table and {given} in the data", remedy)
    return refused


def _may_convert(given: pa.DataType, target: pa.DataType) -> bool:
    """Whether the two hold the same kind of thing; whether each value fits is checked by the cast."""
    kinds = pa.types
    if kinds.is_integer(given):
        return bool(kinds.is_integer(target) or kinds.is_floating(target) or kinds.is_decimal(target))
    if kinds.is_timestamp(given):
        return bool(kinds.is_timestamp(target) and (given.tz is None) == (target.tz is None))
    alike = (
        (kinds.is_floating, kinds.is_floating),
        (kinds.is_decimal, kinds.is_decimal),
        (kinds.is_date, kinds.is_date),
        (_is_text, kinds.is_string),
        (_is_bytes, kinds.is_binary),
    )
    return any(of_given(given) and of_target(target) for of_given, of_target in alike)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_binary_view(kind)
    )
