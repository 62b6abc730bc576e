"""The state of a table read from its `_delta_log`, without a database."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from urllib.parse import unquote

from deltaplane.errors import CorruptLog
from deltaplane.ledger.storage import Storage
from deltaplane.log.actions import Action, CheckpointMetadata, SidecarFile
from deltaplane.log.checkpoint_read import iter_checkpoint_actions
from deltaplane.log.jsonlines import parse_commit
from deltaplane.log.listing import (
    Checkpoint,
    CheckpointForm,
    LogListing,
    LogSegment,
    bases,
    classify,
    commit_name,
    list_log,
)
from deltaplane.log.replay import TableState

__all__ = [
    "EMPTY_COMMIT",
    "LOG_FOLDER",
    "DamagedCheckpoint",
    "FileVanished",
    "load_segment",
    "load_state",
    "read_checkpoint",
    "read_commits",
    "read_listing",
]

EMPTY_COMMIT = "the commit has no actions."

LOG_FOLDER = "_delta_log"
_READ_AHEAD = 16


class FileVanished(CorruptLog):
    """A file that was in the listing is gone: cleaned up or deleted while the log was read."""


class DamagedCheckpoint(CorruptLog):
    """A checkpoint cannot be read; an older start may do without it."""


def read_listing(storage: Storage) -> LogListing:
    """What the log of a table consists of at this moment."""
    files = (classify(file.name, file.size, file.modified_ms) for file in storage.list(LOG_FOLDER))
    return list_log(files, storage.root)


def load_state(storage: Storage, version: int | None = None, listing: LogListing | None = None) -> TableState:
    """A table at a version, the newest by default.

    A damaged checkpoint is passed over for an older start, and `notes` of the result tells of it.

    Args:
        storage: The table's files.
        version: Which version.
        listing: What `read_listing` gave, to save a listing.

    Raises:
        NotADeltaTable: There is no log.
        VersionNotFound: The log does not hold that version.
        CorruptLog: Commits are missing or damaged, or there is no protocol or no metadata.
        StorageError: A file could not be read.
    """
    if listing is not None:
        return _load(storage, version, listing)
    try:
        return _load(storage, version, read_listing(storage))
    except FileVanished:
        # The log was cleaned up between the listing and the reading; a second listing shows what is left.
        return _load(storage, version, read_listing(storage))


def _load(storage: Storage, version: int | None, listing: LogListing) -> TableState:
    notes: list[str] = []
    first: DamagedCheckpoint | None = None
    for segment in reversed(bases(listing, version)):
        try:
            state = load_segment(storage, segment)
        except DamagedCheckpoint as error:
            # A damaged commit is part of every older start too; only a checkpoint can be done without.
            first = first or error
            notes.append(f"{error} It was passed over for an older start.")
            continue
        state.notes = (*notes, *state.notes)
        return state
    raise first or AssertionError("there is at least one start")


def load_segment(storage: Storage, segment: LogSegment) -> TableState:
    """The state that one way of rebuilding leads to.

    Raises:
        DamagedCheckpoint: Its checkpoint cannot be read.
        CorruptLog: A commit cannot be read, or there is no protocol or no metadata.
    """
    state = TableState()
    if segment.checkpoint:
        state.apply(segment.checkpoint.version, read_checkpoint(storage, segment.checkpoint))
        _refuse_incomplete(state, segment.checkpoint, storage.root)
    empty = []
    for version, actions in read_commits(storage, segment.commits):
        if not actions:
            empty.append(version)
        state.apply(version, actions)
    state.checked(storage.root)
    state.notes = tuple(f"{commit_name(version)}: {EMPTY_COMMIT}" for version in empty)
    return state


def _refuse_incomplete(state: TableState, checkpoint: Checkpoint, root: str) -> None:
    """Refuse a whole checkpoint that lacks the protocol or the metadata, as Delta does.

    It is no damage but a fault of its writer, and what else is left out cannot be seen.
    """
    try:
        state.checked(f"{root}/{LOG_FOLDER}/{checkpoint.names[0]}")
    except CorruptLog as error:
        advice = "Where all commits before it are there, moving the checkpoint away makes the table readable."
        raise CorruptLog(error.source, f"{error.cause_text} {advice}") from None


def read_commits(storage: Storage, versions: range) -> Iterator[tuple[int, list[Action]]]:
    """The actions of commits, in order.

    Raises:
        FileVanished: A commit is not there any more.
        CorruptLog: A commit is damaged.
    """
    for version, content in _contents(storage, versions):
        path = f"{storage.root}/{LOG_FOLDER}/{commit_name(version)}"
        yield version, list(parse_commit(content, path))


def _contents(storage: Storage, versions: range) -> Iterator[tuple[int, bytes]]:
    if "://" not in storage.root or len(versions) < 2:
        yield from ((version, _read_commit(storage, version)) for version in versions)
        return
    # A request to an object store is mostly waiting, so several are under way, and a bounded number are held.
    waiting: deque[tuple[int, Future[bytes]]] = deque()
    with ThreadPoolExecutor(_READ_AHEAD) as pool:
        try:
            for version in versions:
                waiting.append((version, pool.submit(_read_commit, storage, version)))
                if len(waiting) >= _READ_AHEAD:
                    number, future = waiting.popleft()
                    yield number, future.result()
            for number, future in waiting:
                yield number, future.result()
        finally:
            for _, future in waiting:
                future.cancel()


def _read_commit(storage: Storage, version: int) -> bytes:
    path = f"{LOG_FOLDER}/{commit_name(version)}"
    try:
        return storage.read(path)
    except FileNotFoundError:
        raise FileVanished(
            f"{storage.root}/{path}",
            "the commit was listed and is gone: the log was cleaned up or the table was deleted meanwhile. "
            "Nothing was changed. Repeat; if the table is gone, restore it from a backup.",
        ) from None


def read_checkpoint(storage: Storage, checkpoint: Checkpoint) -> Iterator[Action]:
    """All actions of a checkpoint, those of its sidecars included.

    Raises:
        DamagedCheckpoint: A file of it is missing, damaged, or of another version.
    """
    heading = checkpoint.form is not CheckpointForm.V2
    for name in checkpoint.names:
        for action in _checkpoint_file(storage, name):
            if isinstance(action, CheckpointMetadata):
                _check_heading(action, checkpoint, f"{storage.root}/{LOG_FOLDER}/{name}")
                heading = True
            yield action
            if isinstance(action, SidecarFile):
                # A sidecar lies in the table's own folder, so its name is enough; the rest of a path may be
                # of the place that the table was copied from.
                yield from _checkpoint_file(storage, f"_sidecars/{unquote(action.path).rsplit('/', 1)[-1]}")
    if not heading:
        raise DamagedCheckpoint(
            f"{storage.root}/{LOG_FOLDER}/{checkpoint.names[0]}", "the checkpoint has no checkpointMetadata."
        )


def _check_heading(heading: CheckpointMetadata, checkpoint: Checkpoint, source: str) -> None:
    if heading.version != checkpoint.version:
        raise DamagedCheckpoint(
            source, f"the checkpoint is named after version {checkpoint.version} and says {heading.version}."
        )


def _checkpoint_file(storage: Storage, name: str) -> Iterator[Action]:
    path = f"{LOG_FOLDER}/{name}"
    source = f"{storage.root}/{path}"
    try:
        if name.endswith(".json"):
            yield from parse_commit(storage.read(path), source)
        else:
            with storage.open_input(path) as file:
                yield from iter_checkpoint_actions(file, source)
    except FileNotFoundError:
        raise DamagedCheckpoint(source, "this file of the checkpoint is missing.") from None
    except DamagedCheckpoint:
        raise
    except CorruptLog as error:
        raise DamagedCheckpoint(error.source, f"{error.cause_text.rstrip('.')}.") from error
