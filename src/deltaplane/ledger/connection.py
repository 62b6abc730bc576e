"""The ledger, as its users hold it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from deltaplane.errors import DeltaplaneError, TableAlreadyManaged, TableNotManaged, VersionNotFound
from deltaplane.ledger import history as _history
from deltaplane.ledger.adopt import Adoption, Progress, adopt_table, give_up_adoption
from deltaplane.ledger.alerts import Notifier, Thresholds
from deltaplane.ledger.audit import AuditEntry, read_audit
from deltaplane.ledger.cleanup import Cleanup, clean_log
from deltaplane.ledger.commit import outcome
from deltaplane.ledger.configure import configure_table
from deltaplane.ledger.context import Context, Retries
from deltaplane.ledger.creating import create_table
from deltaplane.ledger.foreign import import_foreign_commits
from deltaplane.ledger.migrations import check_schema, install
from deltaplane.ledger.model import HistoryEntry, ManagedTable
from deltaplane.ledger.ports import TxnLogCapabilities
from deltaplane.ledger.publish import commit_content, publish_pending
from deltaplane.ledger.read_point import ReadPoint, read_point
from deltaplane.ledger.reconcile import ReconcileReport, reconcile, watch
from deltaplane.ledger.registry import open_store, open_with
from deltaplane.ledger.release import Released, release_table
from deltaplane.ledger.repair import Repair, repair_table
from deltaplane.ledger.snapshot import Snapshot, read_snapshot, version_of
from deltaplane.ledger.status import LedgerStatus, read_status
from deltaplane.ledger.transaction import Transaction
from deltaplane.ledger.uri import LedgerUri, parse_uri
from deltaplane.ledger.verify import Verification, verify_table

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

    @property
    def context(self) -> Context:
        """The parts of the ledger, for adapters that are built on it."""
        return self._ctx

    def to_deltalake(self, path: Place, version: int | None = None) -> Any:
        """Publish what is pending and open the table with deltalake, for code that is written for it.

        Args:
            path: The table.
            version: The version to open; left out, the newest.

        Returns:
            A deltalake.DeltaTable.
        """
        table = self._ctx.table(str(path))
        publish_pending(self._ctx, table)
        return open_with("deltalake", table.location, version, self._ctx.storage_options)

    def close(self) -> None:
        """Finish what is under way behind a commit, and give back the database's connections."""
        self._ctx.close()

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

    def adopt(
        self,
        path: Place,
        *,
        name: str | None = None,
        foreign_commits: str = "import",
        allow_paths: Sequence[str] = (),
        trust: str | None = None,
        author: str | None = None,
        progress: Progress | None = None,
    ) -> Adoption:
        """Bring an existing table in, with every version that its log can still rebuild.

        The table's folder is not changed. An adoption that was interrupted goes on where it stopped.

        Args:
            path: Where the table lies.
            name: What to call it, such as sales.orders.
            foreign_commits: What to do with commits of outside writers: "import" or "refuse".
            allow_paths: Folders outside the table in which its files may lie, as those of a shallow clone do.
            trust: Whom to believe when the newest checkpoint contradicts the commits: "commits" or
            "checkpoint".
            author: Who adopts it.
            progress: Called with what is done, how far it is and how far it goes.

        Raises:
            TableAlreadyManaged: The ledger has it, or another one of that name.
            NotADeltaTable, CorruptLog, UnsupportedTable, UnsafePath: The log cannot be taken in, and why.
        """
        return adopt_table(self._ctx, str(path), name, foreign_commits, allow_paths, trust, author, progress)

    def configure(
        self,
        path: Place,
        *,
        name: str | None = None,
        foreign_commits: str | None = None,
        author: str | None = None,
    ) -> ManagedTable:
        """Give a table another name, or another policy for commits of outside writers.

        Args:
            path: The table.
            name: What to call it from now on.
            foreign_commits: "import" or "refuse".
            author: Who decides.
        """
        return configure_table(self._ctx, self._ctx.table(str(path)), name, foreign_commits, author)

    def release(
        self, path: Place, *, discard_unpublished: bool = False, author: str | None = None
    ) -> Released:
        """Publish what is pending and forget the table, which is an ordinary Delta table again.

        An adoption that was interrupted or failed is given up.

        Args:
            path: The table.
            discard_unpublished: Forget it as it is, with what is not published: for a table whose folder is
            gone.
            author: Who lets it go.

        Raises:
            TableFrozen: The log contradicts the ledger; repair it first.
        """
        found = self._ctx.find(str(path))
        if found is not None and found.state == "adopting":
            return give_up_adoption(self._ctx, found, author)
        return release_table(self._ctx, self._ctx.table(str(path)), author, discard_unpublished)

    def refresh(self, path: Place) -> int:
        """Take in what outside writers committed, whatever the table's policy.

        Returns:
            How many versions were imported.
        """
        return import_foreign_commits(self._ctx, self._ctx.table(str(path)))

    def verify(self, path: Place, version: int | None = None, *, every: bool = False) -> Verification:
        """Compare the published log with the ledger: the bytes of every commit, and the state at a version.

        Args:
            path: The table.
            version: The version whose state is compared; left out, the newest published one.
            every: Compare the state at every version that the log can still rebuild.
        """
        return verify_table(self._ctx, self._ctx.table(str(path)), version, every)

    def repair(self, path: Place, keep: str, *, dry_run: bool = True, author: str | None = None) -> Repair:
        """Make log and ledger agree again after they diverged.

        Args:
            path: The table.
            keep: Whose version is kept: "ledger" or "log".
            dry_run: Only say what would be done.
            author: Who decides.
        """
        return repair_table(self._ctx, self._ctx.table(str(path)), keep, dry_run, author)

    def cleanup(
        self, path: Place | None = None, *, dry_run: bool = True, author: str | None = None
    ) -> list[Cleanup]:
        """Delete expired files of the log, by the table's log retention. A dry run unless told otherwise."""
        tables = [self._ctx.table(str(path))] if path is not None else self.tables()
        managed = [table for table in tables if table.state == "managed"]
        return [clean_log(self._ctx, table, dry_run, author) for table in managed]

    def tables(self) -> list[ManagedTable]:
        """Every table that the ledger manages."""
        with self._ctx.store.reading() as session:
            rows = session.rows("all_tables")
        return [ManagedTable.from_row(row) for row in rows]

    @property
    def capabilities(self) -> TxnLogCapabilities:
        """What a ledger can do that a plain log cannot."""
        return TxnLogCapabilities(
            self._ctx.store.engine,
            many_tables=True,
            many_commits=True,
            history_counts=True,
            absent=TableNotManaged,
            taken=TableAlreadyManaged,
        )

    def latest_version(self, path: Place) -> int:
        """The newest version of a table.

        Raises:
            TableNotManaged: The ledger does not know the table.
        """
        return self._ctx.table(str(path)).head_version

    def read_commit(self, path: Place, version: int) -> bytes:
        """A commit, byte for byte as it is published.

        Raises:
            TableNotManaged: The ledger does not know the table.
            VersionNotFound: It does not hold the content of that version.
        """
        table = self._ctx.table(str(path))
        content = commit_content(self._ctx, table, version)
        if content is None or (not content and version == table.base_version):
            # A table that was adopted from a checkpoint may lack the commit of that version.
            raise VersionNotFound(
                f"{table.label}: the ledger has no commit of version {version}; the newest is "
                f"{table.head_version}."
            )
        return content

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

    def read_point(self, at: str | int | datetime | None = None) -> ReadPoint:
        """The version of every managed table at one moment: now, or any time in the past.

        A group of commits counts as a whole. The point is a small value: store it, send it, read at it with
        `deltaplane.reading_at`, or hand its versions to another engine's VERSION AS OF. What was ratified a
        moment ago and is not published yet is published for it.

        Args:
            at: The moment; left out, now.
        """
        return read_point(self._ctx, at)

    def history(self, path: Place, limit: int | None = None) -> list[HistoryEntry]:
        """The commits of a table, newest first."""
        return _history.read_history(self._ctx, self._ctx.table(str(path)), limit)

    def audit_trail(self, limit: int | None = None) -> list[AuditEntry]:
        """What was done to the ledger besides commits: who, from where, what and why; newest first."""
        return read_audit(self._ctx, limit)

    def transaction(
        self, author: str | None = None, message: str | None = None, transaction_id: str | None = None
    ) -> Transaction:
        """Begin a transaction over any number of tables.

        Args:
            author: Who commits.
            message: Why.
            transaction_id: An id of the caller's own: when a transaction of that id has taken place, nothing
                happens again, so a caller that was interrupted may simply repeat.
        """
        return Transaction(self._ctx, author, message, transaction_id)

    def outcome(self, transaction_id: str) -> bool:
        """Whether a transaction took place. After False it never will."""
        return outcome(self._ctx, transaction_id)

    def publish(self, path: Place | None = None) -> dict[str, int]:
        """Publish what is pending, of one table or of all.

        Returns:
            The newest published version of every table, by its location.

        Raises:
            StorageError, TableFrozen: A table could not be published, and why. The others were.
        """
        tables = [self._ctx.table(str(path))] if path is not None else self.tables()
        published: dict[str, int] = {}
        failures: list[Exception] = []
        for table in tables:
            if table.state == "managed":
                try:
                    published[table.location] = publish_pending(self._ctx, table)
                except (DeltaplaneError, OSError) as error:
                    failures.append(error)
        if failures:
            raise failures[0]
        return published

    def status(self) -> LedgerStatus:
        """How far the published log of every table is behind the ledger."""
        return read_status(self._ctx)

    def reconcile(
        self, thresholds: Thresholds | None = None, *, force: bool = False, notifier: Notifier | None = None
    ) -> ReconcileReport:
        """Finish what was left unfinished, for every table.

        Pending versions are published, commits of outside writers imported as the table's policy says, due
        checkpoints written, leftovers of killed processes removed. It may run several times at once, and a
        table that fails does not stop the others.

        Args:
            thresholds: When to raise an alert; left out, the defaults of `Thresholds`.
            force: Publish now also what failed a moment ago and waits for its next attempt.
            notifier: Who is told of alerts; left out, they are logged.

        Returns:
            What was done, how the tables stand afterwards, and the alerts.
        """
        report = reconcile(self._ctx, thresholds or Thresholds(), force=force)
        (notifier or Notifier(self.uri)).update(report.alerts)
        return report

    def watch(
        self,
        each: Callable[[ReconcileReport | None], None],
        thresholds: Thresholds | None = None,
        *,
        interval: float = 30.0,
        stop: Event | None = None,
        force: bool = False,
        notifier: Notifier | None = None,
    ) -> None:
        """Reconcile again and again until `stop` is set.

        An alert is told once when it begins and once when it ends. A ledger that cannot be reached is an
        alert too, and is tried again.

        Args:
            each: Called after every round, with None when the ledger could not be read.
            thresholds: When to raise an alert; left out, the defaults of `Thresholds`.
            interval: Seconds from the end of a round to the next.
            stop: Ends it, after the table that is being worked on.
            force: Publish now also what failed a moment ago and waits for its next attempt.
            notifier: Who is told of alerts; left out, they are logged.
        """
        watch(
            self._ctx,
            thresholds or Thresholds(),
            notifier or Notifier(self.uri),
            interval,
            stop or Event(),
            each,
            force=force,
        )
