"""The newest version of a table: what the next commit builds on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

from deltaplane.ledger.file_rows import Totals
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.pruning import PruningColumns, parse_pruning_columns
from deltaplane.ledger.ratify import Version
from deltaplane.ledger.stores.base import Question, Row, Session
from deltaplane.log.actions import Metadata, Protocol
from deltaplane.log.jsonlines import action_from_dict, parse_json
from deltaplane.log.properties import in_commit_timestamps_enabled

__all__ = ["Head", "head_of", "head_question", "parse_metadata", "parse_protocol", "read_head"]


@lru_cache(maxsize=512)
def parse_metadata(text: str) -> Metadata:
    """Read a metaData action as the ledger keeps it; schemas are long and repeat."""
    return cast(Metadata, action_from_dict(parse_json(text)))


@lru_cache(maxsize=512)
def parse_protocol(text: str) -> Protocol:
    """Read a protocol action as the ledger keeps it."""
    return cast(Protocol, action_from_dict(parse_json(text)))


@dataclass(frozen=True)
class Head:
    """The state at the head of a table, under its lock.

    Attributes:
        totals: The sums over its files; of a bare one not known.
        bare: The rows of its files are still to be written.
    """

    table: ManagedTable
    totals: Totals
    timestamp: int
    metadata: Metadata | None
    protocol: Protocol | None
    columns: PruningColumns
    bare: bool = False

    @classmethod
    def empty(cls, table: ManagedTable) -> Head:
        """A table without versions."""
        return cls(table, Totals(), 0, None, None, PruningColumns(()))

    @property
    def keeps_time_in_commits(self) -> bool:
        """Whether commits must carry strictly increasing timestamps."""
        if self.metadata is None or self.protocol is None:
            return False
        return in_commit_timestamps_enabled(self.protocol, self.metadata)

    def next_timestamp(self, now: int, told: int | None = None) -> int:
        """The time of the next commit: a clock that jumps back must not take the table with it."""
        if told is not None and told > self.timestamp:
            return told
        return max(now, self.timestamp + 1)

    def indexing(self, session: Session, version: Version) -> Head:
        """The head with the columns that a version brings indexed: its own files may hold them already."""
        metadata = version.prepared.metadata
        if metadata is None:
            return self
        columns = self.columns.extended(session, self.table.table_id, version.number, metadata)
        return replace(self, columns=columns)

    def after(self, version: Version, totals: Totals | None, next_file_id: int) -> Head:
        """The head once a version has been written; without sums, bare."""
        metadata = version.prepared.metadata or self.metadata
        protocol = version.prepared.protocol or self.protocol
        table = replace(self.table, head_version=version.number, next_file_id=next_file_id)
        return Head(
            table, totals or Totals(), version.timestamp, metadata, protocol, self.columns, totals is None
        )


def read_head(session: Session, table: ManagedTable) -> Head:
    """Read the head of a table; of a table without versions, the empty state."""
    return head_of(table, session.ask(head_question(table.table_id))[0])


def head_question(table_id: int) -> Question:
    """What has to be asked about the head of a table, under its lock."""
    return "head_state", {"table_id": table_id}


def head_of(table: ManagedTable, state: Sequence[Row]) -> Head:
    """The head of a table from the answer to `head_question`."""
    if not state:
        return Head.empty(table)
    files, size, vectors, timestamp, metadata, protocol, columns = state[0]
    return Head(
        table,
        Totals(files or 0, size or 0, vectors or 0),
        timestamp,
        parse_metadata(metadata) if metadata else None,
        parse_protocol(protocol) if protocol else None,
        parse_pruning_columns(columns or "[]"),
        bare=files is None,
    )
