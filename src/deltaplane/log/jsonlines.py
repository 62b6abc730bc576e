"""Commits as text: exact reading, canonical writing.

Reading accepts what Delta accepts: numbers of any size, NaN and infinities, text after an object on its line.
It also accepts objects that span lines, which the protocol forbids and other readers take. Writing has one
form: fields in the order of the protocol, keys of maps sorted, no white space, nothing that is absent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from decimal import Decimal
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import fields as struct_fields

from deltaplane.errors import CorruptLog
from deltaplane.log.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    SidecarFile,
    UnknownAction,
)
from deltaplane.log.file_lines import usual_line, usual_lines
from deltaplane.log.order_keys import INT64_MAX, INT64_MIN

__all__ = ["action_from_dict", "action_to_dict", "dump_json", "parse_commit", "parse_json", "write_commit"]

_KINDS: dict[str, type[Any]] = {
    kind.kind: kind
    for kind in (
        AddFile,
        RemoveFile,
        AddCDCFile,
        Metadata,
        Protocol,
        SetTransaction,
        DomainMetadata,
        CheckpointMetadata,
        SidecarFile,
    )
}
# Fields whose values need no second look when JSON gave them this type already.
_PLAIN: dict[str, type[Any]] = {"str": str, "bool": bool}
_NESTED: dict[str, type[Any]] = {"DeletionVector": DeletionVector, "Format": Format}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


class _Shape:
    """The fields of one kind of action, worked out once."""

    def __init__(self, kind: type[Any]) -> None:
        self.kind = kind
        needed = {name: needs for name, needs in _fields(kind) if name != "extra"}
        self.keys = {_camel(name): name for name in needed}
        self.types = {name: kind.__annotations__[name].removesuffix(" | None") for name in needed}
        self.required = tuple(_camel(name) for name, needs in needed.items() if needs)
        self.attributes = tuple((name, _camel(name), self.types[name]) for name in needed)
        self.plain = {
            key: (name, _PLAIN[self.types[name]])
            for key, name in self.keys.items()
            if self.types[name] in _PLAIN
        }


def _fields(kind: type[Any]) -> list[tuple[str, bool]]:
    """The fields of a kind, and whether a value is needed."""
    if issubclass(kind, Struct):
        return [(item.name, item.required) for item in struct_fields(kind)]
    return [(item.name, item.default is item.default_factory is MISSING) for item in fields(kind)]


_SHAPES = {kind: _Shape(kind) for kind in (*_KINDS.values(), *_NESTED.values())}
_BLANK = re.compile(r"[ \t\r\n\ufeff]*")


class _Number(Decimal):
    """A number with a fraction or an exponent, kept as it was written."""


_DECODER = json.JSONDecoder(parse_float=_Number)


def parse_json(text: str) -> Any:
    """Read one JSON value; numbers with a fraction become exact decimals.

    Raises:
        ValueError: The text is not JSON.
    """
    return _decoded(text, _BLANK.match(text).end())[0]  # type: ignore[union-attr]


def _decoded(text: str, start: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, start)
    except ArithmeticError:
        raise ValueError("a number has an exponent out of all bounds") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def dump_json(value: Any) -> str:
    """Write a JSON value in the one canonical form."""
    parts: list[str] = []
    _dump(value, parts)
    return "".join(parts)


_SURROGATE = re.compile("[\ud800-\udfff]")


def _quote(text: str) -> str:
    quoted: str = json.encoder.encode_basestring(text)
    # Half of a pair has no form in UTF-8, and JSON can still spell it.
    return quoted if text.isascii() else _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", quoted)


def _dump(value: Any, out: list[str]) -> None:
    if isinstance(value, str):
        out.append(_quote(value))
    elif value is None or isinstance(value, bool):
        out.append("null" if value is None else "true" if value else "false")
    elif type(value) is dict or isinstance(value, Mapping):
        separator = "{"
        for key, item in value.items():
            out.append(f"{separator}{_quote(str(key))}:")
            _dump(item, out)
            separator = ","
        out.append("}" if separator == "," else "{}")
    elif isinstance(value, list | tuple):
        separator = "["
        for item in value:
            out.append(separator)
            _dump(item, out)
            separator = ","
        out.append("]" if separator == "," else "[]")
    elif isinstance(value, Decimal):
        out.append("NaN" if value.is_nan() else str(value))
    elif isinstance(value, int | float):
        out.append(json.dumps(value))
    else:
        raise TypeError(f"{type(value).__name__} has no form in JSON: {value!r}")


def action_from_dict(content: Mapping[str, Any], source: str = "the action") -> Action:
    """Turn one object of a commit, such as {"add": {…}}, into an action.

    Raises:
        CorruptLog: The object is not an action, or a field is missing or of the wrong kind.
    """
    if len(content) > 1:
        content = {name: body for name, body in content.items() if body is not None} or content
    name, body = next(iter(content.items()), ("", None))
    if len(content) != 1 or body is None:
        raise CorruptLog(source, f"an action must have one key, and this has {sorted(content) or 'none'}")
    if name == "commitInfo" and (type(body) is dict or isinstance(body, Mapping)):
        return CommitInfo(body)
    kind = _KINDS.get(name)
    if kind is None:
        return UnknownAction(name, body)
    action: Action = _build(_SHAPES[kind], body, source, name)
    return action


def _build(shape: _Shape, body: Any, source: str, place: str) -> Any:
    if not (type(body) is dict or isinstance(body, Mapping)):
        raise CorruptLog(source, f"{place} must be an object, and is {body!r:.60}")
    values: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    plain = shape.plain
    for key, value in body.items():
        known = plain.get(key)
        if known is not None and type(value) is known[1]:
            values[known[0]] = value
            continue
        attribute = shape.keys.get(key)
        if attribute is None:
            extra[key] = value
        elif value is not None:
            values[attribute] = _checked(shape.types[attribute], value, source, f"{place}.{key}")
    for key in shape.required:
        if shape.keys[key] not in values:
            raise CorruptLog(source, f"{place} has no {key}")
    if extra:
        values["extra"] = extra
    return shape.kind(**values)


def _checked(kind: str, value: Any, source: str, place: str) -> Any:
    """The value as the field's type has it; `kind` is the type as the action declares it."""
    if kind == "str":
        if type(value) is str:
            return value
    elif kind == "Long":
        whole = value if type(value) is int else _whole(value)
        if whole is not None and not INT64_MIN <= whole <= INT64_MAX:
            raise CorruptLog(source, f"{place} is beyond 64 bits")
        if whole is not None:
            return whole
    elif kind == "bool":
        if isinstance(value, bool) or value in ("true", "false"):
            return value in (True, "true")
    elif kind.startswith("tuple"):
        if isinstance(value, list | tuple) and all(type(item) is str for item in value):
            return tuple(value)
    elif kind in _NESTED:
        return _build(_SHAPES[_NESTED[kind]], value, source, place)
    elif type(value) is dict or isinstance(value, Mapping):
        if not value:
            return {}
        return {str(k): v if v is None or type(v) is str else dump_json(v) for k, v in value.items()}
    raise CorruptLog(source, f"{place} has an impossible value: {value!r:.60}")


def _whole(value: Any) -> int | None:
    """Some writers give integers as 1.0, 1e3 or "1"; Delta takes them."""
    if isinstance(value, bool) or not isinstance(value, str | Decimal | float):
        return None
    try:
        number = Decimal(value)
    except ArithmeticError:
        return None
    # The bound comes first: as an integer, 1e999999 would fill the memory.
    if not number.is_finite() or number.adjusted() > 40 or number != int(number):
        return None
    return int(number)


def action_to_dict(action: Action) -> dict[str, Any]:
    """The object of a commit for one action: the inverse of `action_from_dict`."""
    if isinstance(action, CommitInfo):
        return {"commitInfo": _sorted(action.content)}
    if isinstance(action, UnknownAction):
        return {action.name: _sorted(action.content)}
    return {action.kind: _body(action)}


def _body(value: Any) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for attribute, key, kind in _SHAPES[type(value)].attributes:
        item = getattr(value, attribute)
        if item is None or (item == "" and attribute == "schema_string"):
            continue
        if kind in _NESTED:
            item = _body(item)
        elif type(item) is dict or isinstance(item, Mapping):
            item = dict(sorted(item.items()))
        elif kind.startswith("tuple"):
            item = list(item)
        body[key] = item
    if value.extra:
        body.update(_sorted(value.extra))
    return body


def _sorted(value: Any) -> Any:
    """The value with the keys of every object in order, so that equal values have equal text."""
    if type(value) is dict or isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list | tuple) else value


def write_commit(actions: Iterable[Action]) -> bytes:
    """The canonical bytes of a commit: one action a line, each line ended."""
    return "".join(dump_json(action_to_dict(action)) + "\n" for action in actions).encode("utf-8")


def parse_commit(content: bytes, source: str = "the commit") -> Iterator[Action]:
    """Read the actions of a commit, in order.

    Args:
        content: The bytes of the commit's file.
        source: What to call it in an error, such as its path.

    Raises:
        CorruptLog: A line is not an action. Names the file, the line and the cause.
    """
    usual = _usual(content)
    return iter(usual) if usual is not None else _exact(content, source)


def _usual(content: bytes) -> list[Action] | None:
    """The actions of a commit in which nothing is unusual; None for others."""
    lines = usual_lines(content)
    if lines is None:
        return None
    try:
        return [
            action_from_dict({line[0]: _whole_value(line[1])}) if type(line) is tuple else cast(Action, line)
            for line in lines
        ]
    except (CorruptLog, ValueError):
        return None


def _whole_value(text: str) -> Any:
    value, end = _decoded(text, 0)
    if end != len(text):
        raise ValueError("there is more")
    return value


def _exact(content: bytes, source: str) -> Iterator[Action]:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise CorruptLog(f"{source}, line {line}", f"byte {error.start} is not UTF-8") from None
    for number, told in _told(text, source):
        if type(told) is not dict:
            yield cast(Action, told)
            continue
        try:
            action = action_from_dict(told, source)
        except CorruptLog as error:
            raise CorruptLog(f"{source}, line {number}", error.cause_text) from None
        yield action


_LINE_END = re.compile(r"\r\n|\n|\r")


def _told(text: str, source: str) -> Iterator[tuple[int, Action | dict[str, Any]]]:
    """The objects of a text, or their actions where those are known, each with the number of its line."""
    position, number = 0, 1
    if "\r" not in text:
        # As nearly every log is: an object a line. From the first line that is not on, the rest counts.
        for line in text.split("\n"):
            file = usual_line(line)
            if file is not None:
                yield number, file
            else:
                try:
                    body, after = _DECODER.raw_decode(line) if line else ({}, 0)
                except (ValueError, ArithmeticError, RecursionError):
                    break
                if after != len(line) or type(body) is not dict:
                    break
                if body:
                    yield number, body
            position += len(line) + 1
            number += 1
        else:
            return
    while True:
        start = _BLANK.match(text, position).end()  # type: ignore[union-attr]
        number += _line_ends(text, position, start)
        if start == len(text):
            return
        try:
            body, after = _decoded(text, start)
        except ValueError as error:
            raise CorruptLog(f"{source}, line {number}", f"not JSON: {error}") from None
        if type(body) is not dict:
            raise CorruptLog(f"{source}, line {number}", f"not an object: {text[start:after]!r:.60}")
        if body:
            yield number, body
        number += _line_ends(text, start, after)
        # What follows an object on its line is ignored, as Spark ignores it.
        end = _LINE_END.search(text, after)
        if end is None:
            return
        position = end.start()


def _line_ends(text: str, start: int, stop: int) -> int:
    return text.count("\n", start, stop) or text.count("\r", start, stop)
