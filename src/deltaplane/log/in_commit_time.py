"""In-commit timestamps: the time of a commit, written in the commit itself and strictly increasing.

Without them the time of a commit is that of its file, which copying a table changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deltaplane.errors import CorruptLog
from deltaplane.log.actions import Action, CommitInfo, Metadata

__all__ = [
    "enabled_since",
    "next_timestamp",
    "read_timestamp",
    "with_enablement",
    "with_timestamp",
]

_KEY = "inCommitTimestamp"
_SINCE_VERSION = "delta.inCommitTimestampEnablementVersion"
_SINCE_TIME = "delta.inCommitTimestampEnablementTimestamp"


def next_timestamp(now_ms: int, previous_ms: int | None) -> int:
    """The time of the next commit: now, or just after the previous commit when the clock went back."""
    return now_ms if previous_ms is None else max(now_ms, previous_ms + 1)


def read_timestamp(actions: Sequence[Action], source: str) -> int:
    """The in-commit timestamp of a commit of a table that has them switched on.

    Raises:
        CorruptLog: The first action is not a commitInfo with that timestamp.
    """
    first = actions[0] if actions else None
    value = first.content.get(_KEY) if isinstance(first, CommitInfo) else None
    if type(value) is not int:
        raise CorruptLog(source, f"the table has in-commit timestamps, and the first action has no {_KEY}")
    return value


def with_timestamp(actions: Sequence[Action], timestamp_ms: int) -> tuple[Action, ...]:
    """The actions with the commitInfo first, as the protocol demands, and that timestamp in it."""
    info = next((action for action in actions if isinstance(action, CommitInfo)), CommitInfo({}))
    stamped = CommitInfo({**info.content, _KEY: timestamp_ms})
    return stamped, *(action for action in actions if not isinstance(action, CommitInfo))


def enabled_since(metadata: Metadata) -> tuple[int, int] | None:
    """Version and time at which an existing table switched over; None when it has had them from the start."""
    version, time = metadata.configuration.get(_SINCE_VERSION), metadata.configuration.get(_SINCE_TIME)
    if version is None or time is None:
        return None
    if not (version.isdecimal() and time.isdecimal()):
        raise CorruptLog(
            "metaData.configuration", f"{_SINCE_VERSION} and {_SINCE_TIME} must be whole numbers"
        )
    return int(version), int(time)


def with_enablement(metadata: Metadata, version: int, timestamp_ms: int) -> Metadata:
    """The metadata of the commit that switches an existing table over."""
    since = {_SINCE_VERSION: str(version), _SINCE_TIME: str(timestamp_ms)}
    return replace(metadata, configuration={**metadata.configuration, **since})
