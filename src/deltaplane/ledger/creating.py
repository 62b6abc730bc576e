"""New tables, managed from version 0."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pyarrow as pa

from deltaplane.errors import CommitRefused, ConfigError, TableAlreadyManaged
from deltaplane.ledger.commit import NewTable, Request, commit
from deltaplane.ledger.configure import POLICIES, check_name
from deltaplane.ledger.context import Context
from deltaplane.ledger.definition import COLUMN_ID, PHYSICAL_NAME, check_metadata
from deltaplane.ledger.model import CommitResult
from deltaplane.ledger.names import LOG_FOLDER
from deltaplane.ledger.prepare import Prepared, check_text, prepare_actions
from deltaplane.ledger.storage import Storage, canonical_root
from deltaplane.log.actions import CommitInfo, Metadata
from deltaplane.log.features import protocol_for, stored_properties
from deltaplane.log.jsonlines import dump_json, parse_json
from deltaplane.log.schema_json import schema_string_of

__all__ = ["create_table", "first_commit"]

_MODE = "delta.columnMapping.mode"


def create_table(
    ctx: Context,
    path: str,
    schema: pa.Schema | str,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    name: str | None,
    description: str | None,
    author: str | None,
    message: str | None,
    foreign_commits: str,
) -> CommitResult:
    """Create a table at an empty place.

    Raises:
        TableAlreadyManaged: The ledger has one there, or of that name.
        CommitRefused: There is a log already, or the definition cannot be.
    """
    check_text("create", path=path, author=author, message=message)
    location = canonical_root(path)
    check_name(ctx, name, location)
    if foreign_commits not in POLICIES:
        raise ConfigError(
            f"foreign_commits is one of {', '.join(POLICIES)}, and {foreign_commits!r:.60} was given. "
            f"Nothing was written."
        )
    for reference in dict.fromkeys(filter(None, (location, path, name))):
        if ctx.find(reference) is not None:
            raise TableAlreadyManaged(
                f"{reference}: the ledger has a table of that place or name already. Nothing was written. "
                f"See it with: deltaplane ledger tables"
            )
    storage = ctx.storage(location)
    # A name with a leading dot is of a writer at work, or of one that was killed while it looked around.
    if any(not file.name.startswith(".") for file in storage.list(LOG_FOLDER)):
        raise CommitRefused(
            f"{location}: there is a Delta log at this place already. Nothing was written. Bring the table "
            f"in with: deltaplane ledger adopt {location}"
        )
    prepared = first_commit(
        name or location, schema, partition_by, properties, description, created_time=ctx.clock()
    )
    _probe(storage)
    new = NewTable(location, name, foreign_commits, (), prepared)
    return commit(ctx, Request(str(uuid.uuid4()), (), author, message, (new,)))


def first_commit(
    label: str,
    schema: pa.Schema | str,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    description: str | None,
    created_time: int,
) -> Prepared:
    """The commit that makes a table.

    Raises:
        CommitRefused: The definition cannot be.
    """
    if not isinstance(schema, pa.Schema | str):
        raise CommitRefused(
            f"{label}: the schema is of type {type(schema).__name__}. Nothing was written. Give a schema of "
            f"pyarrow, or Delta's schemaString."
        )
    listed = isinstance(partition_by, Sequence) and not isinstance(partition_by, str)
    if not listed or not all(isinstance(column, str) for column in partition_by):
        raise CommitRefused(
            f"{label}: partition_by is a list of column names, and {partition_by!r:.60} was given. "
            f"Nothing was written."
        )
    if not isinstance(properties, Mapping) or None in properties.values():
        raise CommitRefused(
            f"{label}: properties are names with values, and {properties!r:.60} was given. "
            f"Nothing was written. Give a dict."
        )
    schema_string = schema if isinstance(schema, str) else schema_string_of(schema)
    text = {str(key): _property_text(value) for key, value in properties.items()}
    metadata = _metadata(schema_string, partition_by, text, description, created_time, label)
    info = CommitInfo(
        {
            "operation": "CREATE TABLE",
            "operationParameters": {
                "partitionBy": dump_json(list(partition_by)),
                "properties": dump_json(dict(sorted(metadata.configuration.items()))),
                "description": description,
                "isManaged": "false",
            },
            "isBlindAppend": True,
        }
    )
    return prepare_actions([info, protocol_for(text, metadata.schema_string, label), metadata], label)


def _property_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _probe(storage: Storage) -> None:
    """A place that cannot be written must be noticed before the table exists, not when it is published.

    Raises:
        StorageError: It cannot.
    """
    # Named like an unfinished file: the reconciler sweeps it away if we are killed here.
    path = f"{LOG_FOLDER}/.probe.{uuid.uuid4().hex}.tmp"
    storage.put(path, b"Can a table be created here?")
    storage.delete(path)


def _metadata(
    schema_string: str,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    description: str | None,
    created_time: int,
    label: str,
) -> Metadata:
    configuration = stored_properties(properties)
    metadata = Metadata(
        id=str(uuid.uuid4()),
        schema_string=schema_string,
        description=description,
        partition_columns=tuple(partition_by),
        configuration=configuration,
        created_time=created_time,
    )
    mode = configuration.get(_MODE, "none").casefold()
    # The columns first: what maps them must find a schema that can be read.
    check_metadata(replace(metadata, configuration=configuration | {_MODE: "none"}), label)
    if mode in ("name", "id"):
        mapped, largest = _mapped(schema_string)
        numbered = {_MODE: mode, "delta.columnMapping.maxColumnId": str(largest)}
        metadata = replace(metadata, schema_string=mapped, configuration=configuration | numbered)
    check_metadata(metadata, label)
    return metadata


def _mapped(schema_string: str) -> tuple[str, int]:
    """The schema with a number and a name in files for every field, and the largest number."""
    schema = parse_json(schema_string)
    fields = list(_fields(schema))
    told = [(field.get("metadata") or {}).get(COLUMN_ID) for field in fields]
    numbers = count(max((number for number in told if type(number) is int), default=0) + 1)
    for field, number in zip(fields, told, strict=True):
        field["metadata"] = {
            COLUMN_ID: next(numbers) if number is None else number,
            PHYSICAL_NAME: f"col-{uuid.uuid4()}",
        } | (field.get("metadata") or {})
    return dump_json(schema), next(numbers) - 1


def _fields(kind: Any) -> Iterator[dict[str, Any]]:
    """All fields of a type, from the outside in, also of structs in arrays and maps."""
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields", ()):
        yield field
        yield from _fields(field["type"])
    for part in ("elementType", "keyType", "valueType"):
        yield from _fields(kind.get(part))
