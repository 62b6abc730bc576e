"""The hint is written in one form, and trusted only when it is whole."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltaplane.errors import CorruptLog
from deltaplane.log.last_checkpoint import LastCheckpoint, json_checksum, parse_last_checkpoint
from golden import golden_root, needs_golden

counts = st.integers(0, 2**63 - 1)
leaves: st.SearchStrategy[Any] = st.text() | st.integers() | st.booleans() | st.none()
objects = st.dictionaries(
    st.text().filter(lambda key: key != "checksum"),
    st.recursive(leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8),
)
hints = st.builds(
    LastCheckpoint,
    version=counts,
    size=st.integers(-1, 2**63 - 1),
    parts=st.none() | st.integers(1, 2**31 - 1),
    size_in_bytes=st.none() | counts,
    num_of_add_files=st.none() | counts,
    v2_checkpoint=st.none() | st.fixed_dictionaries({"path": st.text(), "sizeInBytes": counts}),
    extra=st.fixed_dictionaries(
        {}, optional={"tags": st.dictionaries(st.text(), st.text()), "more": objects}
    ),
)


@given(hints)
def test_what_is_written_is_read(hint: LastCheckpoint) -> None:
    assert parse_last_checkpoint(hint.write()) == hint


def test_the_bytes_are_fixed() -> None:
    assert LastCheckpoint(10, 13, size_in_bytes=1000, num_of_add_files=11).write() == (
        b'{"version":10,"size":13,"sizeInBytes":1000,"numOfAddFiles":11,'
        b'"checksum":"'
        + json_checksum(json.loads('{"version":10,"size":13,"sizeInBytes":1000,"numOfAddFiles":11}')).encode()
        + b'"}'
    )


def test_the_checksum_is_the_one_of_the_protocol() -> None:
    sample = """{"k0":"'v 0'","k1":{"k2":2,"k3":["v3",[1,2],{"k4":"v4","k5":["v5","v6","v7"]}]}}"""
    assert json_checksum(json.loads(sample)) == "6a92d155a59bf2eecbd4b4ec7fd1f875"


@needs_golden
def test_golden_hints_are_read_with_their_checksums_and_written_again() -> None:
    root = golden_root()
    assert root is not None
    refused, checked = [], 0
    for path in sorted(root.glob("*/*/delta/_delta_log/_last_checkpoint")):
        content = path.read_bytes()
        try:
            hint = parse_last_checkpoint(content, str(path))
        except CorruptLog:
            refused.append(path.parents[2].name)
            continue
        checked += b'"checksum"' in content
        assert parse_last_checkpoint(hint.write()) == hint
        assert hint.version == json.loads(content)["version"]
    assert refused == ["corrupted-last-checkpoint-kernel"]
    assert checked >= 40


def test_spark_and_the_protocol_sort_long_arrays_differently_and_both_are_accepted() -> None:
    content = {"version": 1, "size": 2, "tags": list(range(12))}
    by_path, by_pair = json_checksum(content), json_checksum(content, by_pair=True)
    assert by_path != by_pair
    for checksum in (by_path, by_pair):
        hint = parse_last_checkpoint(json.dumps({**content, "checksum": checksum}).encode())
        assert hint == LastCheckpoint(1, 2, extra={"tags": list(range(12))})


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", "not a JSON object"),
        (b"{", "not a JSON object"),
        (b"\xff", "not a JSON object"),
        (b"[1]", "not a JSON object"),
        (b'{"size":1}', "it names no version"),
        (b'{"version":-1,"size":1}', "it names no version"),
        (b'{"version":"1","size":1}', "version is not a whole number"),
        (b'{"version":true,"size":1}', "version is not a whole number"),
        (b'{"version":1,"version":2}', "a key occurs twice"),
        (b'{"version":1,"size":1,"checksum":"0"}', "its checksum does not match its content"),
        (b'{"version":1,"size":1,"v2Checkpoint":5}', "v2Checkpoint is not an object"),
    ],
)
def test_a_damaged_hint_is_refused_with_its_cause(content: bytes, cause: str) -> None:
    with pytest.raises(CorruptLog, match=cause) as caught:
        parse_last_checkpoint(content, "t/_delta_log/_last_checkpoint")
    assert caught.value.source == "t/_delta_log/_last_checkpoint"


def test_old_and_sparse_hints_are_taken() -> None:
    assert parse_last_checkpoint(b'{"version":2,"parts":null}') == LastCheckpoint(2, -1)
    assert parse_last_checkpoint(b'{"size":4,"size_in_bytes":41898,"version":2}') == LastCheckpoint(
        2, 4, extra={"size_in_bytes": 41898}
    )


def test_the_name_of_a_v2_checkpoint_is_found() -> None:
    hint = parse_last_checkpoint(b'{"version":2,"size":1,"v2Checkpoint":{"path":"x.json","sidecarFiles":[]}}')
    assert (hint.v2_name, LastCheckpoint(1, 1).v2_name) == ("x.json", None)
