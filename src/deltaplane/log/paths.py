"""Paths of data files: what a path in the log points at, and whether it stays in the table.

The log holds paths as URLs: relative to the table and percent-encoded, or absolute. They are decoded once.
A path that leads out of the table could make a reader show, or a clean-up delete, somebody else's file, so it
is refused unless its place is allowed: a shallow clone points into the table it was made from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from deltaplane.errors import UnsafePath

__all__ = ["check_inside", "is_inside", "is_relative", "resolve", "suspicious"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(.*)", re.DOTALL)
_SAME_STORE = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "gcs": "gs"}
_SUSPICIOUS = r"^[./]*$|^/|^%2[fF]|^[A-Za-z][A-Za-z0-9+.-]*:|\.\.|%2[eE]|%00|\x00"


def resolve(root: str, raw_path: str) -> str:
    """The absolute path or URI that a path of the log points at.

    Args:
        root: The table: an absolute local path, or a URI such as s3://bucket/prefix, not encoded.
        raw_path: The path as the log has it.
    """
    store, place = _absolute(root, raw_path)
    return store + place


def is_inside(root: str, raw_path: str, allowed_roots: Iterable[str] = ()) -> bool:
    """Whether the path names a file below the table, or below one of the allowed roots."""
    store, place = _absolute(root, raw_path)
    # '..' is refused even where it would come back: behind a link it need not lead where it seems to.
    if "\0" in place or ".." in place.split("/"):
        return False
    return any(_is_below(store, place, allowed) for allowed in (root, *allowed_roots))


def is_relative(path: str) -> bool:
    """Whether a path of the log begins at the table's folder."""
    return not path.startswith(("/", "%2f", "%2F")) and ":" not in path.split("/", 1)[0]


def check_inside(root: str, raw_path: str, table: str, allowed_roots: Iterable[str] = ()) -> None:
    """Refuse a path that leaves the table.

    Args:
        root: The table's place.
        raw_path: The path as the log has it.
        table: What to call the table in the error.
        allowed_roots: Further places where its files may be.

    Raises:
        UnsafePath: The path names no file below the table or an allowed root.
    """
    if is_inside(root, raw_path, allowed_roots):
        return
    raise UnsafePath(
        f"{table}: the log names the file {raw_path!r:.300}, which leaves the table's folder: it stands for "
        f"{resolve(root, raw_path)!r:.300}. Nothing was adopted or committed. If its place is meant, as in a "
        "shallow clone, allow the folder that holds it: allow_paths=['…']"
    )


def suspicious(paths: pa.Array | pa.ChunkedArray) -> pa.BooleanArray | pa.ChunkedArray:
    """Mark the paths that must go through `check_inside`; all others are relative and stay in the table.

    Null is marked as well.
    """
    return pc.fill_null(pc.match_substring_regex(paths, _SUSPICIOUS), True)


def _absolute(root: str, raw_path: str) -> tuple[str, str]:
    """The store ('' for local files, or scheme and authority) and the decoded path in it."""
    found = _SCHEME.fullmatch(raw_path)
    if found:
        return _store(found[1], found[2]), _squeezed(unquote(found[3]))
    decoded = unquote(raw_path)
    # Hadoop decodes first and looks for the slash then, so that an encoded one is absolute, too.
    if decoded.startswith("/"):
        return "", _squeezed(decoded)
    store, place = _split_root(root)
    return store, f"{place}/{decoded}"


def _split_root(root: str) -> tuple[str, str]:
    found = _SCHEME.fullmatch(root)
    if found:
        return _store(found[1], found[2]), _squeezed(found[3]).rstrip("/")
    return "", _squeezed(root).rstrip("/")


def _store(scheme: str, authority: str | None) -> str:
    name = scheme.lower()
    if name == "file" and authority in (None, "", "localhost"):
        return ""
    return f"{_SAME_STORE.get(name, name)}:" + (f"//{authority}" if authority is not None else "")


def _squeezed(place: str) -> str:
    """One slash where there are several, as every file system sees them."""
    return re.sub(r"/{2,}", "/", place)


def _is_below(store: str, place: str, allowed: str) -> bool:
    allowed_store, folder = _split_root(allowed)
    if store != allowed_store:
        return False
    rest = place[len(folder) :] if place.startswith(folder + "/") else ""
    return rest.strip("/.") != ""
