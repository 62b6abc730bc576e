"""The bytes of a commit of which the ledger is the author."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from deltaplane.ledger.head import Head
from deltaplane.ledger.prepare import Prepared
from deltaplane.log.actions import Action, CommitInfo, Metadata
from deltaplane.log.in_commit_time import with_enablement
from deltaplane.log.jsonlines import write_commit
from deltaplane.log.properties import in_commit_timestamps_enabled, row_tracking_supported

__all__ = ["ENGINE_INFO", "authored_bytes", "fixed_reason"]

ENGINE_INFO = "deltaplane"


def fixed_reason(prepared: Prepared, head: Head) -> str | None:
    """Why a commit cannot become another version than the writer meant (invariant 3).

    Bytes that must stay as they are cannot take another time. Row numbers are the writer's in any case.
    """
    if head.metadata is None or head.protocol is None:
        return None
    if prepared.content is not None and in_commit_timestamps_enabled(head.protocol, head.metadata):
        return "the table keeps the commit's time in the commit, which would have to change"
    if row_tracking_supported(head.protocol):
        return "the table tracks rows, whose numbers in the commit would have to change"
    return None


def authored_bytes(
    prepared: Prepared,
    head: Head,
    version: int,
    timestamp: int,
    transaction_id: str,
    author: str | None,
    message: str | None = None,
) -> tuple[Prepared, bytes]:
    """The commit as it will be published: the writer's own bytes, or ours with a commitInfo in front.

    A message goes into the commit itself, where Delta keeps such words, when it has no other place.
    """
    if prepared.content is not None:
        return prepared, prepared.content
    info = _info(prepared, version, timestamp, transaction_id, author)
    if message:
        info = {"userMetadata": message, **info}
    others: list[Action] = [action for action in prepared.actions if not isinstance(action, CommitInfo)]
    if _keeps_time(prepared, head):
        info = {"inCommitTimestamp": timestamp, **info}
        if version > 0 and not head.keeps_time_in_commits:
            others = [_switched_over(action, version, timestamp) for action in others]
    actions: tuple[Action, ...] = (CommitInfo(info), *others)
    return replace(prepared, actions=actions), write_commit(actions)


def _keeps_time(prepared: Prepared, head: Head) -> bool:
    metadata = prepared.metadata or head.metadata
    protocol = prepared.protocol or head.protocol
    return metadata is not None and protocol is not None and in_commit_timestamps_enabled(protocol, metadata)


def _switched_over(action: Action, version: int, timestamp: int) -> Action:
    """Readers must know since when commits carry their time: those before do not."""
    return with_enablement(action, version, timestamp) if isinstance(action, Metadata) else action


def _info(
    prepared: Prepared, version: int, timestamp: int, transaction_id: str, author: str | None
) -> dict[str, Any]:
    told = {key: value for key, value in prepared.info.items() if key != "inCommitTimestamp"}
    ours: dict[str, Any] = {
        "timestamp": timestamp,
        "operation": "CREATE TABLE" if version == 0 else "WRITE",
        "operationParameters": {},
        "isBlindAppend": prepared.blind_append,
        "engineInfo": ENGINE_INFO,
        "txnId": transaction_id,
    }
    if author:
        ours["userName"] = author
    return ours | told
