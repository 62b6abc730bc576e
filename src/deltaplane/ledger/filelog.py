"""The log of a table in its own files, without a database.

A commit is one file that did not exist before, so a transaction holds one commit to one table. Nothing is
kept between two calls: what others write is seen at once, and each call costs the reading of the log.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from deltaplane.errors import CommitRefused, NotADeltaTable, VersionNotFound
from deltaplane.ledger.commit import Request
from deltaplane.ledger.committimes import CommitTimes
from deltaplane.ledger.context import Retries
from deltaplane.ledger.creating import first_commit
from deltaplane.ledger.filecommit import commit_to_files
from deltaplane.ledger.load import FileVanished, load_state, read_listing
from deltaplane.ledger.model import CommitResult, HistoryEntry, ManagedTable, row_limit
from deltaplane.ledger.names import LOG_FOLDER, commit_path
from deltaplane.ledger.placing import Staged
from deltaplane.ledger.ports import TxnLogCapabilities
from deltaplane.ledger.prepare import prepare_bytes
from deltaplane.ledger.replayed import replayed_snapshot
from deltaplane.ledger.snapshot import Snapshot
from deltaplane.ledger.storage import Storage, canonical_root, open_storage
from deltaplane.ledger.times import now_ms, to_ms
from deltaplane.ledger.transaction import TransactionBlock
from deltaplane.log.actions import Action
from deltaplane.log.features import check_readable
from deltaplane.log.listing import segment

__all__ = ["FileTransaction", "FileTxnLog"]

_RETRIES = Retries(attempts=300, first_wait=0.005, longest_wait=0.5)
"""A lost name means that another writer has got on, so trying again is no waste."""


class FileTxnLog:
    """Tables whose log lies in their own `_delta_log`, on a local disk or in an object store."""

    def __init__(
        self,
        storage_options: Mapping[str, str] | None = None,
        *,
        author: str | None = None,
        allow_paths: Sequence[str] = (),
        retries: Retries = _RETRIES,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        """Open nothing yet: tables are opened as they are named.

        Args:
            storage_options: Options of object stores, such as an endpoint. Credentials come from the
                environment.
            author: Who is said to have done what is done through this log.
            allow_paths: Folders outside a table in which its files may lie, as those of a shallow clone do.
            retries: How often to try again when another writer took the name.
            clock: The time in milliseconds.
        """
        self._options = dict(storage_options or {})
        self._author = author
        self._allowed = tuple(canonical_root(root) for root in allow_paths)
        self._retries = retries
        self._clock = clock
        self._storages: dict[str, Storage] = {}

    def __repr__(self) -> str:
        return f"FileTxnLog({sorted(self._storages)})"

    @property
    def capabilities(self) -> TxnLogCapabilities:
        """What files can do."""
        return TxnLogCapabilities(
            "file",
            many_tables=False,
            many_commits=False,
            history_counts=False,
            absent=NotADeltaTable,
            taken=CommitRefused,
        )

    def latest_version(self, path: str | Path) -> int:
        """The newest version of a table.

        Raises:
            NotADeltaTable: There is no log.
        """
        return segment(read_listing(self._storage(path))).version

    def snapshot(
        self,
        path: str | Path,
        version: int | None = None,
        timestamp: str | int | datetime | None = None,
    ) -> Snapshot:
        """A table at a version or a moment; left out, now.

        Raises:
            NotADeltaTable: There is no log.
            VersionNotFound: The log does not hold that version.
            UnsupportedTable: It asks for something that this version cannot read.
            CorruptLog: Files of the log are missing or damaged.
        """
        storage = self._storage(path)
        if version is not None and timestamp is not None:
            raise VersionNotFound(f"{storage.root}: give a version or a timestamp, not both.")
        moment = None if timestamp is None else to_ms(timestamp)
        try:
            return _snapshot(storage, version, moment)
        except FileVanished:
            # The log was cleaned up between the listing and the reading; a second listing shows what is left.
            return _snapshot(storage, version, moment)

    def history(self, path: str | Path, limit: int | None = None) -> list[HistoryEntry]:
        """The commits that are still in the log, newest first.

        Raises:
            NotADeltaTable: There is no log.
            CorruptLog: A commit cannot be read.
        """
        storage = self._storage(path)
        listing = read_listing(storage)
        segment(listing)
        times = CommitTimes(storage, listing)
        versions = sorted(listing.commits, reverse=True)[: row_limit(limit)]
        return [_entry(storage, version, times.at(version)) for version in versions]

    def read_commit(self, path: str | Path, version: int) -> bytes:
        """A commit, byte for byte.

        Raises:
            NotADeltaTable: There is no log.
            VersionNotFound: The log does not hold that version.
        """
        storage = self._storage(path)
        # Whether the table or only the version is missing, the listing tells.
        with suppress(FileNotFoundError):
            if version >= 0:
                return storage.read(commit_path(version))
        newest = segment(read_listing(storage)).version
        raise VersionNotFound(
            f"{storage.root}: the log has no commit of version {version}; the newest is {newest}."
        )

    def create(
        self,
        path: str | Path,
        schema: pa.Schema | str,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        *,
        description: str | None = None,
        author: str | None = None,
        message: str | None = None,
    ) -> Snapshot:
        """Create a table where there is none.

        Args:
            path: Where its files will lie.
            schema: Its columns, as a schema of pyarrow or as Delta's schemaString.
            partition_by: Names of partition columns.
            properties: Table properties, such as delta.appendOnly.
            description: The table's comment.
            author: Who creates it.
            message: Why.

        Raises:
            CommitRefused: There is a log already, or the definition cannot be.
        """
        storage = self._storage(path)
        if next(iter(storage.list(LOG_FOLDER)), None) is not None:
            raise CommitRefused(
                f"{storage.root}: there is a Delta log at this place already. Nothing was written. Commit to "
                f"that table, or choose another place."
            )
        prepared = first_commit(
            storage.root, schema, partition_by, properties or {}, description, self._clock()
        )
        staged = Staged(self._table(storage.root, -1), prepared, -1, True)
        self.land(Request(str(uuid.uuid4()), (staged,), author, message))
        return self.snapshot(storage.root, 0)

    def transaction(self, author: str | None = None, message: str | None = None) -> FileTransaction:
        """Begin a transaction over one table.

        Args:
            author: Who commits; commitInfo carries it as userName.
            message: Why; commitInfo carries it as userMetadata.
        """
        return FileTransaction(self, author, message)

    def table(self, path: str) -> ManagedTable:
        """A table as it is now, in the form that staged commits name it."""
        return self._table(self._storage(path).root, self.latest_version(path))

    def _table(self, location: str, version: int) -> ManagedTable:
        """Files manage nothing: the row that a ledger would have, with what counts for a commit."""
        return ManagedTable(
            0, location, None, "managed", None, "import", self._allowed, 0, version, version, -1, 0, 0
        )

    def _storage(self, path: str | Path) -> Storage:
        root = canonical_root(path)
        if root not in self._storages:
            self._storages[root] = open_storage(root, self._options)
        return self._storages[root]

    def land(self, request: Request) -> CommitResult:
        """Commit what a transaction holds; see `commit_to_files`."""
        storage = self._storage(request.staged[0].table.location)
        named = replace(request, author=request.author or self._author)
        return commit_to_files(storage, named, self._retries, self._clock)


class FileTransaction(TransactionBlock):
    """A transaction over one table whose log lies in files: one commit, for only one file appears at once."""

    def __init__(self, log: FileTxnLog, author: str | None, message: str | None) -> None:
        super().__init__(author, message)
        self._log = log

    def commit(
        self,
        path: str,
        actions: Iterable[Mapping[str, Any] | Action],
        expected_version: int | None = None,
    ) -> None:
        """Hand in the commit; see `TransactionBlock.commit`.

        Raises:
            CommitRefused: An action is malformed, or there is a commit in this transaction already.
        """
        self._check_open()
        if self._staged:
            first, second = self._staged[0].table.location, canonical_root(path)
            what = f"a second commit to {first}" if first == second else f"{second} beside {first}"
            raise CommitRefused(
                f"{what} cannot be part of this transaction: plain files take one commit to one table at "
                f"once. Nothing was written. Commit them one after the other, or use a ledger, which takes "
                f"several together: deltaplane.connect(…), ledger.adopt({second!r})"
            )
        super().commit(path, actions, expected_version)

    def _table(self, path: str) -> ManagedTable:
        return self._log.table(path)

    def _read(self, table: ManagedTable) -> Snapshot:
        return self._log.snapshot(table.location, table.head_version)

    def _land(self, request: Request) -> CommitResult:
        return self._log.land(request)


def _snapshot(storage: Storage, version: int | None, moment: int | None) -> Snapshot:
    listing = read_listing(storage)
    times = CommitTimes(storage, listing)
    state = load_state(storage, version if moment is None else times.version_at(moment), listing)
    check_readable(*state.checked(storage.root), storage.root)
    return replayed_snapshot(state, storage.root, times.at(state.version))


def _entry(storage: Storage, version: int, timestamp: int) -> HistoryEntry:
    content = storage.read(commit_path(version))
    prepared = prepare_bytes(content, f"{storage.root}/{commit_path(version)}")
    return HistoryEntry(
        version=version,
        transaction_id=prepared.text("txnId"),
        source="file",
        operation=prepared.operation,
        engine=prepared.engine,
        facts=prepared.facts,
        committed_at=timestamp,
        timestamp=timestamp,
        num_files=None,
        size_bytes=None,
        sha256=hashlib.sha256(content).hexdigest(),
        author=prepared.text("userName"),
        message=prepared.text("userMetadata"),
        origin=None,
        tables_in_transaction=None,
        published_at=timestamp,
    )
