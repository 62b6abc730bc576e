"""Arrow data into a table of the ledger, without a JVM: append, overwrite, replace some partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from deltaplane import telemetry
from deltaplane.embedded.parquet import write_files
from deltaplane.embedded.writable import check_embedded_writable
from deltaplane.errors import CommitOutcomeUnknown, CommitRefused, DeltaplaneError
from deltaplane.ledger import Ledger, Snapshot
from deltaplane.ledger.ratify import records_of
from deltaplane.ledger.storage import Storage
from deltaplane.log.actions import Action, AddFile, CommitInfo, DeletionVector, RemoveFile
from deltaplane.log.bounds import comparable_columns
from deltaplane.log.paths import resolve
from deltaplane.log.predicates import columns_of, keep_mask, parse_predicate

__all__ = ["Written", "write_arrow"]

_MODES = ("append", "overwrite")


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        version: The version of the table that has it.
        files_added: How many files came.
        files_removed: How many files went.
        rows: How many rows came.
    """

    version: int
    files_added: int
    files_removed: int
    rows: int


def write_arrow(
    ledger: Ledger,
    path: str | Path,
    data: Any,
    *,
    mode: str = "append",
    replace_where: Any | None = None,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    name: str | None = None,
    author: str | None = None,
    message: str | None = None,
) -> Written:
    """Write Arrow data into a table of the ledger; a table that does not exist is created.

    Args:
        ledger: The ledger that manages the table.
        path: The table: path, name or deltasql:// address.
        data: A table, a batch, a reader, an iterable of them, or anything that exports an Arrow stream.
        mode: "append" adds rows; "overwrite" replaces all rows, or those of `replace_where`.
        replace_where: A predicate over partition columns, such as "day = '2026-01-31'": only these
        partitions are
            replaced, and all new rows must lie in them.
        partition_by: Partition columns of a table that is created.
        properties: Properties of a table that is created.
        name: The name of a table that is created.
        author: Who writes.
        message: Why.

    Raises:
        CommitRefused: The data does not fit the table, or the predicate is not over partitions. Nothing was
        written.
        CommitConflict: Somebody changed the table meanwhile, and this was no append. Nothing was written.
        UnsupportedTable: The table has a feature that needs Spark.
    """
    if mode not in _MODES or (replace_where is not None and mode != "overwrite"):
        raise CommitRefused(
            'mode is "append" or "overwrite", and replace_where goes with "overwrite". Nothing was written.'
        )
    place = str(path)
    if ledger.context.find(place) is None:
        schema, data = _schema_of(data)
        ledger.create(place, schema, partition_by, properties, name=name, author=author, message=message)
    with ledger.transaction(author=author, message=message) as tx:
        snapshot = tx.snapshot(place)
        check_embedded_writable(snapshot.protocol, snapshot.metadata, place)
        storage = ledger.context.storage(snapshot.location)
        adds = write_files(
            storage,
            data,
            schema_string=snapshot.metadata.schema_string,
            partition_columns=snapshot.metadata.partition_columns,
            configuration=snapshot.metadata.configuration,
            table=place,
        )
        with _Discarding(storage, snapshot, adds):
            removes = _replaced(ledger, snapshot, adds, replace_where, place) if mode == "overwrite" else []
            info = _info(mode, snapshot, adds, removes, replace_where)
            tx.commit(place, [info, *removes, *adds])
            result = tx.finish()
    rows = sum(_records(add) for add in adds)
    return Written(result.versions[snapshot.location], len(adds), len(removes), rows)


def _schema_of(data: Any) -> tuple[pa.Schema, Any]:
    """The schema of new data; a stream is opened for that, and goes on from there."""
    if hasattr(data, "schema") and isinstance(data.schema, pa.Schema):
        return data.schema, data
    if hasattr(data, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(data)
        return reader.schema, reader
    raise CommitRefused(
        "The table does not exist yet, and the data does not tell its schema. Nothing was written. Give a "
        "table or a "
        "reader of pyarrow, or create the table first with ledger.create."
    )


class _Discarding:
    """Deletes files that were written for a commit which did not take place."""

    def __init__(self, storage: Storage, snapshot: Snapshot, adds: Sequence[AddFile]) -> None:
        self._storage = storage
        self._root = snapshot.location
        self._adds = adds

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        # Where nobody knows whether the commit took place, its files may be needed.
        if error is None or isinstance(error, CommitOutcomeUnknown):
            return
        for add in self._adds:
            place = resolve(self._root, add.path)
            try:
                self._storage.delete(place.removeprefix(self._root).lstrip("/"))
            except (DeltaplaneError, OSError) as second:
                telemetry.LOGGER.warning("%s: an unused file could not be deleted: %s", place, second)


def _replaced(
    ledger: Ledger, snapshot: Snapshot, adds: Sequence[AddFile], replace_where: Any | None, label: str
) -> list[RemoveFile]:
    files = snapshot.files()
    if replace_where is not None:
        columns = comparable_columns(snapshot.metadata.schema_string, snapshot.metadata.partition_columns)
        predicate = parse_predicate(replace_where)
        partitions = {column.path for column in columns if column.partition}
        named = set(columns_of(predicate))
        if not named or not named <= partitions:
            raise CommitRefused(
                f"{label}: replace_where must be a predicate over the partition columns "
                f"({', '.join(snapshot.partition_columns) or 'the table has none'}), and {replace_where!r} "
                f"is not. Nothing "
                f"was written."
            )
        coming = pa.table({"partition_values": _value_maps(adds), "stats": pa.nulls(len(adds), pa.string())})
        if not all(keep_mask(coming, predicate, columns).to_pylist()):
            raise CommitRefused(
                f"{label}: some of the new rows do not satisfy {replace_where!r}, which is to be replaced. "
                f"Nothing was "
                f"written. Filter the data, or widen the predicate."
            )
        files = files.filter(keep_mask(files, predicate, columns))
    now = ledger.context.clock()
    return [_remove(row, now) for row in files.to_pylist()]


def _value_maps(adds: Sequence[AddFile]) -> pa.Array:
    return pa.array([list(add.partition_values.items()) for add in adds], pa.map_(pa.string(), pa.string()))


def _remove(row: dict[str, Any], now: int) -> RemoveFile:
    vector = row["deletion_vector"]
    return RemoveFile(
        row["path"],
        deletion_timestamp=now,
        data_change=True,
        extended_file_metadata=True,
        partition_values=dict(row["partition_values"]),
        size=row["size"],
        deletion_vector=vector
        and DeletionVector(
            vector["storageType"],
            vector["pathOrInlineDv"],
            vector["sizeInBytes"],
            vector["cardinality"],
            vector["offset"],
        ),
    )


def _info(
    mode: str,
    snapshot: Snapshot,
    adds: Sequence[AddFile],
    removes: Sequence[Action],
    replace_where: Any | None,
) -> CommitInfo:
    parameters = {"mode": mode.capitalize(), "partitionBy": str(snapshot.partition_columns).replace("'", '"')}
    if replace_where is not None:
        parameters["predicate"] = str(replace_where)
    metrics = {
        "numFiles": str(len(adds)),
        "numOutputRows": str(sum(_records(add) for add in adds)),
        "numOutputBytes": str(sum(add.size for add in adds)),
        "numRemovedFiles": str(len(removes)),
    }
    return CommitInfo(
        {
            "operation": "WRITE",
            "operationParameters": parameters,
            "operationMetrics": metrics,
            "isBlindAppend": mode == "append",
        }
    )


def _records(add: AddFile) -> int:
    return records_of(add.stats) or 0
