"""New tables, managed from version 0."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

import pyarrow as pa

from deltaplane.errors import CommitRefused, TableAlreadyManaged
from deltaplane.ledger.commit import NewTable, Request, commit
from deltaplane.ledger.context import Context
from deltaplane.ledger.model import CommitResult
from deltaplane.ledger.names import LOG_FOLDER
from deltaplane.ledger.prepare import Prepared, prepare_actions
from deltaplane.ledger.storage import canonical_root
from deltaplane.log.actions import CommitInfo, Metadata
from deltaplane.log.features import protocol_for, stored_properties
from deltaplane.log.jsonlines import dump_json
from deltaplane.log.schema_json import schema_string_of

__all__ = ["create_table", "first_commit"]


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
    location = canonical_root(path)
    if ctx.find(location) is not None:
        raise TableAlreadyManaged(
            f"{location}: the ledger manages a table there already. Nothing was written."
        )
    if next(iter(ctx.storage(location).list(LOG_FOLDER)), None) is not None:
        raise CommitRefused(
            f"{location}: there is a Delta log at this place already. Nothing was written. Bring the table "
            f"in with: deltaplane ledger adopt {location}"
        )
    prepared = first_commit(
        name or location, schema, partition_by, properties, description, created_time=ctx.clock()
    )
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
    schema_string = schema if isinstance(schema, str) else schema_string_of(schema)
    text = {str(key): _property_text(value) for key, value in properties.items()}
    metadata = _metadata(label, schema_string, partition_by, text, description, created_time)
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
    return prepare_actions([info, protocol_for(text, schema_string, label), metadata], label)


def _property_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _metadata(
    label: str,
    schema_string: str,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    description: str | None,
    created_time: int,
) -> Metadata:
    from deltaplane.log.schema_json import schema_fields

    names = [field["name"] for field in schema_fields(schema_string)]
    missing = [column for column in partition_by if column not in names]
    if missing:
        raise CommitRefused(
            f"{label}: {missing[0]} is to partition the table and is not one of its columns "
            f"({', '.join(names)}). Nothing was written."
        )
    if names and len(partition_by) >= len(names):
        raise CommitRefused(
            f"{label}: every column is to partition the table; at least one must hold data. "
            f"Nothing was written."
        )
    return Metadata(
        id=str(uuid.uuid4()),
        schema_string=schema_string,
        description=description,
        partition_columns=tuple(partition_by),
        configuration=stored_properties(properties),
        created_time=created_time,
    )
