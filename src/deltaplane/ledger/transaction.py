"""A transaction over one table or many, without Spark."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from deltaplane.errors import LedgerError
from deltaplane.ledger.commit import Request, commit
from deltaplane.ledger.context import Context
from deltaplane.ledger.model import CommitResult, ManagedTable
from deltaplane.ledger.placing import Staged
from deltaplane.ledger.prepare import prepare_actions
from deltaplane.ledger.snapshot import Snapshot, read_snapshot
from deltaplane.log.actions import Action

__all__ = ["Transaction"]


class Transaction:
    """Commits to any number of tables that take place together or not at all.

    Use it as a context manager: at the end of the block everything is committed, on an exception nothing is.
    A table
    is read as of its first mention inside; what changed meanwhile lets everything but blind appends fail.

    Attributes:
        transaction_id: The id under which the outcome can be asked for.
        result: Where it landed, once it is committed.
    """

    def __init__(
        self, ctx: Context, author: str | None, message: str | None, transaction_id: str | None = None
    ) -> None:
        self.transaction_id = transaction_id or str(uuid.uuid4())
        self.result: CommitResult | None = None
        self._ctx = ctx
        self._author = author
        self._message = message
        self._staged: list[Staged] = []
        self._pinned: dict[int, ManagedTable] = {}
        self._open = True

    def __repr__(self) -> str:
        state = "open" if self._open else "ended"
        return f"Transaction({self.transaction_id!r}, {len(self._staged)} commits, {state})"

    def snapshot(self, path: str) -> Snapshot:
        """A table as this transaction sees it: as of its first mention, without what the transaction itself
        adds.
        """
        table = self._pin(path)
        return read_snapshot(self._ctx, table, table.head_version)

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
            CommitRefused: An action is malformed.
            TableNotManaged: The ledger does not know the table.
        """
        self._check_open()
        table = self._pin(path)
        prepared = prepare_actions(actions, table.label)
        read = table.head_version if expected_version is None else expected_version
        self._staged.append(Staged(table, prepared, read, expected_version is not None))

    def rollback(self) -> None:
        """End the transaction without a trace."""
        self._check_open()
        self._staged.clear()
        self._open = False

    def _pin(self, path: str) -> ManagedTable:
        self._check_open()
        table = self._ctx.table(path)
        return self._pinned.setdefault(table.table_id, table)

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
        self._open = False
        if error is None and self._staged:
            request = Request(self.transaction_id, tuple(self._staged), self._author, self._message)
            self.result = commit(self._ctx, request)
