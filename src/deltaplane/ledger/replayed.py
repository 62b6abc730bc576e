"""A table that was rebuilt from its log, as people read it and as a checkpoint holds it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from operator import itemgetter
from typing import TypeVar

import pyarrow as pa

from deltaplane.ledger.file_rows import records_of
from deltaplane.ledger.snapshot import Predicate, Snapshot
from deltaplane.ledger.wide import FILES_SCHEMA
from deltaplane.log.actions import AddFile, DeletionVector, FileKey, Metadata, RemoveFile
from deltaplane.log.bounds import comparable_columns
from deltaplane.log.checkpoint_schema import file_batch, tombstone_batch
from deltaplane.log.predicates import keep_mask, parse_predicate
from deltaplane.log.replay import TableState

__all__ = ["file_batches", "replayed_snapshot", "tombstone_batches"]

_CHUNK = 50_000
_File = TypeVar("_File", AddFile, RemoveFile)


def replayed_snapshot(state: TableState, location: str, timestamp: int) -> Snapshot:
    """A rebuilt table as a snapshot. It keeps the state, which must not change any more.

    Raises:
        CorruptLog: The log has no protocol or no metadata.
    """
    protocol, metadata = state.checked(location)
    return Snapshot(
        location,
        state.version,
        timestamp,
        protocol,
        metadata,
        len(state.files),
        sum(file.size for file in state.files.values()),
        dict(sorted(state.transactions.items())),
        dict(sorted(state.domains.items())),
        lambda predicate: _files(state, metadata, predicate),
        lambda: _records(state),
    )


def _records(state: TableState) -> int | None:
    total = 0
    for file in state.files.values():
        count = records_of(file.stats)
        if count is None:
            return None
        total += count
    return total


def _files(state: TableState, metadata: Metadata, predicate: Predicate | None) -> pa.Table:
    table = _files_table(list(state.files.values()))
    if predicate is None:
        return table
    columns = comparable_columns(metadata.schema_string, metadata.partition_columns)
    return table.filter(keep_mask(table, parse_predicate(predicate), columns))


def _files_table(files: list[AddFile]) -> pa.Table:
    columns = {
        "path": [file.path for file in files],
        "size": [file.size for file in files],
        "modification_time": [file.modification_time for file in files],
        "partition_values": [sorted(file.partition_values.items()) for file in files],
        "num_records": [records_of(file.stats) for file in files],
        "stats": [file.stats for file in files],
        "deletion_vector": [_vector(file.deletion_vector) for file in files],
    }
    return pa.Table.from_pydict(columns, FILES_SCHEMA)


def _vector(vector: DeletionVector | None) -> dict[str, str | int | None] | None:
    if vector is None:
        return None
    return {
        "storageType": vector.storage_type,
        "pathOrInlineDv": vector.path_or_inline_dv,
        "offset": vector.offset,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    }


def file_batches(state: TableState) -> Iterator[pa.RecordBatch]:
    """The active files for a checkpoint, in the order that makes the same state give the same bytes."""
    return _batches(_ordered(state.files), file_batch)


def tombstone_batches(state: TableState, expired_before: int) -> Iterator[pa.RecordBatch]:
    """The tombstones for a checkpoint, without those of files that went at that moment or earlier."""
    kept = (file for file in _ordered(state.tombstones) if (file.deletion_timestamp or 0) > expired_before)
    return _batches(kept, tombstone_batch)


def _ordered(files: dict[FileKey, _File]) -> Iterator[_File]:
    return (file for _, file in sorted(files.items(), key=itemgetter(0)))


def _batches(
    files: Iterator[_File], build: Callable[[Iterable[_File]], pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    while chunk := list(islice(files, _CHUNK)):
        yield build(chunk)
