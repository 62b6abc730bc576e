"""A commit before it has a version: parsed, checked, summed up."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, get_args

from deltaplane.errors import CommitRefused, CorruptLog
from deltaplane.ledger.bulk import without_collections
from deltaplane.ledger.many_files import FileAction, look_through
from deltaplane.ledger.model import Facts
from deltaplane.log.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    SidecarFile,
    UnknownAction,
)
from deltaplane.log.jsonlines import action_from_dict, action_to_dict, parse_commit
from deltaplane.log.order_keys import INT64_MAX, INT64_MIN
from deltaplane.log.replay import file_key

__all__ = [
    "Prepared",
    "check_text",
    "prepare_actions",
    "prepare_bytes",
    "short_key",
    "text_fault",
    "value_fault",
]

_MUCH = 1 << 20
_DEEPEST = 100
"""Other readers of JSON give up a little below that."""


_FileAction = tuple[FileAction, FileKey]


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

    @cached_property
    def metadata(self) -> Metadata | None:
        """The definition that it brings."""
        # There may be hundreds of thousands of actions, and hardly ever one of these.
        if not self.facts.metadata:
            return None
        return next((action for action in self.actions if isinstance(action, Metadata)), None)

    @cached_property
    def protocol(self) -> Protocol | None:
        """The protocol that it brings."""
        if not self.facts.protocol:
            return None
        return next((action for action in self.actions if isinstance(action, Protocol)), None)

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
        return stamp if type(stamp) is int else None

    def adds(self) -> list[AddFile]:
        """The files that come."""
        return [action for action in self.actions if isinstance(action, AddFile)]

    @cached_property
    def files(self) -> tuple[_FileAction, ...]:
        """The files that come or go, each with what identifies it; not found out before it is asked for."""
        # There may be hundreds of thousands, and isinstance takes longer.
        return tuple((a, file_key(a)) for a in self.actions if type(a) is AddFile or type(a) is RemoveFile)

    @cached_property
    def keys(self) -> dict[FileKey, int]:
        """What identifies the files that come or go, each with its short stand-in."""
        return {key: short_key(key) for _, key in self.files}

    def paths(self) -> list[str]:
        """The paths of all files that come or go."""
        return [action.path for action in self.actions if isinstance(action, AddFile | RemoveFile)]

    def removes(self) -> list[RemoveFile]:
        """The files that go."""
        return [action for action in self.actions if isinstance(action, RemoveFile)]


def short_key(key: FileKey) -> int:
    """A short stand-in for path and deletion vector, for an index that stays small."""
    digest = hashlib.blake2b("\0".join(key).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def prepare_bytes(content: bytes, source: str) -> Prepared:
    """Prepare a commit whose bytes must stay as they are.

    Raises:
        CorruptLog: The bytes are not a commit.
    """
    with without_collections(len(content) > _MUCH):
        actions = list(parse_commit(content, source))
        files = [a for a in actions if type(a) is AddFile or type(a) is RemoveFile]
        others = [a for a in actions if type(a) is not AddFile and type(a) is not RemoveFile]
        found = look_through(files)
        for action in others if found.plain else actions:
            fault = _value_fault(action)
            if fault:
                raise CorruptLog(source, f"{fault}. Nothing was taken in")
        kinds = [type(action) for action in others]
        if not found.distinct or kinds.count(Metadata) > 1 or kinds.count(Protocol) > 1:
            actions = _last_words(actions)
        return _prepared(tuple(actions), content)


def _last_words(told: list[Action]) -> list[Action]:
    """Leave out what the same commit takes back: the last word on a file or on the table counts, as in Delta.

    The protocol forbids such commits, and there are some.
    """
    last: dict[object, int] = {}
    for number, action in enumerate(told):
        if isinstance(action, AddFile | RemoveFile):
            last[file_key(action)] = number
        else:
            last[type(action) if isinstance(action, Metadata | Protocol) else number] = number
    return [told[number] for number in sorted(last.values())]


def prepare_actions(actions: Iterable[Mapping[str, Any] | Action], label: str) -> Prepared:
    """Prepare a commit from actions, as dicts in Delta's form or as values.

    Raises:
        CommitRefused: An action is malformed, or two of them contradict each other.
    """
    parsed: list[Action] = []
    for number, action in enumerate(_each(actions, label), 1):
        try:
            parsed.append(_authored(action, f"action {number}"))
        except CorruptLog as error:
            raise CommitRefused(
                f"{label}: {error}. Nothing was written. Give each action as in the log, for example "
                f'{{"add": {{"path": …, "size": …, "partitionValues": {{}}, …}}}}.'
            ) from None
    _refuse_contradictions(parsed, label)
    return _prepared(tuple(parsed), None)


def _each(actions: Iterable[Mapping[str, Any] | Action], label: str) -> Iterable[Mapping[str, Any] | Action]:
    if isinstance(actions, str | bytes | Mapping) or not isinstance(actions, Iterable):
        raise CommitRefused(
            f"{label}: a commit is a list of actions, and {type(actions).__name__} was given. Nothing was "
            f'written. Give a list, for example [{{"add": {{…}}}}].'
        )
    return actions


def _authored(given: Mapping[str, Any] | Action, source: str) -> Action:
    """An action of ours, which has to be whole: readers of old logs are lenient, writers must not be."""
    content = given if isinstance(given, Mapping) else _as_dict(given, source)
    fault = value_fault(content)
    if fault:
        raise CorruptLog(source, fault)
    action = action_from_dict(content, source)
    fault = _value_fault(action)
    if fault:
        raise CorruptLog(source, fault)
    if isinstance(action, UnknownAction) and action.name == "commitInfo":
        raise CorruptLog(source, f"commitInfo must be an object, and is {action.content!r:.60}")
    if isinstance(action, CheckpointMetadata | SidecarFile):
        raise CorruptLog(source, f"{action.kind} belongs in a checkpoint and not in a commit")
    if isinstance(action, CommitInfo):
        _check_info(action, source)
    if isinstance(action, AddFile):
        if content["add"].get("size") is None:
            raise CorruptLog(source, "add has no size")
        if action.size < 0:
            raise CorruptLog(source, f"add.size has an impossible value: {action.size}")
    return action if isinstance(given, Mapping) else given


def _as_dict(action: object, source: str) -> Mapping[str, Any]:
    if not isinstance(action, get_args(Action)):
        raise CorruptLog(source, f"{type(action).__name__} is not an action")
    try:
        return action_to_dict(action)
    except (TypeError, AttributeError) as error:
        raise CorruptLog(
            source, f"{type(action).__name__} holds a value of the wrong kind: {error}"
        ) from None


def _check_info(info: CommitInfo, source: str) -> None:
    for key in ("operation", "userName", "userMetadata", "engineInfo", "clientVersion"):
        if not isinstance(info.content.get(key), str | None):
            raise CorruptLog(source, f"commitInfo.{key} must be text")
    if type(info.content.get("isBlindAppend")) not in (bool, type(None)):
        raise CorruptLog(source, "commitInfo.isBlindAppend must be true or false")


def check_text(label: str, **texts: object) -> None:
    """See that words which go into the log and the database can be kept there; None is no word.

    Raises:
        CommitRefused: One cannot. Names it.
    """
    for what, text in texts.items():
        fault = None if text is None else text_fault(text)
        if fault:
            raise CommitRefused(f"{label}: {what} {fault}. Nothing was written. Give plain text.")


def text_fault(text: object) -> str | None:
    """Why something cannot be kept as text in every database and in the log; None when it can."""
    if not isinstance(text, str):
        return f"must be text, and is {text!r:.60}"
    if "\0" in text:
        return "holds a NUL character"
    return _half_pair(text)


def _half_pair(text: str) -> str | None:
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        return "holds half of a surrogate pair, which UTF-8 cannot spell"
    return None


def value_fault(value: Any, place: str = "") -> str | None:
    """Where a value has something that every reader's JSON cannot hold, and what; None when it has not."""
    found = _fault(value, 0, nul=False)
    return None if found is None else f"{(place + found[0]).lstrip('.')[:200]} {found[1]}"


def _fault(value: Any, depth: int, *, nul: bool) -> tuple[str, str] | None:
    """The fault's place within the value, and what it is. `nul`: texts may hold NUL."""
    if isinstance(value, str):
        fault = _half_pair(value) if nul else text_fault(value)
        return None if fault is None else ("", fault)
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return None if INT64_MIN <= value <= INT64_MAX else ("", "is beyond 64 bits")
    if type(value) is dict or isinstance(value, Mapping | list | tuple):
        return _inner_fault(value, depth, nul=nul) if depth < _DEEPEST else ("", "is nested too deeply")
    if isinstance(value, float | Decimal):
        return None if math.isfinite(value) else ("", f"is {value}, which JSON cannot spell")
    return "", f"is of type {type(value).__name__}, which JSON cannot spell"


def _inner_fault(
    value: Mapping[Any, Any] | list[Any] | tuple[Any, ...], depth: int, *, nul: bool
) -> tuple[str, str] | None:
    if not isinstance(value, Mapping):
        for at, item in enumerate(value):
            found = _fault(item, depth + 1, nul=nul)
            if found:
                return f"[{at}]{found[0]}", found[1]
        return None
    for key, item in value.items():
        fault = text_fault(key)
        if fault:
            return "", f"has the name {key!r:.60}, which {fault}"
        # The text of a partition value may be anything; the log spells NUL as an escape there.
        found = _fault(item, depth + 1, nul=nul or key == "partitionValues")
        if found:
            return f".{key}{found[0]}", found[1]
    return None


def _value_fault(action: Action) -> str | None:
    """What an action holds that no database can: a path that is no text, a time beyond 64 bits."""
    if isinstance(action, AddFile | RemoveFile | AddCDCFile):
        fault = text_fault(action.path)
        return None if fault is None else f"{action.kind}: path {fault}"
    if isinstance(action, CommitInfo):
        stamp = action.content.get("inCommitTimestamp")
        if type(stamp) is int and not INT64_MIN <= stamp <= INT64_MAX:
            return "commitInfo: inCommitTimestamp is beyond 64 bits"
    return None


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
    kinds = Counter(map(type, actions))
    others = [a for a in actions if type(a) is SetTransaction or type(a) is DomainMetadata]
    facts = Facts(
        adds=kinds[AddFile],
        removes=kinds[RemoveFile],
        metadata=Metadata in kinds,
        protocol=Protocol in kinds,
        apps=tuple(a.app_id for a in others if isinstance(a, SetTransaction)),
        domains=tuple(a.domain for a in others if isinstance(a, DomainMetadata)),
    )
    return Prepared(actions, content, facts, _is_blind(actions, facts))


def _is_blind(actions: tuple[Action, ...], facts: Facts) -> bool:
    if facts.removes or not facts.adds:
        return False
    told = next((a.content.get("isBlindAppend") for a in actions if isinstance(a, CommitInfo)), None)
    if told is False:
        return False
    # Delta calls an append blind that also changes the schema; such a commit cannot be moved all the same.
    return all(
        (isinstance(a, AddFile) and (a.data_change or told is True))
        or isinstance(a, SetTransaction | CommitInfo | AddCDCFile)
        for a in actions
    )
