"""Reading an existing log into the ledger: the start, then the commits after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from deltaplane import telemetry
from deltaplane.errors import CorruptLog
from deltaplane.ledger.context import Context
from deltaplane.ledger.erase import end_segment, erase_table
from deltaplane.ledger.file_rows import Totals, write_base_files
from deltaplane.ledger.head import Head, read_head
from deltaplane.ledger.load import LOG_FOLDER, read_checkpoint
from deltaplane.ledger.model import Facts, ManagedTable
from deltaplane.ledger.names import commit_path
from deltaplane.ledger.outside import OutsideFiles
from deltaplane.ledger.prepare import Prepared, prepare_bytes
from deltaplane.ledger.pruning import pruning_columns_of
from deltaplane.ledger.ratify import Version, ratify, write_commit_row, write_state
from deltaplane.ledger.storage import Storage
from deltaplane.ledger.stores.base import Session
from deltaplane.log.actions import Action, AddFile, Metadata, Protocol, RemoveFile
from deltaplane.log.listing import Checkpoint, LogListing, LogSegment, older_segments

__all__ = ["Progress", "Reading", "cleared", "read_commits_in", "read_start"]

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how far it is, and how far it goes (0 when that is not known)."""

_CHUNK = 20_000


@dataclass
class Reading:
    """A log that is being read into the ledger."""

    ctx: Context
    storage: Storage
    listing: LogListing
    progress: Progress
    outside: OutsideFiles
    notes: list[str] = field(default_factory=list)

    def written_at(self, version: int) -> int:
        """When the commit's file was written, 0 when there is none."""
        file = self.listing.commits.get(version)
        return file.modified_ms if file is not None else 0


def cleared(ctx: Context, table: ManagedTable) -> ManagedTable:
    """Throw away what a failed start left, and keep the entry."""
    erase_table(ctx, table.table_id, keep_entry=True)
    return ctx.by_id(table.table_id)


def read_start(reading: Reading, table: ManagedTable, start: LogSegment) -> ManagedTable:
    """Read one way of rebuilding the table, with the versions that gaps in the log separate from it."""
    older = older_segments(reading.listing, start.first_version)
    table = cleared(reading.ctx, table)
    for segment in older:
        try:
            table = _segment(reading, table, segment)
        except CorruptLog as error:
            reading.notes.append(f"versions up to {segment.version} cannot be rebuilt: {error}")
            table = cleared(reading.ctx, table)
    return _segment(reading, table, start)


def _segment(reading: Reading, table: ManagedTable, segment: LogSegment) -> ManagedTable:
    if segment.checkpoint is not None:
        table = _base(reading, table, segment.checkpoint)
    return read_commits_in(reading, table, segment.commits)


def _base(reading: Reading, table: ManagedTable, checkpoint: Checkpoint) -> ManagedTable:
    """The state of a checkpoint: its files in chunks, then everything else and the version, which ends it."""
    version = checkpoint.version
    others: list[Action] = []
    totals = Totals()
    ctx = reading.ctx
    if table.head_version >= 0:
        with ctx.store.writing() as session:
            end_segment(session, table.table_id, version)
    next_file_id = table.next_file_id
    actions = read_checkpoint(reading.storage, checkpoint)
    while chunk := list(islice(actions, _CHUNK)):
        files: list[AddFile | RemoveFile] = []
        for action in chunk:
            if isinstance(action, AddFile | RemoveFile):
                files.append(action)
            else:
                others.append(action)
        reading.outside.check(action.path for action in files)
        with ctx.store.writing() as session:
            totals, next_file_id = write_base_files(
                session, table.table_id, version, files, totals, next_file_id
            )
        reading.progress("reading the checkpoint", totals.num_files, 0)
        telemetry.step("adopt.base_chunk", table=table.location, files=totals.num_files)
    protocol = next((action for action in others if isinstance(action, Protocol)), None)
    metadata = next((action for action in others if isinstance(action, Metadata)), None)
    if protocol is None or metadata is None:
        raise CorruptLog(
            f"{reading.storage.root}/{LOG_FOLDER}/{checkpoint.names[0]}",
            f"the checkpoint has no {'protocol' if protocol is None else 'metaData'} action",
        )
    with ctx.store.writing() as session:
        _end_base(reading, session, table, version, others, totals, next_file_id)
    telemetry.step("adopt.base_done", table=table.location, version=version)
    return ctx.by_id(table.table_id)


def _end_base(
    reading: Reading,
    session: Session,
    table: ManagedTable,
    version: int,
    others: list[Action],
    totals: Totals,
    next_file_id: int,
) -> None:
    write_state(session, table.table_id, version, others)
    ctx, storage, listing = reading.ctx, reading.storage, reading.listing
    metadata = next(action for action in others if isinstance(action, Metadata))
    columns = pruning_columns_of(session, table.table_id).extended(session, table.table_id, version, metadata)
    columns.index_stored_files(session, table.table_id, table.next_file_id)
    timestamp = 0
    for older in _history_below(listing, version, table.head_version):
        timestamp = _history_row(reading, session, table, older, timestamp)
    content = storage.read(commit_path(version)) if version in listing.commits else b""
    stamp = max(reading.written_at(version), timestamp + 1)
    prepared = Prepared((), content, Facts(), False)
    row = Version(version, prepared, content, stamp, ctx.clock(), "adopted", None, ctx.clock())
    write_commit_row(session, table.table_id, row, totals)
    if table.base_version < 0:
        session.run("set_base", table_id=table.table_id, version=version)
    session.run("advance_head", table_id=table.table_id, version=version, next_file_id=next_file_id)


def _history_below(listing: LogListing, version: int, known: int) -> list[int]:
    """Commits before the start that are still there: kept for history, no snapshot is possible at them."""
    found: list[int] = []
    older = version - 1
    while older in listing.commits and older > known:
        found.append(older)
        older -= 1
    return found[::-1]


def _history_row(reading: Reading, session: Session, table: ManagedTable, version: int, after: int) -> int:
    ctx = reading.ctx
    content = reading.storage.read(commit_path(version))
    try:
        prepared = prepare_bytes(content, f"{table.location}/{commit_path(version)}")
    except CorruptLog:
        # Nothing is rebuilt from it; its bytes are kept as they are.
        prepared = Prepared((), content, Facts(), False)
    stamp = prepared.in_commit_timestamp or max(reading.written_at(version), after + 1)
    row = Version(version, prepared, content, stamp, ctx.clock(), "adopted", None, ctx.clock())
    write_commit_row(session, table.table_id, row, None)
    return stamp


def read_commits_in(reading: Reading, table: ManagedTable, versions: range) -> ManagedTable:
    """Ratify commits that exist already, a bounded amount in each database transaction."""
    ctx = reading.ctx
    waiting = list(versions)
    while waiting:
        with ctx.store.writing() as session:
            head = read_head(session, table)
            done = _some_commits(reading, session, head, waiting)
        telemetry.step("adopt.commits", table=table.location, version=waiting[done - 1])
        reading.progress("reading commits", waiting[done - 1] - versions.start + 1, len(versions))
        waiting = waiting[done:]
        table = ctx.by_id(table.table_id)
    return table


def _some_commits(reading: Reading, session: Session, head: Head, versions: list[int]) -> int:
    ctx, storage = reading.ctx, reading.storage
    actions = done = 0
    for version in versions:
        content = _content(storage, version)
        prepared = prepare_bytes(content, f"{storage.root}/{commit_path(version)}")
        reading.outside.check(prepared.paths())
        stamp = head.next_timestamp(reading.written_at(version) or ctx.clock(), prepared.in_commit_timestamp)
        if not prepared.in_commit_timestamp and reading.written_at(version) > head.timestamp:
            stamp = reading.written_at(version)
        now = ctx.clock()
        row = Version(version, prepared, content, stamp, now, "adopted", None, now)
        head = head.indexing(session, row)
        totals, next_file_id = ratify(session, head.table, row, head.totals, head.columns)
        if version == 0:
            session.run("set_base", table_id=head.table.table_id, version=0)
        head = head.after(row, totals, next_file_id)
        done += 1
        actions += len(prepared.actions)
        if actions >= _CHUNK:
            break
    return done


def _content(storage: Storage, version: int) -> bytes:
    try:
        return storage.read(commit_path(version))
    except FileNotFoundError:
        raise CorruptLog(
            f"{storage.root}/{commit_path(version)}",
            "the commit was listed and is gone: the log was cleaned up or the table deleted meanwhile. "
            "Repeat the adoption",
        ) from None
