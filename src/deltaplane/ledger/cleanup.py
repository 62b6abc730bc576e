"""Log cleanup: expired files of the log, and nothing else (invariant 10).

A file is expired when its version is older than the newest checkpoint that lies itself before the table's log
retention. The ledger keeps what it knows about these versions; readers of the log lose them.
"""

from __future__ import annotations

from dataclasses import dataclass

from deltaplane import telemetry
from deltaplane.ledger.context import Context
from deltaplane.ledger.load import LOG_FOLDER, read_checkpoint, read_listing
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.snapshot import read_snapshot
from deltaplane.ledger.storage import Storage
from deltaplane.log.actions import SidecarFile
from deltaplane.log.listing import Checkpoint, CheckpointForm, FileKind, LogFile, LogListing
from deltaplane.log.properties import (
    checkpoint_protected_before,
    expired_log_cleanup_enabled,
    log_retention_ms,
)

__all__ = ["Cleanup", "clean_log", "expired_files"]

_VERSIONED = {FileKind.COMMIT, FileKind.COMPACTED, FileKind.CHECKSUM}


@dataclass(frozen=True)
class Cleanup:
    """What was deleted, or would be.

    Attributes:
        location: Where the table lies.
        files: Paths below the table's folder.
        bytes: Their size together.
        done: False for a dry run.
        reason: Why nothing can be deleted, where that is so.
    """

    location: str
    files: tuple[str, ...]
    bytes: int
    done: bool
    reason: str | None = None


def clean_log(ctx: Context, table: ManagedTable, dry_run: bool, author: str | None) -> Cleanup:
    """Delete the expired files of a table's log, oldest first, so that an interruption leaves no gap."""
    storage = ctx.storage(table.location)
    snapshot = read_snapshot(ctx, table, table.published_version)
    if not expired_log_cleanup_enabled(snapshot.metadata):
        return Cleanup(table.location, (), 0, not dry_run, "delta.enableExpiredLogCleanup is false")
    listing = read_listing(storage)
    cutoff = ctx.clock() - log_retention_ms(snapshot.metadata)
    kept = _first_kept(ctx, table, listing, cutoff)
    protected = checkpoint_protected_before(snapshot.protocol, snapshot.metadata)
    if kept is None:
        return Cleanup(table.location, (), 0, not dry_run, "no checkpoint is older than the log retention")
    if kept < protected:
        reason = f"versions before {protected} are protected (delta.requireCheckpointProtectionBeforeVersion)"
        return Cleanup(table.location, (), 0, not dry_run, reason)
    files = [*expired_files(listing, kept), *_sidecars(storage, listing, kept)]
    if not dry_run and files:
        with ctx.store.writing() as session:
            ctx.audit(
                session, "cleanup", table.location, author, f"{len(files)} files of versions before {kept}"
            )
        for file in files:
            storage.delete(f"{LOG_FOLDER}/{file.name}")
            telemetry.step("cleanup.deleted", table=table.label, file=file.name)
    names = tuple(f"{LOG_FOLDER}/{file.name}" for file in files)
    return Cleanup(table.location, names, sum(max(file.size, 0) for file in files), not dry_run)


def _first_kept(ctx: Context, table: ManagedTable, listing: LogListing, cutoff: int) -> int | None:
    """The version of the newest checkpoint that is older than the cutoff, by the commits' own time."""
    for checkpoint in reversed(listing.checkpoints):
        if checkpoint.version > table.published_version:
            continue
        with ctx.store.reading() as session:
            row = session.row("commit_totals", table_id=table.table_id, version=checkpoint.version)
        if row is not None and row[4] < cutoff:
            return checkpoint.version
    return None


def expired_files(listing: LogListing, kept: int) -> list[LogFile]:
    """Files of versions before the one to keep, oldest first. Pure."""
    files = [*listing.commits.values(), *listing.others, *listing.incomplete]
    checkpoints = [file for checkpoint in listing.checkpoints for file in checkpoint.files]
    old = [file for file in files if file.kind in _VERSIONED and 0 <= file.version < kept]
    old += [file for file in checkpoints if file.version < kept]
    # A commit goes after the checkpoints that stand on it.
    return sorted(old, key=lambda file: (file.version, file.kind is FileKind.COMMIT, file.name))


def _sidecars(storage: Storage, listing: LogListing, kept: int) -> list[LogFile]:
    """Sidecars that only expired checkpoints name."""
    old = {name for c in listing.checkpoints if c.version < kept for name in _named(storage, c)}
    if not old:
        return []
    live = {name for c in listing.checkpoints if c.version >= kept for name in _named(storage, c)}
    sizes = {file.name: file for file in storage.list(f"{LOG_FOLDER}/_sidecars")}
    gone = sorted(name for name in old - live if name in sizes)
    return [LogFile(f"_sidecars/{name}", FileKind.SIDECAR, size=sizes[name].size) for name in gone]


def _named(storage: Storage, checkpoint: Checkpoint) -> set[str]:
    if checkpoint.form is not CheckpointForm.V2:
        return set()
    actions = read_checkpoint(storage, checkpoint)
    return {action.path.rsplit("/", 1)[-1] for action in actions if isinstance(action, SidecarFile)}
