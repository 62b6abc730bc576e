"""Repair of a table whose published log is not what the ledger ratified: keep one of the two, and say so."""

from __future__ import annotations

from dataclasses import dataclass

from deltaplane import telemetry
from deltaplane.errors import ConfigError, DeltaLogError
from deltaplane.ledger.checkpointing import write_checkpoint
from deltaplane.ledger.context import Context
from deltaplane.ledger.erase import erase_versions
from deltaplane.ledger.foreign import import_foreign_commits
from deltaplane.ledger.load import LOG_FOLDER, read_listing
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.names import commit_path, last_checkpoint_path
from deltaplane.ledger.publish import commit_content, publish_pending
from deltaplane.ledger.storage import Storage
from deltaplane.ledger.verify import differing_commits
from deltaplane.log.listing import LogListing, bases

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
        the
            ledger forgets its versions from the first difference on and imports those of the log.
        dry_run: Only say what would be done.
        author: Who decides.
    """
    if keep not in ("ledger", "log"):
        raise ConfigError('keep is "ledger" or "log": whose version of the table is to be kept.')
    storage = ctx.storage(table.location)
    listing = read_listing(storage)
    _, differing = differing_commits(ctx, storage, table, listing)
    if not differing and table.state != "frozen":
        return Repair(table.location, keep, (), not dry_run)
    first = min((commit.version for commit in differing), default=table.published_version + 1)
    _check_complete(ctx, table, keep, first)
    with telemetry.span("ledger.repair", table=table.label):
        if keep == "ledger":
            actions = _keep_ledger(ctx, storage, table, listing, first, dry_run)
        else:
            actions = _keep_log(ctx, table, listing, first, dry_run)
        if not dry_run:
            with ctx.store.writing() as session:
                session.run("thaw", table_id=table.table_id)
                ctx.audit(session, f"repair, the {keep} was kept", table.location, author, "; ".join(actions))
            _finish(ctx, table, keep)
    return Repair(table.location, keep, tuple(actions), not dry_run)


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
    ctx: Context, storage: Storage, table: ManagedTable, listing: LogListing, first: int, dry_run: bool
) -> list[str]:
    """Move aside every file of the log from the first difference on, then publish from there."""
    names = [file.name for version, file in sorted(listing.commits.items()) if version >= first]
    names += [name for c in listing.checkpoints if c.version >= first for name in c.names]
    names += [file.name for file in (*listing.incomplete, *listing.others) if file.version >= first]
    actions = [f"move {LOG_FOLDER}/{name} to {REPLACED_FOLDER}" for name in names]
    actions.append(f"publish versions {first} to {table.head_version} of the ledger")
    if dry_run:
        return actions
    for name in names:
        source = f"{LOG_FOLDER}/{name}"
        storage.put(f"{REPLACED_FOLDER}/{name}", storage.read(source))
        telemetry.step("repair.copied", table=table.label, file=name)
    if any(c.version >= first for c in listing.checkpoints):
        # It may point at a checkpoint that goes; readers do without it.
        storage.delete(last_checkpoint_path())
    for name in reversed(names):
        storage.delete(f"{LOG_FOLDER}/{name}")
    with ctx.store.writing() as session:
        session.run("set_published", table_id=table.table_id, version=first - 1)
        session.run("set_checkpoint", table_id=table.table_id, version=_newest_below(listing, first))
        session.run("unpublish", table_id=table.table_id, version=first)
    return actions


def _newest_below(listing: LogListing, version: int) -> int:
    return max((c.version for c in listing.checkpoints if c.version < version), default=-1)


def _keep_log(ctx: Context, table: ManagedTable, listing: LogListing, first: int, dry_run: bool) -> list[str]:
    later = [version for version in listing.commits if version >= first]
    if first not in listing.commits and any(version > first for version in later):
        raise ConfigError(
            f"{table.label}: version {first} is missing from the log, so the log cannot be kept. Nothing "
            f"was changed. Keep the "
            f"ledger: deltaplane ledger repair {table.label} --keep ledger"
        )
    actions = [f"forget versions {first} to {table.head_version} of the ledger"]
    actions += [f"import version {version} of the log" for version in sorted(later)]
    if dry_run:
        return actions
    with ctx.store.writing() as session:
        erase_versions(session, table.table_id, first)
        session.run("set_head", table_id=table.table_id, version=first - 1)
        session.run("set_published", table_id=table.table_id, version=first - 1)
        session.run("set_checkpoint", table_id=table.table_id, version=_newest_below(listing, first))
    telemetry.step("repair.forgotten", table=table.label, version=first)
    return actions


def _finish(ctx: Context, table: ManagedTable, keep: str) -> None:
    current = ctx.by_id(table.table_id)
    if keep == "log":
        import_foreign_commits(ctx, current)
    elif current.published_version < 0 or _readable(ctx.storage(table.location)):
        publish_pending(ctx, current)
    else:
        _publish_without_beginning(ctx, current)


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
