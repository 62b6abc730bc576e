"""The state of a table from the actions of its log, applied in order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from deltaplane.errors import CorruptLog
from deltaplane.log.actions import (
    Action,
    AddFile,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)

__all__ = ["TableState", "file_key", "path_key"]

_ESCAPE = re.compile(r"%[0-9a-f]{2}", re.IGNORECASE)


def path_key(path: str) -> str:
    """The form of a path that tells whether two of them name the same file, as Delta compares them.

    Delta compares paths as URIs: /x, file:/x and file:///x are one file, and the case of an escape does not
    matter. What is escaped and what is not stays different. A relative path without escapes is its own key.
    """
    if path.startswith("file:"):
        path = path[5:]
        if path.startswith("///"):
            path = path[2:]
    return _ESCAPE.sub(lambda match: match[0].upper(), path) if "%" in path else path


def file_key(action: AddFile | RemoveFile) -> FileKey:
    """What identifies the logical file: the key of its path, the id of its deletion vector ('' for none)."""
    vector = action.deletion_vector
    return path_key(action.path), vector.unique_id if vector else ""


@dataclass(slots=True)
class TableState:
    """A table at one version; it grows while actions are applied.

    Attributes:
        version: The version, -1 before the first.
        protocol: The last one seen.
        metadata: The last one seen.
        files: The active files by `file_key`.
        tombstones: The removed ones by `file_key`, expired or not.
        transactions: The last of each application.
        domains: The last of each domain, without those removed.
        notes: What the reader found and worked around.
    """

    version: int = -1
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    files: dict[FileKey, AddFile] = field(default_factory=dict)
    tombstones: dict[FileKey, RemoveFile] = field(default_factory=dict)
    transactions: dict[str, SetTransaction] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def apply(self, version: int, actions: Iterable[Action]) -> None:
        """Apply the actions of a commit, or of a checkpoint when nothing was applied before.

        The order counts, within a commit too: the last action on a file wins. The protocol forbids a commit
        to add and to remove one logical file; a change of its deletion vector removes one key and adds
        another. After an exception from `actions` the state is half applied and must be thrown away.

        Raises:
            CorruptLog: The version does not follow the last one.
        """
        if self.version >= 0 and version != self.version + 1:
            raise CorruptLog(f"version {version}", f"it cannot be applied after version {self.version}")
        for action in actions:
            self._apply(action)
        self.version = version

    def _apply(self, action: Action) -> None:
        if isinstance(action, AddFile):
            key = file_key(action)
            self.files[key] = action
            self.tombstones.pop(key, None)
        elif isinstance(action, RemoveFile):
            key = file_key(action)
            self.files.pop(key, None)
            self.tombstones[key] = action
        elif isinstance(action, SetTransaction):
            self.transactions[action.app_id] = action
        elif isinstance(action, DomainMetadata):
            if action.removed:
                self.domains.pop(action.domain, None)
            else:
                self.domains[action.domain] = action
        elif isinstance(action, Metadata):
            self.metadata = action
        elif isinstance(action, Protocol):
            self.protocol = action

    def checked(self, source: str) -> tuple[Protocol, Metadata]:
        """The protocol and the metadata, which every table must have.

        Raises:
            CorruptLog: One of them, or both, never appeared in the log.
        """
        if self.protocol is not None and self.metadata is not None:
            return self.protocol, self.metadata
        absent = [name for name in ("protocol", "metaData") if getattr(self, _FIELDS[name]) is None]
        raise CorruptLog(
            source,
            f"the log up to version {self.version} has no {' and no '.join(absent)} action, so the table "
            f"cannot be read. Nothing was changed. Restore the files of the log that held it.",
        )


_FIELDS = {"protocol": "protocol", "metaData": "metadata"}
