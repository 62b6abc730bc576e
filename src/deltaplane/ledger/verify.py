"""Verification: the ledger and the published log must say the same (invariant 7)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from deltaplane import telemetry
from deltaplane.errors import DeltaLogError
from deltaplane.ledger.context import Context
from deltaplane.ledger.load import EMPTY_COMMIT, load_state, read_listing
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.names import commit_path
from deltaplane.ledger.snapshot import Snapshot, read_snapshot
from deltaplane.ledger.storage import Storage
from deltaplane.ledger.wide import checkpoint_files
from deltaplane.log.actions import AddFile, DeletionVector, FileKey
from deltaplane.log.bounds import parse_stats
from deltaplane.log.jsonlines import action_to_dict, parse_json
from deltaplane.log.listing import LogListing
from deltaplane.log.replay import TableState, file_key

__all__ = ["OUTSIDE_WRITER", "DifferingCommit", "Verification", "differing_commits", "verify_table"]

OUTSIDE_WRITER = "(an outside writer)"

_SHOWN = 20


@dataclass(frozen=True)
class Verification:
    """What was compared, and what differs.

    Attributes:
        location: Where the table lies.
        checked_versions: The versions whose whole state was compared.
        checked_commits: How many commits were compared byte for byte.
        differences: One sentence for each difference.
        pending: How many versions are ratified and not published yet. That is no difference: whoever comes
            next publishes them. None of a frozen table are: what becomes of its versions is yours to decide.
    """

    location: str
    checked_versions: tuple[int, ...]
    checked_commits: int
    differences: tuple[str, ...]
    pending: int = 0

    @property
    def ok(self) -> bool:
        """Whether ledger and log say the same."""
        return not self.differences


@dataclass(frozen=True)
class DifferingCommit:
    """A version whose file is missing or is not what the ledger holds."""

    version: int
    missing: bool


def verify_table(ctx: Context, table: ManagedTable, version: int | None, every: bool) -> Verification:
    """Compare a table's published log with the ledger: the bytes of all commits, and the whole state.

    Args:
        ctx: The ledger.
        table: The table.
        version: The version whose state is compared; the newest published one by default.
        every: Compare the state at every version that the log can rebuild.
    """
    storage = ctx.storage(table.location)
    with telemetry.span("ledger.verify", table=table.label):
        try:
            listing = read_listing(storage)
        except DeltaLogError as error:
            return Verification(table.location, (), 0, (str(error),))
        commits, differing = differing_commits(ctx, storage, table, listing)
        found = [_commit_sentence(table, commit) for commit in differing]
        if table.published_version >= 0 and not listing.commits and not listing.checkpoints:
            found.append(f"the log is gone: versions up to {table.published_version} had been published")
        found += _strangers(table, listing)
        versions = _versions(table, listing, version, every)
        for number in versions:
            found += _state_differences(ctx, storage, table, number, listing)
        if table.state == "frozen":
            found.append(f"the table is frozen: {table.frozen_reason}")
    pending = 0 if table.state == "frozen" else table.head_version - table.published_version
    return Verification(table.location, tuple(versions), commits, tuple(found), pending)


def _versions(table: ManagedTable, listing: LogListing, version: int | None, every: bool) -> list[int]:
    if version is not None:
        return [version]
    newest = table.published_version
    if not every:
        return [newest] if newest >= 0 else []
    return [number for number in range(table.base_version, newest + 1) if _rebuildable(listing, number)]


def _rebuildable(listing: LogListing, version: int) -> bool:
    starts = [checkpoint.version for checkpoint in listing.checkpoints if checkpoint.version <= version]
    first = max(starts, default=-1) + 1
    return all(number in listing.commits for number in range(first, version + 1)) and (
        bool(starts) or first == 0
    )


def differing_commits(
    ctx: Context, storage: Storage, table: ManagedTable, listing: LogListing
) -> tuple[int, list[DifferingCommit]]:
    """Compare the bytes of every commit that is in the log or must be there.

    Returns:
        How many were compared, and those that differ.
    """
    oldest = min(listing.commits, default=table.published_version + 1)
    with ctx.store.reading() as session:
        rows = session.rows("commit_hashes", table_id=table.table_id, first=oldest)
    differing = []
    compared = 0
    for version, sha256, size in rows:
        if version > table.published_version and version not in listing.commits:
            continue
        compared += 1
        if version not in listing.commits:
            if size:
                differing.append(DifferingCommit(version, missing=True))
        elif hashlib.sha256(storage.read(commit_path(version))).hexdigest() != sha256:
            differing.append(DifferingCommit(version, missing=False))
    return compared, differing


def _commit_sentence(table: ManagedTable, commit: DifferingCommit) -> str:
    if commit.missing:
        return f"version {commit.version}: the commit is published and its file is missing from the log"
    return f"version {commit.version}: the file in the log is not what the ledger ratified"


def _strangers(table: ManagedTable, listing: LogListing) -> list[str]:
    later = sorted(version for version in listing.commits if version > table.head_version)
    found = [
        f"version {version}: the log has it and the ledger does not {OUTSIDE_WRITER}" for version in later
    ]
    early = [c.version for c in listing.checkpoints if c.version > max(table.published_version, *later, -1)]
    return found + [
        f"version {version}: there is a checkpoint of a version that is not published" for version in early
    ]


def _state_differences(
    ctx: Context, storage: Storage, table: ManagedTable, version: int, listing: LogListing
) -> list[str]:
    try:
        state = load_state(storage, version, listing)
    except DeltaLogError as error:
        return [f"version {version}: the log cannot be read: {error}"]
    snapshot = read_snapshot(ctx, table, version)
    # A commit without actions is the same in both.
    found = [note for note in state.notes if not note.endswith(EMPTY_COMMIT)]
    for name, ours, theirs in (
        ("protocol", snapshot.protocol, state.protocol),
        ("metadata", snapshot.metadata, state.metadata),
        ("application transactions", dict(snapshot.transactions), state.transactions),
        ("domain metadata", dict(snapshot.domains), state.domains),
    ):
        if ours != theirs:
            found.append(f"{name} differ: the ledger has {ours!r:.200}, the log {theirs!r:.200}")
    found += _file_differences(ledger_files(ctx, table, version), state)
    found += _total_differences(snapshot, state)
    return [f"version {version}: {sentence}" for sentence in found]


def _total_differences(snapshot: Snapshot, state: TableState) -> list[str]:
    size = sum(file.size for file in state.files.values())
    if (snapshot.num_files, snapshot.size_bytes) == (len(state.files), size):
        return []
    return [
        f"the ledger's sums say {snapshot.num_files} files and {snapshot.size_bytes} bytes, the log "
        f"{len(state.files)} and {size}"
    ]


def _file_differences(ours: dict[FileKey, AddFile], state: TableState) -> list[str]:
    found = [
        f"the ledger has {key[0]}, and the log does not" for key in sorted(ours.keys() - state.files.keys())
    ]
    found += [
        f"the log has {key[0]}, and the ledger does not" for key in sorted(state.files.keys() - ours.keys())
    ]
    for key in sorted(ours.keys() & state.files.keys()):
        if _differ(ours[key], state.files[key]):
            found.append(f"{key[0]} is described differently in the ledger and in the log")
    return [*found[:_SHOWN], f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else found


_COMPARED = (
    "path",
    "partitionValues",
    "size",
    "modificationTime",
    "deletionVector",
    "baseRowId",
    "defaultRowCommitVersion",
    "clusteringProvider",
)


def _differ(ours: AddFile, theirs: AddFile) -> bool:
    """Compare what a checkpoint carries as well; it may leave out statistics and tags that the commit had."""
    one, other = action_to_dict(ours)["add"], action_to_dict(theirs)["add"]
    if any(one.get(key) != other.get(key) for key in _COMPARED):
        return True
    if one.get("tags") and other.get("tags") and one["tags"] != other["tags"]:
        return True
    return bool(ours.stats and theirs.stats) and not _same_statistics(ours.stats, theirs.stats)


def _same_statistics(one: str | None, other: str | None) -> bool:
    """A writer may lay the text out anew in a checkpoint."""
    return one == other or parse_stats(one) == parse_stats(other)


def ledger_files(ctx: Context, table: ManagedTable, version: int) -> dict[FileKey, AddFile]:
    """The active files of a version with everything that the ledger knows about them."""
    batches = checkpoint_files(ctx.store.arrow("files_full", table_id=table.table_id, version=version))
    files = (file for batch in batches for file in _adds(batch))
    return {file_key(file): file for file in files}


def _adds(batch: pa.RecordBatch) -> Iterator[AddFile]:
    for row in batch.to_pylist():
        yield AddFile(
            row["path"],
            parse_json(row["partition_values"]),
            row["size"],
            row["modification_time"],
            stats=row["stats"],
            tags=parse_json(row["tags"]) if row["tags"] else None,
            deletion_vector=_vector(row),
            base_row_id=row["base_row_id"],
            default_row_commit_version=row["default_row_commit_version"],
            clustering_provider=row["clustering_provider"],
        )


def _vector(row: dict[str, object]) -> DeletionVector | None:
    if row["dv_storage_type"] is None:
        return None
    names = ("dv_storage_type", "dv_path", "dv_size", "dv_cardinality", "dv_offset")
    return DeletionVector(*(row[name] for name in names))  # type: ignore[arg-type]
