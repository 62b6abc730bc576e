"""Arrow data into a table of the ledger, without a JVM: append, overwrite, replace some partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from deltaplane import telemetry
from deltaplane.embedded.parquet import write_files
from deltaplane.embedded.writable import check_embedded_writable
from deltaplane.errors import CommitRefused, DeltaplaneError
from deltaplane.ledger import Ledger, Snapshot, Transaction
from deltaplane.ledger.file_rows import records_of
from deltaplane.ledger.prepare import check_text
from deltaplane.ledger.storage import Storage
from deltaplane.log.actions import AddFile, CommitInfo, DeletionVector, RemoveFile
from deltaplane.log.bounds import comparable_columns
from deltaplane.log.jsonlines import dump_json
from deltaplane.log.paths import resolve
from deltaplane.log.predicates import columns_of, keep_mask, parse_predicate

__all__ = ["Written", "write_arrow"]

_MODES = ("append", "overwrite")


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        version: The version of the table that has it; None while its transaction is open.
        files_added: How many files came.
        files_removed: How many files went.
        rows: How many rows came.
        unpublished: Why other readers do not see it yet; the commit holds, and is published later.
    """

    version: int | None
    files_added: int
    files_removed: int
    rows: int
    unpublished: str | None = None


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
    transaction: Transaction | None = None,
) -> Written:
    """Write Arrow data into a table of the ledger; a table that does not exist is created.

    Args:
        ledger: The ledger that manages the table.
        path: The table: path, name or deltasql:// address.
        data: A table, a batch, a reader, an iterable of them, or anything that exports an Arrow stream.
        mode: "append" adds rows; "overwrite" replaces all rows, or those of `replace_where`.
        replace_where: A predicate over partition columns, such as "day = '2026-01-31'": only these
            partitions are replaced, and all new rows must lie in them.
        partition_by: Partition columns of a table that is created.
        properties: Properties of a table that is created.
        name: The name of a table that is created.
        author: Who writes.
        message: Why.
        transaction: Write as part of this transaction, which may write other tables too. The table must
            exist then, and the version is known when the transaction has taken place.

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
    check_text("write_arrow", path=place, author=author, message=message)
    wish = _Wish(place, mode, replace_where)
    if transaction is not None:
        return _staged(ledger, transaction, wish, data)
    if ledger.context.find(place) is None:
        schema, data = _schema_of(data)
        ledger.create(place, schema, partition_by, properties, name=name, author=author, message=message)
    with ledger.transaction(author=author, message=message) as tx:
        written = _staged(ledger, tx, wish, data)
        result = tx.finish()
    ((location, version),) = result.versions.items()
    return replace(written, version=version, unpublished=result.unpublished.get(location))


@dataclass(frozen=True)
class _Wish:
    table: str
    mode: str
    replace_where: Any | None


def _staged(ledger: Ledger, tx: Transaction, wish: _Wish, data: Any) -> Written:
    """Write the files and hand the commit in."""
    snapshot = tx.snapshot(wish.table)
    check_embedded_writable(snapshot.protocol, snapshot.metadata, wish.table)
    storage = ledger.context.storage(snapshot.location)
    adds = write_files(
        storage,
        data,
        schema_string=snapshot.metadata.schema_string,
        partition_columns=snapshot.metadata.partition_columns,
        configuration=snapshot.metadata.configuration,
        table=wish.table,
    )
    tx.on_failure(lambda: _discard(storage, snapshot.location, adds))
    removes = _replaced(ledger, snapshot, adds, wish) if wish.mode == "overwrite" else []
    tx.commit(wish.table, [_info(wish, snapshot, adds, removes), *removes, *adds])
    return Written(None, len(adds), len(removes), sum(_records(add) for add in adds))


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


def _discard(storage: Storage, root: str, adds: Sequence[AddFile]) -> None:
    """Delete files that were written for a commit which did not take place."""
    for add in adds:
        place = resolve(root, add.path)
        try:
            storage.delete(place.removeprefix(root).lstrip("/"))
        except (DeltaplaneError, OSError) as error:
            telemetry.LOGGER.warning("%s: an unused file could not be deleted: %s", place, error)


def _replaced(ledger: Ledger, snapshot: Snapshot, adds: Sequence[AddFile], wish: _Wish) -> list[RemoveFile]:
    files, label, replace_where = snapshot.files(), wish.table, wish.replace_where
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
    wish: _Wish, snapshot: Snapshot, adds: Sequence[AddFile], removes: Sequence[RemoveFile]
) -> CommitInfo:
    parameters = {"mode": wish.mode.capitalize(), "partitionBy": dump_json(snapshot.partition_columns)}
    if wish.replace_where is not None:
        parameters["predicate"] = str(wish.replace_where)
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
            "isBlindAppend": wish.mode == "append",
        }
    )


def _records(add: AddFile) -> int:
    return records_of(add.stats) or 0
