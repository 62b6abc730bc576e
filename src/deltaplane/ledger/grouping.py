"""The note by which an outside reader sees which commits belong together. Pure.

Its shape is that of the transactionGroup action that Delta's protocol discusses: the id of the transaction,
and every table that takes part with the version it was proposed at. It stands in the commit's userMetadata,
which every reader of Delta shows, beside what the user put there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from deltaplane.ledger.prepare import Prepared
from deltaplane.log.actions import CommitInfo
from deltaplane.log.jsonlines import dump_json, parse_json

__all__ = ["Participant", "with_group"]

_KEY = "transactionGroup"


@dataclass(frozen=True)
class Participant:
    """A table of a group.

    Attributes:
        table_id: The id in the table's metadata.
        version: The newest version that the group proposes for it.
    """

    table_id: str
    version: int


def with_group(prepared: Prepared, transaction_id: str, participants: Sequence[Participant]) -> Prepared:
    """The same commit, with the note in its commitInfo. All other lines stay to the byte."""
    content = prepared.content
    if content is None or not any(isinstance(action, CommitInfo) for action in prepared.actions):
        return prepared
    note = {
        "transactionId": transaction_id,
        "participants": [{"tableId": one.table_id, "version": one.version} for one in participants],
    }
    lines = content.split(b"\n")
    at = next(number for number, line in enumerate(lines) if line.lstrip().startswith(b'{"commitInfo"'))
    info = parse_json(lines[at].decode())
    told = info["commitInfo"]
    told["userMetadata"] = _beside(told.get("userMetadata"), note)
    lines[at] = dump_json(info).encode()
    actions = tuple(
        CommitInfo(told) if isinstance(action, CommitInfo) else action for action in prepared.actions
    )
    return replace(prepared, actions=actions, content=b"\n".join(lines))


def _beside(told: Any, note: dict[str, Any]) -> str:
    """What the user said stays: in its own place in the same object, or with its own keys where it is one."""
    if not told:
        return dump_json({_KEY: note})
    try:
        given = parse_json(told)
    except ValueError:
        given = None
    own = given if isinstance(given, dict) else {"userMetadata": told}
    return dump_json({**own, _KEY: note})
