"""Deletion vectors: where one is kept, and which rows it marks.

A vector is a set of row numbers as a 64-bit Roaring bitmap behind a magic number. It stands in the log itself
as Z85 text, or in a file that holds one or more vectors, each with its size and a checksum.
"""

from __future__ import annotations

import re
import struct
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from deltaplane.errors import CorruptLog
from deltaplane.log.actions import DeletionVector

__all__ = [
    "decode_inline",
    "deleted_rows",
    "encode_z85",
    "file_path",
    "parse_bitmap",
    "read_vector",
    "vector_payload",
]

_ALPHABET = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_DIGITS = {character: digit for digit, character in enumerate(_ALPHABET.decode("ascii"))}
_UUID_LENGTH = 20
_PREFIX = re.compile(r"[A-Za-z0-9_-]*")
_FILE_VERSION = 1
_PORTABLE_MAGIC = 1681511377
_NATIVE_MAGIC = 1681511376
_NO_RUNS = 12346
_WITH_RUNS = 12347
_ARRAY_LIMIT = 4096
_OFFSETS_FROM = 4
_WORDS_SIZE = 8192


def _decode_z85(text: str) -> bytes:
    if len(text) % 5:
        raise CorruptLog(
            "deletion vector", f"base85 text must have a multiple of 5 characters, not {len(text)}"
        )
    out = bytearray()
    for start in range(0, len(text), 5):
        value = 0
        for character in text[start : start + 5]:
            digit = _DIGITS.get(character)
            if digit is None:
                raise CorruptLog("deletion vector", f"{character!r} is no character of base85")
            value = value * 85 + digit
        if value > 0xFFFFFFFF:
            raise CorruptLog("deletion vector", f"{text[start : start + 5]!r} is no group of base85")
        out += value.to_bytes(4, "big")
    return bytes(out)


def encode_z85(content: bytes) -> str:
    """Write bytes as the protocol's base85; the end is filled up with zeros to a multiple of 4."""
    padded = content + b"\0" * (-len(content) % 4)
    out = bytearray()
    for (value,) in struct.iter_unpack(">I", padded):
        out += bytes(_ALPHABET[value // 85**power % 85] for power in (4, 3, 2, 1, 0))
    return out.decode("ascii")


def file_path(vector: DeletionVector) -> str | None:
    """Where the vector's file is: relative to the table, absolute as in the log, or None for an inline one.

    A relative path is plain, not URL-encoded; an absolute one has the form of a data file's path in the log.

    Raises:
        CorruptLog: The descriptor is of an unknown kind or its id cannot be decoded.
    """
    text = vector.path_or_inline_dv
    if vector.storage_type == "i":
        return None
    if vector.storage_type == "p":
        return text
    if vector.storage_type != "u":
        raise CorruptLog("deletion vector", f"unknown storage type {vector.storage_type!r}")
    if len(text) < _UUID_LENGTH:
        raise CorruptLog("deletion vector", f"{text!r} is too short to hold an id")
    prefix, encoded = text[:-_UUID_LENGTH], text[-_UUID_LENGTH:]
    if not _PREFIX.fullmatch(prefix):
        raise CorruptLog("deletion vector", f"{prefix!r:.60} is no prefix of a folder of deletion vectors")
    name = f"deletion_vector_{uuid.UUID(bytes=_decode_z85(encoded))}.bin"
    return f"{prefix}/{name}" if prefix else name


def decode_inline(vector: DeletionVector) -> bytes:
    """The bitmap that an inline vector carries.

    Raises:
        CorruptLog: The vector is not inline, is not base85, or is shorter than it says.
    """
    if vector.storage_type != "i":
        raise CorruptLog("deletion vector", f"storage type {vector.storage_type!r} is not inline")
    content = _decode_z85(vector.path_or_inline_dv)
    if not 0 <= len(content) - vector.size_in_bytes < 4:
        raise CorruptLog("deletion vector", f"holds {len(content)} bytes and says {vector.size_in_bytes}")
    return content[: vector.size_in_bytes]


def read_vector(content: bytes, offset: int | None, size: int, source: str = "deletion vector file") -> bytes:
    """The bitmap at a place of a deletion vector file, checked against its size and checksum.

    Args:
        content: The whole file.
        offset: Where the vector starts, from the descriptor; absent means at the start of the file.
        size: How long the bitmap is, from the descriptor.
        source: What to call the file in an error.

    Raises:
        CorruptLog: The file is of another version, too short, or does not match.
    """
    if not content or content[0] != _FILE_VERSION:
        version = content[0] if content else "missing"
        raise CorruptLog(source, f"the format version is {version}, and must be {_FILE_VERSION}")
    start = offset or 0
    if start < 0 or size < 0 or len(content) < start + 4 + size + 4:
        raise CorruptLog(source, f"{len(content)} bytes are too few for {size} bytes of bitmap at {start}")
    written = int.from_bytes(content[start : start + 4], "big")
    if written != size:
        raise CorruptLog(source, f"the bitmap at {start} has {written} bytes, and the log says {size}")
    bitmap = content[start + 4 : start + 4 + size]
    checksum = int.from_bytes(content[start + 4 + size : start + 8 + size], "big")
    if zlib.crc32(bitmap) != checksum:
        raise CorruptLog(source, f"the checksum of the bitmap at {start} does not match")
    return bitmap


def vector_payload(vector: DeletionVector, content: bytes | None = None) -> bytes:
    """The bitmap of a vector, inline or out of its file, its cardinality checked against the log.

    Args:
        vector: The descriptor.
        content: The bytes of its file, unless it is inline.

    Raises:
        CorruptLog: It cannot be read, or marks another number of rows than the log says.
    """
    if vector.storage_type == "i" or content is None:
        payload = decode_inline(vector)
    else:
        payload = read_vector(content, vector.offset, vector.size_in_bytes, file_path(vector) or "")
    if (found := parse_bitmap(payload)) != vector.cardinality:
        raise CorruptLog(vector.unique_id, f"marks {found} rows, and the log says {vector.cardinality}")
    return payload


def parse_bitmap(payload: bytes) -> int:
    """How many rows a bitmap marks, without listing them: a vector may mark billions.

    Raises:
        CorruptLog: The bytes are not a bitmap in one of Delta's two forms.
    """
    return sum(container.count for container in _containers(_Cursor(payload)))


def deleted_rows(payload: bytes) -> list[int]:
    """The row numbers a bitmap marks, ascending.

    Raises:
        CorruptLog: The bytes are not a bitmap in one of Delta's two forms.
    """
    return [row for container in _containers(_Cursor(payload)) for row in container.rows()]


class _Cursor:
    """Little-endian numbers out of bytes, with a clear error where they end."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if end > len(self._content):
            raise CorruptLog("deletion vector", f"the bitmap ends at byte {len(self._content)}, before {end}")
        self._position, piece = end, self._content[self._position : end]
        return piece

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def shorts(self, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}H", self.take(2 * count))


@dataclass(frozen=True, slots=True)
class _Container:
    """The rows that share all but their lowest 16 bits: a list, runs of (first, length - 1), or bits."""

    base: int
    kind: str
    count: int
    shorts: tuple[int, ...] = ()
    bits: int = 0

    def rows(self) -> Iterator[int]:
        if self.kind == "array":
            yield from (self.base + low for low in self.shorts)
        elif self.kind == "runs":
            for first, more in zip(self.shorts[::2], self.shorts[1::2], strict=True):
                yield from range(self.base + first, self.base + first + more + 1)
        else:
            yield from (self.base + low for low in range(1 << 16) if self.bits >> low & 1)


def _containers(cursor: _Cursor) -> Iterator[_Container]:
    magic = cursor.number(4)
    if magic not in (_PORTABLE_MAGIC, _NATIVE_MAGIC):
        raise CorruptLog("deletion vector", f"unknown magic number {magic}")
    portable = magic == _PORTABLE_MAGIC
    last = -1
    for index in range(cursor.number(8 if portable else 4)):
        # In Delta's own form four bytes of length stand where the portable one has the key.
        word = cursor.number(4)
        key = word if portable else index
        if not last < key < 1 << 31:
            raise CorruptLog("deletion vector", f"the part with key {key} is out of order")
        last = key
        yield from _containers_of_part(cursor, key << 32)


def _containers_of_part(cursor: _Cursor, base: int) -> Iterator[_Container]:
    cookie = cursor.number(4)
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        runs = cursor.take((count + 7) // 8)
    elif cookie == _NO_RUNS:
        count, runs = cursor.number(4), b""
    else:
        raise CorruptLog("deletion vector", f"unknown form of bitmap {cookie}")
    if count > 1 << 16:
        raise CorruptLog("deletion vector", f"a bitmap cannot have {count} containers")
    header = cursor.shorts(2 * count)
    if not runs or count >= _OFFSETS_FROM:
        cursor.take(4 * count)
    for index in range(count):
        key, size = header[2 * index], header[2 * index + 1] + 1
        is_run = bool(runs) and bool(runs[index // 8] >> index % 8 & 1)
        yield _container(cursor, base + (key << 16), size, is_run=is_run)


def _container(cursor: _Cursor, base: int, size: int, *, is_run: bool) -> _Container:
    if is_run:
        pairs = cursor.shorts(2 * cursor.number(2))
        found = _Container(base, "runs", sum(pairs[1::2]) + len(pairs) // 2, pairs)
    elif size <= _ARRAY_LIMIT:
        found = _Container(base, "array", size, cursor.shorts(size))
    else:
        bits = int.from_bytes(cursor.take(_WORDS_SIZE), "little")
        found = _Container(base, "bits", bits.bit_count(), bits=bits)
    if found.count != size:
        raise CorruptLog("deletion vector", f"a container of {size} rows marks {found.count}")
    return found
