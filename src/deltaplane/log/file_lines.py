"""Lines of files as nearly every writer puts them, decoded and checked outside of Python.

A commit may have hundreds of thousands of them. What is not quite usual is left to `jsonlines`, which takes
everything that Delta takes; what is read here is read there to the same action.
"""

from __future__ import annotations

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from deltaplane.log.actions import AddFile, DeletionVector, RemoveFile

__all__ = ["usual_line"]


class _Vector(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: int
    cardinality: int
    offset: int | None = None


class _Add(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    path: str
    size: int
    modification_time: int
    data_change: bool
    partition_values: dict[str, str | None]
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: _Vector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    clustering_provider: str | None = None


class _Remove(Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    path: str
    data_change: bool
    deletion_timestamp: int | None = None
    extended_file_metadata: bool | None = None
    partition_values: dict[str, str | None] | None = None
    size: int | None = None
    stats: str | None = None
    tags: dict[str, str | None] | None = None
    deletion_vector: _Vector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None


class _AddLine(Struct, forbid_unknown_fields=True, gc=False):
    add: _Add


class _RemoveLine(Struct, forbid_unknown_fields=True, gc=False):
    remove: _Remove


_ADD = Decoder(_AddLine)
_REMOVE = Decoder(_RemoveLine)


def usual_line(line: str) -> AddFile | RemoveFile | None:
    """The action of a line that names a file in the usual form; None when the line is of another kind."""
    try:
        if line.startswith('{"add":'):
            return _added(_ADD.decode(line).add)
        if line.startswith('{"remove":'):
            return _removed(_REMOVE.decode(line).remove)
    except (DecodeError, UnicodeError, RecursionError):
        # Whether it is damaged or only unusual is for the exact reader to say.
        return None
    return None


def _added(told: _Add) -> AddFile:
    # By position: names would take twice as long.
    return AddFile(
        told.path,
        told.partition_values,
        told.size,
        told.modification_time,
        told.data_change,
        told.stats,
        told.tags,
        _vector(told.deletion_vector),
        told.base_row_id,
        told.default_row_commit_version,
        told.clustering_provider,
    )


def _removed(told: _Remove) -> RemoveFile:
    return RemoveFile(
        told.path,
        told.deletion_timestamp,
        told.data_change,
        told.extended_file_metadata,
        told.partition_values,
        told.size,
        told.stats,
        told.tags,
        _vector(told.deletion_vector),
        told.base_row_id,
        told.default_row_commit_version,
    )


def _vector(told: _Vector | None) -> DeletionVector | None:
    if told is None:
        return None
    return DeletionVector(
        told.storage_type, told.path_or_inline_dv, told.size_in_bytes, told.cardinality, told.offset
    )
