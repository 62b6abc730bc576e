"""Typed, indexed statistics: which files can hold rows that a predicate asks for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from deltaplane.ledger.stores.base import Session
from deltaplane.log.actions import AddFile, Metadata
from deltaplane.log.bounds import (
    Bound,
    PruningColumn,
    bounds_of,
    pruning_columns,
    width_class,
)
from deltaplane.log.bounds_batch import bounds_batch
from deltaplane.log.jsonlines import dump_json
from deltaplane.log.order_keys import INT64_MAX, INT64_MIN

__all__ = [
    "BOUND_COLUMNS",
    "NO_STATISTICS",
    "IndexedColumn",
    "PruningColumns",
    "parse_pruning_columns",
    "pruning_columns_of",
]

_CHUNK = 50_000
_MANY = 200  # from here on the statistics are read by columns
NO_STATISTICS = 0
"""The column id under which files without statistics stand: every predicate on a data column keeps them."""
BOUND_COLUMNS = ("table_id", "column_id", "width_class", "lo", "file_id", "hi")


@dataclass(frozen=True)
class IndexedColumn:
    """A column with an index, and since which version files are in it."""

    column: PruningColumn
    since_version: int


@dataclass(frozen=True)
class PruningColumns:
    """The indexed columns of a table."""

    indexed: tuple[IndexedColumn, ...]

    @property
    def columns(self) -> tuple[PruningColumn, ...]:
        """The columns themselves."""
        return tuple(item.column for item in self.indexed)

    def bounds(self, table_id: int, first_file_id: int, adds: Sequence[AddFile]) -> Iterable[tuple[int, ...]]:
        """The intervals of new files, as rows of the index."""
        if not self.indexed or not adds:
            return ()
        rows = self._many_rows if len(adds) >= _MANY else self._rows
        return rows(table_id, first_file_id, adds)

    def _many_rows(
        self, table_id: int, first_file_id: int, adds: Sequence[AddFile]
    ) -> Iterator[tuple[int, ...]]:
        numbered = list(enumerate(adds, first_file_id))
        full = [(number, a.stats, dump_json(a.partition_values)) for number, a in numbered if a.stats]
        for number, action in numbered:
            if not action.stats:
                yield from self._rows(table_id, number, [action])
        yield from self._stored_rows(table_id, [], full)

    def _rows(self, table_id: int, first_file_id: int, adds: Sequence[AddFile]) -> Iterator[tuple[int, ...]]:
        for file_id, action in enumerate(adds, first_file_id):
            for bound in self._bounds(action.stats, action.partition_values):
                kind = width_class(bound.lo, bound.hi)
                yield table_id, bound.column_id, kind, bound.lo, file_id, bound.hi

    def _bounds(self, stats: str | None, values: Mapping[str, str | None]) -> list[Bound]:
        columns = self.columns
        partitions = tuple(column for column in columns if column.partition)
        if not stats and len(columns) - len(partitions) > 1:
            # One row instead of one for every column about which nothing is known.
            return [*bounds_of(None, values, partitions), Bound(NO_STATISTICS, INT64_MIN, INT64_MAX)]
        return bounds_of(stats, values, columns)

    def extended(self, session: Session, table_id: int, version: int, metadata: Metadata) -> PruningColumns:
        """Add the columns that a new schema brings; files from before are kept by every predicate on them."""
        if not metadata.schema_string:
            # A table without a schema exists on purpose: it has no columns to index.
            return self
        known = {item.column.id for item in self.indexed}
        wanted = pruning_columns(metadata.schema_string, metadata.partition_columns, metadata.configuration)
        fresh = [IndexedColumn(column, version) for column in wanted if column.id not in known]
        for item in fresh:
            session.run(
                "insert_pruning_column",
                table_id=table_id,
                column_id=item.column.id,
                since_version=version,
                definition=json.dumps(asdict(item.column), ensure_ascii=False),
            )
        return PruningColumns((*self.indexed, *fresh)) if fresh else self

    def index_stored_files(self, session: Session, table_id: int, first_file_id: int) -> None:
        """Put the intervals of files into the index that are stored already, as after a checkpoint was
        read.
        """
        after = first_file_id - 1
        while self.indexed:
            rows = session.rows("files_for_bounds", table_id=table_id, after=after, limit=_CHUNK)
            if not rows:
                return
            after = rows[-1][0]
            bare = [row for row in rows if not row[1]]
            full = [row for row in rows if row[1]]
            session.insert("file_bounds", BOUND_COLUMNS, self._stored_rows(table_id, bare, full))

    def _stored_rows(
        self, table_id: int, bare: list[tuple[Any, ...]], full: list[tuple[Any, ...]]
    ) -> Iterator[tuple[int, ...]]:
        for file_id, _, values in bare:
            for bound in self._bounds(None, json.loads(values)):
                kind = width_class(bound.lo, bound.hi)
                yield table_id, bound.column_id, kind, bound.lo, file_id, bound.hi
        if not full:
            return
        ids, stats, values = zip(*full, strict=True)
        batch = bounds_batch(pa.array(stats, pa.string()), pa.array(values, pa.string()), self.columns)
        columns = [batch[name].to_pylist() for name in ("row", "column_id", "width_class", "lo", "hi")]
        for row, column, kind, lo, hi in zip(*columns, strict=True):
            yield table_id, column, kind, lo, ids[row], hi


def pruning_columns_of(session: Session, table_id: int) -> PruningColumns:
    """Read the indexed columns of a table."""
    return _read(session.rows("pruning_columns", table_id=table_id))


@lru_cache(maxsize=512)
def parse_pruning_columns(text: str) -> PruningColumns:
    """The indexed columns from a list of their rows; they are the same with every commit."""
    return _read(sorted(json.loads(text)))


def _read(rows: Iterable[Sequence[Any]]) -> PruningColumns:
    return PruningColumns(tuple(IndexedColumn(_column(row[2]), row[1]) for row in rows))


@lru_cache(maxsize=4096)
def _column(definition: str) -> PruningColumn:
    content: dict[str, Any] = json.loads(definition)
    content |= {key: tuple(content[key]) for key in ("path", "physical")}
    return PruningColumn(**content)
