"""Repair of a table whose published log is not what the ledger ratified: keep one of the two, and say so."""

from __future__ import annotations

from dataclasses import dataclass

from deltaplane import telemetry
from deltaplane.errors import ConfigError, DeltaLogError
from deltaplane.ledger.checkpoint_check import checkpoint_view
from deltaplane.ledger.checkpointing import write_checkpoint
from deltaplane.ledger.context import Context
from deltaplane.ledger.erase import erase_versions
from deltaplane.ledger.foreign import prepared_foreign, ratify_foreign
from deltaplane.ledger.load import LOG_FOLDER, DamagedCheckpoint, read_listing
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.names import commit_path, last_checkpoint_path
from deltaplane.ledger.publish import commit_content, publish_pending
from deltaplane.ledger.storage import Storage
from deltaplane.ledger.stores.base import Session
from deltaplane.ledger.verify import differing_commits
from deltaplane.log.listing import Checkpoint, LogListing, bases

__all__ = ["REPLACED_FOLDER", "Repair", "repair_table"]

REPLACED_FOLDER = f"{LOG_FOLDER}/_deltaplane_replaced"
"""Where files of the log go that lost against the ledger; readers ignore it."""


@dataclass(frozen=True)
class Repair:
    """What was done, or would be.

    Attributes:
        location: Where the table lies.
        keep: Who was believed: 'ledger' or 'log'.
        actions: One sentence for each step.
        done: False for a dry run.
    """

    location: str
    keep: str
    actions: tuple[str, ...]
    done: bool


def repair_table(ctx: Context, table: ManagedTable, keep: str, dry_run: bool, author: str | None) -> Repair:
    """Make the log and the ledger agree again.

    Args:
        ctx: The ledger.
        table: The table.
        keep: "ledger": files of the log that differ are moved aside and the ledger's are published. "log":
            the ledger forgets its versions from the first difference on and imports those of the log.
        dry_run: Only say what would be done.
        author: Who decides.
    """
    if keep not in ("ledger", "log"):
        raise ConfigError('keep is "ledger" or "log": whose version of the table is to be kept.')
    storage = ctx.storage(table.location)
    listing = read_listing(storage)
    _, differing = differing_commits(ctx, storage, table, listing)
    strays = _strays(ctx, storage, table, listing) if keep == "ledger" else []
    if not differing and not strays and table.state != "frozen":
        return Repair(table.location, keep, (), not dry_run)
    first = min((commit.version for commit in differing), default=table.published_version + 1)
    with telemetry.span("ledger.repair", table=table.label):
        if keep == "log":
            _check_complete(ctx, table, keep, first)
            actions = _keep_log(ctx, storage, table, listing, first, dry_run, author)
        elif differing or table.state == "frozen":
            _check_complete(ctx, table, keep, first)
            actions = _keep_ledger(ctx, storage, table, listing, first, dry_run, author)
        else:
            actions = _put_aside(ctx, storage, table, strays, dry_run, author)
    return Repair(table.location, keep, tuple(actions), not dry_run)


def _thaw(
    ctx: Context, session: Session, table: ManagedTable, keep: str, actions: list[str], author: str | None
) -> None:
    session.run("thaw", table_id=table.table_id)
    ctx.audit(session, f"repair, the {keep} was kept", table.location, author, "; ".join(actions))


def _strays(ctx: Context, storage: Storage, table: ManagedTable, listing: LogListing) -> list[str]:
    """Files that mislead readers although all commits are right: false checkpoints, commits behind a gap."""
    newest = table.head_version
    names = [file.name for version, file in listing.commits.items() if version > newest + 1]
    if newest + 1 in listing.commits:
        # An outside writer went on: that is for `refresh`.
        return []
    for checkpoint in listing.checkpoints:
        if checkpoint.version > table.published_version or not _is_true(ctx, storage, table, checkpoint):
            names += checkpoint.names
    return names


def _is_true(ctx: Context, storage: Storage, table: ManagedTable, checkpoint: Checkpoint) -> bool:
    if checkpoint.version < table.base_version:
        return True
    try:
        return checkpoint_view(ctx, storage, table, checkpoint).difference is None
    except DamagedCheckpoint:
        return False


def _put_aside(
    ctx: Context, storage: Storage, table: ManagedTable, names: list[str], dry_run: bool, author: str | None
) -> list[str]:
    folder = f"{REPLACED_FOLDER}/{ctx.clock()}"
    actions = [f"move {LOG_FOLDER}/{name} to {REPLACED_FOLDER}" for name in names]
    actions.append(f"write a checkpoint of version {table.published_version}")
    if dry_run:
        return actions
    _moved(storage, table, names, folder)
    storage.delete(last_checkpoint_path())
    write_checkpoint(ctx, table, table.published_version)
    with ctx.store.writing() as session:
        session.run("set_checkpoint", table_id=table.table_id, version=table.published_version)
        _thaw(ctx, session, table, "ledger", actions, author)
    return actions


def _moved(storage: Storage, table: ManagedTable, names: list[str], folder: str) -> None:
    """Copy all of them first, so that an interruption loses nothing."""
    for name in names:
        storage.put(f"{folder}/{name}", storage.read(f"{LOG_FOLDER}/{name}"))
        telemetry.step("repair.copied", table=table.label, file=name)
    for name in reversed(names):
        storage.delete(f"{LOG_FOLDER}/{name}")


def _check_complete(ctx: Context, table: ManagedTable, keep: str, first: int) -> None:
    """See that what is kept can be built from the first difference on.

    Raises:
        ConfigError: It cannot. Nothing was changed.
    """
    with ctx.store.reading() as session:
        rows = session.rows("commit_hashes", table_id=table.table_id, first=first)
    held = {version for version, _, size in rows if size}
    if keep == "log" and not 0 < table.base_version >= first:
        return
    if keep == "ledger" and held >= set(range(first, table.head_version + 1)):
        return
    raise ConfigError(
        f"{table.label}: the {keep} cannot be kept from version {first} on, because the ledger began at "
        f"version {table.base_version} and has nothing to build on. Nothing was changed. Take the table in "
        f"anew: deltaplane ledger release {table.label}, and adopt {table.location} again"
    )


def _keep_ledger(
    ctx: Context,
    storage: Storage,
    table: ManagedTable,
    listing: LogListing,
    first: int,
    dry_run: bool,
    author: str | None,
) -> list[str]:
    """Move aside every file of the log from the first difference on, then publish from there."""
    names = [file.name for version, file in sorted(listing.commits.items()) if version >= first]
    names += [name for c in listing.checkpoints if c.version >= first for name in c.names]
    names += [file.name for file in (*listing.incomplete, *listing.others) if file.version >= first]
    folder = f"{REPLACED_FOLDER}/{ctx.clock()}"
    actions = [f"move {LOG_FOLDER}/{name} to {REPLACED_FOLDER}" for name in names]
    actions.append(f"publish versions {first} to {table.head_version} of the ledger")
    if dry_run:
        return actions
    if any(c.version >= first for c in listing.checkpoints):
        # It may point at a checkpoint that goes; readers do without it.
        storage.delete(last_checkpoint_path())
    _moved(storage, table, names, folder)
    with ctx.store.writing() as session:
        session.run("set_published", table_id=table.table_id, version=first - 1)
        session.run("set_checkpoint", table_id=table.table_id, version=_newest_below(listing, first))
        session.run("unpublish", table_id=table.table_id, version=first)
        _thaw(ctx, session, table, "ledger", actions, author)
    current = ctx.by_id(table.table_id)
    if current.published_version < 0 or _readable(storage):
        publish_pending(ctx, current)
    else:
        _publish_without_beginning(ctx, current)
    return actions


def _newest_below(listing: LogListing, version: int) -> int:
    return max((c.version for c in listing.checkpoints if c.version < version), default=-1)


def _keep_log(
    ctx: Context,
    storage: Storage,
    table: ManagedTable,
    listing: LogListing,
    first: int,
    dry_run: bool,
    author: str | None,
) -> list[str]:
    """Forget the ledger's versions and take the log's in: one database transaction, all of it or nothing."""
    last = first
    while last in listing.commits:
        last += 1
    if any(version >= last for version in listing.commits):
        raise ConfigError(
            f"{table.label}: version {last} is missing from the log, so the log cannot be kept. Nothing was "
            f"changed. Keep the ledger: deltaplane ledger repair {table.label} --keep ledger"
        )
    coming = [
        (
            prepared_foreign(table, version, storage.read(commit_path(version))),
            listing.commits[version].modified_ms,
        )
        for version in range(first, last)
    ]
    actions = [f"forget versions {first} to {table.head_version} of the ledger"]
    actions += [f"import version {version} of the log" for version in range(first, last)]
    if dry_run:
        return actions
    with ctx.store.writing() as session:
        erase_versions(session, table.table_id, first)
        session.run("set_head", table_id=table.table_id, version=first - 1)
        session.run("set_published", table_id=table.table_id, version=first - 1)
        session.run("set_checkpoint", table_id=table.table_id, version=_newest_below(listing, first))
        telemetry.step("repair.forgotten", table=table.label, version=first)
        for prepared, written_at in coming:
            row = session.row("table_by_id", table_id=table.table_id)
            assert row is not None
            ratify_foreign(ctx, session, ManagedTable.from_row(row), prepared, written_at)
        _thaw(ctx, session, table, "log", actions, author)
    return actions


def _readable(storage: Storage) -> bool:
    try:
        bases(read_listing(storage))
    except DeltaLogError:
        return False
    return True


def _publish_without_beginning(ctx: Context, table: ManagedTable) -> None:
    """Publish behind commits that were cleaned up: the checkpoint that stood in for them went aside too."""
    storage = ctx.storage(table.location)
    first, last = table.published_version + 1, table.head_version
    for version in range(first, last + 1):
        storage.put_if_absent(commit_path(version), commit_content(ctx, table, version) or b"")
    write_checkpoint(ctx, table, last)
    with ctx.store.writing() as session:
        session.run("set_published", table_id=table.table_id, version=last)
        session.run("record_published", table_id=table.table_id, first=first, last=last, now=ctx.clock())
