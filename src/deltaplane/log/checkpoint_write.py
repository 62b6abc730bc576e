"""Writing checkpoints from batches of files, in bounded memory.

The same state gives the same bytes, however the batches are cut: rows keep the order in which they come (the
caller sorts them) and are regrouped; everything else is sorted here. Statistics are always written as text,
whatever `delta.checkpoint.writeStatsAsJson` says, because none are written as structs and they would be lost.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from deltaplane.log.actions import (
    Action,
    CheckpointMetadata,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
    SidecarFile,
)
from deltaplane.log.checkpoint_schema import (
    CLASSIC_SCHEMA,
    FILE_BATCH,
    SIDECAR_SCHEMA,
    TOMBSTONE_BATCH,
    V2_SCHEMA,
    add_column,
    fitting_delta,
    remove_column,
)
from deltaplane.log.jsonlines import action_to_dict
from deltaplane.log.last_checkpoint import LastCheckpoint

__all__ = ["ROWS_PER_GROUP", "CheckpointSummary", "OpenSink", "write_classic", "write_v2"]

ROWS_PER_GROUP = 50_000
_TEXT_PER_GROUP = 32 << 20
_FILES_PER_SIDECAR = 250_000
OpenSink = Callable[[str], AbstractContextManager[IO[bytes]]]
# Values that repeat; for all others a dictionary costs time and saves nothing.
_REPEATED = [
    f"{kind}.{name}"
    for kind in ("add", "remove")
    for name in (
        "partitionValues.key_value.key",
        "partitionValues.key_value.value",
        "tags.key_value.key",
        "tags.key_value.value",
        "deletionVector.storageType",
        "deletionVector.pathOrInlineDv",
        "defaultRowCommitVersion",
        "clusteringProvider",
    )
]


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """What was written.

    Attributes:
        size: The number of actions in all files.
        num_add_files: The number of active files.
        size_in_bytes: The bytes of all files.
        names: The files of a v2 checkpoint, relative to `_delta_log`, the top file last.
        top_bytes: The bytes of the top file.
        sidecars: The sidecars of a v2 checkpoint.
        modification_time: The time that was given for a v2 checkpoint.
    """

    size: int
    num_add_files: int
    size_in_bytes: int
    names: tuple[str, ...] = ()
    top_bytes: int = 0
    sidecars: tuple[SidecarFile, ...] = ()
    modification_time: int = 0

    def last_checkpoint(self, version: int) -> LastCheckpoint:
        """The content of `_last_checkpoint` once these files are in place."""
        v2_checkpoint = {
            "path": self.names[-1] if self.names else "",
            "sizeInBytes": self.top_bytes,
            "modificationTime": self.modification_time,
        }
        return LastCheckpoint(
            version,
            self.size,
            size_in_bytes=self.size_in_bytes,
            num_of_add_files=self.num_add_files,
            v2_checkpoint=v2_checkpoint if self.names else None,
        )


def write_classic(
    sink: IO[bytes],
    header: Sequence[Action],
    files: Iterable[pa.RecordBatch],
    tombstones: Iterable[pa.RecordBatch],
) -> CheckpointSummary:
    """Write a classic checkpoint: one Parquet file.

    Args:
        sink: Where the bytes go; it stays open.
        header: Protocol, metadata, transactions and domains, in any order.
        files: The active files as file batches, in the order to be written.
        tombstones: The removed files that are not expired, as tombstone batches.

    Raises:
        CorruptLog: A value does not fit the form that Delta prescribes. The sink holds no usable file then.
    """
    with _writing(sink, CLASSIC_SCHEMA) as writer:
        writer.write_header(header)
        for group in _file_groups(files, tombstones, ROWS_PER_GROUP):
            writer.write(*group)
    return CheckpointSummary(writer.rows, writer.adds, writer.bytes)


def write_v2(
    open_sink: OpenSink,
    version: int,
    identity: uuid.UUID,
    header: Sequence[Action],
    files: Iterable[pa.RecordBatch],
    tombstones: Iterable[pa.RecordBatch],
    *,
    modification_time_ms: int,
    files_per_sidecar: int = _FILES_PER_SIDECAR,
) -> CheckpointSummary:
    """Write a v2 checkpoint: sidecars with the files and tombstones first, then the top file that names them.

    Args:
        open_sink: Opens a file for writing by its name relative to `_delta_log`.
        version: The version of the table.
        identity: What makes the names unique. The same identity and state give the same names and bytes.
        header: Protocol, metadata, transactions and domains, in any order.
        files: The active files as file batches, in the order to be written.
        tombstones: The removed files that are not expired, as tombstone batches.
        modification_time_ms: The time that the top file notes for the sidecars.
        files_per_sidecar: At most how many actions go into a sidecar.

    Raises:
        CorruptLog: A value does not fit the form that Delta prescribes. No top file exists then.
    """
    if files_per_sidecar < 1:
        raise ValueError(f"files_per_sidecar must be at least 1, and is {files_per_sidecar}")
    groups = _file_groups(files, tombstones, min(ROWS_PER_GROUP, files_per_sidecar))
    written: list[_Writer] = []
    sidecars: list[SidecarFile] = []
    group = next(groups, None)
    while group is not None:
        name = f"{uuid.uuid5(identity, f'{version}.{len(sidecars)}')}.parquet"
        with open_sink(f"_sidecars/{name}") as sink, _writing(sink, SIDECAR_SCHEMA) as writer:
            while group is not None and writer.rows + len(group[1]) <= files_per_sidecar:
                writer.write(*group)
                group = next(groups, None)
        written.append(writer)
        sidecars.append(SidecarFile(name, writer.bytes, modification_time_ms))
    top_name = f"{version:020d}.checkpoint.{identity}.parquet"
    with open_sink(top_name) as sink, _writing(sink, V2_SCHEMA) as top:
        top.write_header([CheckpointMetadata(version), *header, *sidecars])
    return CheckpointSummary(
        size=top.rows + sum(writer.rows for writer in written),
        num_add_files=sum(writer.adds for writer in written),
        size_in_bytes=top.bytes + sum(writer.bytes for writer in written),
        names=(*(f"_sidecars/{sidecar.path}" for sidecar in sidecars), top_name),
        top_bytes=top.bytes,
        sidecars=tuple(sidecars),
        modification_time=modification_time_ms,
    )


class _CountingSink(io.RawIOBase):
    """Passes bytes on and counts them: not every sink tells where it is."""

    def __init__(self, sink: IO[bytes]) -> None:
        self._sink: IO[bytes] | None = sink
        self.count = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if self._sink is not None:
            self._sink.write(data)
        self.count += len(data)
        return len(data)

    def tell(self) -> int:
        return self.count

    def abandon(self) -> None:
        """Take what the Parquet writer still says, and drop it."""
        self._sink = None


class _Writer:
    """One Parquet file of a checkpoint: rows with one column filled and all others null."""

    def __init__(self, sink: IO[bytes], schema: pa.Schema) -> None:
        self._schema = schema
        self._sink = _CountingSink(sink)
        self._parquet = pq.ParquetWriter(
            self._sink,
            schema,
            compression="snappy",
            use_dictionary=[name for name in _REPEATED if name.split(".")[0] in schema.names],
            store_schema=False,
            write_page_checksum=True,
        )
        self.rows = self.adds = 0

    @property
    def bytes(self) -> int:
        return self._sink.count

    def write(self, kind: str, actions: pa.Array) -> None:
        """Write actions of one kind as one row group."""
        rows = len(actions)
        arrays = [actions if field.name == kind else pa.nulls(rows, field.type) for field in self._schema]
        self._parquet.write_table(pa.Table.from_arrays(arrays, schema=self._schema), row_group_size=rows)
        self.rows += rows
        self.adds += rows if kind == "add" else 0

    def write_header(self, header: Sequence[Action]) -> None:
        """Write everything that is not a file as one row group."""
        ordered = sorted(header, key=_header_order)
        if not ordered:
            return
        rows = [{action.kind: _row(action_to_dict(action)[action.kind])} for action in ordered]
        with fitting_delta("the header"):
            table = pa.Table.from_pylist(rows, schema=self._schema)
        self._parquet.write_table(table, row_group_size=len(rows))
        self.rows += len(rows)

    def close(self) -> None:
        self._parquet.close()

    def abandon(self) -> None:
        self._sink.abandon()
        # An error of its own is about a file that nobody keeps; the error that led here goes on.
        with suppress(pa.ArrowException):
            self._parquet.close()


@contextmanager
def _writing(sink: IO[bytes], schema: pa.Schema) -> Iterator[_Writer]:
    writer = _Writer(sink, schema)
    try:
        yield writer
    except BaseException:
        # Without a footer nobody takes what was written for a checkpoint.
        writer.abandon()
        raise
    writer.close()


_HEADER_KINDS: dict[type[Any], Callable[[Any], str]] = {
    CheckpointMetadata: lambda action: "",
    Protocol: lambda action: "",
    Metadata: lambda action: action.id,
    SetTransaction: lambda action: action.app_id,
    DomainMetadata: lambda action: action.domain,
    SidecarFile: lambda action: "",
}


def _header_order(action: Action) -> tuple[int, str]:
    kinds = list(_HEADER_KINDS)
    if type(action) not in kinds:
        raise TypeError(f"{action.kind} is not part of a checkpoint's header")
    return kinds.index(type(action)), _HEADER_KINDS[type(action)](action)


def _row(body: dict[str, Any]) -> dict[str, Any]:
    """The fields of an action as Arrow takes them: a map is a list of pairs, the format is a struct."""
    row: dict[str, Any] = {}
    for key, value in body.items():
        if key == "format":
            row[key] = _row(value)
        else:
            row[key] = sorted(value.items()) if isinstance(value, dict) else value
    return row


def _file_groups(
    files: Iterable[pa.RecordBatch], tombstones: Iterable[pa.RecordBatch], rows: int
) -> Iterator[tuple[str, pa.Array]]:
    """The row groups of file actions: which column, and its values."""
    return chain(
        (("add", add_column(group)) for group in _regrouped(files, FILE_BATCH, rows)),
        (("remove", remove_column(group)) for group in _regrouped(tombstones, TOMBSTONE_BATCH, rows)),
    )


def _regrouped(batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    """Batches cut anew: bounded in rows and text, and at the same rows wherever the input was cut."""
    held: list[pa.RecordBatch] = []
    room, text_room = rows, _TEXT_PER_GROUP
    for batch in batches:
        rest = batch.select(schema.names).cast(schema)
        while rest.num_rows:
            head, text = _fitting(rest.slice(0, room), text_room)
            if not head and not held:
                # One row with more text than a group may have is a group of its own.
                head, text = 1, text_room + 1
            held.append(rest.slice(0, head))
            room, text_room = room - head, text_room - text
            rest = rest.slice(head)
            if rest.num_rows or not room:
                yield pa.concat_batches(held)
                held, room, text_room = [], rows, _TEXT_PER_GROUP
    if held:
        yield pa.concat_batches(held)


def _fitting(batch: pa.RecordBatch, text_room: int) -> tuple[int, int]:
    """How many rows at the front have no more text than that, and how much text they have."""
    lengths = [
        pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())
        for column in batch.columns
        if pa.types.is_string(column.type)
    ]
    total = lengths[0]
    for length in lengths[1:]:
        total = pc.add(total, length)
    running = pc.cumulative_sum(total)
    count = pc.sum(pc.less_equal(running, text_room)).as_py() or 0
    return count, running[count - 1].as_py() if count else 0
