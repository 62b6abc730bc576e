"""Arrow data to Parquet files of a Delta table, and the actions that add them.

Rows wait in memory, by partition, until there are enough for a file; when all partitions together hold too
much, the largest is written early. Nothing is in the table until somebody commits the actions.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deltaplane.embedded.conform import Conformer
from deltaplane.embedded.partitioning import (
    PartitionKey,
    folder_of,
    log_path,
    partition_values,
    split_by_partition,
)
from deltaplane.embedded.statistics import file_statistics
from deltaplane.errors import CommitRefused
from deltaplane.ledger.storage import Storage
from deltaplane.log.actions import AddFile
from deltaplane.log.schema_json import (
    LeafColumn,
    leaf_columns,
    physical_name,
    schema_fields,
    statistics_columns,
)

__all__ = ["write_files"]

TARGET_ROWS = 4_000_000
TARGET_BYTES = 256 * 2**20
_BUFFERED = 4


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def write_files(
    storage: Storage,
    data: Any,
    *,
    schema_string: str,
    partition_columns: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
    target_rows: int = TARGET_ROWS,
    target_bytes: int = TARGET_BYTES,
    clock_ms: Callable[[], int] = _now_ms,
    clustering: Sequence[Sequence[str]] = (),
    table: str = "The table",
) -> list[AddFile]:
    """Write data files and give the actions that would add them.

    When it fails, the files that it had written are deleted again.

    Args:
        storage: The table's files.
        data: A table, a batch, a reader, an iterable of tables or batches, or anything that exports an Arrow
            stream.
        schema_string: The table's schema as in the log.
        partition_columns: The table's partition columns.
        configuration: The table's properties.
        target_rows: At most so many rows in a file.
        target_bytes: At most about so many bytes of Arrow data in a file.
        clock_ms: The time for `modificationTime`.
        clustering: The physical paths of the clustering columns: they have statistics in every file.
        table: What to call the table in an error.

    Raises:
        CommitRefused: The data does not fit the table.
        UnsupportedTable: The table has a type that cannot be written here.
    """
    conformer = Conformer(schema_string, table)
    layout = _layout(schema_string, partition_columns, configuration or {}, clustering, table)
    writer = _Writer(storage, layout, max(1, target_rows), max(1, target_bytes), clock_ms)
    try:
        for batch in _batches(data):
            writer.add(conformer.batch(batch))
        return writer.finish()
    except BaseException as error:
        writer.discard(error)
        raise


@dataclass(frozen=True, slots=True)
class _Layout:
    """How the rows of a table are laid out in files."""

    partitions: tuple[str, ...]
    required: frozenset[str]
    statistics: tuple[LeafColumn, ...]
    tight: bool
    table: str


def _layout(
    schema_string: str,
    partition_columns: Sequence[str],
    configuration: Mapping[str, str],
    clustering: Sequence[Sequence[str]],
    table: str,
) -> _Layout:
    fields = {item["name"]: item for item in schema_fields(schema_string)}
    wanted = [fields[name] for name in partition_columns]
    paths = {tuple(path) for path in clustering}
    measured = statistics_columns(schema_string, partition_columns, configuration)
    clustered = (leaf for leaf in leaf_columns(schema_string) if leaf.physical in paths)
    return _Layout(
        tuple(physical_name(item) for item in wanted),
        frozenset(physical_name(item) for item in wanted if item.get("nullable") is False),
        (*measured, *(leaf for leaf in clustered if leaf not in measured)),
        configuration.get("delta.enableDeletionVectors", "").lower() == "true",
        table,
    )


def _batches(data: Any) -> Iterator[pa.RecordBatch]:
    if isinstance(data, pa.RecordBatch):
        yield data
    elif isinstance(data, pa.Table):
        # A table without rows has no batches, and its columns are to be checked too.
        yield from data.to_batches() or [_empty(data.schema)]
    elif isinstance(data, pa.RecordBatchReader):
        yield _empty(data.schema)
        yield from data
    elif hasattr(data, "__arrow_c_stream__"):
        yield from _batches(pa.RecordBatchReader.from_stream(data))
    elif isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        for piece in data:
            yield from _batches(piece)
    else:
        raise CommitRefused(
            f"Data of type {type(data).__name__} cannot be written. Nothing was written. Give an Arrow "
            "table, a record batch reader, or an iterable of them."
        )


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.record_batch([pa.array([], item.type) for item in schema], schema=schema)


@dataclass(slots=True)
class _Waiting:
    """Rows of one partition that are not in a file yet."""

    tables: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def add(self, table: pa.Table) -> None:
        self.tables.append(table)
        self.rows += table.num_rows
        self.size += table.nbytes


class _Writer:
    """Collects rows and writes files; knows what it has written."""

    def __init__(
        self, storage: Storage, layout: _Layout, rows: int, size: int, clock_ms: Callable[[], int]
    ) -> None:
        self._storage = storage
        self._layout = layout
        self._rows = rows
        self._size = size
        self._clock_ms = clock_ms
        self._waiting: dict[PartitionKey, _Waiting] = {}
        self._paths: list[str] = []
        self._actions: list[AddFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the rows of one batch, and write the files that are full."""
        if batch.num_rows == 0:
            return
        for key, rows in split_by_partition(pa.Table.from_batches([batch]), self._layout.partitions):
            self._check_required(key)
            waiting = self._waiting.setdefault(key, _Waiting())
            waiting.add(rows)
            if waiting.rows >= self._rows or waiting.size >= self._size:
                self._write_full(key)
        while sum(waiting.size for waiting in self._waiting.values()) > _BUFFERED * self._size:
            largest = max(self._waiting, key=lambda key: self._waiting[key].size)
            self._write_rest(largest)

    def _check_required(self, key: PartitionKey) -> None:
        for name, text in zip(self._layout.partitions, key, strict=True):
            if text is None and name in self._layout.required:
                raise CommitRefused(
                    f"{self._layout.table}: partition column {name} is NOT NULL, and a row has null or an "
                    "empty text there, which Delta cannot tell apart. Nothing was written. Correct the value."
                )

    def _write_full(self, key: PartitionKey) -> None:
        waiting = self._waiting.pop(key)
        table = pa.concat_tables(waiting.tables)
        step = max(1, min(self._rows, self._size * table.num_rows // max(1, waiting.size)))
        start = 0
        while table.num_rows - start >= step:
            self._write(key, table.slice(start, step))
            start += step
        if start < table.num_rows:
            rest = self._waiting.setdefault(key, _Waiting())
            rest.add(table.slice(start))

    def _write_rest(self, key: PartitionKey) -> None:
        self._write(key, pa.concat_tables(self._waiting.pop(key).tables))

    def finish(self) -> list[AddFile]:
        """Write what is left, partition after partition."""
        for key in sorted(self._waiting, key=lambda key: [(text is not None, text or "") for text in key]):
            self._write_rest(key)
        return self._actions

    def _write(self, key: PartitionKey, table: pa.Table) -> None:
        layout = self._layout
        name = f"part-{len(self._paths):05d}-{uuid.uuid4()}-c000.snappy.parquet"
        path = folder_of(layout.partitions, key) + name
        content = _parquet(table)
        self._paths.append(path)
        with self._storage.open_sink(path) as sink:
            sink.write(content)
        self._actions.append(
            AddFile(
                path=log_path(path),
                partition_values=partition_values(layout.partitions, key),
                size=len(content),
                modification_time=self._clock_ms(),
                data_change=True,
                stats=file_statistics(table, layout.statistics, tight=layout.tight),
            )
        )

    def discard(self, error: BaseException) -> None:
        """Delete what was written; what cannot be deleted is named in the error that led here."""
        for path in self._paths:
            try:
                self._storage.delete(path)
            except Exception as failure:
                error.add_note(f"The file {path} is not in the table and could not be deleted: {failure}")


def _parquet(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    # Without Arrow's own schema in the file: the table's schema is in the log.
    pq.write_table(table, sink, compression="snappy", store_schema=False)
    return memoryview(sink.getvalue())
