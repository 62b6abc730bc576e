"""Arrow values as JSON text, a whole column at a time.

Some checkpoints hold statistics and partition values only as typed structs. The log and the ledger hold text:
this module turns the one into the other in the form in which Delta itself writes it.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltaplane.log.jsonlines import dump_json

__all__ = ["map_json", "partition_json", "quoted", "struct_json"]

_MUST_ESCAPE = r'[\x00-\x1f"\\]'
Instants = Collection[str]
"""Dotted paths of columns that are points in time although their Arrow type has no zone."""


def quoted(texts: pa.Array) -> pa.Array:
    """Every text as a JSON string; null stays null."""
    if not pc.any(pc.match_substring_regex(texts, _MUST_ESCAPE)).as_py():
        return _joined('"', texts, '"')
    encoded = texts.dictionary_encode()
    escaped = pa.array([dump_json(text) for text in encoded.dictionary.to_pylist()], pa.string())
    return escaped.take(encoded.indices)


def map_json(maps: pa.Array) -> pa.Array:
    """Every map of text to text as a canonical JSON object; null stays null."""
    if maps.null_count == len(maps):
        return pa.nulls(len(maps), pa.string())
    if not maps.null_count:
        return _filled_map_json(maps)
    valid = maps.is_valid()
    place = pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1)
    return _filled_map_json(maps.filter(valid)).take(pc.if_else(valid, place, None))


def _filled_map_json(maps: pa.Array) -> pa.Array:
    """Maps without nulls. Nearly always all rows have the same keys; then no row is looked at by itself."""
    bounds = maps.offsets
    start, end = bounds[0].as_py(), bounds[-1].as_py()
    keys = maps.keys.slice(start, end - start).cast(pa.string())
    items = maps.items.slice(start, end - start).cast(pa.string())
    width = len(keys) // len(maps)
    regular = pc.all(pc.equal(pc.subtract(bounds.slice(1), bounds.slice(0, len(maps))), width)).as_py()
    names = keys.slice(0, width).to_pylist()
    columns = {name: pa.arange(at, len(keys), width) for at, name in enumerate(names)}
    if regular and len(columns) == width and all(_constant(keys, columns, name) for name in names):
        return _object({name: items.take(columns[name]) for name in sorted(names)}, len(maps))
    return _irregular_map_json(bounds.to_pylist(), keys.to_pylist(), items.to_pylist())


def _constant(keys: pa.Array, columns: dict[str, pa.Array], name: str) -> bool:
    return bool(pc.all(pc.equal(keys.take(columns[name]), name)).as_py())


def _irregular_map_json(bounds: list[int], keys: list[str], items: list[str | None]) -> pa.Array:
    first = bounds[0]
    spans = ((low - first, high - first) for low, high in pairwise(bounds))
    rows = (dict(zip(keys[low:high], items[low:high], strict=True)) for low, high in spans)
    return pa.array([dump_json(dict(sorted(row.items()))) for row in rows], pa.string())


def _object(texts: dict[str, pa.Array], rows: int) -> pa.Array:
    """JSON objects with the same keys in every row; a missing text is null."""
    parts: list[Any] = []
    for name, column in texts.items():
        parts += ["," if parts else "{", f"{dump_json(name)}:", pc.fill_null(quoted(column), "null")]
    return _joined(*parts, "}") if parts else pa.repeat("{}", rows)


def partition_json(values: pa.Array, instants: Instants = (), path: str = "") -> pa.Array:
    """Typed partition values as the canonical JSON object of their texts; null stays null."""
    texts: dict[str, pa.Array] = {}
    for name, column in sorted(_children(values)):
        text = _plain(column, f"{path}.{name}" in instants, iso=False)
        texts[name] = column.cast(pa.string()) if text is None else text
    return _where(values, _object(texts, len(values)))


def struct_json(values: pa.Array, instants: Instants = (), path: str = "") -> pa.Array:
    """Structs as JSON objects without their null fields, as Spark's to_json writes them; null stays null.

    Binary values, lists and maps have no form in statistics and are left out.
    """
    texts = _fields_json(values, instants, path)
    return pa.nulls(len(values), pa.string()) if texts is None else texts


def _fields_json(values: pa.Array, instants: Instants, path: str) -> pa.Array | None:
    fragments: list[pa.Array] = []
    for name, column in _children(values):
        place = f"{path}.{name}"
        text = (
            _fields_json(column, instants, place)
            if pa.types.is_struct(column.type)
            else _scalar_json(column, place in instants)
        )
        if text is not None:
            fragments.append(pc.fill_null(_joined(f",{dump_json(name)}:", text), ""))
    if not fragments:
        return None
    # Arrow can skip nulls while it joins, but then loses the rows that are null throughout.
    body = pc.ascii_ltrim(_joined(*fragments), characters=",")
    return _where(values, _joined("{", body, "}"))


def _scalar_json(column: pa.Array, instant: bool) -> pa.Array | None:
    text = _plain(column, instant, iso=True)
    kind = column.type
    if text is None or pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind):
        return text
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_finite(column), text, quoted(text))
    return quoted(text)


def _plain(column: pa.Array, instant: bool, *, iso: bool) -> pa.Array | None:
    """Every value as Delta writes it, without quotes; None for kinds that have no text."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return _time_text(column, instant or kind.tz is not None, iso=iso)
    if pa.types.is_floating(kind):
        return _float_text(column)
    if pa.types.is_dictionary(kind):
        return _plain(column.dictionary_decode(), instant, iso=iso)
    if pa.types.is_null(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.cast(pa.string())
    if any(is_kind(kind) for is_kind in _PRINTABLE):
        return column.cast(pa.string())
    return None


_PRINTABLE = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_date32)


def _float_text(column: pa.Array) -> pa.Array:
    text = pc.replace_substring_regex(column.cast(pa.string()), r"^(-?[0-9]+)$", r"\1.0")
    # The names that Java gives to what is not a number.
    text = pc.if_else(pc.is_nan(column), "NaN", text)
    return pc.replace_substring_regex(text, r"^(-?)inf$", r"\1Infinity")


def _time_text(column: pa.Array, instant: bool, *, iso: bool) -> pa.Array:
    """As in statistics, or, when not `iso`, as in partition values; points in time end in Z in both.

    Microseconds are kept where there are any, because a maximum must not be cut off.
    """
    text = column.cast(pa.timestamp("us"), safe=False).cast(pa.string())
    if iso:
        text = pc.replace_substring_regex(text, r"(\.[0-9]{3})000$", r"\1")
    else:
        text = pc.replace_substring_regex(text, r"\.?0*$", "", max_replacements=1)
    text = pc.replace_substring(text, " ", "T") if iso or instant else text
    return _joined(text, "Z") if instant else text


def _children(values: pa.Array) -> list[tuple[str, pa.Array]]:
    names = [values.type.field(at).name for at in range(values.type.num_fields)]
    return list(zip(names, values.flatten(), strict=True))


def _where(values: pa.Array, texts: pa.Array) -> pa.Array:
    return texts if not values.null_count else pc.if_else(values.is_valid(), texts, None)


def _joined(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")
