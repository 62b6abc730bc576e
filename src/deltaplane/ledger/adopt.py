"""Adoption: an existing table comes into the ledger, with every version that its log can still rebuild.

Nothing is written into the table's folder. The work goes in steps, each in a database transaction of its own,
so that a table of any size fits and an interrupted adoption goes on where it stopped:

    1. the table is entered as 'adopting', which nobody else sees
    2. the oldest usable start: version 0, or the oldest checkpoint from which all later commits are there
    3. the commits after it, in order, with their bytes
    4. the newest checkpoint must say the same as the commits; then the table is 'managed'
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from deltaplane import telemetry
from deltaplane.errors import ConfigError, CorruptLog, DeltaLogError, LedgerError, TableAlreadyManaged
from deltaplane.ledger.adopting import Progress, Reading, cleared, read_commits_in, read_start
from deltaplane.ledger.checkpoint_check import CheckpointView, checkpoint_view
from deltaplane.ledger.configure import check_name
from deltaplane.ledger.context import Context
from deltaplane.ledger.erase import erase_table
from deltaplane.ledger.head import read_head
from deltaplane.ledger.leases import lease
from deltaplane.ledger.load import LOG_FOLDER, DamagedCheckpoint, read_listing
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.names import commit_path
from deltaplane.ledger.outside import OutsideFiles
from deltaplane.ledger.packs import pack_in_passing
from deltaplane.ledger.prepare import check_text
from deltaplane.ledger.publish import commit_content
from deltaplane.ledger.ratify import write_state
from deltaplane.ledger.release import Released, forget_table
from deltaplane.ledger.snapshot import read_snapshot
from deltaplane.ledger.storage import canonical_root
from deltaplane.ledger.stores.base import Session
from deltaplane.log.features import check_readable
from deltaplane.log.listing import LogSegment, bases

__all__ = ["Adoption", "Progress", "adopt_table", "give_up_adoption"]

_LEASE_SECONDS = 120.0
_POLICIES = ("import", "refuse")
_TRUST = (None, "commits", "checkpoint")


@dataclass(frozen=True)
class Adoption:
    """What was taken in.

    Attributes:
        location: Where the table lies.
        version: Its newest version.
        base_version: The oldest version that a snapshot can be taken at.
        num_files: The active files of the newest version.
        notes: What was found and worked around.
    """

    location: str
    version: int
    base_version: int
    num_files: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Wish:
    name: str | None
    foreign_commits: str
    allow_paths: tuple[str, ...]
    trust: str | None
    author: str | None


def adopt_table(
    ctx: Context,
    path: str,
    name: str | None,
    foreign_commits: str,
    allow_paths: Iterable[str],
    trust: str | None,
    author: str | None,
    progress: Progress | None,
) -> Adoption:
    """Bring a table into the ledger. See `Ledger.adopt`."""
    if foreign_commits not in _POLICIES or trust not in _TRUST:
        raise ConfigError(
            f"foreign_commits is one of {', '.join(_POLICIES)}, and trust is commits, checkpoint or left out."
        )
    check_text("adopt", path=path, author=author)
    location = canonical_root(path)
    check_name(ctx, name, location)
    allowed = tuple(canonical_root(root) for root in allow_paths)
    wish = _Wish(name, foreign_commits, allowed, trust, author)
    known = ctx.find(location)
    if known is not None and known.state != "adopting":
        raise TableAlreadyManaged(
            f"{known.label}: the ledger manages this table already, at version {known.head_version}. "
            f"Nothing was changed."
        )
    with lease(ctx, f"adopt:{location}", _LEASE_SECONDS) as held:
        if not held:
            raise _busy(location)

        def told(what: str, done: int, everything: int) -> None:
            held.renew()
            (progress or _silent)(what, done, everything)

        with telemetry.span("ledger.adopt", table=location):
            return _adopt(ctx, location, wish, told)


def _silent(_what: str, _done: int, _all: int) -> None:
    """Nobody watches."""


def _adopt(ctx: Context, location: str, wish: _Wish, progress: Progress) -> Adoption:
    storage = ctx.storage(location)
    try:
        listing = read_listing(storage)
        starts = bases(listing)
    except DeltaLogError:
        _forget_begun(ctx, location)
        raise
    table = _entered(ctx, location, wish)
    telemetry.step("adopt.entered", table=location)
    reading = Reading(ctx, storage, listing, progress, OutsideFiles(table))
    try:
        table = _read(reading, table, starts, wish)
        _check_newest(reading, table, wish)
        telemetry.step("adopt.checked", table=location)
    except DeltaLogError:
        # The log cannot be taken in: leave nothing behind. Anything else can be gone on with.
        erase_table(ctx, table.table_id)
        raise
    adoption = _finished(reading, table, wish)
    pack_in_passing(ctx, table)
    return adoption


def _busy(location: str) -> LedgerError:
    return LedgerError(
        f"{location}: another process is adopting this table. Nothing was changed here. Wait for it, or try "
        f"again in {_LEASE_SECONDS / 60:.0f} minutes if it died."
    )


def give_up_adoption(ctx: Context, table: ManagedTable, author: str | None) -> Released:
    """Forget what an adoption that did not finish has read so far.

    Raises:
        LedgerError: It is still going on.
    """
    with lease(ctx, f"adopt:{table.location}", _LEASE_SECONDS) as held:
        if not held:
            raise _busy(table.location)
        forget_table(ctx, table, "its adoption was given up", author)
    return Released(table.location, table.head_version)


def _forget_begun(ctx: Context, location: str) -> None:
    """An interrupted adoption cannot go on when its log is gone."""
    begun = ctx.find(location)
    if begun is not None and begun.state == "adopting":
        erase_table(ctx, begun.table_id)


def _entered(ctx: Context, location: str, wish: _Wish) -> ManagedTable:
    with ctx.store.writing() as session:
        row = session.row("table_by_location", location=location)
        if row is None:
            made = session.row(
                "insert_table",
                location=location,
                name=wish.name,
                state="adopting",
                foreign_commits=wish.foreign_commits,
                allowed_paths=json.dumps(list(wish.allow_paths)),
                now=ctx.clock(),
            )
            if made is None:
                raise _name_taken(wish)
        else:
            _renew(session, row[0], wish)
        row = session.row("table_by_location", location=location)
    assert row is not None
    return ManagedTable.from_row(row)


def _renew(session: Session, table_id: int, wish: _Wish) -> None:
    """An adoption that was interrupted goes on with what is wanted now."""
    taken = session.row("table_by_reference", name=wish.name, location="") if wish.name else None
    if taken is not None and taken[0] != table_id:
        raise _name_taken(wish)
    session.run(
        "renew_adoption",
        table_id=table_id,
        name=wish.name,
        foreign_commits=wish.foreign_commits,
        allowed_paths=json.dumps(list(wish.allow_paths)),
    )


def _name_taken(wish: _Wish) -> TableAlreadyManaged:
    return TableAlreadyManaged(
        f"{wish.name}: the ledger has another table of that name. Nothing was changed. Choose another name."
    )


def _read(reading: Reading, table: ManagedTable, starts: tuple[LogSegment, ...], wish: _Wish) -> ManagedTable:
    if wish.trust == "checkpoint":
        starts = starts[-1:]
    failure: CorruptLog | None = None
    rest = range(table.head_version + 1, reading.listing.newest + 1)
    if _goes_on(reading, table, starts, rest):
        try:
            return read_commits_in(reading, table, rest)
        except CorruptLog as error:
            failure = error
    for start in starts:
        try:
            return read_start(reading, table, start)
        except CorruptLog as error:
            # A damaged commit or checkpoint before a later checkpoint costs the older versions, not the
            # table.
            failure = failure or error
            reading.notes.append(f"versions before the next checkpoint cannot be rebuilt: {error}")
            table = cleared(reading.ctx, table)
    raise failure or AssertionError("there is at least one start")


def _goes_on(reading: Reading, table: ManagedTable, starts: tuple[LogSegment, ...], rest: range) -> bool:
    """Whether an interrupted adoption can go on behind what it has read.

    Not when it has not come to the start that is wanted now, nor when the log is another one by now.
    """
    head, commits = table.head_version, reading.listing.commits
    if head < starts[0].first_version or not all(version in commits for version in rest):
        return False
    content = commit_content(reading.ctx, table, head)
    return not content or (head in commits and reading.storage.read(commit_path(head)) == content)


def _check_newest(reading: Reading, table: ManagedTable, wish: _Wish) -> None:
    """Readers begin at the newest checkpoint, so it must say what the commits say."""
    ctx, storage, notes = reading.ctx, reading.storage, reading.notes
    with ctx.store.reading() as session:
        head = read_head(session, table)
    if head.protocol is None or head.metadata is None:
        absent = "protocol" if head.protocol is None else "metaData"
        raise CorruptLog(storage.root, f"the log up to version {table.head_version} has no {absent} action")
    check_readable(head.protocol, head.metadata, table.label)
    newest = next((c for c in reversed(reading.listing.checkpoints) if c.version <= table.head_version), None)
    if newest is None or newest.version <= table.base_version:
        return
    try:
        view = checkpoint_view(ctx, storage, table, newest)
    except DamagedCheckpoint as error:
        notes.append(f"a damaged checkpoint was passed over: {error}")
        return
    difference = view.difference
    if difference is None:
        _follow(reading, table, newest.version, view)
        return
    if wish.trust == "commits":
        notes.append(f"{difference} The commits were believed.")
        return
    raise CorruptLog(
        f"{storage.root}/{LOG_FOLDER}/{newest.names[0]}",
        f"{difference} Nothing was adopted, and nothing was changed. Other readers believe the checkpoint. "
        f"Find out which "
        f'is right, then adopt with trust="commits" or trust="checkpoint".',
    )


def _follow(reading: Reading, table: ManagedTable, version: int, view: CheckpointView) -> None:
    """Some writers describe the table otherwise in the checkpoint; everybody reads that, so the ledger
    does.
    """
    snapshot = read_snapshot(reading.ctx, table, version)
    with reading.ctx.store.writing() as session:
        for ours, theirs, delete in (
            (snapshot.protocol, view.protocol, "delete_protocol"),
            (snapshot.metadata, view.metadata, "delete_metadata_of"),
        ):
            if theirs is not None and theirs != ours:
                session.run(delete, table_id=table.table_id, version=version)
                write_state(session, table.table_id, version, [theirs])
                reading.notes.append(
                    f"the checkpoint of version {version} has another {theirs.kind} than the commits. "
                    f"Readers follow the checkpoint, and so does the ledger."
                )


def _finished(reading: Reading, table: ManagedTable, wish: _Wish) -> Adoption:
    ctx, listing = reading.ctx, reading.listing
    newest = max((c.version for c in listing.checkpoints if c.version <= table.head_version), default=-1)
    with ctx.store.writing() as session:
        session.run(
            "finish_adoption",
            table_id=table.table_id,
            base=table.base_version,
            head=table.head_version,
            checkpoint=newest,
            next_file_id=table.next_file_id,
        )
        ctx.audit(session, "adopt", table.location, wish.author, f"up to version {table.head_version}")
        head = read_head(session, replace(table, state="managed"))
    telemetry.step("adopt.managed", table=table.location)
    notes = (*reading.notes, *reading.outside.notes())
    return Adoption(
        table.location, table.head_version, table.base_version, head.totals.num_files, tuple(notes)
    )
