"""What the ledger knows about a table and its commits, as values."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from deltaplane.errors import LedgerError

__all__ = ["NO_END", "CommitResult", "Facts", "HistoryEntry", "Lag", "ManagedTable", "Winner", "row_limit"]

NO_END = 9223372036854775807
"""tombstone_until of a tombstone that has not ended."""


@dataclass(frozen=True)
class ManagedTable:
    """One row of `tables`."""

    table_id: int
    location: str
    name: str | None
    state: str
    frozen_reason: str | None
    foreign_commits: str
    allowed_paths: tuple[str, ...]
    base_version: int
    head_version: int
    published_version: int
    checkpoint_version: int
    next_file_id: int
    managed_since: int
    published_size: int | None = None

    @classmethod
    def from_row(cls, row: tuple[Any, ...]) -> ManagedTable:
        """Read a row of TABLE_COLUMNS."""
        values = list(row)
        values[6] = tuple(json.loads(row[6]))
        return cls(*values)

    @property
    def label(self) -> str:
        """What people call it: the name where there is one, the place otherwise."""
        return self.name or self.location


@dataclass(frozen=True)
class Facts:
    """What a commit did, as far as somebody who lost against it must know."""

    adds: int = 0
    removes: int = 0
    metadata: bool = False
    protocol: bool = False
    apps: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The text kept in `commits.facts`."""
        shown = {key: value for key, value in self.__dict__.items() if value}
        return json.dumps(shown, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Facts:
        """Read the text of `commits.facts`."""
        content = json.loads(text)
        content |= {key: tuple(content[key]) for key in ("apps", "domains") if key in content}
        return cls(**content)


@dataclass(frozen=True)
class Winner:
    """A commit that came first."""

    version: int
    operation: str | None
    engine: str | None
    facts: Facts
    committed_at: int
    source: str
    author: str | None
    message: str | None

    @classmethod
    def from_row(cls, row: tuple[Any, ...]) -> Winner:
        """Read a row of the statement `winners`."""
        return cls(row[0], row[1], row[2], Facts.from_json(row[3]), *row[4:])

    def __str__(self) -> str:
        from deltaplane.ledger.times import clock_text

        who = self.author or self.engine or "an unnamed writer"
        what = f" ({self.operation})" if self.operation else ""
        return f"{who}{what} at {clock_text(self.committed_at)}"


@dataclass(frozen=True)
class CommitResult:
    """Where a transaction landed.

    Attributes:
        transaction_id: The id under which it can be asked for.
        versions: The newest version of every table that was written, by the table's location.
        unpublished: Why publication of a table has to be finished later, by location; the commit itself
        holds.
    """

    transaction_id: str
    versions: dict[str, int]
    unpublished: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HistoryEntry:
    """One commit, as history shows it.

    Attributes:
        num_files: The active files with it; None where nobody knows, or as long as the rows of a large commit
            are still to be written.
        size_bytes: Their size together; None like them.
    """

    version: int
    transaction_id: str | None
    source: str
    operation: str | None
    engine: str | None
    facts: Facts
    committed_at: int
    timestamp: int
    num_files: int | None
    size_bytes: int | None
    sha256: str
    author: str | None
    message: str | None
    origin: str | None
    tables_in_transaction: int | None
    published_at: int | None


@dataclass(frozen=True)
class Lag:
    """How far the published log of a table is behind the ledger."""

    location: str
    name: str | None
    state: str
    frozen_reason: str | None
    head_version: int
    published_version: int
    checkpoint_version: int
    versions: int
    seconds: float
    attempts: int
    last_error: str | None

    @property
    def label(self) -> str:
        """What people call the table."""
        return self.name or self.location


def row_limit(limit: int | None) -> int:
    """How many rows are asked for at most; None means all.

    Raises:
        LedgerError: It is no number of rows.
    """
    if limit is None:
        return NO_END
    if type(limit) is not int or limit < 1:
        raise LedgerError(
            f"limit= is the number of entries to give, and {limit!r} was given. Nothing was read. Give 1 or "
            f"more, or leave it out for all."
        )
    return min(limit, NO_END)
