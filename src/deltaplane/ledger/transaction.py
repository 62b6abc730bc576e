"""A transaction over one table or many, without Spark."""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from deltaplane.errors import CommitOutcomeUnknown, CommitRefused, LedgerError
from deltaplane.ledger.commit import Request, commit
from deltaplane.ledger.context import Context
from deltaplane.ledger.model import CommitResult, ManagedTable
from deltaplane.ledger.placing import Staged
from deltaplane.ledger.prepare import check_text, prepare_actions
from deltaplane.ledger.snapshot import Snapshot, read_snapshot
from deltaplane.log.actions import Action
from deltaplane.log.order_keys import INT64_MAX

__all__ = ["Transaction", "TransactionBlock"]


class TransactionBlock(ABC):
    """Commits that take place together or not at all, wherever the log is kept.

    Use it as a context manager: at the end of the block everything is committed, on an exception nothing is.
    A table is read as of its first mention inside; what changed meanwhile lets everything but blind appends
    fail.

    Attributes:
        transaction_id: The id under which the outcome can be asked for.
        result: Where it landed, once it is committed; without versions when nothing was handed in.

    Raises:
        CommitRefused: Author, message or id is no text that can be kept.
    """

    def __init__(self, author: str | None, message: str | None, transaction_id: str | None = None) -> None:
        check_text("The transaction", author=author, message=message, transaction_id=transaction_id)
        self.transaction_id = transaction_id or str(uuid.uuid4())
        self.result: CommitResult | None = None
        self._author = author
        self._message = message
        self._staged: list[Staged] = []
        self._pinned: dict[str, ManagedTable] = {}
        self._undo: list[Callable[[], None]] = []
        self._open = True

    def __repr__(self) -> str:
        state = "open" if self._open else "ended"
        return f"{type(self).__name__}({self.transaction_id!r}, {len(self._staged)} commits, {state})"

    def snapshot(self, path: str) -> Snapshot:
        """A table as this transaction sees it: as of its first mention, without what the transaction itself
        adds.
        """
        return self._read(self._pin(path))

    def commit(
        self,
        path: str,
        actions: Iterable[Mapping[str, Any] | Action],
        expected_version: int | None = None,
    ) -> None:
        """Hand in a commit to a table. It takes place when the transaction does.

        Args:
            path: The table: path, name or deltasql:// address.
            actions: Delta actions as in the log, for example {"add": {…}}. A commitInfo is added where there
            is none.
            expected_version: The version that the actions were made from. When it is given the commit lands
            right
                after it or not at all. Left out, the version of the table's first mention counts, and blind
                appends
                move behind what others committed meanwhile.

        Raises:
            CommitRefused: An action is malformed, or the version is no number.
            TableNotManaged: The ledger does not know the table.
        """
        self._check_open()
        table = self._pin(path)
        _check_version(expected_version, table.label)
        prepared = prepare_actions(actions, table.label)
        read = table.head_version if expected_version is None else expected_version
        self._staged.append(Staged(table, prepared, read, expected_version is not None))

    def on_failure(self, undo: Callable[[], None]) -> None:
        """Have something undone if the transaction does not take place, such as the writing of data files.

        It is left alone when nobody knows how the transaction ended: what it wrote may be needed then.
        """
        self._undo.append(undo)

    def _undone(self) -> None:
        self._open = False
        while self._undo:
            self._undo.pop()()

    def finish(self) -> CommitResult:
        """Commit now instead of at the end of the block.

        Raises:
            CommitConflict: Somebody else was first, and nothing was written.
        """
        self._check_open()
        self._open = False
        request = Request(self.transaction_id, tuple(self._staged), self._author, self._message)
        try:
            self.result = self._land(request) if self._staged else CommitResult(self.transaction_id, {})
        except CommitOutcomeUnknown:
            raise
        except BaseException:
            self._undone()
            raise
        return self.result

    def rollback(self) -> None:
        """End the transaction without a trace."""
        self._check_open()
        self._staged.clear()
        self._undone()

    def _pin(self, path: str) -> ManagedTable:
        self._check_open()
        check_text("The transaction", path=os.fspath(path) if isinstance(path, os.PathLike) else path)
        table = self._table(path)
        return self._pinned.setdefault(table.location, table)

    def _check_open(self) -> None:
        if not self._open:
            raise LedgerError(f"Transaction {self.transaction_id} has ended. Begin a new one.")

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._open:
            return
        if error is not None:
            self._undone()
        else:
            self.finish()
        self._open = False

    @abstractmethod
    def _table(self, path: str) -> ManagedTable:
        """The table as it is now."""

    @abstractmethod
    def _read(self, table: ManagedTable) -> Snapshot:
        """The table at the version it was pinned at."""

    @abstractmethod
    def _land(self, request: Request) -> CommitResult:
        """Commit everything, or nothing."""


def _check_version(version: object, label: str) -> None:
    if version is None or (type(version) is int and abs(version) <= INT64_MAX):
        return
    raise CommitRefused(
        f"{label}: expected_version must be a whole number, and is {version!r:.60}. Nothing was written. "
        f"Give the version that the actions were made from, or leave it out."
    )


class Transaction(TransactionBlock):
    """A transaction of the ledger, over any number of tables."""

    def __init__(
        self, ctx: Context, author: str | None, message: str | None, transaction_id: str | None = None
    ) -> None:
        super().__init__(author, message, transaction_id)
        check_text("The ledger", author=ctx.author)
        self._ctx = ctx

    def _table(self, path: str) -> ManagedTable:
        return self._ctx.table(path)

    def _read(self, table: ManagedTable) -> Snapshot:
        return read_snapshot(self._ctx, table, table.head_version)

    def _land(self, request: Request) -> CommitResult:
        return commit(self._ctx, request)
