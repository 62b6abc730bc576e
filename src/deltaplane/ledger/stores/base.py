"""What the ledger asks of a database.

A store opens one database and gives out sessions. Everything else, which rows there are and what they mean,
is the
same on every database and lives outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from deltaplane.errors import LedgerError, LedgerUnavailable

__all__ = [
    "ConnectionLost",
    "MayNotWrite",
    "NewRows",
    "Question",
    "Row",
    "Session",
    "Store",
    "WriteContention",
]

Row = tuple[Any, ...]
Question = tuple[str, Mapping[str, Any]]
"""A named statement and its values."""


@dataclass(frozen=True)
class NewRows:
    """Rows that are to be put into a table."""

    table: str
    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]


class ConnectionLost(LedgerUnavailable):
    """The connection broke. Before COMMIT nothing took place; during COMMIT the outcome is unknown."""

    def __init__(self, cause_text: str, *, during_commit: bool = False) -> None:
        self.during_commit = during_commit
        super().__init__(f"The connection to the ledger's database broke: {cause_text}")


class WriteContention(LedgerUnavailable):
    """The database rolled the transaction back in favour of another. It may be repeated as it is."""


class MayNotWrite(LedgerError):
    """The user lacks the right, or the server is a copy that takes no writes."""


class Session(Protocol):
    """One database transaction."""

    def rows(self, query: str, **values: Any) -> list[Row]:
        """Run a named statement and give all its rows."""
        ...

    def row(self, query: str, **values: Any) -> Row | None:
        """Run a named statement and give its first row."""
        ...

    def run(self, query: str, **values: Any) -> int:
        """Run a named statement and give the number of rows it touched."""
        ...

    def ask(self, *questions: Question) -> list[list[Row]]:
        """Run several statements in order, in one round trip, and give the rows of each."""
        ...

    def insert(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Put many rows into a table, in the fastest way that the database has."""
        ...

    def together(self, *writes: Question | NewRows) -> None:
        """Write several things that do not touch each other's rows: as one statement, where the database can.

        As inside `pipelined`, a failure may come to light only later.
        """
        ...

    def pipelined(self, wanted: bool) -> AbstractContextManager[None]:
        """Send what is written inside without waiting for each answer, where the database can do that.

        Nothing inside may look at the number of rows. A failure may come to light only at the next question
        or at the end of the transaction.
        """
        ...

    def script(self, text: str) -> None:
        """Run the statements of a migration."""
        ...

    def keys(self, values: Sequence[int]) -> Any:
        """A list of integers as one value for {keys}."""
        ...


class Store(Protocol):
    """One database that holds a ledger."""

    engine: str

    def writing(self) -> AbstractContextManager[Session]:
        """A transaction that writes; committed at the end, rolled back on an exception.

        Raises:
            ConnectionLost: With `during_commit` when nobody knows how it ended.
            WriteContention: Rolled back; it may be repeated.
        """
        ...

    def relaxed(self) -> AbstractContextManager[Session]:
        """Like `writing`, for notes that may be lost in a power failure because they can be found out
        again.
        """
        ...

    def note_published(self, table_id: int, first: int, last: int, now: int) -> None:
        """Write down that versions of a table are published, in a transaction of its own like `relaxed`."""
        ...

    def reading(self) -> AbstractContextManager[Session]:
        """A transaction that only reads, from one moment."""
        ...

    def glance(self) -> AbstractContextManager[Session]:
        """For a single statement that only reads: no transaction around it."""
        ...

    def arrow(self, query: str, *, optional: str = "", **values: Any) -> Iterator[pa.RecordBatch]:
        """Run a wide read; the batches are read as they are asked for."""
        ...

    def has_ledger(self) -> bool:
        """Whether the database holds the ledger's tables."""
        ...

    def now(self) -> int:
        """The database's clock where it has one, in milliseconds: leases of several machines are compared
        with it.
        """
        ...

    def prune_values(
        self, ranges: Sequence[tuple[int, int, int]], at_least: int, at_most: int
    ) -> Mapping[str, Any]:
        """The values of the statement `prunable`."""
        ...

    def close(self) -> None:
        """Give back every connection."""
        ...
