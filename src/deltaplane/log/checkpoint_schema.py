"""The Arrow schemas around checkpoints: batches of files as the ledger moves them, and the checkpoint itself.

A *file batch* is a flat table of the active files, a *tombstone batch* one of the removed files. Maps are
canonical JSON text in them, so that they go into and out of SQL without a Python object per row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from deltaplane.errors import CorruptLog
from deltaplane.log.actions import AddFile, DeletionVector, RemoveFile
from deltaplane.log.jsonlines import dump_json

__all__ = [
    "CLASSIC_SCHEMA",
    "FILE_BATCH",
    "SIDECAR_SCHEMA",
    "TEXT_MAP",
    "TOMBSTONE_BATCH",
    "V2_SCHEMA",
    "add_column",
    "add_files",
    "file_batch",
    "fitting_delta",
    "remove_column",
    "remove_files",
    "tombstone_batch",
]

_TEXT, _LONG, _INT, _BOOL = pa.string(), pa.int64(), pa.int32(), pa.bool_()
TEXT_MAP = pa.map_(_TEXT, _TEXT)
_VECTOR_COLUMNS = [
    ("dv_storage_type", _TEXT),
    ("dv_path", _TEXT),
    ("dv_offset", _LONG),
    ("dv_size", _LONG),
    ("dv_cardinality", _LONG),
]
_ROW_COLUMNS = [("base_row_id", _LONG), ("default_row_commit_version", _LONG)]
FILE_BATCH = pa.schema(
    [
        ("path", _TEXT),
        ("partition_values", _TEXT),
        ("size", _LONG),
        ("modification_time", _LONG),
        ("stats", _TEXT),
        ("tags", _TEXT),
        *_VECTOR_COLUMNS,
        *_ROW_COLUMNS,
        ("clustering_provider", _TEXT),
    ]
)
TOMBSTONE_BATCH = pa.schema(
    [
        ("path", _TEXT),
        ("deletion_timestamp", _LONG),
        ("data_change", _BOOL),
        ("extended_file_metadata", _BOOL),
        ("partition_values", _TEXT),
        ("size", _LONG),
        ("tags", _TEXT),
        *_VECTOR_COLUMNS,
        *_ROW_COLUMNS,
    ]
)

_VECTOR = pa.struct(
    [
        ("storageType", _TEXT),
        ("pathOrInlineDv", _TEXT),
        ("offset", _INT),
        ("sizeInBytes", _INT),
        ("cardinality", _LONG),
    ]
)
_ROW_FIELDS = [("baseRowId", _LONG), ("defaultRowCommitVersion", _LONG)]
_ADD = pa.struct(
    [
        ("path", _TEXT),
        ("partitionValues", TEXT_MAP),
        ("size", _LONG),
        ("modificationTime", _LONG),
        ("dataChange", _BOOL),
        ("tags", TEXT_MAP),
        ("deletionVector", _VECTOR),
        *_ROW_FIELDS,
        ("clusteringProvider", _TEXT),
        ("stats", _TEXT),
    ]
)
# As the protocol says, tombstones in a checkpoint have neither statistics nor tags.
_REMOVE = pa.struct(
    [
        ("path", _TEXT),
        ("deletionTimestamp", _LONG),
        ("dataChange", _BOOL),
        ("extendedFileMetadata", _BOOL),
        ("partitionValues", TEXT_MAP),
        ("size", _LONG),
        ("deletionVector", _VECTOR),
        *_ROW_FIELDS,
    ]
)
_METADATA = pa.struct(
    [
        ("id", _TEXT),
        ("name", _TEXT),
        ("description", _TEXT),
        ("format", pa.struct([("provider", _TEXT), ("options", TEXT_MAP)])),
        ("schemaString", _TEXT),
        ("partitionColumns", pa.list_(_TEXT)),
        ("configuration", TEXT_MAP),
        ("createdTime", _LONG),
    ]
)
_PROTOCOL = pa.struct(
    [
        ("minReaderVersion", _INT),
        ("minWriterVersion", _INT),
        ("readerFeatures", pa.list_(_TEXT)),
        ("writerFeatures", pa.list_(_TEXT)),
    ]
)
SIDECAR_SCHEMA = pa.schema([("add", _ADD), ("remove", _REMOVE)])
CLASSIC_SCHEMA = pa.schema(
    [
        ("txn", pa.struct([("appId", _TEXT), ("version", _LONG), ("lastUpdated", _LONG)])),
        ("add", _ADD),
        ("remove", _REMOVE),
        ("metaData", _METADATA),
        ("protocol", _PROTOCOL),
        ("domainMetadata", pa.struct([("domain", _TEXT), ("configuration", _TEXT), ("removed", _BOOL)])),
    ]
)
V2_SCHEMA = pa.schema(
    [
        *CLASSIC_SCHEMA,
        pa.field("checkpointMetadata", pa.struct([("version", _LONG), ("tags", TEXT_MAP)])),
        pa.field(
            "sidecar",
            pa.struct(
                [("path", _TEXT), ("sizeInBytes", _LONG), ("modificationTime", _LONG), ("tags", TEXT_MAP)]
            ),
        ),
    ]
)


def file_batch(files: Iterable[AddFile]) -> pa.RecordBatch:
    """Active files as a batch. What the batch has no column for, such as `data_change`, is left out."""
    rows = [
        (
            file.path,
            _map_text(file.partition_values),
            file.size,
            file.modification_time,
            file.stats,
            _map_text(file.tags),
            *_vector_row(file.deletion_vector),
            file.base_row_id,
            file.default_row_commit_version,
            file.clustering_provider,
        )
        for file in files
    ]
    return _batch(rows, FILE_BATCH)


def tombstone_batch(files: Iterable[RemoveFile]) -> pa.RecordBatch:
    """Tombstones as a batch."""
    rows = [
        (
            file.path,
            file.deletion_timestamp,
            file.data_change,
            file.extended_file_metadata,
            _map_text(file.partition_values),
            file.size,
            _map_text(file.tags),
            *_vector_row(file.deletion_vector),
            file.base_row_id,
            file.default_row_commit_version,
        )
        for file in files
    ]
    return _batch(rows, TOMBSTONE_BATCH)


def _batch(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _map_text(values: Mapping[str, str | None] | None) -> str | None:
    return None if values is None else dump_json(dict(sorted(values.items())))


def _vector_row(vector: DeletionVector | None) -> tuple[Any, ...]:
    if vector is None:
        return (None,) * 5
    return (
        vector.storage_type,
        vector.path_or_inline_dv,
        vector.offset,
        vector.size_in_bytes,
        vector.cardinality,
    )


def add_files(batch: pa.RecordBatch, data_change: Iterable[bool] | None = None) -> Iterator[AddFile]:
    """The files of a batch as actions, with `data_change` row by row, or false as in a checkpoint."""
    columns = {name: batch.column(name).to_pylist() for name in FILE_BATCH.names}
    read_map = lru_cache(maxsize=4096)(_read_map)
    for row in zip(
        columns["path"],
        columns["partition_values"],
        columns["size"],
        columns["modification_time"],
        repeat(False, batch.num_rows) if data_change is None else data_change,
        columns["stats"],
        columns["tags"],
        _vectors(columns),
        columns["base_row_id"],
        columns["default_row_commit_version"],
        columns["clustering_provider"],
        strict=True,
    ):
        path, values, size, modified, change, stats, tags, vector, row_id, row_version, clustering = row
        yield AddFile(
            path,
            read_map(values),
            size,
            modified,
            change,
            stats,
            read_map(tags) if tags else None,
            vector,
            row_id,
            row_version,
            clustering,
        )


def remove_files(batch: pa.RecordBatch) -> Iterator[RemoveFile]:
    """The tombstones of a batch as actions."""
    columns = {name: batch.column(name).to_pylist() for name in TOMBSTONE_BATCH.names}
    read_map = lru_cache(maxsize=4096)(_read_map)
    for row in zip(
        columns["path"],
        columns["deletion_timestamp"],
        columns["data_change"],
        columns["extended_file_metadata"],
        columns["partition_values"],
        columns["size"],
        columns["tags"],
        _vectors(columns),
        columns["base_row_id"],
        columns["default_row_commit_version"],
        strict=True,
    ):
        path, deleted, change, extended, values, size, tags, vector, row_id, row_version = row
        yield RemoveFile(
            path,
            deleted,
            change,
            extended,
            read_map(values) if values else None,
            size,
            None,
            read_map(tags) if tags else None,
            vector,
            row_id,
            row_version,
        )


def _read_map(text: str) -> dict[str, str | None]:
    values: dict[str, str | None] = json.loads(text)
    return values


def _vectors(columns: Mapping[str, list[Any]]) -> Iterator[DeletionVector | None]:
    names = ("dv_storage_type", "dv_path", "dv_size", "dv_cardinality", "dv_offset")
    for row in zip(*(columns[name] for name in names), strict=True):
        yield None if row[0] is None else DeletionVector(*row)


def add_column(batch: pa.RecordBatch) -> pa.Array:
    """The column `add` of a checkpoint for a file batch.

    Raises:
        CorruptLog: A value does not fit the form that Delta prescribes.
    """
    return _struct(
        _ADD,
        {
            "path": batch["path"],
            "partitionValues": _maps(pc.fill_null(batch["partition_values"], "{}")),
            "size": batch["size"],
            "modificationTime": batch["modification_time"],
            "dataChange": pa.repeat(False, batch.num_rows),
            "tags": _maps(batch["tags"]),
            "deletionVector": _vector_column(batch),
            "baseRowId": batch["base_row_id"],
            "defaultRowCommitVersion": batch["default_row_commit_version"],
            "clusteringProvider": batch["clustering_provider"],
            "stats": batch["stats"],
        },
    )


def remove_column(batch: pa.RecordBatch) -> pa.Array:
    """The column `remove` of a checkpoint for a tombstone batch; raises as `add_column` does."""
    return _struct(
        _REMOVE,
        {
            "path": batch["path"],
            "deletionTimestamp": batch["deletion_timestamp"],
            "dataChange": pa.repeat(False, batch.num_rows),
            "extendedFileMetadata": batch["extended_file_metadata"],
            "partitionValues": _maps(batch["partition_values"]),
            "size": batch["size"],
            "deletionVector": _vector_column(batch),
            "baseRowId": batch["base_row_id"],
            "defaultRowCommitVersion": batch["default_row_commit_version"],
        },
    )


def _vector_column(batch: pa.RecordBatch) -> pa.Array:
    columns = {
        "storageType": batch["dv_storage_type"],
        "pathOrInlineDv": batch["dv_path"],
        "offset": batch["dv_offset"],
        "sizeInBytes": batch["dv_size"],
        "cardinality": batch["dv_cardinality"],
    }
    return _struct(_VECTOR, columns, mask=batch["dv_storage_type"].is_null())


def _struct(kind: pa.DataType, columns: dict[str, pa.Array], mask: pa.Array | None = None) -> pa.Array:
    fields = [kind.field(at) for at in range(kind.num_fields)]
    arrays = []
    for field in fields:
        with fitting_delta(field.name):
            arrays.append(columns[field.name].cast(field.type))
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)


def _maps(texts: pa.Array) -> pa.Array:
    """JSON objects as maps; each distinct text is read once."""
    encoded = texts.dictionary_encode()
    with fitting_delta("a map of partition values or tags"):
        maps = [sorted(json.loads(text).items()) for text in encoded.dictionary.to_pylist()]
        return pa.array(maps, TEXT_MAP).take(encoded.indices)


@contextmanager
def fitting_delta(what: str) -> Iterator[None]:
    """Turn what Arrow says about a value into what it means for the table."""
    try:
        yield
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise CorruptLog(
            "the table's state", f"{what} has no form in a checkpoint, and none was written: {error}"
        ) from error
