"""Whether a checkpoint says what the commits up to it say, in bounded memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from deltaplane.ledger.completing import ensure_complete
from deltaplane.ledger.context import Context
from deltaplane.ledger.load import read_checkpoint
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.prepare import short_key
from deltaplane.ledger.storage import Storage
from deltaplane.log.actions import Action, AddFile, Metadata, Protocol
from deltaplane.log.listing import Checkpoint
from deltaplane.log.replay import file_key as logical_key

__all__ = ["CheckpointView", "checkpoint_view"]


@dataclass(frozen=True)
class CheckpointView:
    """What readers learn from a checkpoint, beside what the ledger has at its version.

    Attributes:
        protocol: The protocol in it.
        metadata: The metadata in it.
        difference: What its active files say otherwise, as a sentence; None when they agree.
    """

    protocol: Protocol | None
    metadata: Metadata | None
    difference: str | None


def checkpoint_view(
    ctx: Context, storage: Storage, table: ManagedTable, checkpoint: Checkpoint
) -> CheckpointView:
    """Read a checkpoint and compare its files with the ledger's.

    Raises:
        DamagedCheckpoint: It cannot be read.
    """
    count = mark = 0
    others: dict[type, Action] = {}
    for action in read_checkpoint(storage, checkpoint):
        if isinstance(action, AddFile):
            count += 1
            # A sum does not depend on the order: equal sets give equal marks.
            mark = (mark + short_key(logical_key(action))) & _MASK
        elif isinstance(action, Protocol | Metadata):
            others[type(action)] = action
    protocol, metadata = others.get(Protocol), others.get(Metadata)
    difference = None
    for kind, found in (("protocol", protocol), ("metaData", metadata)):
        if found is None:
            difference = f"The checkpoint of version {checkpoint.version} has no {kind} action."
    ours = _ledger_mark(ctx, table, checkpoint.version)
    if difference is None and (count, mark) != ours:
        same = ", but not the same ones" if count == ours[0] else ""
        difference = (
            f"The checkpoint of version {checkpoint.version} has {count} active files, and the commits up "
            f"to it "
            f"lead to {ours[0]}{same}."
        )
    return CheckpointView(cast("Protocol | None", protocol), cast("Metadata | None", metadata), difference)


_MASK = (1 << 64) - 1


def _ledger_mark(ctx: Context, table: ManagedTable, version: int) -> tuple[int, int]:
    ensure_complete(ctx, table, version)
    count = mark = 0
    for batch in ctx.store.arrow("file_keys", table_id=table.table_id, version=version):
        keys = batch["file_key"].to_pylist()
        count += len(keys)
        mark = (mark + sum(keys)) & _MASK
    return count, mark
