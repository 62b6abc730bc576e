"""The ledger, as its users hold it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from deltaplane.ledger import history as _history
from deltaplane.ledger.commit import outcome
from deltaplane.ledger.context import Context, Retries
from deltaplane.ledger.creating import create_table
from deltaplane.ledger.migrations import check_schema, install
from deltaplane.ledger.model import HistoryEntry, ManagedTable
from deltaplane.ledger.publish import publish_pending
from deltaplane.ledger.registry import open_store
from deltaplane.ledger.snapshot import Snapshot, read_snapshot, version_of
from deltaplane.ledger.transaction import Transaction
from deltaplane.ledger.uri import LedgerUri, parse_uri

__all__ = ["Ledger", "connect"]

Place = str | Path


def connect(
    uri: str,
    *,
    author: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    create: bool = True,
    retries: Retries | None = None,
) -> Ledger:
    """Open a ledger.

    Args:
        uri: Its address, such as deltasql://sqlite//data/ledger.db. See the concepts page for all forms.
        author: Who is said to have done what is done through this connection.
        storage_options: Options of object stores, such as an endpoint. Credentials come from the environment.
        create: Make the ledger's own tables when the database has none yet.
        retries: How often to repeat what may be repeated.

    Raises:
        ConfigError: The address cannot be used.
        LedgerUnavailable: The database cannot be reached.
        LedgerSchemaError: The database holds a ledger of another version, or none and `create` is False.
    """
    parsed = parse_uri(uri)
    return Ledger(parsed, author, storage_options or {}, create, retries or Retries())


class Ledger:
    """Delta's transaction log in a database. Everything that takes a path also takes a name or a deltasql://
    address.
    """

    def __init__(
        self,
        uri: LedgerUri,
        author: str | None,
        storage_options: Mapping[str, str],
        create: bool,
        retries: Retries,
    ) -> None:
        store = open_store(uri)
        if create:
            install(store)
        check_schema(store)
        self.uri = str(uri.without_table())
        self._ctx = Context(store, self.uri, author, storage_options, retries)

    def __repr__(self) -> str:
        return f"Ledger({self.uri!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back the database's connections."""
        self._ctx.store.close()

    def create(
        self,
        path: Place,
        schema: pa.Schema | str,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        *,
        name: str | None = None,
        description: str | None = None,
        author: str | None = None,
        message: str | None = None,
        foreign_commits: str = "import",
    ) -> Snapshot:
        """Create a table, managed from version 0.

        Args:
            path: Where its files will lie.
            schema: Its columns, as a schema of pyarrow or as Delta's schemaString.
            partition_by: Names of partition columns.
            properties: Table properties, such as delta.appendOnly.
            name: What to call it, such as sales.orders.
            description: The table's comment.
            author: Who creates it.
            message: Why.
            foreign_commits: What to do with commits of outside writers: "import" or "refuse".
        """
        create_table(
            self._ctx,
            str(path),
            schema,
            partition_by,
            properties or {},
            name,
            description,
            author,
            message,
            foreign_commits,
        )
        return self.snapshot(path)

    def tables(self) -> list[ManagedTable]:
        """Every table that the ledger manages."""
        with self._ctx.store.reading() as session:
            rows = session.rows("all_tables")
        return [ManagedTable.from_row(row) for row in rows]

    def snapshot(
        self, path: Place, version: int | None = None, timestamp: str | int | datetime | None = None
    ) -> Snapshot:
        """A table at a version or a moment; left out, now.

        Raises:
            TableNotManaged: The ledger does not know the table.
            VersionNotFound: It does not hold that version.
        """
        table = self._ctx.table(str(path))
        return read_snapshot(self._ctx, table, version_of(self._ctx, table, version, timestamp))

    def history(self, path: Place, limit: int | None = None) -> list[HistoryEntry]:
        """The commits of a table, newest first."""
        return _history.read_history(self._ctx, self._ctx.table(str(path)), limit)

    def transaction(
        self, author: str | None = None, message: str | None = None, transaction_id: str | None = None
    ) -> Transaction:
        """Begin a transaction over any number of tables.

        Args:
            author: Who commits.
            message: Why.
            transaction_id: An id of the caller's own: when a transaction of that id has taken place, nothing
            happens
                again, so a caller that was interrupted may simply repeat.
        """
        return Transaction(self._ctx, author, message, transaction_id)

    def outcome(self, transaction_id: str) -> bool:
        """Whether a transaction took place. After False it never will."""
        return outcome(self._ctx, transaction_id)

    def publish(self, path: Place | None = None) -> dict[str, int]:
        """Publish what is pending, of one table or of all.

        Returns:
            The newest published version of every table, by its location.
        """
        tables = [self._ctx.table(str(path))] if path is not None else self.tables()
        return {
            table.location: publish_pending(self._ctx, table) for table in tables if table.state == "managed"
        }
