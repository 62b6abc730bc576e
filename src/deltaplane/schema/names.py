"""Names: of tables, and of the constraints that are derived from them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from deltaplane.errors import DeclarationError
from deltaplane.schema.types import require_name
from deltaplane.sqltext import quote_identifier

__all__ = ["QualifiedName", "constraint_name", "join_path", "normal_path", "split_path"]

MAX_CONSTRAINT_NAME = 63
_DIGEST_LENGTH = 10
# Spark reads these as "the table at this path", so a schema of that name can never be reached.
_PATH_SCHEMAS = frozenset({"delta", "parquet", "csv", "json", "orc", "text", "avro", "binaryfile", "xml"})


@dataclass(frozen=True, order=True)
class QualifiedName:
    """catalog.schema.name of one table."""

    catalog: str
    schema: str
    name: str

    def __post_init__(self) -> None:
        for what, value in (("catalog", self.catalog), ("schema", self.schema), ("table", self.name)):
            require_name(what, value)
        if self.schema.casefold() in _PATH_SCHEMAS:
            raise DeclarationError(
                f"{self}: Spark reads `{self.schema}`.… as a path, not as a schema. Use another schema name."
            )

    @classmethod
    def parse(cls, text: str, *, catalog: str | None = None, schema: str | None = None) -> QualifiedName:
        """Read `name`, `schema.name` or `catalog.schema.name`; what is missing comes from the arguments."""
        parts = [part for part in split_path(text) if part]
        if len(parts) == 1 and catalog and schema:
            return cls(catalog, schema, parts[0])
        if len(parts) == 2 and catalog:
            return cls(catalog, parts[0], parts[1])
        if len(parts) == 3:
            return cls(*parts)
        raise DeclarationError(f"{text!r} is not a table name. Write catalog.schema.name, or schema.name.")

    @property
    def key(self) -> tuple[str, str, str]:
        """What decides whether two names are the same: Spark ignores case."""
        return (self.catalog.casefold(), self.schema.casefold(), self.name.casefold())

    @property
    def parts(self) -> tuple[str, str, str]:
        """The three parts in order."""
        return (self.catalog, self.schema, self.name)

    def __str__(self) -> str:
        return ".".join(part if re.fullmatch(r"\w+", part) else f"`{part}`" for part in self.parts)


@lru_cache(maxsize=65536)
def constraint_name(kind: str, *parts: str) -> str:
    """Derive a name from what the constraint is about.

    The digest covers all parts with their borders, so `a_b` + `c` and `a` + `b_c` never meet.
    """
    digest = hashlib.sha256(json.dumps([kind, *parts]).encode()).hexdigest()[:_DIGEST_LENGTH]
    slug = re.sub(r"[^a-z0-9]+", "_", "_".join(parts).lower()).strip("_")
    room = MAX_CONSTRAINT_NAME - len(kind) - _DIGEST_LENGTH - 2
    return "_".join(piece for piece in (kind, slug[:room].strip("_"), digest) if piece)


def normal_path(text: str) -> str:
    """Write a path with backticks only around parts that contain a dot, as in s.a or `a.b`."""
    return join_path(split_path(text))


def join_path(parts: Sequence[str]) -> str:
    """Write the parts of a path as one text, the way `normal_path` does."""
    return ".".join(quote_identifier(part) if "." in part else part for part in parts)


def split_path(text: str) -> list[str]:
    """Split a path at its dots, but not inside backticks."""
    tokens = re.findall(r"`(?:[^`]|``)*`|[^.]+", text)
    return [token[1:-1].replace("``", "`") if token.startswith("`") else token for token in tokens]
