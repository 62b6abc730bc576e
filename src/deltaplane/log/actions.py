"""The actions of Delta's transaction log, as values.

A field is named as in the protocol, in snake case; what the protocol does not name is kept in `extra`, and an
action of an unknown kind is kept whole as `UnknownAction`, so that nothing a newer writer said is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import msgspec

__all__ = [
    "Action",
    "AddCDCFile",
    "AddFile",
    "CheckpointMetadata",
    "CommitInfo",
    "DeletionVector",
    "DomainMetadata",
    "FileKey",
    "Format",
    "Metadata",
    "Protocol",
    "RemoveFile",
    "SetTransaction",
    "SidecarFile",
    "UnknownAction",
]

Long = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A number of the log: none is read that Delta's 64 bits cannot hold."""
Texts = Mapping[str, "str | None"]
FileKey = tuple[str, str]
"""What identifies a logical file: its path as the log has it, and its deletion vector's id ('' for none)."""


class _Told(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, gc=False):
    """What a commit may tell hundreds of thousands of times; such values come from JSON past Python."""


# No key of an object is called so: what the protocol does not name is for the exact reader.
_NO_KEY = "\ue000extra"


class DeletionVector(_Told, frozen=True):
    """Which rows of a file are deleted: 'u' a file of the table, 'p' a file by absolute path, 'i' inline."""

    storage_type: str
    path_or_inline_dv: str
    size_in_bytes: Long
    cardinality: Long
    offset: Long | None = None
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict, name=_NO_KEY)

    @property
    def unique_id(self) -> str:
        """The id that tells two vectors of one file apart, as the protocol derives it."""
        base = self.storage_type + self.path_or_inline_dv
        return base if self.offset is None else f"{base}@{self.offset}"


@dataclass(frozen=True, slots=True)
class Format:
    """How the data files are encoded."""

    provider: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


class AddFile(_Told, frozen=True):
    """A file becomes part of the table."""

    kind: ClassVar[str] = "add"
    path: str
    partition_values: Texts = msgspec.field(default_factory=dict)
    size: Long = 0
    modification_time: Long = 0
    data_change: bool = True
    stats: str | None = None
    tags: Texts | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None
    clustering_provider: str | None = None
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict, name=_NO_KEY)

    @property
    def key(self) -> FileKey:
        """What identifies this logical file."""
        return self.path, self.deletion_vector.unique_id if self.deletion_vector else ""


class RemoveFile(_Told, frozen=True):
    """A file stops being part of the table; the action is its tombstone."""

    kind: ClassVar[str] = "remove"
    path: str
    deletion_timestamp: Long | None = None
    data_change: bool = True
    extended_file_metadata: bool | None = None
    partition_values: Texts | None = None
    size: Long | None = None
    stats: str | None = None
    tags: Texts | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: Long | None = None
    default_row_commit_version: Long | None = None
    extra: Mapping[str, Any] = msgspec.field(default_factory=dict, name=_NO_KEY)

    @property
    def key(self) -> FileKey:
        """What identifies the logical file that goes."""
        return self.path, self.deletion_vector.unique_id if self.deletion_vector else ""


@dataclass(frozen=True, slots=True)
class AddCDCFile:
    """A file of the change data feed; no part of the table's state."""

    kind: ClassVar[str] = "cdc"
    path: str
    partition_values: Texts = field(default_factory=dict)
    size: Long = 0
    data_change: bool = False
    tags: Texts | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Metadata:
    """Schema, partitioning and properties of the table.

    Attributes:
        schema_string: The schema as JSON; '' where the log has none, which Delta takes for no columns.
    """

    kind: ClassVar[str] = "metaData"
    id: str
    schema_string: str = ""
    name: str | None = None
    description: str | None = None
    format: Format = field(default_factory=Format)
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    created_time: Long | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Protocol:
    """What a reader and a writer must be able to do."""

    kind: ClassVar[str] = "protocol"
    min_reader_version: Long
    min_writer_version: Long
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SetTransaction:
    """The progress of an application that writes the table."""

    kind: ClassVar[str] = "txn"
    app_id: str
    version: Long
    last_updated: Long | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """What the writer says about the commit. Free-form, so it stays a mapping."""

    kind: ClassVar[str] = "commitInfo"
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DomainMetadata:
    """Configuration of one domain, such as clustering or row tracking."""

    kind: ClassVar[str] = "domainMetadata"
    domain: str
    configuration: str
    removed: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckpointMetadata:
    """The heading of a v2 checkpoint."""

    kind: ClassVar[str] = "checkpointMetadata"
    version: Long
    tags: Texts | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SidecarFile:
    """A file under _sidecars that holds the file actions of a v2 checkpoint."""

    kind: ClassVar[str] = "sidecar"
    path: str
    size_in_bytes: Long
    modification_time: Long
    tags: Texts | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UnknownAction:
    """An action of a kind that the protocol did not have when this was written."""

    name: str
    content: Any

    @property
    def kind(self) -> str:
        """The action's key in the log."""
        return self.name


Action = (
    AddFile
    | RemoveFile
    | AddCDCFile
    | Metadata
    | Protocol
    | SetTransaction
    | CommitInfo
    | DomainMetadata
    | CheckpointMetadata
    | SidecarFile
    | UnknownAction
)
