"""A commit before it has a version: parsed, checked, summed up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from deltaplane.errors import CommitRefused, CorruptLog
from deltaplane.ledger.model import Facts
from deltaplane.log.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from deltaplane.log.jsonlines import action_from_dict, parse_commit
from deltaplane.log.replay import file_key

__all__ = ["Prepared", "prepare_actions", "prepare_bytes"]


@dataclass(frozen=True)
class Prepared:
    """What somebody wants to commit to one table.

    Attributes:
        actions: What it does.
        content: The writer's own bytes, which are published as they are; None where the ledger is the author.
        facts: What others must know about it.
        blind_append: It only adds, and what it adds depends on nothing in the table.
    """

    actions: tuple[Action, ...]
    content: bytes | None
    facts: Facts
    blind_append: bool

    @property
    def info(self) -> Mapping[str, Any]:
        """What the writer says about the commit."""
        return next((a.content for a in self.actions if isinstance(a, CommitInfo)), {})

    def text(self, key: str) -> str | None:
        """A text that the writer says about the commit."""
        value = self.info.get(key)
        return value if isinstance(value, str) else None

    @property
    def operation(self) -> str | None:
        """The operation, as the writer calls it."""
        named = self.info.get("operation")
        return str(named) if named is not None else None

    @property
    def engine(self) -> str | None:
        """The writer's program."""
        named = self.info.get("engineInfo") or self.info.get("clientVersion")
        return str(named) if named is not None else None

    @property
    def in_commit_timestamp(self) -> int | None:
        """The commit's own time, where the table keeps it in the commit."""
        stamp = self.info.get("inCommitTimestamp")
        return stamp if isinstance(stamp, int) else None

    def adds(self) -> list[AddFile]:
        """The files that come."""
        return [action for action in self.actions if isinstance(action, AddFile)]

    def paths(self) -> list[str]:
        """The paths of all files that come or go."""
        return [action.path for action in self.actions if isinstance(action, AddFile | RemoveFile)]

    def removes(self) -> list[RemoveFile]:
        """The files that go."""
        return [action for action in self.actions if isinstance(action, RemoveFile)]


def prepare_bytes(content: bytes, source: str) -> Prepared:
    """Prepare a commit whose bytes must stay as they are.

    Raises:
        CorruptLog: The bytes are not a commit.
    """
    return _prepared(_last_words(parse_commit(content, source)), content)


def _last_words(actions: Iterable[Action]) -> tuple[Action, ...]:
    """Leave out what the same commit takes back: the last word on a file or on the table counts, as in Delta.

    The protocol forbids such commits, and there are some.
    """
    told = list(actions)
    last: dict[object, int] = {}
    for number, action in enumerate(told):
        if isinstance(action, AddFile | RemoveFile):
            last[file_key(action)] = number
        elif isinstance(action, Metadata | Protocol):
            last[type(action)] = number
        else:
            last[number] = number
    return tuple(told) if len(last) == len(told) else tuple(told[number] for number in sorted(last.values()))


def prepare_actions(actions: Iterable[Mapping[str, Any] | Action], label: str) -> Prepared:
    """Prepare a commit from actions, as dicts in Delta's form or as values.

    Raises:
        CommitRefused: An action is malformed, or two of them contradict each other.
    """
    parsed: list[Action] = []
    for number, action in enumerate(actions, 1):
        if not isinstance(action, Mapping):
            parsed.append(action)
            continue
        try:
            parsed.append(_authored(action, f"action {number}"))
        except CorruptLog as error:
            raise CommitRefused(
                f"{label}: {error}. Nothing was written. Give each action as in the log, for example "
                f'{{"add": {{"path": …, "size": …, "partitionValues": {{}}, …}}}}.'
            ) from None
    _refuse_contradictions(parsed, label)
    return _prepared(tuple(parsed), None)


def _authored(content: Mapping[str, Any], source: str) -> Action:
    """An action of ours, which has to be whole: readers of old logs are lenient, writers must not be."""
    action = action_from_dict(content, source)
    if isinstance(action, AddFile):
        if content["add"].get("size") is None:
            raise CorruptLog(source, "add has no size")
        if action.size < 0:
            raise CorruptLog(source, f"add.size has an impossible value: {action.size}")
    return action


def _refuse_contradictions(actions: list[Action], label: str) -> None:
    for kind in (Metadata, Protocol, CommitInfo):
        if sum(isinstance(action, kind) for action in actions) > 1:
            raise CommitRefused(
                f"{label}: the commit has more than one {kind.kind} action. Nothing was written. Leave one."
            )
    seen: set[tuple[str, str]] = set()
    for action in actions:
        if isinstance(action, AddFile | RemoveFile):
            if file_key(action) in seen:
                raise CommitRefused(
                    f"{label}: the commit names the file {action.path} twice. Nothing was written. Name "
                    f"each file once."
                )
            seen.add(file_key(action))


def _prepared(actions: tuple[Action, ...], content: bytes | None) -> Prepared:
    facts = Facts(
        adds=sum(isinstance(a, AddFile) for a in actions),
        removes=sum(isinstance(a, RemoveFile) for a in actions),
        metadata=any(isinstance(a, Metadata) for a in actions),
        protocol=any(isinstance(a, Protocol) for a in actions),
        apps=tuple(a.app_id for a in actions if isinstance(a, SetTransaction)),
        domains=tuple(a.domain for a in actions if isinstance(a, DomainMetadata)),
    )
    return Prepared(actions, content, facts, _is_blind(actions))


def _is_blind(actions: tuple[Action, ...]) -> bool:
    told = next((a.content.get("isBlindAppend") for a in actions if isinstance(a, CommitInfo)), None)
    if told is False or not any(isinstance(a, AddFile) for a in actions):
        return False
    # Delta calls an append blind that also changes the schema; such a commit cannot be moved all the same.
    return all(
        (isinstance(a, AddFile) and (a.data_change or told is True))
        or isinstance(a, SetTransaction | CommitInfo | AddCDCFile)
        for a in actions
    )
