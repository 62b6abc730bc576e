"""The files that can hold rows of a predicate, found through the indexed statistics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from deltaplane.ledger.activefiles import Wanted, read_files
from deltaplane.ledger.context import Context
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.pruning import NO_STATISTICS, IndexedColumn, pruning_columns_of
from deltaplane.ledger.stores.base import Session
from deltaplane.ledger.wide import files_table
from deltaplane.log.actions import Metadata
from deltaplane.log.bounds import comparable_columns, stab_ranges
from deltaplane.log.predicates import ColumnRange, keep_mask, parse_predicate, prunable_ranges

__all__ = ["select_files"]

_MOST = 50_000
"""A column that keeps more files than this is not selective: looking them up one by one would cost more than
a scan.
"""


def select_files(ctx: Context, everything: Wanted, metadata: Metadata, predicate: Any) -> pa.Table:
    """The active files that cannot be ruled out."""
    table, version = everything.table, everything.version
    wanted = parse_predicate(predicate)
    every = comparable_columns(metadata.schema_string, metadata.partition_columns)
    ranges = prunable_ranges(wanted, every)
    with ctx.store.reading() as session:
        ids = _candidates(ctx, session, table, version, ranges)
        if ids is None:
            found = None
        else:
            rows = session.rows(
                "files_by_id", table_id=table.table_id, version=version, keys=session.keys(sorted(ids))
            )
            found = files_table([_batch(rows)])
    if found is None:
        found = read_files(ctx, replace(everything, partitioned=True, vectors=True))
    return found.filter(keep_mask(found, wanted, every))


def _batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    names = (
        "path",
        "size",
        "modification_time",
        "partition_values",
        "deletion_vector",
        "num_records",
        "stats",
    )
    kinds = (pa.string(), pa.int64(), pa.int64(), pa.string(), pa.string(), pa.int64(), pa.string())
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names)


def _candidates(
    ctx: Context, session: Session, table: ManagedTable, version: int, ranges: list[ColumnRange]
) -> set[int] | None:
    """The ids of files that every selective range keeps; None when no range is selective."""
    indexed = {item.column.id: item for item in pruning_columns_of(session, table.table_id).indexed}
    kept: set[int] | None = None
    for wanted in ranges:
        if wanted.column_id in indexed:
            found = _within(ctx, session, table, version, wanted, indexed[wanted.column_id])
            if found is not None:
                kept = found if kept is None else kept & found
    return kept


def _within(
    ctx: Context,
    session: Session,
    table: ManagedTable,
    version: int,
    wanted: ColumnRange,
    item: IndexedColumn,
) -> set[int] | None:
    found = _stabbed(ctx, session, table, wanted.column_id, wanted.a, wanted.b)
    if not item.column.partition:
        found |= _stabbed(ctx, session, table, NO_STATISTICS, wanted.a, wanted.b)
    if item.since_version > table.base_version:
        older = session.rows(
            "files_before",
            table_id=table.table_id,
            since=item.since_version,
            version=version,
            limit=_MOST + 1,
        )
        found |= {row[0] for row in older}
    return found if len(found) <= _MOST else None


def _stabbed(
    ctx: Context, session: Session, table: ManagedTable, column_id: int, least: int, most: int
) -> set[int]:
    values = ctx.store.prune_values(stab_ranges(least, most), least, most)
    rows = session.rows("prunable", table_id=table.table_id, column_id=column_id, limit=_MOST + 1, **values)
    return {row[0] for row in rows}
