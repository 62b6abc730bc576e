"""The types a Delta column can have.

A type is a frozen value. Two types are equal when Delta would store them alike, so comments and renames of
struct
fields take part only through `Field`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from deltaplane.errors import DeclarationError

__all__ = [
    "Array",
    "Binary",
    "Boolean",
    "Byte",
    "Char",
    "DataType",
    "Date",
    "Decimal",
    "Double",
    "Field",
    "Float",
    "Integer",
    "Long",
    "Map",
    "Short",
    "String",
    "Struct",
    "Timestamp",
    "TimestampNtz",
    "Varchar",
    "Variant",
]

MAX_DECIMAL_PRECISION = 38
# A type, its class when it needs no arguments, or its text. `type` is a field's name below, hence the alias.
TypeLike: TypeAlias = "DataType | str | type[DataType]"


@dataclass(frozen=True)
class DataType:
    """Base of all types. `text` is the type as Spark SQL writes it."""

    sql_name: ClassVar[str] = ""

    @property
    def text(self) -> str:
        """The type in Spark's short notation, such as `decimal(10,2)` or `array<int>`."""
        return self.sql_name

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Boolean(DataType):
    """True or false."""

    sql_name: ClassVar[str] = "boolean"


@dataclass(frozen=True)
class Byte(DataType):
    """An 8-bit integer (TINYINT)."""

    sql_name: ClassVar[str] = "tinyint"


@dataclass(frozen=True)
class Short(DataType):
    """A 16-bit integer (SMALLINT)."""

    sql_name: ClassVar[str] = "smallint"


@dataclass(frozen=True)
class Integer(DataType):
    """A 32-bit integer (INT)."""

    sql_name: ClassVar[str] = "int"


@dataclass(frozen=True)
class Long(DataType):
    """A 64-bit integer (BIGINT)."""

    sql_name: ClassVar[str] = "bigint"


@dataclass(frozen=True)
class Float(DataType):
    """A 32-bit floating-point number."""

    sql_name: ClassVar[str] = "float"


@dataclass(frozen=True)
class Double(DataType):
    """A 64-bit floating-point number."""

    sql_name: ClassVar[str] = "double"


@dataclass(frozen=True)
class Decimal(DataType):
    """An exact number with `precision` digits, `scale` of them after the point."""

    precision: int = 10
    scale: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.precision, int) or not isinstance(self.scale, int):
            raise DeclarationError(
                f"decimal({self.precision!r},{self.scale!r}): precision and scale are whole numbers, as "
                f"in Decimal(10, 2)."
            )
        if not 1 <= self.precision <= MAX_DECIMAL_PRECISION:
            raise DeclarationError(
                f"decimal({self.precision},{self.scale}): the precision must lie between 1 and 38."
            )
        if not 0 <= self.scale <= self.precision:
            raise DeclarationError(
                f"decimal({self.precision},{self.scale}): the scale must lie between 0 and the precision."
            )

    @property
    def text(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True)
class String(DataType):
    """Text of any length."""

    sql_name: ClassVar[str] = "string"


@dataclass(frozen=True)
class Varchar(DataType):
    """Text of at most `length` characters."""

    length: int

    def __post_init__(self) -> None:
        _require_length("varchar", self.length)

    @property
    def text(self) -> str:
        return f"varchar({self.length})"


@dataclass(frozen=True)
class Char(DataType):
    """Text of exactly `length` characters, padded with blanks."""

    length: int

    def __post_init__(self) -> None:
        _require_length("char", self.length)

    @property
    def text(self) -> str:
        return f"char({self.length})"


@dataclass(frozen=True)
class Binary(DataType):
    """Bytes."""

    sql_name: ClassVar[str] = "binary"


@dataclass(frozen=True)
class Date(DataType):
    """A calendar day."""

    sql_name: ClassVar[str] = "date"


@dataclass(frozen=True)
class Timestamp(DataType):
    """A moment in time."""

    sql_name: ClassVar[str] = "timestamp"


@dataclass(frozen=True)
class TimestampNtz(DataType):
    """A date and time of day without a time zone. Needs the table feature timestampNtz."""

    sql_name: ClassVar[str] = "timestamp_ntz"


@dataclass(frozen=True)
class Variant(DataType):
    """Semi-structured data. Needs the table feature variantType."""

    sql_name: ClassVar[str] = "variant"


@dataclass(frozen=True)
class Array(DataType):
    """A list of elements of one type. SQL cannot forbid null elements, so neither does this."""

    element: DataType

    def __init__(self, element: TypeLike) -> None:
        object.__setattr__(self, "element", as_type(element, "an array element"))

    @property
    def text(self) -> str:
        return f"array<{self.element.text}>"


@dataclass(frozen=True)
class Map(DataType):
    """Keys of one type, each with a value of another."""

    key: DataType
    value: DataType

    def __init__(self, key: TypeLike, value: TypeLike) -> None:
        object.__setattr__(self, "key", as_type(key, "a map key"))
        object.__setattr__(self, "value", as_type(value, "a map value"))

    @property
    def text(self) -> str:
        return f"map<{self.key.text},{self.value.text}>"


@dataclass(frozen=True)
class Field:
    """One field of a struct."""

    name: str
    type: DataType
    nullable: bool = True
    comment: str | None = None
    renamed_from: str | None = None

    def __init__(
        self,
        name: str,
        type: TypeLike,
        nullable: bool = True,
        comment: str | None = None,
        renamed_from: str | None = None,
    ) -> None:
        require_name("struct field", name)
        object.__setattr__(self, "name", name)
        require_text(f"comment of field {name}", comment)
        object.__setattr__(self, "type", as_type(type, f"field {name}"))
        object.__setattr__(self, "nullable", nullable)
        # A cleared comment is stored as '': it means the same as none.
        object.__setattr__(self, "comment", comment or None)
        object.__setattr__(self, "renamed_from", renamed_from)


@dataclass(frozen=True)
class Struct(DataType):
    """Named fields, each with a type of its own, nested to any depth."""

    fields: tuple[Field, ...]

    def __init__(self, fields: Iterable[Field]) -> None:
        object.__setattr__(self, "fields", tuple(fields))
        for field in self.fields:
            if not isinstance(field, Field):
                raise DeclarationError(f"struct: {field!r} is not a Field. Write Field(name, type).")
        if not self.fields:
            raise DeclarationError("A struct needs at least one field. Add one, or drop the column.")
        duplicate = first_duplicate(field.name for field in self.fields)
        if duplicate:
            raise DeclarationError(
                f"struct field {duplicate} is declared twice (Spark ignores upper and lower case). "
                f"Rename one of them."
            )

    @property
    def text(self) -> str:
        inner = ",".join(f"{field.name}:{field.type.text}" for field in self.fields)
        return f"struct<{inner}>"


def as_type(value: TypeLike, what: str) -> DataType:
    """Accept a type, a type class without arguments (`Integer`) or its text (`"int"`)."""
    if isinstance(value, DataType):
        return value
    if isinstance(value, str):
        from deltaplane.schema.typetext import parse_type

        return parse_type(value)
    if isinstance(value, type) and issubclass(value, DataType):
        try:
            return value()
        except TypeError:
            raise DeclarationError(
                f"{what}: {value.__name__} needs arguments, for example {_EXAMPLES.get(value.__name__, '')}."
            ) from None
    raise DeclarationError(
        f"{what}: {value!r} is not a type. Use one of deltaplane.schema, such as Integer(), or text such "
        f"as 'int'."
    )


def first_duplicate(names: Iterable[str]) -> str | None:
    """Return the first name that repeats an earlier one when case is ignored."""
    seen: set[str] = set()
    for name in names:
        key = name.casefold()
        if key in seen:
            return name
        seen.add(key)
    return None


def require_name(what: str, name: object) -> None:
    """Refuse what cannot be a name in any catalog."""
    if not isinstance(name, str) or not name.strip():
        raise DeclarationError(f"{what}: {name!r} is not a name. Give a text that is not empty.")
    if "\0" in name:
        raise DeclarationError(f"{what} {name!r}: a name cannot contain a NUL character. Remove it.")
    require_text(what, name)


def require_text(what: str, text: object) -> None:
    """Refuse what is not text, or text that cannot be written as UTF-8."""
    if text is None:
        return
    if not isinstance(text, str):
        raise DeclarationError(f"{what}: {text!r} is not text. Put it in quotes.")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise DeclarationError(
            f"{what}: {text!r} contains half a character (a lone surrogate). Remove it."
        ) from None


def walk(data_type: DataType) -> Iterator[DataType]:
    """Yield the type and every type nested in it."""
    yield data_type
    if isinstance(data_type, Array):
        yield from walk(data_type.element)
    elif isinstance(data_type, Map):
        yield from walk(data_type.key)
        yield from walk(data_type.value)
    elif isinstance(data_type, Struct):
        for field in data_type.fields:
            yield from walk(field.type)


def _require_length(kind: str, length: object) -> None:
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        raise DeclarationError(f"{kind}({length}): the length must be a whole number of at least 1.")


_EXAMPLES = {
    "Varchar": "Varchar(20)",
    "Char": "Char(2)",
    "Array": "Array(Integer())",
    "Map": "Map(String(), Integer())",
    "Struct": 'Struct([Field("a", Integer())])',
}
