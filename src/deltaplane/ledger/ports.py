"""What every transaction log can be asked, wherever it is kept: in the files of a table or in a database.

Whoever only reads takes a `TxnLogReader`, whoever writes a `TxnLogWriter`; each log here is both. What one of
them cannot do is a value of `TxnLogCapabilities`, and it refuses that with an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from deltaplane.errors import DeltaplaneError

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa

    from deltaplane.ledger.model import CommitResult, HistoryEntry
    from deltaplane.ledger.snapshot import Snapshot
    from deltaplane.log.actions import Action

__all__ = ["TxnLog", "TxnLogCapabilities", "TxnLogReader", "TxnLogTransaction", "TxnLogWriter"]


@dataclass(frozen=True)
class TxnLogCapabilities:
    """The differences between logs that their users have to know.

    Attributes:
        engine: Where the log is kept: "file", or the name of a database.
        many_tables: A transaction may go over several tables; otherwise the second is a `CommitRefused`.
        many_commits: A transaction may hold several commits to one table; otherwise the second is
            a `CommitRefused`.
        history_counts: History tells how many files each version has, and of what size.
        absent: What a table that is not there raises.
        taken: What creating a table raises where there is one.
    """

    engine: str
    many_tables: bool
    many_commits: bool
    history_counts: bool
    absent: type[DeltaplaneError]
    taken: type[DeltaplaneError]


class TxnLogReader(Protocol):
    """Reads tables. A table is named by its path; a ledger takes names and deltasql:// addresses as well."""

    @property
    def capabilities(self) -> TxnLogCapabilities:
        """What this log can do."""
        ...

    def latest_version(self, path: str) -> int:
        """The newest version of a table."""
        ...

    def snapshot(
        self, path: str, version: int | None = None, timestamp: str | int | datetime | None = None
    ) -> Snapshot:
        """A table at a version or a moment; left out, now.

        Raises:
            VersionNotFound: The log does not hold that version.
        """
        ...

    def history(self, path: str, limit: int | None = None) -> list[HistoryEntry]:
        """The commits of a table, newest first."""
        ...

    def read_commit(self, path: str, version: int) -> bytes:
        """A commit, byte for byte as everybody sees it.

        Raises:
            VersionNotFound: The log does not hold it.
        """
        ...


class TxnLogTransaction(Protocol):
    """Commits that take place together at the end of a `with` block, or not at all."""

    @property
    def transaction_id(self) -> str:
        """What tells this transaction from all others; commitInfo carries it as txnId."""
        ...

    @property
    def result(self) -> CommitResult | None:
        """Where it landed, once it has."""
        ...

    def snapshot(self, path: str) -> Snapshot:
        """A table as of its first mention in the transaction."""
        ...

    def commit(
        self,
        path: str,
        actions: Iterable[Mapping[str, Any] | Action],
        expected_version: int | None = None,
    ) -> None:
        """Hand in a commit: right after `expected_version`, or after what this transaction has seen.

        Raises:
            CommitRefused: An action is malformed, or the log cannot hold so much in one transaction.
        """
        ...

    def rollback(self) -> None:
        """End the transaction without a trace."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class TxnLogWriter(Protocol):
    """Creates tables and commits to them."""

    @property
    def capabilities(self) -> TxnLogCapabilities:
        """What this log can do."""
        ...

    def create(
        self,
        path: str,
        schema: pa.Schema | str,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        *,
        description: str | None = None,
        author: str | None = None,
        message: str | None = None,
    ) -> Snapshot:
        """Create a table where there is none."""
        ...

    def transaction(self, author: str | None = None, message: str | None = None) -> TxnLogTransaction:
        """Begin a transaction."""
        ...


class TxnLog(TxnLogReader, TxnLogWriter, Protocol):
    """A log that can be read and written."""
