"""Commits as nearly every writer puts them, decoded and checked outside of Python.

A commit may name hundreds of thousands of files. What is not quite usual is left to `jsonlines`, which takes
everything that Delta takes; what is read here is read there to the same action.
"""

from __future__ import annotations

from operator import attrgetter
from typing import cast

from msgspec import DecodeError, Raw, Struct
from msgspec.json import Decoder

from deltaplane.log.actions import AddFile, RemoveFile

__all__ = ["usual_line", "usual_lines"]

_NONE = Raw(b"")


class _Line(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """An action of a file, or another one as it stands."""

    add: AddFile | None = None
    remove: RemoveFile | None = None
    commit_info: Raw = _NONE
    meta_data: Raw = _NONE
    protocol: Raw = _NONE
    txn: Raw = _NONE
    cdc: Raw = _NONE
    domain_metadata: Raw = _NONE


class _FileLine(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """An action of a file."""

    add: AddFile | None = None
    remove: RemoveFile | None = None


_LINE = Decoder(_Line)
_FILE_LINE = Decoder(_FileLine)
_OTHERS = tuple(name for name in _Line.__struct_fields__ if name not in ("add", "remove"))
_add, _remove = attrgetter("add"), attrgetter("remove")
_extra, _vector = attrgetter("extra"), attrgetter("deletion_vector")
_KEYS = dict(zip(_Line.__struct_fields__, _Line.__struct_encode_fields__, strict=True))


def usual_line(line: str) -> AddFile | RemoveFile | None:
    """The action of a line that names a file in the usual form; None when the line is of another kind."""
    try:
        return _file(_LINE.decode(line)) if line.startswith(('{"add":', '{"remove":')) else None
    except (DecodeError, UnicodeError, RecursionError):
        # Whether it is damaged or only unusual is for the exact reader to say.
        return None


def usual_lines(content: bytes) -> list[AddFile | RemoveFile | tuple[str, str]] | None:
    """The actions of a commit, those of files as values and others as their key and their text.

    Returns:
        None when there is anything unusual in the commit.
    """
    # Between two lines an object ends and another one begins: so none spans them.
    count = content.count(b"\n") + (not content.endswith(b"\n"))
    if content.count(b'}\n{"') != count - 1 or not content.startswith(b'{"'):
        return None
    try:
        told = _read(content)
    except (DecodeError, UnicodeError, RecursionError, _Unusual):
        return None
    # On one line there may be more than one object, and Delta reads the first.
    return told if len(told) == count else None


class _Unusual(Exception):
    """A line that is for the exact reader."""


def _read(content: bytes) -> list[AddFile | RemoveFile | tuple[str, str]]:
    # Files come last, nearly always, and then their lines are looked at all together.
    start = _first_file(content)
    rest = memoryview(content)[start:]
    try:
        files = _files(_FILE_LINE.decode_lines(rest)) if rest else []
    except DecodeError:
        return _told(_LINE.decode_lines(content))
    return [*_told(_LINE.decode_lines(content[:start])), *files]


def _first_file(content: bytes) -> int:
    """Where the first line of a file begins; the end when there is none."""
    start = 0
    while start < len(content) and not content.startswith((b'{"add":', b'{"remove":'), start):
        start = content.find(b"\n", start) + 1 or len(content)
    return start


def _files(lines: list[_FileLine]) -> list[AddFile | RemoveFile]:
    """The files of lines that have nothing else, one each."""
    adds, removes = list(map(_add, lines)), list(map(_remove, lines))
    files = [remove if add is None else add for add, remove in zip(adds, removes, strict=True)]
    one_each = all(files) and adds.count(None) + removes.count(None) == len(files)
    if not one_each or any(map(_extra, files)) or any(map(_extra, filter(None, map(_vector, files)))):
        raise _Unusual
    return cast("list[AddFile | RemoveFile]", files)


def _told(lines: list[_Line]) -> list[AddFile | RemoveFile | tuple[str, str]]:
    return [_other(line) if (file := _file(line)) is None else file for line in lines]


def _file(line: _Line) -> AddFile | RemoveFile | None:
    """The file of a line that has nothing else; None when it has, or has none."""
    add, remove = line.add, line.remove
    if (add is None) is (remove is None) or not (
        # One by one: a loop over them takes longer than the decoding.
        line.commit_info is _NONE
        and line.meta_data is _NONE
        and line.protocol is _NONE
        and line.txn is _NONE
        and line.cdc is _NONE
        and line.domain_metadata is _NONE
    ):
        return None
    file = remove if add is None else add
    assert file is not None
    vector = file.deletion_vector
    return None if file.extra or (vector is not None and vector.extra) else file


def _other(line: _Line) -> tuple[str, str]:
    told = [(_KEYS[name], bytes(raw)) for name in _OTHERS if (raw := getattr(line, name)) is not _NONE]
    if len(told) != 1 or line.add is not None or line.remove is not None:
        raise _Unusual
    return told[0][0], told[0][1].decode()
