"""SQL text: the one place that quotes names and literals, and the reader of .sql files.

Values never enter a statement unquoted. Statements live in .sql files as named templates::

    -- name: drop_table
    -- Removes the table and, when it is managed, its files.
    DROP TABLE {table}
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources

__all__ = ["Statements", "load_statements", "quote_identifier", "quote_literal", "quote_path"]

_BASIC_PLANE = 0xFFFF
_NAME_LINE = re.compile(r"^-- name: (\w+)\s*$")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def quote_identifier(name: str) -> str:
    """Return `name` as one quoted identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def quote_path(parts: tuple[str, ...] | list[str]) -> str:
    """Return a dotted path, such as a nested field or a qualified table, with every part quoted."""
    return ".".join(quote_identifier(part) for part in parts)


def quote_literal(text: str) -> str:
    """Return `text` as a string literal of Spark SQL.

    The dollar sign is written as an escape because Spark substitutes ${…} before it parses the statement, and
    characters beyond the basic plane because Delta's parser miscounts them in front of CLUSTER BY.
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    escaped = escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\0")
    return "'" + "".join(c if ord(c) <= _BASIC_PLANE else f"\\U{ord(c):08X}" for c in escaped) + "'"


@dataclass(frozen=True)
class Statements:
    """Named statement templates read from one .sql file."""

    source: str
    templates: dict[str, str]

    def render(self, template: str, /, **values: str) -> str:
        """Fill a template. Every value must already be quoted SQL text."""

        def fill(match: re.Match[str]) -> str:
            return values[match.group(1)]

        return _PLACEHOLDER.sub(fill, self.templates[template])

    def __contains__(self, name: str) -> bool:
        return name in self.templates


@cache
def load_statements(package: str, filename: str) -> Statements:
    """Read the named templates of `filename` inside `package`."""
    templates: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in resources.files(package).joinpath(filename).read_text(encoding="utf-8").splitlines():
        if match := _NAME_LINE.match(line):
            current = templates.setdefault(match.group(1), [])
        elif current is not None and not line.startswith("--"):
            current.append(line)
    joined = {name: "\n".join(lines).strip() for name, lines in templates.items()}
    return Statements(f"{package}/{filename}", joined)
