"""What deltaplane writes into table properties where the engine has no SQL for it.

deltaplane.owner                   who created the table
deltaplane.properties              the properties deltaplane has set, and may unset
deltaplane.key.<name>              a primary, unique or foreign key
deltaplane.tag.<tag>               a tag of the table
deltaplane.columnTags.<column>     the tags of a column
deltaplane.pending.<step>.<what>   a step that an interrupted run has still to do
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from deltaplane.planning.observed import Key, Pending
from deltaplane.schema.frozen import FrozenMap

__all__ = [
    "COLUMN_TAGS",
    "KEY",
    "MANAGED",
    "OWNER",
    "TAG",
    "column_tags_from",
    "key_to_text",
    "keys_from",
    "managed_from",
    "managed_to_text",
    "pending_backfill",
    "pending_from",
    "pending_not_null",
    "pending_rename",
    "tags_from",
]

OWNER = "deltaplane.owner"
MANAGED = "deltaplane.properties"
KEY = "deltaplane.key."
TAG = "deltaplane.tag."
COLUMN_TAGS = "deltaplane.columnTags."
_BACKFILL = "deltaplane.pending.backfill."
_NOT_NULL = "deltaplane.pending.notNull."
_RENAME = "deltaplane.pending.rename."


def pending_backfill(column: str) -> str:
    """Return the property that says a column's default has still to reach existing rows."""
    return _BACKFILL + column.casefold()


def pending_not_null(column: str) -> str:
    """Return the property that says a column's NOT NULL has still to be held."""
    return _NOT_NULL + column.casefold()


def pending_rename(path: str) -> str:
    """Return the property that says a column has only a temporary name."""
    return _RENAME + path


def pending_from(properties: Mapping[str, str]) -> Pending:
    """Read what an interrupted run left undone."""
    return Pending(
        tuple(sorted(key.removeprefix(_BACKFILL) for key in properties if key.startswith(_BACKFILL))),
        tuple(sorted(key.removeprefix(_NOT_NULL) for key in properties if key.startswith(_NOT_NULL))),
        FrozenMap({k.removeprefix(_RENAME): v for k, v in properties.items() if k.startswith(_RENAME)}),
    )


def managed_to_text(keys: tuple[str, ...]) -> str:
    """Write the list of properties deltaplane manages."""
    return json.dumps(sorted(keys))


def managed_from(properties: Mapping[str, str]) -> frozenset[str]:
    """Read the list of properties deltaplane manages."""
    content = _json(properties.get(MANAGED, "[]"), [])
    return frozenset(str(key) for key in content) if isinstance(content, list) else frozenset()


def key_to_text(key: Key) -> str:
    """Write a key."""
    content: dict[str, Any] = {"kind": key.kind, "columns": list(key.columns)}
    if key.references:
        content |= {"references": key.references, "referenced_columns": list(key.referenced_columns)}
    return json.dumps(content, ensure_ascii=False)


def keys_from(properties: Mapping[str, str]) -> tuple[Key, ...]:
    """Read all keys. One that somebody broke by hand is as good as absent."""
    keys = []
    for name, text in sorted(properties.items()):
        content = _json(text, None) if name.startswith(KEY) else None
        if isinstance(content, dict) and isinstance(content.get("columns"), list):
            keys.append(
                Key(
                    str(content.get("kind", "unique")),
                    name.removeprefix(KEY),
                    tuple(content["columns"]),
                    content.get("references"),
                    tuple(content.get("referenced_columns", ())),
                )
            )
    return tuple(keys)


def tags_from(properties: Mapping[str, str]) -> FrozenMap:
    """Read the tags of the table."""
    return FrozenMap({k.removeprefix(TAG): v for k, v in properties.items() if k.startswith(TAG)})


def column_tags_from(properties: Mapping[str, str]) -> dict[str, FrozenMap]:
    """Read the tags of the columns, by case-folded name."""
    found = {}
    for key, text in properties.items():
        content = _json(text, None) if key.startswith(COLUMN_TAGS) else None
        if isinstance(content, dict):
            found[key.removeprefix(COLUMN_TAGS)] = FrozenMap({str(k): str(v) for k, v in content.items()})
    return found


def _json(text: str, otherwise: Any) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return otherwise
