"""`_last_checkpoint`: a hint that saves readers a listing. It may lag behind, be damaged, or be missing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from urllib.parse import quote

from deltaplane.errors import CorruptLog
from deltaplane.log.jsonlines import dump_json

__all__ = ["LastCheckpoint", "json_checksum", "parse_last_checkpoint"]


@dataclass(frozen=True, slots=True)
class LastCheckpoint:
    """What `_last_checkpoint` says.

    Attributes:
        version: The version of the checkpoint.
        size: The number of actions in it, -1 when the writer did not know.
        parts: The number of files of a multi-part checkpoint.
        size_in_bytes: The bytes of all its files.
        num_of_add_files: The number of active files.
        v2_checkpoint: What Spark notes about a v2 checkpoint; `path` is the file's name.
        extra: Every other field, such as `checkpointSchema` and `tags`.
    """

    version: int
    size: int
    parts: int | None = None
    size_in_bytes: int | None = None
    num_of_add_files: int | None = None
    v2_checkpoint: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def v2_name(self) -> str | None:
        """The name of the v2 checkpoint's top file, if it is one."""
        path = (self.v2_checkpoint or {}).get("path")
        return path if isinstance(path, str) else None

    def write(self) -> bytes:
        """The canonical bytes, with the protocol's checksum."""
        content = {key: value for key, value in self._content().items() if value is not None}
        return dump_json({**content, "checksum": json_checksum(content)}).encode("utf-8")

    def _content(self) -> dict[str, Any]:
        # Readers that know no checksum may see half an old and half a new file: what they need is first.
        return {
            "version": self.version,
            "size": self.size,
            "parts": self.parts,
            "sizeInBytes": self.size_in_bytes,
            "numOfAddFiles": self.num_of_add_files,
            "v2Checkpoint": self.v2_checkpoint,
            **{key: self.extra[key] for key in sorted(self.extra)},
        }


def parse_last_checkpoint(content: bytes, source: str = "_last_checkpoint") -> LastCheckpoint:
    """Read the hint.

    Args:
        content: The bytes of the file.
        source: What to call it in an error.

    Raises:
        CorruptLog: The hint cannot be trusted, and why. The table is not harmed: list the log instead.
    """
    body = _parsed(content, source)
    stored = body.pop("checksum", None)
    if stored is not None and stored not in (json_checksum(body), json_checksum(body, by_pair=True)):
        raise CorruptLog(source, "its checksum does not match its content")
    fields = {name: _number(body, key, source) for name, key in _NUMBERS.items()}
    if fields["version"] is None or fields["version"] < 0:
        raise CorruptLog(source, "it names no version")
    v2_checkpoint = body.pop("v2Checkpoint", None)
    if v2_checkpoint is not None and not isinstance(v2_checkpoint, Mapping):
        raise CorruptLog(source, "v2Checkpoint is not an object")
    fields["size"] = -1 if fields["size"] is None else fields["size"]
    extra = {key: value for key, value in body.items() if value is not None}
    return LastCheckpoint(**fields, v2_checkpoint=v2_checkpoint, extra=extra)  # type: ignore[arg-type]


_NUMBERS = {
    "version": "version",
    "size": "size",
    "parts": "parts",
    "size_in_bytes": "sizeInBytes",
    "num_of_add_files": "numOfAddFiles",
}


def _parsed(content: bytes, source: str) -> dict[str, Any]:
    try:
        body = json.loads(content, object_pairs_hook=_without_duplicates, parse_float=Decimal)
    except ValueError as error:
        raise CorruptLog(source, f"not a JSON object: {error}") from error
    if not isinstance(body, dict):
        raise CorruptLog(source, f"not a JSON object: {body!r:.60}")
    return body


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    body = dict(pairs)
    if len(body) != len(pairs):
        raise ValueError("a key occurs twice")
    return body


def _number(body: dict[str, Any], key: str, source: str) -> int | None:
    value = body.pop(key, None)
    if value is None or type(value) is int:
        return value
    raise CorruptLog(source, f"{key} is not a whole number: {value!r:.60}")


def json_checksum(content: Mapping[str, Any], *, by_pair: bool = False) -> str:
    """The MD5 of the protocol's canonical form of a JSON object, as hexadecimal digits.

    The protocol sorts by path, Spark by path and value as one text (`by_pair`), which differs for arrays
    of more than ten texts or numbers. Nothing that is written here has such an array.
    """
    pairs = sorted(_leaves(content, ()), key="=".join if by_pair else None)
    text = ",".join("=".join(pair) for pair in pairs)
    return hashlib.md5(text.encode("ascii"), usedforsecurity=False).hexdigest()


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, (*path, _encoded(key)))
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            yield from _leaves(item, (*path, str(at)))
    else:
        yield "+".join(path), _encoded(value) if isinstance(value, str) else dump_json(value)


def _encoded(text: str) -> str:
    return f'"{quote(text, safe="")}"'
