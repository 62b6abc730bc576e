"""Typed, indexed statistics: which files can hold rows that a predicate asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from deltaplane.ledger.stores.base import Session
from deltaplane.log.actions import AddFile, Metadata
from deltaplane.log.bounds import PruningColumn, bounds_of, pruning_columns, width_class

__all__ = ["BOUND_COLUMNS", "IndexedColumn", "PruningColumns", "pruning_columns_of"]

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

    def insert_bounds(
        self, session: Session, table_id: int, first_file_id: int, adds: Sequence[AddFile]
    ) -> None:
        """Put the intervals of new files into the index."""
        if self.indexed and adds:
            session.insert("file_bounds", BOUND_COLUMNS, self._rows(table_id, first_file_id, adds))

    def _rows(self, table_id: int, first_file_id: int, adds: Sequence[AddFile]) -> Iterator[tuple[int, ...]]:
        columns = self.columns
        for file_id, action in enumerate(adds, first_file_id):
            for bound in bounds_of(action.stats, action.partition_values, columns):
                kind = width_class(bound.lo, bound.hi)
                yield table_id, bound.column_id, kind, bound.lo, file_id, bound.hi

    def extended(self, session: Session, table_id: int, version: int, metadata: Metadata) -> PruningColumns:
        """Add the columns that a new schema brings; files from before are kept by every predicate on them."""
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


def pruning_columns_of(session: Session, table_id: int) -> PruningColumns:
    """Read the indexed columns of a table."""
    rows = session.rows("pruning_columns", table_id=table_id)
    return PruningColumns(tuple(IndexedColumn(_column(row[2]), row[1]) for row in rows))


@lru_cache(maxsize=4096)
def _column(definition: str) -> PruningColumn:
    content: dict[str, Any] = json.loads(definition)
    content |= {key: tuple(content[key]) for key in ("path", "physical")}
    return PruningColumn(**content)
