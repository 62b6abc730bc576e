"""Types as text: Spark's DDL notation, read and written."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from deltaplane.errors import DeclarationError, TypeTextError
from deltaplane.schema.types import (
    Array,
    Binary,
    Boolean,
    Byte,
    Char,
    DataType,
    Date,
    Decimal,
    Double,
    Field,
    Float,
    Integer,
    Long,
    Map,
    Short,
    String,
    Struct,
    Timestamp,
    TimestampNtz,
    Varchar,
    Variant,
)
from deltaplane.sqltext import quote_identifier, quote_literal

__all__ = ["parse_type", "render_type"]

_SIMPLE: dict[str, Callable[[], DataType]] = {
    "boolean": Boolean,
    "tinyint": Byte,
    "byte": Byte,
    "smallint": Short,
    "short": Short,
    "int": Integer,
    "integer": Integer,
    "bigint": Long,
    "long": Long,
    "float": Float,
    "real": Float,
    "double": Double,
    "decimal": Decimal,
    "dec": Decimal,
    "numeric": Decimal,
    "string": String,
    "binary": Binary,
    "date": Date,
    "timestamp": Timestamp,
    "timestamp_ltz": Timestamp,
    "timestamp_ntz": TimestampNtz,
    "variant": Variant,
}
T = TypeVar("T")
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|[<>(),:]|[^\s<>(),:`']+)")


def parse_type(text: str) -> DataType:
    """Read a type such as `decimal(10,2)` or `struct<a:int,b:array<string>>`.

    Raises:
        TypeTextError: The text is not a type; the message shows where reading stopped.
    """
    parser = _Parser(text)
    try:
        result = parser.type()
    except RecursionError:
        raise TypeTextError(f"{text[:60]!r}… is nested too deeply. Use fewer levels.") from None
    parser.expect_end()
    return result


def render_type(data_type: DataType) -> str:
    """Write a type as SQL, with quoted field names, NOT NULL and comments inside structs."""
    if isinstance(data_type, Array):
        return f"ARRAY<{render_type(data_type.element)}>"
    if isinstance(data_type, Map):
        return f"MAP<{render_type(data_type.key)}, {render_type(data_type.value)}>"
    if isinstance(data_type, Struct):
        return "STRUCT<" + ", ".join(_render_field(field) for field in data_type.fields) + ">"
    return data_type.text.upper()


def _render_field(field: Field) -> str:
    text = f"{quote_identifier(field.name)}: {render_type(field.type)}"
    if not field.nullable:
        text += " NOT NULL"
    if field.comment:
        text += f" COMMENT {quote_literal(field.comment)}"
    return text


class _Parser:
    """A recursive-descent reader over the tokens of one type text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        position = 0
        while position < len(text.rstrip()):
            match = _TOKEN.match(text, position)
            if match is None:
                raise self._error(text[position:].strip())
            self.tokens.append(match.group(1))
            position = match.end()
        self.index = 0

    def type(self) -> DataType:
        word = self._next()
        name = word.lower()
        if name == "array":
            return Array(self._between(self.type))
        if name == "map":
            return self._between(self._map)
        if name == "struct":
            return Struct(self._between(self._fields))
        if name in ("varchar", "char", "character"):
            (length,) = self._numbers(name, 1)
            return Varchar(length) if name == "varchar" else Char(length)
        if name in ("decimal", "dec", "numeric") and self._peek() == "(":
            precision, scale = (*self._numbers(name, 2), 0)[:2]
            return Decimal(precision, scale)
        if name not in _SIMPLE:
            raise self._error(word)
        return _SIMPLE[name]()

    def expect_end(self) -> None:
        if self.index < len(self.tokens):
            raise self._error(self.tokens[self.index])

    def _map(self) -> Map:
        key = self.type()
        self._expect(",")
        return Map(key, self.type())

    def _fields(self) -> list[Field]:
        fields = [self._field()]
        while self._peek() == ",":
            self._next()
            fields.append(self._field())
        return fields

    def _field(self) -> Field:
        word = self._next()
        if word in ("<", ">", "(", ")", ",", ":") or word.startswith("'"):
            raise self._error(word)
        name = word[1:-1].replace("``", "`") if word.startswith("`") else word
        if self._peek() == ":":
            self._next()
        data_type = self.type()
        nullable, comment = True, None
        if (self._peek() or "").lower() == "not":
            self._next()
            self._expect("null")
            nullable = False
        if (self._peek() or "").lower() == "comment":
            self._next()
            literal = self._next()
            if not literal.startswith("'"):
                raise self._error(literal)
            comment = _unquote_literal(literal)
        return Field(name, data_type, nullable, comment)

    def _between(self, read: Callable[[], T]) -> T:
        self._expect("<")
        result = read()
        self._expect(">")
        return result

    def _numbers(self, name: str, most: int) -> tuple[int, ...]:
        if self._peek() != "(":
            raise TypeTextError(f"{self.text!r}: {name} needs a length, for example {name}(20).")
        self._next()
        numbers = [self._number()]
        while self._peek() == "," and len(numbers) < most:
            self._next()
            numbers.append(self._number())
        self._expect(")")
        return tuple(numbers)

    def _number(self) -> int:
        word = self._next()
        if not word.isdecimal():
            raise self._error(word)
        return int(word)

    def _peek(self) -> str | None:
        return self.tokens[self.index] if self.index < len(self.tokens) else None

    def _next(self) -> str:
        if self.index >= len(self.tokens):
            raise self._error("the end")
        self.index += 1
        return self.tokens[self.index - 1]

    def _expect(self, token: str) -> None:
        word = self._next()
        if word.lower() != token:
            raise self._error(word)

    def _error(self, at: str) -> DeclarationError:
        return TypeTextError(
            f"{self.text!r} is not a type of Spark or Delta: reading stopped at {at!r}. "
            f"Known types: {', '.join(sorted({t().sql_name or 'decimal(p,s)' for t in _SIMPLE.values()}))}, "
            "varchar(n), char(n), array<…>, map<…,…>, struct<name:type,…>."
        )


def _unquote_literal(token: str) -> str:
    body = token[1:-1]
    simple = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}

    def unescape(match: re.Match[str]) -> str:
        if code := match.group(1) or match.group(2):
            return chr(int(code, 16))
        return simple.get(match.group(3), match.group(3))

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", unescape, body)
