"""The Python side of `java/LedgerLogStore.java`: it decides, and never calls Spark.

Delta calls it while it holds locks of its own. So nothing here waits for anything but the database and the
storage.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

from deltaplane import telemetry
from deltaplane.errors import (
    CommitConflict,
    DeltaplaneError,
    LedgerUnavailable,
    ReadPointExpired,
    StatementRefused,
    StorageError,
    TableAlreadyManaged,
    TableNewerThanPoint,
    TransactionConflict,
    TransactionEnded,
)
from deltaplane.ledger.checkpointing import checkpoint_if_due, write_checkpoint
from deltaplane.ledger.commit import NewTable, Request, commit
from deltaplane.ledger.context import Context
from deltaplane.ledger.creations import missing_files, note_creation
from deltaplane.ledger.model import CommitResult, ManagedTable
from deltaplane.ledger.names import LOG_FOLDER, commit_path
from deltaplane.ledger.placing import Staged
from deltaplane.ledger.prepare import Prepared, prepare_bytes
from deltaplane.ledger.publish import commit_content, publish_pending
from deltaplane.ledger.release import forget_table
from deltaplane.ledger.staged import staged_path
from deltaplane.ledger.storage import Storage, canonical_root
from deltaplane.spark.definitions import check_exports
from deltaplane.spark.gate import check_statement
from deltaplane.spark.ledger_names import TableNames
from deltaplane.spark.pins import pinned_version
from deltaplane.spark.views import BEHIND, StagedCommit, TransactionView, View

__all__ = ["LedgerPort", "holds_log", "lost_creation", "root_of"]


def root_of(log: str) -> str | None:
    """The table's location, as the ledger spells it, from the path of its log; None where it cannot have it.

    Hadoop prints paths as they are, without the escapes of URIs.
    """
    root = log.removesuffix("/").removesuffix(f"/{LOG_FOLDER}")
    try:
        return canonical_root(root.removeprefix("file:") if root.startswith("file:") else root)
    except StorageError:
        return None


class LedgerPort:
    """Answers what Delta asks about the log of a table."""

    class Java:
        """What py4j wants to know."""

        implements: ClassVar[list[str]] = ["deltaplane.LedgerLogStore$Port"]

    def __init__(self, ctx: Context, folders: Sequence[str], namespaces: Sequence[str]) -> None:
        self.ctx = ctx
        self.folders = tuple(folders)
        self.namespaces = {name.lower() for name in namespaces}
        self.views: dict[str, View] = {}
        self.failures: dict[str, BaseException] = {}
        self._unmanaged_roots: set[str] = set()
        self.names_of_tables = TableNames(ctx)
        self._announced: set[str] = set()
        self._guard = threading.Lock()

    def toString(self) -> str:  # noqa: N802 - Java calls it so
        """What Java shows."""
        return f"LedgerPort({self.ctx.uri})"

    def look(self, log: str, writes: int, view: str | None, query: str | None, early: bool) -> str | None:
        """See `Port.look`."""
        if view is None or (view.endswith(BEHIND) and writes < 0):
            return self._answer(None, lambda: self._look_outside(log, writes))
        return self._answer(view, lambda: self._look_inside(log, writes, self.view(view), query, early))

    def commit(
        self, file: str, lines: str | None, lines_file: str | None, view: str | None, query: str | None
    ) -> str | None:
        """See `Port.commit`."""
        return self._answer(view, lambda: self._commit(file, lines, lines_file, view, query))

    def find(self, file: str, view: str | None) -> str | None:
        """See `Port.find`."""
        seen = None if view is None or view.endswith(BEHIND) else view
        return self._answer(seen, lambda: self._find(file, seen))

    def checkpoint(self, log: str, due: bool) -> str | None:
        """See `Port.checkpoint`."""
        return self._answer(None, lambda: self._checkpoint(log, due))

    def dropped(self, place: str, namespace: str, table: str) -> str | None:
        """See `Port.dropped`."""
        return self._answer(None, lambda: self._dropped(place, namespace, table))

    def renamed(self, place: str, namespace: str, table: str, other: str) -> str | None:
        """See `Port.renamed`."""
        return self._answer(None, lambda: self._renamed(place, namespace, table, other))

    def creating(self, namespace: str, table: str, place: str) -> str | None:
        """See `Port.creating`."""
        return self._answer(None, lambda: self._creating(namespace, table, place))

    def created(self, place: str, namespace: str, table: str) -> str | None:
        """See `Port.created`."""
        return self._answer(None, lambda: self._created(place, namespace, table))

    def named(self, namespace: str, table: str) -> str | None:
        """See `Port.named`."""
        return self._answer(None, lambda: self.names_of_tables.location(namespace, table))

    def names(self) -> str | None:
        """See `Port.names`."""
        return self._answer(None, lambda: "\n".join(self.names_of_tables.all()))

    def gate(self, statement: str, table: str, view: str | None) -> str | None:
        """See `Port.gate`."""
        return self._answer(view, lambda: self._gate(statement, table, view))

    def _answer(self, view: str | None, work: Callable[[], str | None]) -> str | None:
        """Failures travel as text: an exception that py4j carries would reach Delta as an unknown one."""
        try:
            return work()
        except TransactionConflict as error:
            # It is none of versions, of which Delta would look for the winner, but of a table that is gone.
            self._remember(view, error)
            return f"!refused:{error}"
        except CommitConflict as error:
            return f"!lost:{error}"
        except (StatementRefused, TableNewerThanPoint, TransactionEnded, ReadPointExpired) as error:
            self._remember(view, error)
            return f"!refused:{error}"
        except DeltaplaneError as error:
            self._remember(view, error)
            return f"!failed:{error}"
        except Exception as error:
            telemetry.LOGGER.exception("the ledger could not answer Spark")
            self._remember(view, error)
            return f"!failed:{type(error).__name__}: {error}"

    def _remember(self, view: str | None, error: BaseException) -> None:
        if view is not None:
            self.failures[view.removesuffix(BEHIND)] = error

    def view(self, view: str) -> View:
        """A view that Spark's thread carries.

        Raises:
            TransactionEnded: It is not known here any more. That never means: no view.
        """
        found = self.views.get(view)
        if view.endswith(BEHIND):
            raise TransactionEnded(
                f"The transaction {view.removesuffix(BEHIND)} was rolled back, and its block goes on. "
                f"Nothing was written. Leave the block first; what is written behind it stands for itself."
            )
        if found is None:
            raise TransactionEnded(
                f"The transaction or read point {view} has ended, and something still runs in it. Nothing "
                f"was read or written. Read the table anew."
            )
        return found

    # ---- listings

    def _look_outside(self, log: str, writes: int) -> str | None:
        root = root_of(log)
        if root is None:
            return None
        try:
            table = self.ctx.find_location(root)
        except LedgerUnavailable as error:
            return self._without_database(root, writes, error)
        if table is None:
            self._unmanaged_roots.add(root)
            return "" if writes == 0 and self.takes(root) else None
        self._unmanaged_roots.discard(root)
        if table.state == "managed" and table.published_version < table.head_version:
            publish_pending(self.ctx, table)
        return ""

    def _without_database(self, root: str, writes: int, error: LedgerUnavailable) -> str | None:
        """What is published can be read without the database; a write needs to know whether it is managed."""
        if writes >= 0 and root not in self._unmanaged_roots:
            raise error
        telemetry.LOGGER.warning("%s: read as it is published, because of: %s", root, error)
        return None if root in self._unmanaged_roots else ""

    def _look_inside(self, log: str, writes: int, seen: View, query: str | None, early: bool) -> str | None:
        root = root_of(log)
        seen.check_alive(query)
        if root is not None and root in seen.lost:
            raise ReadPointExpired(seen.lost[root])
        if root is None or not self._sees(seen, root):
            return self._unmanaged(seen, log, root, writes)
        if writes >= 0 and not isinstance(seen, TransactionView):
            raise StatementRefused(
                f"{root} cannot be written at a read point. Nothing was written. Leave the block of "
                f"reading_at first, or use a transaction."
            )
        own = isinstance(seen, TransactionView) and root in seen.staged
        if early and (writes >= 0 or own):
            raise StatementRefused(
                f"{root} is used through a DataFrame or a DeltaTable that was made before {seen.begun}. "
                f"Other threads share it, and would see what is not committed. Nothing was written. Make it "
                f"anew inside of the block."
            )
        return self._listing(seen, root, log)

    def _sees(self, seen: View, root: str) -> bool:
        return root in seen.pins or (isinstance(seen, TransactionView) and root in seen.staged)

    def _unmanaged(self, seen: View, log: str, root: str | None, writes: int) -> str | None:
        found = None if root is None else self.ctx.find_location(root)
        if found is not None:
            raise TableNewerThanPoint(
                f"{found.label} is managed since after {seen.moment}, so it has no state there. Nothing was "
                f"read or written. {seen.advice} to see it."
            )
        if writes < 0:
            return None
        if isinstance(seen, TransactionView) and writes == 0 and root is not None and self.takes(root):
            return "-1"
        place = root or log
        if writes == 0:
            raise StatementRefused(
                f"{place} is not in a folder or namespace in which new tables are managed, so a table that "
                f"is created there cannot be part of {seen.label.lower()}. Nothing was committed. Name its "
                f"folder with manage= when the ledger is attached, or create it outside."
            )
        raise StatementRefused(
            f"{place} is not managed by the ledger, so a write to it cannot be part of "
            f"{seen.label.lower()}. Nothing was written. Bring the table in with: deltaplane ledger adopt "
            f"{place}, or write to it outside."
        )

    def _listing(self, seen: View, root: str, log: str) -> str:
        lines = [str(pinned_version(self.ctx, seen, root)) if root in seen.pins else "-1"]
        if isinstance(seen, TransactionView):
            # Under the path that was asked for: another one may lead to the same folder.
            lines += [
                staged.line(f"{log}/{staged.file.rpartition(f'/{LOG_FOLDER}/')[2]}")
                for staged in seen.staged.get(root, ())
            ]
        return "\n".join(lines)

    def takes(self, root: str) -> bool:
        """Whether a new table at this place is to be managed."""
        inside = any(root == folder or root.startswith(f"{folder}/") for folder in self.folders)
        return inside or root in self._announced

    # ---- commits

    def _commit(
        self, file: str, lines: str | None, lines_file: str | None, view: str | None, query: str | None
    ) -> str | None:
        log, _, name = file.rpartition("/")
        root, version = root_of(log), int(name.removesuffix(".json"))
        assert root is not None, "look() has seen it"
        content = Path(lines_file).read_bytes() if lines_file else (lines or "").encode()
        if view is not None:
            prepared = prepare_bytes(content, file)
            seen = self.view(view)
            seen.check_alive(query)
            assert isinstance(seen, TransactionView), "look() refuses others"
            check_exports(self.ctx, seen, root, prepared)
            self._stage(seen, log, root, StagedCommit(version, prepared, "", len(content), 0))
            return None
        if not lines_file:
            return self._commit_at_once(root, version, prepare_bytes(content, file))
        # It is long: the disk takes it while it is looked through.
        with self.ctx.storage(root).ahead(commit_path(version), content):
            return self._commit_at_once(root, version, prepare_bytes(content, file))

    def _commit_at_once(self, root: str, version: int, prepared: Prepared) -> str | None:
        table = self.ctx.find_location(root)
        if table is not None and version == 0 and not holds_log(self.ctx.storage(root)):
            # Somebody deleted the table, not through this session, and a new one is made in its place.
            forget_table(self.ctx, table, "its log is gone, and a new table is created there")
            table = None
        if table is None:
            _check_files(root, prepared)
            new = NewTable(root, self.names_of_tables.of_new(root), "import", (), prepared)
            request = Request(_new_id(), (), None, None, (new,))
        else:
            staged = (Staged(table, prepared, version - 1, True),)
            request = Request(_new_id(), staged, None, None, asks_for_checkpoints=True)
        result = self._ratify(request, table)
        self.names_of_tables.forget(root)
        return "delayed" if root in result.unpublished else None

    def _ratify(self, request: Request, table: ManagedTable | None) -> CommitResult:
        try:
            with telemetry.span("spark.commit"):
                return commit(self.ctx, request)
        except TableAlreadyManaged as error:
            place, reason = lost_creation(self.ctx, request.creates)
            if place != request.creates[0].location:
                # It is the name. Delta would look for the winner in a log that does not exist.
                raise StatementRefused(
                    f"{place} cannot be created: {reason}. Nothing was committed. Choose another name, or "
                    f"see the table with: deltaplane ledger snapshot {place}"
                ) from error
            raise CommitConflict(place, 0, "somebody else", reason) from error
        except CommitConflict:
            # Delta looks for the winner in the log, and would try for ever if it were not there.
            if table is not None:
                publish_pending(self.ctx, self.ctx.by_id(table.table_id))
            raise

    def _stage(self, seen: TransactionView, log: str, root: str, new: StagedCommit) -> None:
        with seen.guard:
            earlier = seen.at(root, new.version)
            if earlier is not None and earlier.prepared.content == new.prepared.content:
                # Delta copies what it takes for commits of a coordinator to their final names.
                return
            if seen.doomed:
                raise StatementRefused(f"{seen.label} can only be rolled back: {seen.doomed}.")
            if earlier is not None:
                # Another thread of the same transaction was faster. Delta sees its commit, and decides.
                raise CommitConflict(root, new.version, "another thread of the same transaction", "")
            try:
                self._write_staged(seen, log, root, new)
            except BaseException as error:
                seen.doom(f"a commit to {root} could not be staged: {error}")
                raise

    def _write_staged(self, seen: TransactionView, log: str, root: str, new: StagedCommit) -> None:
        if new.version != seen.head(root) + 1:
            raise StatementRefused(
                f"{root}: Delta wants to write version {new.version}, and {seen.label.lower()} sees "
                f"{seen.head(root)}. Nothing was written. Begin anew."
            )
        content = new.prepared.content
        assert content is not None
        path = staged_path(new.version, seen.view_id)
        if new.version == 0:
            note_creation(self.ctx, seen.view_id, root, int(seen.begun_at * 1000))
        self.ctx.storage(root).put(path, content)
        if new.version == 0:
            _check_files(root, new.prepared)
        new.file = f"{log}/{path.removeprefix(f'{LOG_FOLDER}/')}"
        new.modified_ms = self.ctx.clock()
        seen.staged.setdefault(root, []).append(new)
        telemetry.count("spark_staged_bytes_total", len(content))
        telemetry.step("spark.staged", table=root, version=new.version)

    # ---- a commit's file

    def _find(self, file: str, view: str | None) -> str | None:
        log, _, name = file.rpartition("/")
        root, version = root_of(log), int(name.removesuffix(".json"))
        if root is None:
            return None
        if view is not None:
            seen = self.view(view)
            staged = seen.at(root, version) if isinstance(seen, TransactionView) else None
            if staged is None:
                return None
            staged.collected = True
            # Delta insists on the name of version 0.
            return staged.line(file if version == 0 else None)
        return self._ratified(file, root, version)

    def _ratified(self, file: str, root: str, version: int) -> str | None:
        """A version whose publication failed right after the commit: the statement has succeeded."""
        table = self.ctx.find_location(root)
        if table is None or not table.published_version < version <= table.head_version:
            return None
        content = commit_content(self.ctx, table, version)
        if content is None or self.ctx.storage(root).exists(commit_path(version)):
            return None
        return f"{file}\t{len(content)}\t{self.ctx.clock()}\t{file}"

    def _checkpoint(self, log: str, due: bool) -> None:
        root = root_of(log)
        table = None if root is None else self.ctx.find_location(root)
        if table is not None and due:
            checkpoint_if_due(self.ctx, table, table.published_version)
        elif table is not None:
            publish_pending(self.ctx, table)
            write_checkpoint(self.ctx, table, table.head_version)

    def _dropped(self, place: str, namespace: str, name: str) -> None:
        root = root_of(place)
        if root is None:
            return
        self.names_of_tables.forget(root)
        table = self.ctx.find_location(root)
        if table is None:
            return
        if holds_log(self.ctx.storage(table.location)):
            self.names_of_tables.drop(table, namespace, name)
        else:
            forget_table(self.ctx, table, "dropped by Spark")

    def _renamed(self, place: str, namespace: str, name: str, other: str) -> None:
        root = root_of(place)
        table = None if root is None else self.ctx.find_location(root)
        if table is not None:
            self.names_of_tables.rename(table, namespace, name, other)

    def _created(self, place: str, namespace: str, name: str) -> None:
        root = root_of(place)
        table = None if root is None else self.ctx.find_location(root)
        if table is not None and table.name is None:
            self.names_of_tables.give(table, namespace, name)

    def _creating(self, namespace: str, table: str, place: str) -> None:
        root = root_of(place)
        if root is None:
            return
        self.names_of_tables.wish(namespace, table, root)
        if namespace.lower() in self.namespaces:
            self._announced.add(root)

    def _gate(self, statement: str, table: str, view: str | None) -> str | None:
        root = root_of(table) if table else None
        seen = self.view(view) if view is not None else None
        refusal = check_statement(self.ctx, statement, root, seen)
        if refusal is not None:
            raise StatementRefused(refusal)
        return None


def lost_creation(ctx: Context, creates: Sequence[NewTable]) -> tuple[str, str]:
    """Which table of a transaction somebody else has created first, and how."""
    taken = [new.location for new in creates if ctx.find_location(new.location) is not None]
    if taken:
        return taken[0], "they created a table there first"
    with ctx.store.glance() as session:
        names = [
            new.name
            for new in creates
            if new.name and session.row("table_by_reference", name=new.name, location="")
        ]
    return (names or [creates[0].location])[0], "they gave that name to another table first"


def holds_log(storage: Storage) -> bool:
    """Whether a commit or a checkpoint lies there."""
    return any(file.name[:20].isdigit() for file in storage.list(LOG_FOLDER))


def _check_files(root: str, prepared: Prepared) -> None:
    """See that the files of a new table are there.

    Raises:
        StorageError: Somebody else who wanted to make a table at the same place has given up meanwhile, and
            cleared away.
    """
    missing = missing_files(root, prepared)
    if missing:
        raise StorageError(
            f"{root}: {len(missing)} files of the new table are gone, such as {missing[0]}: somebody else "
            f"began to make a table at the same place and rolled back. Nothing was committed. Run the "
            f"statement again."
        )


def _new_id() -> str:
    return str(uuid.uuid4())
