"""A mapping that cannot change, so that declarations are values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from deltaplane.errors import DeclarationError
from deltaplane.schema.types import require_text

__all__ = ["FrozenMap", "text_map"]


class FrozenMap(Mapping[str, str]):
    """An immutable, hashable, ordered-by-key mapping of texts."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, str] | None = None) -> None:
        self._items = dict(sorted((items or {}).items()))

    def __getitem__(self, key: str) -> str:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        # Compared very often when nothing has changed, so the common case goes straight to the dicts.
        return self._items == (other._items if isinstance(other, FrozenMap) else other)

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __repr__(self) -> str:
        return repr(self._items)


def text_map(what: str, items: Mapping[str, Any] | None) -> FrozenMap:
    """Make a frozen map of texts, or say what is not text."""
    if items is None:
        return FrozenMap()
    if not isinstance(items, Mapping):
        raise DeclarationError(f"{what}: {items!r} is not a mapping. Write it as {{'key': 'value'}}.")
    for key, value in items.items():
        require_text(f"{what}, key", key)
        if value is None:
            raise DeclarationError(f"{what}: {key} has no value. Give one, or leave it out.")
        require_text(f"{what}, {key}", value)
    return FrozenMap(items)
