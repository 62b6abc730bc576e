"""Table files on a local or mounted file system, written so that a power failure loses none acknowledged.

A file is written under a temporary name in its own folder, forced to the disk, then given its name in one
step, and the folder is forced to the disk too. Readers see all of it or nothing.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from deltaplane.errors import StorageError
from deltaplane.ledger.storage import StoredFile, checked_path

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LocalStorage"]

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")
_NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}
_ADVICE = {
    errno.ENOSPC: "Free some space on that disk, then repeat.",
    errno.EDQUOT: "Free some space within the quota, then repeat.",
    errno.EFBIG: "Raise the limit on the size of files (ulimit -f), then repeat.",
    errno.EACCES: "Give this user access to the folder, then repeat.",
    errno.EPERM: "Give this user access to the folder, then repeat.",
    errno.EROFS: "Mount the file system for writing, then repeat.",
    errno.EIO: "Check the disk (dmesg), then repeat.",
    errno.ENOTDIR: "A file is in the place of a folder: move it away, then repeat.",
    errno.EISDIR: "A folder is in the place of the file: move it away, then repeat.",
    errno.EMFILE: "Raise the limit on open files (ulimit -n), then repeat.",
    errno.ENAMETOOLONG: "Use a shorter path.",
}
_UNHARMED = "Nothing was written."


class LocalStorage:
    """Storage in a folder."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._ahead: dict[int, Future[str]] = {}

    def __repr__(self) -> str:
        return f"LocalStorage({self._root!r})"

    @property
    def root(self) -> str:
        return self._root

    def read(self, path: str) -> bytes:
        full = self._full(path)
        with _failures("read", full), open(full, "rb") as file:
            return file.read()

    def exists(self, path: str) -> bool:
        full = self._full(path)
        with _failures("look for", full):
            try:
                return not stat.S_ISDIR(os.stat(full).st_mode)
            except (FileNotFoundError, NotADirectoryError):
                return False

    def size(self, path: str) -> int | None:
        full = self._full(path)
        with _failures("look for", full):
            try:
                return os.stat(full).st_size
            except (FileNotFoundError, NotADirectoryError):
                return None

    def put_if_absent(self, path: str, data: bytes) -> bool:
        full = self._full(path)
        folder = os.path.dirname(full)
        if self.exists(path):
            # The winner may not have forced the folder to the disk yet, and our caller will rely on the name.
            _settle(folder, full)
            return False
        temporary = self._written_ahead(data) or _written(full, data)
        try:
            with _failures("write", full):
                created = _link(temporary, full, data)
        finally:
            _discard(temporary)
        _settle(folder, full)
        return created

    @contextmanager
    def ahead(self, path: str, data: bytes) -> Iterator[None]:
        full = self._full(path)
        with ThreadPoolExecutor(1, "deltaplane-file") as pool:
            # A folder that is not there is for the one who may write to make.
            if os.path.isdir(os.path.dirname(full)):
                # There may be no thread to be had.
                with suppress(RuntimeError):
                    self._ahead[id(data)] = pool.submit(_written, full, data)
            try:
                yield
            finally:
                unused = self._written_ahead(data)
                if unused:
                    _discard(unused)

    def _written_ahead(self, data: bytes) -> str | None:
        """The temporary file that holds just these bytes, if there is one; it is the caller's then."""
        under_way = self._ahead.pop(id(data), None)
        # What went wrong goes wrong again for the one who has to write, and is told there.
        return under_way.result() if under_way and under_way.exception() is None else None

    def put(self, path: str, data: bytes) -> None:
        full = self._full(path)
        _replace(_written(full, data), full)

    @contextmanager
    def open_sink(self, path: str) -> Iterator[IO[bytes]]:
        full = self._full(path)
        temporary = _temporary_name(full)
        with _failures("write", full):
            descriptor = _create(temporary)
        try:
            with _failures("write", full, foreign=True), os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            _discard(temporary)
            raise
        _replace(temporary, full)

    def open_input(self, path: str) -> pa.NativeFile:
        import pyarrow as pa

        full = self._full(path)
        with _failures("read", full):
            # A mapped file would kill the process when somebody truncates it; reading gives an error.
            return pa.OSFile(full)

    def list(self, prefix_dir: str, start_after: str | None = None) -> Iterator[StoredFile]:
        folder = self._folder(prefix_dir)
        for name in _names(folder):
            if (start_after is None or name > start_after) and not _TEMPORARY.fullmatch(name):
                found = _look(f"{folder}/{name}")
                if found is not None and not stat.S_ISDIR(found.st_mode):
                    yield StoredFile(name, found.st_size, found.st_mtime_ns // 1_000_000)

    def delete(self, path: str) -> None:
        full = self._full(path)
        with _failures("delete", full, unharmed="It is still there."), suppress(FileNotFoundError):
            os.unlink(full)

    def sweep_temporaries(self, prefix_dir: str, older_than_ms: int) -> tuple[str, ...]:
        folder = self._folder(prefix_dir)
        limit = time.time_ns() - older_than_ms * 1_000_000
        swept = []
        for name in _names(folder):
            if _TEMPORARY.fullmatch(name):
                found = _look(f"{folder}/{name}")
                if found is not None and found.st_mtime_ns <= limit:
                    self.delete(f"{prefix_dir}/{name}" if prefix_dir else name)
                    swept.append(name)
        return tuple(swept)

    def _full(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{checked_path(path)}"

    def _folder(self, prefix_dir: str) -> str:
        return self._full(prefix_dir) if prefix_dir else self._root


def _names(folder: str) -> list[str]:
    with _failures("list", folder):
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []


def _temporary_name(full: str) -> str:
    folder, name = os.path.split(full)
    # A name may take 255 bytes; the temporary one needs 38 of them.
    short = name.encode("utf-8", "surrogateescape")[:200].decode("utf-8", "ignore")
    return f"{folder}/.{short}.{uuid.uuid4().hex}.tmp"


def _create(temporary: str) -> int:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    try:
        return os.open(temporary, flags, 0o666)
    except FileNotFoundError:
        _make_folders(os.path.dirname(temporary))
        return os.open(temporary, flags, 0o666)


def _make_folders(folder: str) -> None:
    """Create a folder and those above it, each of them durable before the next."""
    parent = os.path.dirname(folder)
    if not os.path.isdir(parent):
        _make_folders(parent)
    with suppress(FileExistsError):
        os.mkdir(folder)
    _sync_folder(parent)


def _written(full: str, data: bytes) -> str:
    """A temporary file beside the final name, its content on the disk."""
    temporary = _temporary_name(full)
    try:
        with _failures("write", full):
            _fill(_create(temporary), data)
    except BaseException:
        _discard(temporary)
        raise
    return temporary


def _fill(descriptor: int, data: bytes) -> None:
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _link(temporary: str, full: str, data: bytes) -> bool:
    try:
        os.link(temporary, full)
    except FileExistsError:
        if os.path.isdir(full):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), full) from None
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        return _create_in_place(full, data)
    return True


def _create_in_place(full: str, data: bytes) -> bool:
    """For file systems without hard links: a reader may find the file while it grows."""
    try:
        descriptor = os.open(full, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        return False
    try:
        _fill(descriptor, data)
    except BaseException:
        _discard(full)
        raise
    return True


def _replace(temporary: str, full: str) -> None:
    try:
        with _failures("write", full):
            os.replace(temporary, full)
    except BaseException:
        _discard(temporary)
        raise
    _settle(os.path.dirname(full), full)


def _discard(temporary: str) -> None:
    # What cannot be removed is left for the sweep; the failure that led here matters more.
    with suppress(OSError):
        os.unlink(temporary)


def _settle(folder: str, full: str) -> None:
    unharmed = "The file is there, but may be lost in a power failure; reading it tells whether it is whole."
    with _failures("force to the disk the folder of", full, unharmed=unharmed):
        _sync_folder(folder)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems cannot force a folder and need not: they do it with every change.
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        os.close(descriptor)


def _look(full: str) -> os.stat_result | None:
    """The state of a file that may vanish between the listing and this call."""
    with _failures("look at", full):
        try:
            return os.stat(full)
        except FileNotFoundError:
            return None


@contextmanager
def _failures(verb: str, full: str, unharmed: str = _UNHARMED, foreign: bool = False) -> Iterator[None]:
    """Turn what the system says into an error that names file, cause and remedy.

    Args:
        verb: What was tried.
        full: With which file.
        unharmed: What state it leaves behind.
        foreign: The block runs other people's code, whose failures with other files must pass unchanged.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, FileNotFoundError) and verb == "read":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), full) from None
        if foreign and (error.errno not in _ADVICE or error.filename not in {None, full}):
            raise
        code = error.errno or 0
        cause = os.strerror(code) if code else str(error)
        advice = _ADVICE.get(code, "Check the folder and the file system, then repeat.")
        raise StorageError(f"Could not {verb} {full}: {cause}. {unharmed} {advice}") from error
