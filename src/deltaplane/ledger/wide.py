"""Wide reads: what the database gives as Arrow, in the forms that people and checkpoints want.

Statements give '' and -1 instead of NULL, because SQLite has no column types of its own and the driver
guesses them
from the first rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "FILES_SCHEMA",
    "VECTOR_TYPE",
    "checkpoint_files",
    "checkpoint_tombstones",
    "completed_batch",
    "files_batch",
    "files_table",
]

VECTOR_TYPE = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int64()),
        ("sizeInBytes", pa.int64()),
        ("cardinality", pa.int64()),
    ]
)
_VALUES_TYPE = pa.map_(pa.string(), pa.string())
FILES_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("size", pa.int64()),
        ("modification_time", pa.int64()),
        ("partition_values", _VALUES_TYPE),
        ("num_records", pa.int64()),
        ("stats", pa.string()),
        ("deletion_vector", VECTOR_TYPE),
    ]
)


def files_table(batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """The active files as people read them; columns that a statement left out are empty."""
    return pa.Table.from_batches([files_batch(batch) for batch in batches], FILES_SCHEMA)


def files_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of a statement as people read it."""
    rows = batch.num_rows
    names = batch.schema.names
    values = _maps(batch["partition_values"]) if "partition_values" in names else _empty_maps(rows)
    vectors = (
        _vectors(_text(batch["deletion_vector"]))
        if "deletion_vector" in names
        else pa.nulls(rows, VECTOR_TYPE)
    )
    return pa.RecordBatch.from_arrays(
        [
            _string(batch["path"]),
            _whole(batch["size"]),
            _whole(batch["modification_time"]),
            values,
            _known(batch["num_records"]),
            _text(batch["stats"]),
            vectors,
        ],
        schema=FILES_SCHEMA,
    )


def completed_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with the columns of `FILES_SCHEMA` and no others; those that it does not have are empty."""
    rows, names = batch.num_rows, batch.schema.names
    empty = {"partition_values": _empty_maps(rows), "deletion_vector": pa.nulls(rows, VECTOR_TYPE)}
    columns = [batch[name] if name in names else empty[name] for name in FILES_SCHEMA.names]
    return pa.RecordBatch.from_arrays(columns, schema=FILES_SCHEMA)


def _string(column: pa.Array) -> pa.Array:
    return column if column.type == pa.string() else column.cast(pa.string())


def _whole(column: pa.Array) -> pa.Array:
    return column if column.type == pa.int64() else column.cast(pa.int64())


def _known(column: pa.Array) -> pa.Array:
    """-1 means: not known."""
    return _nulled(_whole(column), pa.scalar(-1, pa.int64()))


def _text(column: pa.Array) -> pa.Array:
    """'' means: none."""
    return _nulled(_string(column), pa.scalar("", pa.string()))


def _nulled(column: pa.Array, absent: pa.Scalar) -> pa.Array:
    missing = pc.equal(column, absent)
    if not pc.any(missing).as_py():
        return column
    return pc.if_else(missing, pa.scalar(None, column.type), column)


def _empty_maps(rows: int) -> pa.Array:
    offsets = pa.repeat(pa.scalar(0, pa.int32()), rows + 1)
    empty = pa.array([], pa.string())
    return pa.MapArray.from_arrays(offsets, empty, empty)


def _maps(column: pa.Array) -> pa.Array:
    """JSON texts as maps; each different text is read once, and partitions repeat."""
    encoded = _string(column).dictionary_encode()
    distinct = [list(json.loads(text).items()) for text in encoded.dictionary.to_pylist()]
    return pa.array(distinct, _VALUES_TYPE).take(encoded.indices)


def _removals(column: pa.Array) -> tuple[pa.Array, pa.Array]:
    """What the texts of removals say: whether data changed, and whether the tombstone is a whole one.

    Hardly two of them differ, so each different text is read once.
    """
    encoded = _string(column).dictionary_encode()
    distinct = [json.loads(text) if text else {} for text in encoded.dictionary.to_pylist()]
    changes = pa.array([told.get("dataChange", True) for told in distinct], pa.bool_())
    whole = pa.array([told.get("extended") for told in distinct], pa.bool_())
    return changes.take(encoded.indices), whole.take(encoded.indices)


def _vectors(column: pa.Array) -> pa.Array:
    if column.null_count == len(column):
        return pa.nulls(len(column), VECTOR_TYPE)
    return pa.array([json.loads(text) if text else None for text in column.to_pylist()], VECTOR_TYPE)


_VECTOR_COLUMNS = {
    "dv_storage_type": "storageType",
    "dv_path": "pathOrInlineDv",
    "dv_offset": "offset",
    "dv_size": "sizeInBytes",
    "dv_cardinality": "cardinality",
}


def _vector_columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    vectors = _vectors(_text(batch["deletion_vector"]))
    return {name: pc.struct_field(vectors, field) for name, field in _VECTOR_COLUMNS.items()}


def checkpoint_files(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of `files_full` as file batches of a checkpoint."""
    for batch in batches:
        columns = {
            "path": _string(batch["path"]),
            "partition_values": _string(batch["partition_values"]),
            "size": _whole(batch["size"]),
            "modification_time": _whole(batch["modification_time"]),
            "stats": _text(batch["stats"]),
            "tags": _text(batch["tags"]),
            **_vector_columns(batch),
            "base_row_id": _known(batch["base_row_id"]),
            "default_row_commit_version": _known(batch["default_row_commit_version"]),
            "clustering_provider": _text(batch["clustering_provider"]),
        }
        yield pa.RecordBatch.from_pydict(columns)


def checkpoint_tombstones(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of `tombstones_full` as tombstone batches of a checkpoint."""
    for batch in batches:
        data_change, extended = _removals(batch["removal"])
        full = pc.fill_null(extended, False)
        sizes, values = _whole(batch["size"]), _string(batch["partition_values"])
        columns = {
            "path": _string(batch["path"]),
            "deletion_timestamp": _known(batch["deletion_timestamp"]),
            "data_change": data_change,
            "extended_file_metadata": extended,
            "partition_values": pc.if_else(full, values, pa.scalar(None, pa.string())),
            "size": pc.if_else(full, sizes, pa.scalar(None, pa.int64())),
            "tags": _text(batch["tags"]),
            **_vector_columns(batch),
            "base_row_id": _known(batch["base_row_id"]),
            "default_row_commit_version": _known(batch["default_row_commit_version"]),
        }
        yield pa.RecordBatch.from_pydict(columns)
