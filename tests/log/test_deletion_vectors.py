from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from deltaplane.errors import CorruptLog
from deltaplane.log.actions import AddFile, DeletionVector, RemoveFile
from deltaplane.log.deletion_vectors import (
    decode_inline,
    deleted_rows,
    encode_z85,
    file_path,
    parse_bitmap,
    read_vector,
    vector_payload,
)
from deltaplane.log.jsonlines import action_from_dict, parse_commit
from golden import golden_tables, needs_golden

NO_RUNS, WITH_RUNS = 12346, 12347
INLINE = DeletionVector("i", "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 44, 6)
ON_DISK = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, 4)


def part(rows: set[int]) -> bytes:
    """A 32-bit Roaring bitmap without runs, written by the book."""
    highs = sorted({row >> 16 for row in rows})
    header, body = b"", b""
    for high in highs:
        lows = sorted(row & 0xFFFF for row in rows if row >> 16 == high)
        header += struct.pack("<HH", high, len(lows) - 1)
        if len(lows) > 4096:
            body += sum(1 << low for low in lows).to_bytes(8192, "little")
        else:
            body += struct.pack(f"<{len(lows)}H", *lows)
    return struct.pack("<II", NO_RUNS, len(highs)) + header + b"\0" * 4 * len(highs) + body


def bitmap(rows: set[int]) -> bytes:
    """The portable form: parts by key."""
    keys = sorted({row >> 32 for row in rows})
    parts = b"".join(
        struct.pack("<I", key) + part({row & 0xFFFFFFFF for row in rows if row >> 32 == key}) for key in keys
    )
    return struct.pack("<IQ", 1681511377, len(keys)) + parts


def native(parts: list[set[int]]) -> bytes:
    """Delta's own form: parts by position, each with its length."""
    pieces = [part(rows) for rows in parts]
    return struct.pack("<II", 1681511376, len(pieces)) + b"".join(
        struct.pack("<I", len(p)) + p for p in pieces
    )


def runs(pairs: list[tuple[int, int]], containers: int = 1) -> bytes:
    size = sum(length for _, length in pairs)
    body = struct.pack("<H", len(pairs)) + b"".join(
        struct.pack("<HH", first, length - 1) for first, length in pairs
    )
    flags = bytes([0xFF] * ((containers + 7) // 8))
    header = b"".join(struct.pack("<HH", high, size - 1) for high in range(containers))
    offsets = b"\0" * 4 * containers if containers >= 4 else b""
    cookie = struct.pack("<I", WITH_RUNS | (containers - 1) << 16)
    return struct.pack("<IQI", 1681511377, 1, 0) + cookie + flags + header + offsets + body * containers


def stored(payload: bytes, checksum: int | None = None) -> bytes:
    crc = zlib.crc32(payload) if checksum is None else checksum
    return b"\1" + struct.pack(">I", len(payload)) + payload + struct.pack(">I", crc)


def test_the_protocols_examples() -> None:
    assert file_path(ON_DISK) == "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert deleted_rows(decode_inline(INLINE)) == [3, 4, 7, 11, 18, 29]
    assert parse_bitmap(vector_payload(INLINE)) == 6


def test_a_path_is_kept_as_it_is_and_inline_has_none() -> None:
    assert (
        file_path(replace(ON_DISK, storage_type="p", path_or_inline_dv="s3://b/x%20y.bin"))
        == "s3://b/x%20y.bin"
    )
    assert file_path(INLINE) is None


@given(st.uuids(), st.text("abcXYZ019", max_size=3))
def test_a_relative_path_comes_from_the_prefix_and_the_id(id: uuid.UUID, prefix: str) -> None:
    path = file_path(replace(ON_DISK, path_or_inline_dv=prefix + encode_z85(id.bytes)))

    assert path == (f"{prefix}/" if prefix else "") + f"deletion_vector_{id}.bin"


rows = st.integers(0, 200_000) | st.integers(0, 2**34)


@given(st.sets(rows, max_size=60))
def test_rows_of_the_portable_form(expected: set[int]) -> None:
    payload = bitmap(expected)

    assert (parse_bitmap(payload), deleted_rows(payload)) == (len(expected), sorted(expected))


@given(st.lists(st.sets(st.integers(0, 2**32 - 1), max_size=20), max_size=3))
def test_rows_of_deltas_own_form(parts: list[set[int]]) -> None:
    expected = sorted(row + (key << 32) for key, part_rows in enumerate(parts) for row in part_rows)

    assert deleted_rows(native(parts)) == expected
    assert parse_bitmap(native(parts)) == len(expected)


def test_rows_of_dense_blocks() -> None:
    expected = set(range(0, 20_000, 2)) | {70_000}

    assert deleted_rows(bitmap(expected)) == sorted(expected)


@pytest.mark.parametrize("containers", [1, 3, 4, 9])
def test_rows_of_runs(containers: int) -> None:
    payload = runs([(5, 3), (100, 1)], containers)

    expected = [(block << 16) + low for block in range(containers) for low in (5, 6, 7, 100)]
    assert (deleted_rows(payload), parse_bitmap(payload)) == (expected, len(expected))


@given(st.binary(max_size=40))
def test_inline_vectors_of_any_length_survive_base85(content: bytes) -> None:
    assert decode_inline(DeletionVector("i", encode_z85(content), len(content), 0)) == content


def test_a_vector_is_found_at_its_offset_in_a_file_of_several() -> None:
    first, second = bitmap({1}), bitmap({2, 3})
    content = stored(first) + stored(second)[1:]

    assert read_vector(content, 1, len(first)) == first
    assert read_vector(content, len(stored(first)), len(second)) == second


@pytest.mark.parametrize(
    ("content", "offset", "cause"),
    [
        (b"", 1, "the format version is missing"),
        (b"\2" + stored(bitmap({1}))[1:], 1, "the format version is 2"),
        (stored(bitmap({1}))[:-1], 1, "are too few"),
        (stored(bitmap({1})), 900, "are too few"),
        (stored(bitmap({1})), -1, "are too few"),
        (stored(bitmap({1, 2}))[:-1] + b"\0\0\0", 1, "and the log says"),
        (stored(bitmap({1}), checksum=7), 1, "the checksum"),
    ],
)
def test_a_damaged_file_is_refused_by_name(content: bytes, offset: int, cause: str) -> None:
    with pytest.raises(CorruptLog, match=f"dv.bin: .*{cause}"):
        read_vector(content, offset, len(bitmap({1})), "dv.bin")


def test_a_vector_that_marks_another_number_of_rows_than_the_log_says_is_refused() -> None:
    payload = bitmap({1, 2})
    vector = DeletionVector("u", "^-aqEH.-t@S}K{vb[*k^", len(payload), 3, 1)

    with pytest.raises(CorruptLog, match="marks 2 rows, and the log says 3"):
        vector_payload(vector, stored(payload))


@pytest.mark.parametrize(
    ("payload", "cause"),
    [
        (b"", "ends at byte 0"),
        (b"\0\0\0\0", "unknown magic number 0"),
        (bitmap({1, 2, 3})[:-1], "the bitmap ends"),
        (struct.pack("<IQI", 1681511377, 1, 0) + b"abcd", "unknown form of bitmap"),
        (struct.pack("<IQI", 1681511377, 1, 1 << 31) + part({1}), "out of order"),
        (struct.pack("<IQ", 1681511377, 2) + 2 * (struct.pack("<I", 3) + part({1})), "out of order"),
        (struct.pack("<IQIII", 1681511377, 1, 0, NO_RUNS, 1 << 20), "cannot have"),
        (runs([(5, 3)]).replace(struct.pack("<HH", 0, 2), struct.pack("<HH", 0, 9)), "marks 3"),
    ],
)
def test_bytes_that_are_no_bitmap_are_refused(payload: bytes, cause: str) -> None:
    with pytest.raises(CorruptLog, match=cause):
        parse_bitmap(payload)


@pytest.mark.parametrize(
    ("vector", "cause"),
    [
        (replace(ON_DISK, storage_type="x"), "unknown storage type 'x'"),
        (replace(ON_DISK, path_or_inline_dv="short"), "too short"),
        (replace(ON_DISK, path_or_inline_dv="^-aqEH.-t@S}K{vb[*k~"), "'~' is no character"),
        (replace(ON_DISK, path_or_inline_dv="#" * 20), "no group of base85"),
        (replace(ON_DISK, path_or_inline_dv="../../etc^-aqEH.-t@S}K{vb[*k^"), "no prefix"),
    ],
)
def test_a_descriptor_that_leads_nowhere_is_refused(vector: DeletionVector, cause: str) -> None:
    with pytest.raises(CorruptLog, match=cause):
        file_path(vector)


@pytest.mark.parametrize("size", [40, 45])
def test_an_inline_vector_of_another_size_than_it_says_is_refused(size: int) -> None:
    with pytest.raises(CorruptLog, match=f"holds 44 bytes and says {size}"):
        decode_inline(replace(INLINE, size_in_bytes=size))


def golden_vectors(table: Path) -> Iterator[DeletionVector]:
    for name in sorted((table / "_delta_log").rglob("*")):
        for action in _actions(name):
            if isinstance(action, AddFile | RemoveFile) and action.deletion_vector:
                yield action.deletion_vector


def _actions(name: Path) -> Iterator[Any]:
    if name.suffix == ".json" and name.name[:20].isdigit():
        yield from parse_commit(name.read_bytes(), name.name)
    elif name.suffix == ".parquet" and name.name[:1] != ".":
        kept = [column for column in ("add", "remove") if column in pq.read_schema(name).names]
        for row in pq.read_table(name, columns=kept).to_pylist(maps_as_pydicts="lossy"):
            known = {kind: _without_parsed(body) for kind, body in row.items() if body is not None}
            if known:
                yield action_from_dict(known, name.name)


def _without_parsed(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if not key.endswith("_parsed")}


def _vector_file(table: Path, vector: DeletionVector) -> Path | None:
    path = file_path(vector)
    if path is None:
        return None
    name = Path(unquote(urlparse(path).path))
    # Tables made by Delta's own tests have a prefix on the name; clones point at where their source once was.
    candidates = [table / name, table / f"test%dv%prefix-{name}"]
    candidates += [sibling / "delta" / name.name for sibling in table.parent.parent.iterdir()]
    return next((file for file in candidates if not name.is_absolute() and file.exists()), None) or next(
        (file for file in candidates[2:] if file.exists()), None
    )


@needs_golden
def test_vectors_of_golden_tables_mark_as_many_rows_as_the_log_says() -> None:
    read, missing = 0, []
    for table in golden_tables("readable", "log_only"):
        if not any(tag.startswith("dv_") for tag in table.exercises):
            continue
        for vector in {vector.unique_id: vector for vector in golden_vectors(table.path)}.values():
            file = _vector_file(table.path, vector)
            if file is None and vector.storage_type != "i":
                missing.append(table.name)
                continue
            assert (
                parse_bitmap(vector_payload(vector, file.read_bytes() if file else None))
                == vector.cardinality
            )
            read += 1

    # One vector of four megabytes was left out of the copy.
    assert (read, missing) == (58, ["delta-spark/table-with-dv-gigantic"])
