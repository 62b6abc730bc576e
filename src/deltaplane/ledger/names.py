"""Names of the files in `_delta_log`."""

from __future__ import annotations

__all__ = ["LOG_FOLDER", "checkpoint_path", "commit_path", "last_checkpoint_path"]

LOG_FOLDER = "_delta_log"


def commit_path(version: int) -> str:
    """Where the commit of a version is published."""
    return f"{LOG_FOLDER}/{version:020d}.json"


def checkpoint_path(version: int, identity: str | None = None) -> str:
    """Where a checkpoint goes: classic, or v2 with an identity."""
    middle = f".{identity}" if identity else ""
    return f"{LOG_FOLDER}/{version:020d}.checkpoint{middle}.parquet"


def last_checkpoint_path() -> str:
    """The hint that tells readers where to begin."""
    return f"{LOG_FOLDER}/_last_checkpoint"
