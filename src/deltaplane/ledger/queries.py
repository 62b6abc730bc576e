"""The statements of the ledger, in the words of one database."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from deltaplane.sqltext import load_statements

__all__ = ["TABLE_COLUMNS", "Queries", "load_queries"]

TABLE_COLUMNS = (
    "table_id, location, name, state, frozen_reason, foreign_commits, allowed_paths, base_version, "
    "head_version, published_version, checkpoint_version, next_file_id, managed_since, "
    "(SELECT c.content_size FROM commits c "
    "WHERE c.table_id = tables.table_id AND c.version = tables.published_version)"
)
_PACKAGE = "deltaplane.ledger.sql"
_PARTS = ("among", "column_list", "gone", "gone_one")
"""Parts of statements, some of which every database words in its own way."""
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_][a-z_0-9]*)")
_MARKS: dict[str, Callable[[str, int], str]] = {
    "colon": lambda name, _: f":{name}",
    "dollar": lambda name, _: f"${name}",
    "format": lambda name, _: f"%({name})s",
    "number": lambda _, position: f"${position}",
}


class Queries:
    """Named statements, with values written the way one driver wants them."""

    def __init__(self, engine: str, style: str) -> None:
        shared = load_statements(_PACKAGE, "queries.sql")
        own = load_statements(f"{_PACKAGE}.{engine}", "queries.sql")
        self.engine = engine
        self._style = style
        self._templates = {**shared.templates, **own.templates}

    def __iter__(self) -> object:
        return iter(sorted(self._templates))

    def names(self) -> tuple[str, ...]:
        """Every statement there is."""
        return tuple(sorted(self._templates))

    @cache  # noqa: B019 - one instance per database and process
    def text(self, name: str, optional: str = "") -> str:
        """The statement's text, ready for the driver."""
        return self._marked(self._filled(name, optional))[0]

    @cache  # noqa: B019
    def ordered(self, name: str, optional: str = "") -> tuple[str, tuple[str, ...]]:
        """The text and the names of its values in the order of their positions."""
        return self._marked(self._filled(name, optional))

    def _filled(self, name: str, optional: str) -> str:
        text = self._templates[name]
        text = text.replace("{table_columns}", TABLE_COLUMNS).replace("{optional}", optional)
        for part in _PARTS:
            text = text.replace(f"{{{part}}}", self._templates[part])
        return text

    def _marked(self, text: str) -> tuple[str, tuple[str, ...]]:
        order: list[str] = []

        def mark(match: re.Match[str]) -> str:
            name = match.group(1)
            if name not in order:
                order.append(name)
            return _MARKS[self._style](name, order.index(name) + 1)

        if self._style == "format":
            text = text.replace("%", "%%")
        return _PARAMETER.sub(mark, text), tuple(order)


@cache
def load_queries(engine: str, style: str) -> Queries:
    """Read the statements of an engine once."""
    return Queries(engine, style)
