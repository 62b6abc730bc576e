"""What the definition of a table must satisfy: schema, partitioning, properties and protocol.

Asked of definitions that the ledger writes itself. What another writer defined is taken as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from deltaplane.errors import CommitRefused, UnsupportedTable
from deltaplane.ledger.prepare import value_fault
from deltaplane.log.actions import Metadata, Protocol
from deltaplane.log.features import (
    FEATURES,
    PROPERTY_FEATURES,
    active_features,
    reader_requirements,
    writer_requirements,
)
from deltaplane.log.jsonlines import parse_json
from deltaplane.log.properties import (
    checkpoint_interval,
    checkpoint_stats_as_json,
    checkpoint_stats_as_struct,
    data_skipping,
    deleted_file_retention_ms,
    expired_log_cleanup_enabled,
    log_retention_ms,
    row_tracking_suspended,
    set_transaction_retention_ms,
)
from deltaplane.log.schema_json import every_field, is_known_type, maps_columns

__all__ = ["COLUMN_ID", "PHYSICAL_NAME", "check_change", "check_metadata", "check_protocol"]

COLUMN_ID = "delta.columnMapping.id"
PHYSICAL_NAME = "delta.columnMapping.physicalName"
_MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"
_DECIMAL = re.compile(r"decimal(?:\(\s*(\d+)\s*,\s*(\d+)\s*\))?")
_OPEN_TYPES = re.compile(r"variant|(?:geometry|geography)(?:\(.*\))?")
_CHOICES = {"delta.columnMapping.mode": ("none", "name", "id"), "delta.checkpointPolicy": ("classic", "v2")}
_READ: tuple[Callable[[Metadata], object], ...] = (
    checkpoint_interval,
    checkpoint_stats_as_json,
    checkpoint_stats_as_struct,
    data_skipping,
    deleted_file_retention_ms,
    expired_log_cleanup_enabled,
    log_retention_ms,
    row_tracking_suspended,
    set_transaction_retention_ms,
)
"""Each raises when the property that it reads cannot be understood."""


def check_metadata(metadata: Metadata, label: str) -> None:
    """See that a table can be defined like that.

    Raises:
        CommitRefused: It cannot. Nothing was written.
    """
    if not metadata.id:
        raise _refusal(label, "metaData.id is empty", "Give the table's id")
    if metadata.format.provider.lower() != "parquet":
        raise _refusal(
            label,
            f"the format is {metadata.format.provider!r:.40}",
            "Data files of a Delta table are parquet",
        )
    fields = _checked_fields(metadata.schema_string, label)
    _check_partitioning(metadata.partition_columns, fields, label)
    _check_properties(metadata, label)
    if maps_columns(metadata.configuration):
        _check_mapping(metadata, label)


def _refusal(label: str, what: str, remedy: str) -> CommitRefused:
    return CommitRefused(f"{label}: {what}. Nothing was written. {remedy}.")


def _checked_fields(schema_string: str, label: str) -> Sequence[Mapping[str, Any]]:
    try:
        schema = parse_json(schema_string)
        fault = value_fault(schema, "the schema") or next(_type_faults(schema, "the schema"), None)
    except ValueError as error:
        fault = f"the schema is not JSON: {error}"
    if fault is None and (not isinstance(schema, Mapping) or not schema.get("fields")):
        fault = "the schema has no columns"
    if fault:
        raise _refusal(label, fault, "Give a schema of pyarrow, or a schemaString as Delta writes it")
    fields: Sequence[Mapping[str, Any]] = schema["fields"]
    return fields


def _type_faults(kind: Any, place: str) -> Iterator[str]:
    """What is wrong with a type, and with those inside it."""
    if isinstance(kind, str):
        if not _is_type(kind):
            yield f"{place} has the type {kind!r:.40}, which Delta does not have"
        return
    form = kind.get("type") if isinstance(kind, Mapping) else None
    if form == "struct":
        yield from _field_faults(kind.get("fields"), place)
    elif form == "array":
        yield from _flag_fault(kind, "containsNull", place)
        yield from _type_faults(kind.get("elementType"), f"{place}.element")
    elif form == "map":
        yield from _flag_fault(kind, "valueContainsNull", place)
        yield from _type_faults(kind.get("keyType"), f"{place}.key")
        yield from _type_faults(kind.get("valueType"), f"{place}.value")
    else:
        yield f"{place} has no type: {kind!r:.60}"


def _is_type(name: str) -> bool:
    decimal = _DECIMAL.fullmatch(name)
    if decimal is not None:
        precision, scale = int(decimal[1] or 10), int(decimal[2] or 0)
        return 1 <= precision <= 38 and scale <= precision
    return (is_known_type(name) and not name.startswith("decimal")) or bool(_OPEN_TYPES.fullmatch(name))


def _flag_fault(owner: Mapping[str, Any], key: str, place: str) -> Iterator[str]:
    if type(owner.get(key)) is not bool:
        yield f"{place} does not say whether it has nulls ({key})"


def _field_faults(fields: Any, place: str) -> Iterator[str]:
    if not isinstance(fields, list):
        yield f"{place} has no list of fields"
        return
    seen: set[str] = set()
    for item in fields:
        name = item.get("name") if isinstance(item, Mapping) else None
        if not isinstance(name, str) or not name:
            yield f"{place} has a field without a name: {item!r:.60}"
            return
        if name.lower() in seen:
            yield f"{place} has two columns named {name!r:.60}, and case does not tell them apart"
        seen.add(name.lower())
        if not isinstance(item.get("metadata") or {}, Mapping):
            yield f"column {name} has metadata that is no object"
        yield from _flag_fault(item, "nullable", f"column {name}")
        yield from _type_faults(
            item.get("type"), f"column {name}" if place == "the schema" else f"{place}.{name}"
        )


def _check_partitioning(columns: Sequence[str], fields: Sequence[Mapping[str, Any]], label: str) -> None:
    types = {field["name"]: field["type"] for field in fields}
    names = ", ".join(types)
    for column in columns:
        if column not in types:
            raise _refusal(
                label,
                f"{column!r:.60} is to partition the table and is not one of its columns ({names:.200})",
                "Name columns as the schema spells them",
            )
        if not isinstance(types[column], str) or _OPEN_TYPES.fullmatch(types[column]):
            raise _refusal(
                label,
                f"{column} is to partition the table and is no plain value",
                "Partition by numbers, texts, dates, times or booleans",
            )
    if len(set(columns)) != len(columns):
        raise _refusal(label, "a column is to partition the table twice", "Name each column once")
    if len(columns) >= len(types):
        raise _refusal(label, "every column is to partition the table", "At least one must hold data")


def _check_properties(metadata: Metadata, label: str) -> None:
    switches = {key: ("true", "false") for key, (on, _) in PROPERTY_FEATURES.items() if on == "true"}
    for key, value in metadata.configuration.items():
        if not isinstance(value, str):
            raise _refusal(label, f"the property {key} has no value", "Give one, or leave the property out")
        allowed = (switches | _CHOICES).get(key)
        if allowed and value.casefold() not in allowed:
            raise _refusal(
                label, f"the property {key} is {value!r:.60}", f"It is one of: {', '.join(allowed)}"
            )
    named = replace(metadata, name=label)
    for read in _READ:
        try:
            read(named)
        except UnsupportedTable as error:
            fault = str(error).partition(" Nothing was changed.")[0]
            raise CommitRefused(f"{fault} Nothing was written. Correct the property.") from None


def _check_mapping(metadata: Metadata, label: str) -> None:
    """In a table that maps columns every field has a number and a name for the files, each its own."""
    ids: list[int] = []
    names: list[str] = []
    for place, field in every_field(metadata.schema_string):
        keys = field.get("metadata") or {}
        number, name = keys.get(COLUMN_ID), keys.get(PHYSICAL_NAME)
        if type(number) is not int or not isinstance(name, str) or not name:
            raise _refusal(
                label,
                f"the table maps columns, and {place} has no {COLUMN_ID} or no {PHYSICAL_NAME}",
                "Give every field both, or create the table with ledger.create, which does",
            )
        ids.append(number)
        names.append(name)
    largest = metadata.configuration.get(_MAX_COLUMN_ID, "")
    if len(set(ids)) != len(ids) or len(set(names)) != len(names):
        raise _refusal(
            label, "two columns have the same number or the same name in files", "Give each its own"
        )
    if not re.fullmatch(r"[0-9]{1,18}", largest) or int(largest) < max(ids):
        raise _refusal(
            label,
            f"{_MAX_COLUMN_ID} is {largest!r:.40}, below the columns' numbers",
            f"It is at least {max(ids)}",
        )


def check_protocol(protocol: Protocol, metadata: Metadata, label: str) -> None:
    """See that the protocol holds whatever the metadata puts to use, also where versions name the features.

    Raises:
        CommitRefused: It does not. Nothing was written.
    """
    held = writer_requirements(protocol)
    missing = sorted(active_features(protocol, metadata) - held)
    if missing:
        raise _refusal(
            label,
            f"the metadata needs the feature {', '.join(missing)}, which the protocol does not have",
            "Hand in a protocol action that lists it, in the same commit",
        )
    asked_of_readers = {name for name in held if name in FEATURES and FEATURES[name].reader > 1}
    if protocol.writer_features is not None and (
        unread := sorted(asked_of_readers - reader_requirements(protocol))
    ):
        raise _refusal(
            label,
            f"readers must know {', '.join(unread)}, and only writerFeatures names it",
            "Name it in readerFeatures too",
        )


def check_change(
    before: tuple[Metadata, Protocol], after: tuple[Metadata, Protocol], files_left: int, label: str
) -> None:
    """See that a table can be redefined like that.

    Args:
        before: What held until now.
        after: What is to hold.
        files_left: How many of the files written under the older definition stay.
        label: What to call the table.

    Raises:
        CommitRefused: It cannot. Nothing was written.
    """
    (old, old_protocol), (new, protocol) = before, after
    if new.id != old.id:
        raise _refusal(label, f"metaData.id is {new.id!r:.60} and the table's is {old.id}", "Keep the id")
    if new.partition_columns != old.partition_columns and files_left > 0:
        raise _refusal(
            label,
            f"the table is partitioned by {list(old.partition_columns)}, has {files_left} files written so, "
            f"and is to be partitioned by {list(new.partition_columns)}",
            "Remove the files in the same commit, or write a new table",
        )
    lowered = [
        name
        for name in ("min_reader_version", "min_writer_version")
        if getattr(protocol, name) < getattr(old_protocol, name)
    ]
    dropped = _names(old_protocol) - _names(protocol)
    if lowered or dropped:
        what = f"drops {', '.join(sorted(dropped))}" if dropped else "has a lower version"
        raise _refusal(
            label,
            f"the new protocol {what}, and data or older versions may depend on it",
            "Keep what the protocol has; Spark can drop a feature after it has removed its traces",
        )


def _names(protocol: Protocol) -> set[str]:
    lists: Iterable[str] = (*(protocol.reader_features or ()), *(protocol.writer_features or ()))
    return set(lists)
