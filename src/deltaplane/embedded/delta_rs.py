"""Published tables, opened with deltalake."""

from __future__ import annotations

from collections.abc import Mapping

from deltalake import DeltaTable

__all__ = ["open_table"]


def open_table(location: str, version: int | None, storage_options: Mapping[str, str]) -> DeltaTable:
    """Open a table with deltalake."""
    return DeltaTable(location, version=version, storage_options=dict(storage_options) or None)
