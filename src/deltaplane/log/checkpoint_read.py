"""Reading one Parquet file of a checkpoint: classic, a part, the top of a v2 checkpoint, or a sidecar.

Writers disagree about which columns there are. Statistics may exist only as a struct, and are turned back
into the text that a commit has; a column that is missing is a column of nulls. Memory is bounded by the
batch, not by the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import IO, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec.structs import replace

from deltaplane.errors import CorruptLog
from deltaplane.log.actions import Action, AddFile, RemoveFile
from deltaplane.log.checkpoint_schema import (
    FILE_BATCH,
    TEXT_MAP,
    TOMBSTONE_BATCH,
    add_files,
    remove_files,
)
from deltaplane.log.jsonlines import action_from_dict
from deltaplane.log.stats_json import map_json, partition_json, struct_json

__all__ = ["CheckpointTables", "ParquetSource", "iter_checkpoint_actions", "iter_checkpoint_tables"]

ParquetSource: TypeAlias = bytes | pa.Buffer | pa.NativeFile | IO[bytes]
_FILE_KINDS = ("add", "remove")
_OTHER_KINDS = ("metaData", "protocol", "txn", "domainMetadata", "checkpointMetadata", "sidecar")
# The protocol keeps both out of checkpoints; some writers have the columns all the same, always empty.
_IGNORED = ("commitInfo", "cdc")
_FIELDS = {
    "path": "path",
    "size": "size",
    "modification_time": "modificationTime",
    "stats": "stats",
    "base_row_id": "baseRowId",
    "default_row_commit_version": "defaultRowCommitVersion",
    "clustering_provider": "clusteringProvider",
    "deletion_timestamp": "deletionTimestamp",
    "data_change": "dataChange",
    "extended_file_metadata": "extendedFileMetadata",
}
_VECTOR_FIELDS = {
    "dv_storage_type": "storageType",
    "dv_path": "pathOrInlineDv",
    "dv_offset": "offset",
    "dv_size": "sizeInBytes",
    "dv_cardinality": "cardinality",
}
_ELSEWHERE = ("partitionValues", "tags", "deletionVector", "stats_parsed", "partitionValues_parsed")


@dataclass(frozen=True, slots=True)
class CheckpointTables:
    """A bounded piece of a checkpoint: active files and tombstones as batches, everything else as actions."""

    files: pa.RecordBatch
    tombstones: pa.RecordBatch
    others: list[Action]


def iter_checkpoint_actions(
    parquet_source: ParquetSource, source: str, *, batch_rows: int = 65_536
) -> Iterator[Action]:
    """Read the actions of one Parquet file.

    Args:
        parquet_source: The file's bytes, or an open, seekable file.
        source: What to call it in an error, such as its path.
        batch_rows: How many rows are in memory at once.

    Raises:
        CorruptLog: The file is not Parquet, is damaged, or holds an impossible action.
    """
    with _blaming(source):
        for piece in _pieces(parquet_source, source, batch_rows):
            yield from _others(piece)
            yield from _adds(piece.rows("add"), piece.instants)
            yield from _removes(piece.rows("remove"))


def iter_checkpoint_tables(
    parquet_source: ParquetSource, source: str, *, batch_rows: int = 65_536
) -> Iterator[CheckpointTables]:
    """Read one Parquet file without making an object of every file action; otherwise as the actions.

    What has no column in a batch is left out: `data_change` of active files, statistics of tombstones, and
    fields that the protocol does not name.
    """
    with _blaming(source):
        for piece in _pieces(parquet_source, source, batch_rows):
            yield CheckpointTables(
                _file_table(piece.rows("add"), piece.instants),
                _tombstone_table(piece.rows("remove")),
                list(_others(piece)),
            )


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of one kind of file action, as columns."""

    count: int
    columns: Mapping[str, pa.Array]

    def get(self, name: str, kind: pa.DataType) -> pa.Array:
        column = self.columns.get(name)
        return pa.nulls(self.count, kind) if column is None else column.cast(kind)

    def texts(self, name: str) -> pa.Array:
        """A map as canonical JSON text."""
        column = self.columns.get(name)
        return pa.nulls(self.count, pa.string()) if column is None else map_json(column.cast(TEXT_MAP))

    def vectors(self) -> _Rows:
        column = self.columns.get("deletionVector")
        return _Rows(self.count, {} if column is None else _flat(column))


@dataclass(frozen=True, slots=True)
class _Piece:
    batch: pa.RecordBatch
    instants: frozenset[str]
    source: str

    def rows(self, kind: str) -> _Rows:
        if kind not in self.batch.schema.names:
            return _Rows(0, {})
        column = self.batch.column(kind)
        fields = _flat(column)
        present = fields["path"].is_valid() if "path" in fields else pa.repeat(False, len(column))
        nameless = pc.sum(pc.and_not(column.is_valid(), present)).as_py()
        if nameless and not _all_null(column.filter(pc.and_not(column.is_valid(), present))):
            raise CorruptLog(self.source, f"{nameless} {kind} action(s) have no path")
        kept = column.filter(present)
        return _Rows(len(kept), _flat(kept))


def _flat(column: pa.Array) -> dict[str, pa.Array]:
    names = [column.type.field(at).name for at in range(column.type.num_fields)]
    return dict(zip(names, column.flatten(), strict=True))


def _all_null(column: pa.Array) -> bool:
    """Some writers give a struct of nulls where they mean null."""
    return all(child.null_count == len(child) for child in column.flatten())


@contextmanager
def _blaming(source: str) -> Iterator[None]:
    """Say which file is damaged, and leave failures of the disk, the network and the memory what they are."""
    try:
        yield
    except MemoryError:
        raise
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise CorruptLog(source, f"not a readable checkpoint: {_line(error)}") from error
    except OSError as error:
        # Arrow reports damaged pages as a bare OSError; one from a disk or a network has a number or a class.
        if type(error) is not OSError or error.errno is not None:
            raise
        raise CorruptLog(source, f"not a readable checkpoint: {_line(error)}") from error


def _pieces(parquet_source: ParquetSource, source: str, batch_rows: int) -> Iterator[_Piece]:
    raw = pa.BufferReader(parquet_source) if isinstance(parquet_source, bytes) else parquet_source
    file = pq.ParquetFile(
        raw, coerce_int96_timestamp_unit="us", buffer_size=1 << 20, page_checksum_verification=True
    )
    columns, instants = _wanted(file, source), _instants(file)
    for batch in file.iter_batches(batch_rows, columns=columns):
        batch.validate(full=True)
        yield _Piece(batch, instants, source)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _wanted(file: pq.ParquetFile, source: str) -> list[str]:
    """Only the columns that matter: parsed statistics are many, and needed only where the text is missing."""
    wanted: list[str] = []
    if not set(file.schema_arrow.names) & {*_FILE_KINDS, *_OTHER_KINDS}:
        raise CorruptLog(source, f"not a checkpoint: its columns are {file.schema_arrow.names!r:.200}")
    for field in file.schema_arrow:
        if field.name in _IGNORED:
            continue
        if not pa.types.is_struct(field.type):
            raise CorruptLog(source, f"column {field.name} is {field.type}, and an action must be a struct")
        if field.name not in _FILE_KINDS:
            wanted.append(field.name)
            continue
        names = [child.name for child in field.type]
        if "stats_parsed" in names and not _stats_missing(file, field.name):
            names.remove("stats_parsed")
        wanted += [f"{field.name}.{name}" for name in names]
    return wanted


def _stats_missing(file: pq.ParquetFile, kind: str) -> bool:
    """Whether there can be a file without statistics as text."""
    places = {file.schema.column(at).path: at for at in range(len(file.schema))}
    if f"{kind}.stats" not in places or f"{kind}.path" not in places:
        return True
    for at in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(at)
        counts = [group.column(places[f"{kind}.{name}"]).statistics for name in ("stats", "path")]
        if any(count is None or not count.has_null_count for count in counts):
            return True
        if counts[0].null_count > counts[1].null_count:
            return True
    return False


def _instants(file: pq.ParquetFile) -> frozenset[str]:
    """Columns that Arrow shows without a zone although they are points in time."""
    columns = [file.schema.column(at) for at in range(len(file.schema))]
    return frozenset(
        column.path
        for column in columns
        if column.physical_type == "INT96" or "isAdjustedToUTC=true" in str(column.logical_type)
    )


def _file_table(rows: _Rows, instants: frozenset[str]) -> pa.RecordBatch:
    special = {
        "partition_values": pc.fill_null(_partition_texts(rows, instants), "{}"),
        "stats": _stats_texts(rows, instants),
        "size": pc.fill_null(rows.get("size", pa.int64()), 0),
        "modification_time": pc.fill_null(rows.get("modificationTime", pa.int64()), 0),
    }
    return _table(rows, special, FILE_BATCH)


def _tombstone_table(rows: _Rows) -> pa.RecordBatch:
    special = {
        "partition_values": rows.texts("partitionValues"),
        "data_change": pc.fill_null(rows.get("dataChange", pa.bool_()), False),
    }
    return _table(rows, special, TOMBSTONE_BATCH)


def _table(rows: _Rows, special: Mapping[str, pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    vectors = rows.vectors()
    arrays = []
    for field in schema:
        if field.name in special:
            arrays.append(special[field.name])
        elif field.name == "tags":
            arrays.append(rows.texts("tags"))
        elif field.name in _VECTOR_FIELDS:
            arrays.append(vectors.get(_VECTOR_FIELDS[field.name], field.type))
        else:
            arrays.append(rows.get(_FIELDS[field.name], field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _partition_texts(rows: _Rows, instants: frozenset[str]) -> pa.Array:
    texts = rows.texts("partitionValues")
    parsed = rows.columns.get("partitionValues_parsed")
    if parsed is None or not texts.null_count:
        return texts
    return pc.coalesce(texts, partition_json(parsed, instants, "add.partitionValues_parsed"))


def _stats_texts(rows: _Rows, instants: frozenset[str]) -> pa.Array:
    texts = rows.get("stats", pa.string())
    parsed = rows.columns.get("stats_parsed")
    if parsed is None or not texts.null_count:
        return texts
    return pc.coalesce(texts, struct_json(parsed, instants, "add.stats_parsed"))


def _adds(rows: _Rows, instants: frozenset[str]) -> Iterator[Action]:
    flags = pc.fill_null(rows.get("dataChange", pa.bool_()), False).to_pylist()
    details = _details(rows, _FIELDS.values())
    for at, add in enumerate(add_files(_file_table(rows, instants), flags)):
        yield replace(add, **_detail(add, details, at)) if details else add


def _removes(rows: _Rows) -> Iterator[Action]:
    details = _details(rows, (name for name in _FIELDS.values() if name != "stats"))
    for at, remove in enumerate(remove_files(_tombstone_table(rows))):
        yield replace(remove, **_detail(remove, details, at)) if details else remove


def _details(rows: _Rows, named: Iterable[str]) -> dict[tuple[str, str], list[Any]]:
    """Columns with values that a batch has no place for, by where they belong."""
    columns = {("", name): rows.columns[name] for name in rows.columns.keys() - {*named, *_ELSEWHERE}}
    vectors = rows.vectors().columns
    columns |= {
        ("deletion_vector", name): vectors[name] for name in vectors.keys() - {*_VECTOR_FIELDS.values()}
    }
    return {place: _plain(column) for place, column in columns.items() if column.null_count < len(column)}


def _detail(
    action: AddFile | RemoveFile, details: Mapping[tuple[str, str], list[Any]], at: int
) -> dict[str, Any]:
    found = {place: values[at] for place, values in details.items() if values[at] is not None}
    detail: dict[str, Any] = {"extra": {name: value for (owner, name), value in found.items() if not owner}}
    if "stats" in detail["extra"]:
        detail["stats"] = detail["extra"].pop("stats")
    vector_extra = {name: value for (owner, name), value in found.items() if owner}
    if vector_extra and action.deletion_vector is not None:
        detail["deletion_vector"] = replace(action.deletion_vector, extra=vector_extra)
    return detail


def _others(piece: _Piece) -> Iterator[Action]:
    for name in piece.batch.schema.names:
        if name in _FILE_KINDS:
            continue
        for body in _plain(piece.batch.column(name).drop_null()):
            # A struct of nulls is how some writers spell null.
            if body is not None:
                yield action_from_dict({name: body}, piece.source)


def _plain(column: pa.Array) -> list[Any]:
    return [_value(value, column.type) for value in column.to_pylist(maps_as_pydicts="lossy")]


def _value(value: Any, kind: pa.DataType) -> Any:
    """Structs without their null fields (None when none is left); as text what JSON cannot hold."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        fields = {name: _value(item, kind.field(name).type) for name, item in value.items()}
        return {name: item for name, item in fields.items() if item is not None} or None
    if isinstance(value, list):
        return [_value(item, kind.value_type) for item in value]
    return value if isinstance(value, str | int | float | Decimal | dict) else str(value)
