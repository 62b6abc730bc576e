from __future__ import annotations

import string
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deltaplane.log.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    SidecarFile,
    UnknownAction,
)
from deltaplane.log.jsonlines import action_from_dict, action_to_dict, parse_commit, write_commit

# Half of a surrogate pair is possible in JSON, so it is possible here.
texts = st.text(st.characters(exclude_categories=[]), max_size=12)
integers = st.integers(-(2**63), 2**63 - 1)
fractions = st.decimals(allow_nan=False, allow_infinity=False, places=38) | st.just(Decimal("1E+400"))
json_values = st.recursive(
    st.none() | st.booleans() | integers | fractions | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
text_maps = st.dictionaries(texts, st.none() | texts, max_size=3)
# A name that no action knows, so that it is an extra field.
extras = st.dictionaries(
    st.text(string.ascii_lowercase, max_size=3).map("x_".__add__), json_values, max_size=3
)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


vectors = st.builds(
    DeletionVector, st.sampled_from("uip"), texts, integers, integers, offset=maybe(integers), extra=extras
)
formats = st.builds(Format, texts, st.dictionaries(texts, texts, max_size=2), extras)
row_ids = {"base_row_id": maybe(integers), "default_row_commit_version": maybe(integers)}
adds = st.builds(
    AddFile,
    texts,
    text_maps,
    integers,
    integers,
    st.booleans(),
    maybe(texts),
    maybe(text_maps),
    maybe(vectors),
    clustering_provider=maybe(texts),
    extra=extras,
    **row_ids,
)
removes = st.builds(
    RemoveFile,
    texts,
    maybe(integers),
    st.booleans(),
    maybe(st.booleans()),
    maybe(text_maps),
    maybe(integers),
    maybe(texts),
    maybe(text_maps),
    maybe(vectors),
    extra=extras,
    **row_ids,
)
metadata = st.builds(
    Metadata,
    texts,
    texts,
    maybe(texts),
    maybe(texts),
    formats,
    st.lists(texts, max_size=3).map(tuple),
    st.dictionaries(texts, texts, max_size=3),
    maybe(integers),
    extras,
)
features = maybe(st.lists(texts, max_size=3).map(tuple))
actions: st.SearchStrategy[Action] = st.one_of(
    adds,
    removes,
    metadata,
    st.builds(AddCDCFile, texts, text_maps, integers, st.booleans(), maybe(text_maps), extras),
    st.builds(Protocol, integers, integers, features, features, extras),
    st.builds(SetTransaction, texts, integers, maybe(integers), extras),
    st.builds(DomainMetadata, texts, texts, st.booleans(), extras),
    st.builds(CheckpointMetadata, integers, maybe(text_maps), extras),
    st.builds(SidecarFile, texts, integers, integers, maybe(text_maps), extras),
    st.builds(CommitInfo, st.dictionaries(texts, json_values, max_size=4)),
    st.builds(UnknownAction, texts.map("new".__add__), json_values.filter(lambda value: value is not None)),
)


@given(st.lists(actions, max_size=4))
def test_what_is_written_reads_back_as_it_was(written: list[Action]) -> None:
    assert list(parse_commit(write_commit(written))) == written


@given(st.lists(actions, max_size=4))
def test_writing_what_was_read_gives_the_same_bytes(written: list[Action]) -> None:
    content = write_commit(written)

    assert write_commit(parse_commit(content)) == content


def shuffled(value: Any) -> Any:
    """The same value with the keys of every object the other way round."""
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(value)}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@given(actions)
@example(CommitInfo({"b": {"d": 1, "c": 2}, "a": 1}))
@example(UnknownAction("new", {"b": 1, "a": [{"d": 1, "c": 2}]}))
def test_equal_actions_have_equal_bytes_whatever_the_order_of_their_keys(action: Action) -> None:
    other = action_from_dict(shuffled(action_to_dict(action)))

    assert other == action
    assert write_commit([other]) == write_commit([action])


@given(st.lists(actions, max_size=4))
def test_every_action_is_one_line(written: list[Action]) -> None:
    lines = write_commit(written).split(b"\n")

    assert (len(lines), lines[-1]) == (len(written) + 1, b"")


@pytest.mark.parametrize(
    ("vector", "key"),
    [
        (None, ("p", "")),
        (DeletionVector("u", "abc", 1, 1, 4), ("p", "uabc@4")),
        (DeletionVector("u", "abc", 1, 1, 0), ("p", "uabc@0")),
        (DeletionVector("i", "abc", 1, 1), ("p", "iabc")),
    ],
)
def test_a_file_is_known_by_its_path_and_its_deletion_vector(
    vector: DeletionVector | None, key: tuple[str, str]
) -> None:
    assert AddFile("p", deletion_vector=vector).key == key
    assert RemoveFile("p", deletion_vector=vector).key == key
