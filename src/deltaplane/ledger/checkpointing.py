"""Checkpoints, written from SQL in bounded memory, and only for published versions."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO

import pyarrow as pa

from deltaplane import telemetry
from deltaplane.errors import CorruptLog, DeltaplaneError
from deltaplane.ledger.context import Context
from deltaplane.ledger.leases import lease
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.names import LOG_FOLDER, checkpoint_path, last_checkpoint_path
from deltaplane.ledger.packs import pack_in_passing
from deltaplane.ledger.snapshot import Snapshot, read_snapshot
from deltaplane.ledger.storage import Storage
from deltaplane.ledger.wide import checkpoint_files, checkpoint_tombstones
from deltaplane.log.actions import Action, Metadata
from deltaplane.log.checkpoint_write import CheckpointSummary, write_classic, write_v2
from deltaplane.log.last_checkpoint import LastCheckpoint, parse_last_checkpoint
from deltaplane.log.properties import checkpoint_interval, checkpoint_policy, deleted_file_retention_ms

__all__ = ["checkpoint_if_due", "expired_before", "point_at", "write_checkpoint", "write_checkpoint_files"]

_LEASE_SECONDS = 120.0


def checkpoint_if_due(
    ctx: Context, table: ManagedTable, published: int, metadata: Metadata | None = None
) -> int | None:
    """Write the checkpoint that the table's interval asks for, unless there is one.

    A checkpoint only makes reading faster, so a failure is noted and does not disturb the commit that came
    by.

    Args:
        ctx: The ledger.
        table: The table.
        published: Its newest published version.
        metadata: Its properties, where they are at hand.
    """
    due = published
    try:
        interval = checkpoint_interval(metadata) if metadata else _interval(ctx, table)
        due = published // interval * interval
        if due <= 0 or due <= table.checkpoint_version:
            return None
        with lease(ctx, f"checkpoint:{table.table_id}", _LEASE_SECONDS) as held:
            current = ctx.by_id(table.table_id)
            if held and current.checkpoint_version < due:
                write_checkpoint(ctx, table, due)
                pack_in_passing(ctx, current)
                return due
    except (DeltaplaneError, OSError, pa.ArrowException) as error:
        telemetry.LOGGER.warning("%s: the checkpoint of version %d failed: %s", table.label, due, error)
    return None


def _interval(ctx: Context, table: ManagedTable) -> int:
    from deltaplane.ledger.head import parse_metadata

    with ctx.store.glance() as session:
        row = session.row("metadata_at", table_id=table.table_id, version=table.head_version)
    return checkpoint_interval(parse_metadata(row[0])) if row else 10


def write_checkpoint(ctx: Context, table: ManagedTable, version: int) -> CheckpointSummary:
    """Write a checkpoint of a published version, and point `_last_checkpoint` at it."""
    with telemetry.span("ledger.checkpoint", table=table.label, version=version):
        snapshot = read_snapshot(ctx, table, version)
        storage = ctx.storage(table.location)
        expired = expired_before(snapshot)
        summary = write_checkpoint_files(
            storage,
            snapshot,
            checkpoint_files(ctx.store.arrow("files_full", table_id=table.table_id, version=version)),
            checkpoint_tombstones(
                ctx.store.arrow(
                    "tombstones_full", table_id=table.table_id, version=version, expired_before=expired
                )
            ),
        )
        telemetry.step("checkpoint.written", table=table.label, version=version)
        point_at(storage, summary.last_checkpoint(version))
        telemetry.step("checkpoint.pointed", table=table.label, version=version)
        with ctx.store.relaxed() as session:
            session.run("mark_checkpoint", table_id=table.table_id, version=version)
    return summary


def expired_before(snapshot: Snapshot) -> int:
    """Which tombstones a checkpoint leaves out: those of files that went before this moment.

    Counted from the commit's own time, so that the same version always gives the same bytes.
    """
    return snapshot.timestamp - deleted_file_retention_ms(snapshot.metadata)


def write_checkpoint_files(
    storage: Storage,
    snapshot: Snapshot,
    files: Iterable[pa.RecordBatch],
    tombstones: Iterable[pa.RecordBatch],
) -> CheckpointSummary:
    """Write a checkpoint in the form that the table asks for.

    Args:
        storage: The table's files.
        snapshot: The version.
        files: Its active files as file batches, ordered by path and deletion vector.
        tombstones: Its tombstones that are not expired as tombstone batches, in the same order.
    """
    header: list[Action] = [
        snapshot.protocol,
        snapshot.metadata,
        *snapshot.transactions.values(),
        *snapshot.domains.values(),
    ]
    version = snapshot.version
    if checkpoint_policy(snapshot.protocol, snapshot.metadata) == "v2":

        @contextmanager
        def in_log(name: str) -> Iterator[IO[bytes]]:
            with storage.open_sink(f"{LOG_FOLDER}/{name}") as sink:
                yield sink

        identity = uuid.uuid5(uuid.NAMESPACE_URL, f"{snapshot.metadata.id}/{version}")
        return write_v2(
            in_log, version, identity, header, files, tombstones, modification_time_ms=snapshot.timestamp
        )
    with storage.open_sink(checkpoint_path(version)) as sink:
        return write_classic(sink, header, files, tombstones)


def point_at(storage: Storage, last: LastCheckpoint) -> None:
    """Let `_last_checkpoint` name a checkpoint.

    Never backwards: a slower writer of an older checkpoint must not win.
    """
    path = last_checkpoint_path()
    try:
        present = parse_last_checkpoint(storage.read(path))
    except FileNotFoundError:
        present = None
    except CorruptLog as error:
        telemetry.LOGGER.warning("%s/%s is damaged and is written anew: %s", storage.root, path, error)
        present = None
    if present is None or present.version <= last.version:
        storage.put(path, last.write())
