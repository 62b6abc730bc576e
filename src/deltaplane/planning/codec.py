"""Values as JSON and back: the form in which plans are saved, and from which fingerprints are taken."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from deltaplane.errors import PlanError
from deltaplane.schema.frozen import FrozenMap

__all__ = ["decode", "digest", "encode"]

_TAG = "__class__"
_MAP = "map"
_FIELDS: dict[type, tuple[str, ...] | None] = {}


def encode(value: Any) -> Any:
    """Turn a value into plain JSON types. Dataclasses carry their class name under `__class__`."""
    if value is None or isinstance(value, str | int | float):
        return value
    names = _field_names(type(value))
    if names is not None:
        return {_TAG: type(value).__name__} | {name: encode(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        items = {key: encode(item) for key, item in sorted(value.items())}
        # A map with a key of that very name would be taken for a value of ours.
        return {_TAG: _MAP, "items": list(items.items())} if _TAG in items else items
    if isinstance(value, frozenset | set):
        return sorted(encode(item) for item in value)
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    return value


def _field_names(cls: type) -> tuple[str, ...] | None:
    if cls not in _FIELDS:
        _FIELDS[cls] = tuple(field.name for field in fields(cls)) if is_dataclass(cls) else None
    return _FIELDS[cls]


def decode(value: Any, classes: Mapping[str, type]) -> Any:
    """Turn plain JSON types back into values.

    Args:
        value: What `encode` returned.
        classes: The classes that may occur, by name.

    Raises:
        PlanError: A class is unknown or its fields do not fit.
    """
    if isinstance(value, list):
        return tuple(decode(item, classes) for item in value)
    if not isinstance(value, dict):
        return value
    if _TAG not in value:
        return FrozenMap(value)
    name = value[_TAG]
    if name == _MAP:
        return FrozenMap(dict(value["items"]))
    if name not in classes:
        raise PlanError(
            f"The saved plan contains {name!r}, which this version does not know. Make the plan again."
        )
    content = {key: decode(item, classes) for key, item in value.items() if key != _TAG}
    try:
        return classes[name](**content)
    except TypeError as error:
        raise PlanError(
            f"The saved plan has a {name} that does not fit ({error}). Make the plan again."
        ) from None


def digest(value: Any) -> str:
    """Return a short, stable fingerprint of a value."""
    text = json.dumps(encode(value), sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
