"""The files of one table, wherever they are: what the ledger asks of a storage, and which one a root needs.

Paths are relative to the table's root, with '/' between their parts and nothing encoded in them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol
from urllib.parse import unquote

from deltaplane.errors import StorageError, UnsafePath

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Storage", "StoredFile", "canonical_root", "checked_path", "open_storage"]

_ALIASES = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "azure": "az",
    "abfs": "abfss",
    "abfss": "abfss",
    "memory": "memory",
}


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file in a listing: its name without the folder, its size and when it was written."""

    name: str
    size: int
    modified_ms: int


class Storage(Protocol):
    """Files of one table root. Every method may be called from several threads at once.

    A failure of the disk or of the connection is a `StorageError`; a missing file is a `FileNotFoundError`.
    """

    @property
    def root(self) -> str:
        """An absolute local path without a scheme, or a URI; without a trailing slash."""
        ...

    def read(self, path: str) -> bytes:
        """The whole content. Raises FileNotFoundError."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file of that name."""
        ...

    def size(self, path: str) -> int | None:
        """The size of a file in bytes; None when there is none."""
        ...

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write durably unless somebody has: True written, False the name is taken. Never partial."""
        ...

    def ahead(self, path: str, data: bytes) -> AbstractContextManager[None]:
        """A block in which the caller finds out whether it may `put_if_absent` just these bytes there.

        Where that makes it faster, they are brought close to the name meanwhile. Nobody sees anything of it.
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write or replace, durably and at once."""
        ...

    def open_sink(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """A file to write: it appears, or replaces the older one, on a clean exit, never on an exception."""
        ...

    def open_input(self, path: str) -> pa.NativeFile:
        """A seekable input, as Parquet needs it. Raises FileNotFoundError."""
        ...

    def list(self, prefix_dir: str, start_after: str | None = None) -> Iterator[StoredFile]:
        """The files directly in a folder, by name; none when there is no such folder."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file; a missing one is fine."""
        ...

    def sweep_temporaries(self, prefix_dir: str, older_than_ms: int) -> tuple[str, ...]:
        """Remove what a killed writer left behind, when it is older than that; gives the names."""
        ...


def open_storage(root: str | os.PathLike[str], options: Mapping[str, str] | None = None) -> Storage:
    """The storage that a root needs.

    Args:
        root: A local path, or a URI with s3, gs, az, abfss or memory as its scheme.
        options: For an object store: endpoint, region, credentials and the like, before the environment's.
            Local files take none.

    Raises:
        StorageError: The scheme is unknown, or the options are.
    """
    canonical = canonical_root(root)
    if "://" not in canonical:
        from deltaplane.ledger.storage_local import LocalStorage

        return LocalStorage(canonical)
    from deltaplane.ledger.storage_object import ObjectStorage

    return ObjectStorage(canonical, options)


def canonical_root(path_or_uri: str | os.PathLike[str]) -> str:
    """One spelling for each table root, so that two names of a table compare as equal.

    Local paths become absolute with symbolic links resolved; s3a and s3n become s3.

    Raises:
        StorageError: The scheme is unknown, or the URI carries a password.
    """
    text = os.fspath(path_or_uri)
    scheme, separator, rest = text.partition(":")
    if scheme.lower() == "file" and separator:
        return _local_root(_file_uri_path(text, rest))
    if "://" not in text:
        return _local_root(text)
    name = _ALIASES.get(scheme.lower())
    if name is None:
        known = ", ".join(f"{scheme}://" for scheme in sorted(set(_ALIASES.values())))
        raise StorageError(
            f"{scheme}:// is not a storage that deltaplane knows; it knows local paths and {known}. "
            f"Nothing was read or written."
        )
    return _object_root(name, rest.removeprefix("//"))


def _local_root(path: str) -> str:
    if not path:
        raise StorageError("A table needs a path, and this one is empty. Nothing was read or written.")
    return os.path.realpath(os.path.expanduser(path))


def _file_uri_path(text: str, rest: str) -> str:
    """The path of file:/x, file:///x or file://localhost/x; escapes belong to the URI, not to the name."""
    if rest.startswith("//"):
        host, slash, tail = rest[2:].partition("/")
        if host not in {"", "localhost"}:
            raise StorageError(
                f"{text} names the host {host!r}; only local files can be read with file:. Use a path."
            )
        rest = slash + tail
    return unquote(rest)


def _object_root(scheme: str, rest: str) -> str:
    bucket, _, prefix = rest.partition("/")
    user, at, _ = bucket.rpartition("@")
    if at and (scheme != "abfss" or ":" in user):
        raise StorageError(
            f"A {scheme}:// root must not carry a user or a password. Give credentials by the environment or "
            f"as options. Nothing was read or written."
        )
    if not bucket:
        raise StorageError(f"{scheme}://{prefix} names no bucket. Write {scheme}://BUCKET/PATH.")
    parts = [part for part in prefix.split("/") if part]
    if ".." in parts or "." in parts:
        raise StorageError(
            f"{scheme}://{bucket}/{prefix} has a '.' or '..' in its path; an object store has no such folder."
        )
    return "/".join([f"{scheme}://{bucket}", *parts])


def checked_path(path: str) -> str:
    """The path itself, when it stays within the root.

    Raises:
        UnsafePath: It is absolute, empty, or climbs out.
    """
    if not path or path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise UnsafePath(
            f"{path!r} is not a path within the table's folder. It was neither read nor written."
        )
    return path
