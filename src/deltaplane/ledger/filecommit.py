"""A commit to a plain `_delta_log`: a file that must not exist before, behind the newest one.

When another writer takes the name first, a blind append moves behind it and everything else is a conflict.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from deltaplane import telemetry
from deltaplane.errors import CommitConflict, DeltaplaneError, StorageError
from deltaplane.ledger.authoring import authored_bytes, fixed_reason
from deltaplane.ledger.checkpointing import expired_before, point_at, write_checkpoint_files
from deltaplane.ledger.commit import Request, raise_conflict
from deltaplane.ledger.context import Retries
from deltaplane.ledger.file_rows import Totals
from deltaplane.ledger.head import Head
from deltaplane.ledger.load import FileVanished, load_state, read_commits
from deltaplane.ledger.model import CommitResult, Winner
from deltaplane.ledger.names import LOG_FOLDER, commit_path
from deltaplane.ledger.placing import Lost, Staged, place
from deltaplane.ledger.prepare import Prepared, prepare_bytes
from deltaplane.ledger.replayed import file_batches, replayed_snapshot, tombstone_batches
from deltaplane.ledger.rules import check_commit
from deltaplane.ledger.storage import Storage
from deltaplane.log.listing import FileKind, classify, commit_name
from deltaplane.log.properties import checkpoint_interval
from deltaplane.log.replay import TableState

__all__ = ["commit_to_files"]


def commit_to_files(
    storage: Storage, request: Request, retries: Retries, clock: Callable[[], int]
) -> CommitResult:
    """Commit the one commit that a transaction over files holds.

    Raises:
        CommitConflict: Somebody else was first.
        CommitRefused: The commit breaks a rule.
        StorageError: The file could not be written.
    """
    (staged,) = request.staged
    state = TableState() if staged.read_version < 0 else load_state(storage)
    for attempt in range(retries.attempts):
        version = _attempt(storage, state, staged, request, clock())
        if version is not None:
            return CommitResult(request.transaction_id, {storage.root: version})
        retries.pause(attempt)
        _catch_up(storage, state)
    raise CommitConflict(
        staged.table.label, state.version, "others", f"given up after {retries.attempts} attempts"
    )


def _attempt(storage: Storage, state: TableState, staged: Staged, request: Request, now: int) -> int | None:
    """Put the commit behind the newest one; None when another writer took the name meanwhile."""
    table = replace(staged.table, head_version=state.version)
    head = replace(
        Head.empty(table),
        totals=Totals(len(state.files)),
        timestamp=_head_time(storage, state.version),
        metadata=state.metadata,
        protocol=state.protocol,
    )
    winners = _winners(storage, staged, state.version)
    placed = place(staged, state.version, 0, winners, fixed_reason(staged.prepared, head))
    if isinstance(placed, Lost):
        raise_conflict(request, table, placed)
    check_commit(lambda _removes: state.files.keys(), table, staged.prepared, head)
    timestamp = head.next_timestamp(now, staged.prepared.in_commit_timestamp)
    prepared, content = authored_bytes(
        staged.prepared, head, placed, timestamp, request.transaction_id, request.author, request.message
    )
    if not _put(storage, placed, content):
        return None
    telemetry.step("filelog.committed", table=table.label, version=placed)
    state.apply(placed, prepared.actions)
    _checkpoint_if_due(storage, state, timestamp)
    return placed


def _put(storage: Storage, version: int, content: bytes) -> bool:
    """Write a commit. A lost answer is found out by reading, for no two commits have the same bytes."""
    path = commit_path(version)
    try:
        return storage.put_if_absent(path, content)
    except StorageError as error:
        try:
            return storage.read(path) == content
        except (FileNotFoundError, StorageError):
            raise error from None


def _catch_up(storage: Storage, state: TableState) -> None:
    """Apply what others committed meanwhile."""
    after = commit_name(state.version) if state.version >= 0 else None
    names = (classify(file.name) for file in storage.list(LOG_FOLDER, after))
    newest = max((file.version for file in names if file.kind is FileKind.COMMIT), default=state.version)
    for version, actions in read_commits(storage, range(state.version + 1, newest + 1)):
        state.apply(version, actions)


def _winners(storage: Storage, staged: Staged, head: int) -> list[Winner]:
    """The commits after the version that was read; only the first where it settles the matter."""
    movable = staged.prepared.blind_append and not staged.exact
    versions = range(staged.read_version + 1, head + 1)
    found = []
    for version in versions if movable else versions[:1]:
        try:
            found.append(_winner(_prepared(storage, version), version))
        except FileNotFoundError:
            if movable:
                raise FileVanished(
                    f"{storage.root}/{commit_path(version)}",
                    "the commit was cleaned up while this one was made, so it is not known what it did. "
                    "Nothing was written. Repeat.",
                ) from None
    return found


def _prepared(storage: Storage, version: int) -> Prepared:
    path = commit_path(version)
    return prepare_bytes(storage.read(path), f"{storage.root}/{path}")


def _winner(prepared: Prepared, version: int) -> Winner:
    return Winner(
        version,
        prepared.operation,
        prepared.engine,
        prepared.facts,
        _told_time(prepared),
        "file",
        prepared.text("userName"),
        prepared.text("userMetadata"),
    )


def _told_time(prepared: Prepared) -> int:
    """The time that a commit tells of itself, 0 for none."""
    stamp = prepared.in_commit_timestamp or prepared.info.get("timestamp")
    return stamp if isinstance(stamp, int) else 0


def _head_time(storage: Storage, version: int) -> int:
    if version < 0:
        return 0
    try:
        return _told_time(_prepared(storage, version))
    except FileNotFoundError:
        # Only its checkpoint is left.
        return 0


def _checkpoint_if_due(storage: Storage, state: TableState, timestamp: int) -> None:
    """A checkpoint only makes reading faster, so a failure is noted and the commit holds."""
    try:
        _, metadata = state.checked(storage.root)
        if state.version == 0 or state.version % checkpoint_interval(metadata):
            return
        snapshot = replayed_snapshot(state, storage.root, timestamp)
        tombstones = tombstone_batches(state, expired_before(snapshot))
        summary = write_checkpoint_files(storage, snapshot, file_batches(state), tombstones)
        point_at(storage, summary.last_checkpoint(state.version))
    except (DeltaplaneError, OSError) as error:
        telemetry.LOGGER.warning(
            "%s: the checkpoint of version %d failed: %s", storage.root, state.version, error
        )
