"""Table files in an object store: S3, Google Cloud Storage, Azure, and one in memory for tests.

An object appears whole or not at all, so no temporary names are needed; "only if absent" is a condition of
the write itself.
"""

from __future__ import annotations

import errno
import io
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    NotFoundError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import MemoryStore, from_url

from deltaplane.errors import StorageError
from deltaplane.ledger.storage import StoredFile, checked_path

if TYPE_CHECKING:
    import pyarrow as pa
    from obstore import ObjectMeta
    from obstore.store import ObjectStore

__all__ = ["ObjectStorage"]

_Result = TypeVar("_Result")

# Settings of the connection; the library wants them apart from those of the store.
_CLIENT_OPTIONS = frozenset(
    (
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "read_timeout",
        "root_certificate",
        "timeout",
        "user_agent",
    )
)
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
_ATTEMPTS = 5
_FIRST_PAUSE = 0.1
_IN_MEMORY = 64 * 1024 * 1024
_READ_AHEAD = 1024 * 1024
_UNHARMED = "Nothing was written."
_MAYBE = "It is not known whether the file was written; reading it tells."

_memory_stores: dict[str, MemoryStore] = {}
_memory_lock = threading.Lock()


class ObjectStorage:
    """Storage below a prefix of a bucket."""

    def __init__(self, root: str, options: Mapping[str, str] | None = None) -> None:
        scheme, _, rest = root.partition("://")
        bucket, _, self._prefix = rest.partition("/")
        self._root = root
        self._store = _open(f"{scheme}://{bucket}", options or {}, retries=5)
        # A library that repeats a conditional write by itself may meet its own first attempt there.
        self._create_store = _open(f"{scheme}://{bucket}", options or {}, retries=0)

    def __repr__(self) -> str:
        return f"ObjectStorage({self._root!r})"

    @property
    def root(self) -> str:
        return self._root

    def read(self, path: str) -> bytes:
        key = self._key(path)
        return self._call("read", path, lambda: obstore.get(self._store, key).bytes().to_bytes())

    def exists(self, path: str) -> bool:
        key = self._key(path)
        try:
            self._call("look for", path, lambda: obstore.head(self._store, key))
        except FileNotFoundError:
            return False
        return True

    def size(self, path: str) -> int | None:
        key = self._key(path)
        try:
            found = self._call("look for", path, lambda: obstore.head(self._store, key))
        except FileNotFoundError:
            return None
        return int(found["size"])

    def put_if_absent(self, path: str, data: bytes) -> bool:
        doubtful = False
        for attempt in range(_ATTEMPTS):
            try:
                obstore.put(self._create_store, self._key(path), data, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return doubtful and self.read(path) == data
            except GenericError as error:
                # The answer was lost, or somebody writes at this moment: the next attempt tells.
                doubtful = True
                if attempt == _ATTEMPTS - 1:
                    raise self._failure("write", path, error, _MAYBE) from None
                time.sleep(_FIRST_PAUSE * 2**attempt)
            except (OSError, ValueError, BaseError) as error:
                raise self._failure("write", path, error, _UNHARMED) from None
            else:
                return True
        raise AssertionError("the last attempt returns or raises")

    def ahead(self, path: str, data: bytes) -> AbstractContextManager[None]:
        return nullcontext()

    def put(self, path: str, data: bytes) -> None:
        key = self._key(path)
        self._write(path, lambda: obstore.put(self._store, key, data))

    @contextmanager
    def open_sink(self, path: str) -> Iterator[IO[bytes]]:
        key = self._key(path)
        # The upload starts only on a clean exit, so an exception cannot leave parts of one behind.
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
            try:
                yield cast("IO[bytes]", file)
            except OSError as error:
                if error.errno not in _DISK or error.filename:
                    raise
                raise self._failure("write", path, error, _UNHARMED) from error
            file.seek(0)
            self._write(path, lambda: obstore.put(self._store, key, cast("IO[bytes]", file)))

    def open_input(self, path: str) -> pa.NativeFile:
        import pyarrow as pa

        key = self._key(path)
        size = self._call("read", path, lambda: obstore.head(self._store, key))["size"]
        reader = _RangeReader(lambda start, end: self._range(path, start, end), size)
        return pa.PythonFile(io.BufferedReader(reader, _READ_AHEAD), mode="r")

    def list(self, prefix_dir: str, start_after: str | None = None) -> Iterator[StoredFile]:
        folder = self._key(prefix_dir) if prefix_dir else self._prefix
        start = f"{folder}/" if folder else ""
        items = self._call("list", prefix_dir, lambda: _objects(self._store, folder, start, start_after))
        found = [
            StoredFile(name, item["size"], round(item["last_modified"].timestamp() * 1000))
            for item in items
            if "/" not in (name := item["path"].removeprefix(start)) and name > (start_after or "")
        ]
        yield from sorted(found, key=lambda file: file.name)

    def delete(self, path: str) -> None:
        key = self._key(path)
        try:
            self._call("delete", path, lambda: obstore.delete(self._store, key), "It may still be there.")
        except FileNotFoundError:
            return

    def sweep_temporaries(self, prefix_dir: str, older_than_ms: int) -> tuple[str, ...]:
        """Nothing to remove: an object store has no temporary names."""
        return ()

    def _key(self, path: str) -> str:
        return f"{self._prefix}/{checked_path(path)}" if self._prefix else checked_path(path)

    def _range(self, path: str, start: int, end: int) -> bytes:
        key = self._key(path)
        return self._call(
            "read", path, lambda: obstore.get_range(self._store, key, start=start, end=end).to_bytes()
        )

    def _write(self, path: str, action: Callable[[], Any]) -> None:
        try:
            self._call("write", path, action, _MAYBE)
        except FileNotFoundError as error:
            raise self._failure("write", path, error, _UNHARMED) from None

    def _call(
        self, verb: str, path: str, action: Callable[[], _Result], unharmed: str = _UNHARMED
    ) -> _Result:
        """Run one request; what the library raises becomes one of our errors, without the library's text."""
        try:
            return action()
        except (FileNotFoundError, NotFoundError) as error:
            if "NoSuchBucket" in str(error):
                raise self._failure(verb, path, error, unharmed) from None
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._shown(path)) from None
        except (OSError, ValueError, BaseError) as error:
            raise self._failure(verb, path, error, unharmed) from None

    def _shown(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _failure(self, verb: str, path: str, error: Exception, unharmed: str) -> StorageError:
        cause, advice = _explain(error)
        return StorageError(f"Could not {verb} {self._shown(path)}: {cause}. {unharmed} {advice}")


class _RangeReader(io.RawIOBase):
    """A seekable input over requests for ranges."""

    def __init__(self, fetch: Callable[[int, int], bytes], size: int) -> None:
        super().__init__()
        self._fetch = fetch
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        end = min(self._position + len(buffer), self._size)
        if end <= self._position:
            return 0
        data = self._fetch(self._position, end)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


def _objects(store: ObjectStore, folder: str, start: str, start_after: str | None) -> list[ObjectMeta]:
    if start_after is None:
        return list(obstore.list_with_delimiter(store, folder or None)["objects"])
    stream = obstore.list(store, folder or None, offset=start + start_after)
    return [item for chunk in stream for item in chunk]


def _open(url: str, options: Mapping[str, str], retries: int) -> ObjectStore:
    if url.startswith("memory://"):
        # A store in memory lives as long as the process, so that a second opening finds what the first wrote.
        with _memory_lock:
            return _memory_stores.setdefault(url, MemoryStore())
    names = {name: name.lower().removeprefix("aws_") for name in options}
    client = {names[name]: value for name, value in options.items() if names[name] in _CLIENT_OPTIONS}
    config = {name: value for name, value in options.items() if names[name] not in _CLIENT_OPTIONS}
    retry = {"max_retries": retries, "retry_timeout": timedelta(seconds=30)}
    try:
        return from_url(url, config=config, client_options=client, retry_config=retry)  # type: ignore[call-overload,no-any-return]
    except UnknownConfigurationKeyError:
        raise StorageError(
            f"{url}: one of the options {', '.join(sorted(config))} is not known to this kind of store. "
            f"Nothing was read or written. Use the names of the store, such as endpoint or region."
        ) from None
    except (OSError, ValueError, BaseError) as error:
        cause, advice = _explain(error)
        raise StorageError(f"Could not open {url}: {cause}. {_UNHARMED} {advice}") from None


def _explain(error: Exception) -> tuple[str, str]:
    """Cause and remedy in our own words: the library's text may carry signed addresses and key ids."""
    text = str(error)
    if isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError):
        return f"access was refused{_status(text)}", "Check the credentials and what they allow, then repeat."
    if "NoSuchBucket" in text:
        return "there is no such bucket", "Check the name, or create the bucket."
    if isinstance(error, NotSupportedError | NotImplementedError):
        return "the store cannot do this", "Use a store with conditional writes."
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno), "Make room for temporary files on the local disk, then repeat."
    if isinstance(error, ValueError) or "parse path" in text:
        return "the name or a setting is not allowed there", "Check the path and the options."
    if _status(text):
        return (
            f"the store answered with an error{_status(text)}",
            "Repeat later, or look at the store's own log.",
        )
    if "timed out" in text:
        return "the store did not answer in time", "Check the network and the endpoint, then repeat."
    return (
        "the store could not be reached",
        "Check the network, the endpoint and the credentials, then repeat.",
    )


def _status(text: str) -> str:
    status = re.search(r"status code: (\d{3})", text)
    code = re.search(r"<Code>(\w+)</Code>", text)
    parts = [match[1] for match in (status, code) if match]
    return f" ({' '.join(parts)})" if parts else ""
