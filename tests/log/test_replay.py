"""Replay: which actions are left of a log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltaplane.errors import CorruptLog
from deltaplane.log.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    UnknownAction,
)
from deltaplane.log.replay import TableState, file_key, path_key

FIRST = DeletionVector("u", "first", 10, 1, offset=1)
SECOND = DeletionVector("u", "first", 10, 2, offset=2)


def replayed(*commits: list[Action]) -> TableState:
    state = TableState()
    for version, actions in enumerate(commits):
        state.apply(version, actions)
    return state


def test_the_last_action_on_a_file_wins() -> None:
    newer = AddFile("a", size=2)
    removed = RemoveFile("b", deletion_timestamp=5)
    state = replayed([AddFile("a", size=1), AddFile("b"), AddFile("c")], [newer, removed])
    assert (state.version, state.files, state.tombstones) == (
        1,
        {("a", ""): newer, ("c", ""): AddFile("c")},
        {("b", ""): removed},
    )


def test_file_that_is_added_again_has_no_tombstone() -> None:
    state = replayed([AddFile("a")], [RemoveFile("a")], [AddFile("a", size=3)])
    assert (state.files, state.tombstones) == ({("a", ""): AddFile("a", size=3)}, {})


def test_removal_of_an_unknown_file_is_a_tombstone() -> None:
    assert replayed([RemoveFile("a")]).tombstones == {("a", ""): RemoveFile("a")}


@pytest.mark.parametrize("order", [1, -1])
def test_new_deletion_vector_replaces_the_logical_file_in_any_order(order: int) -> None:
    before, after = AddFile("a", deletion_vector=FIRST), AddFile("a", deletion_vector=SECOND)
    removal = RemoveFile("a", deletion_vector=FIRST)
    state = replayed([before], [removal, after][::order])
    assert state.files == {("a", "ufirst@2"): after}
    assert state.tombstones == {("a", "ufirst@1"): removal}


def test_first_deletion_vector_of_a_file_takes_the_place_of_the_whole_file() -> None:
    state = replayed([AddFile("a")], [RemoveFile("a"), AddFile("a", deletion_vector=FIRST)])
    assert list(state.files) == [("a", "ufirst@1")]


def test_last_protocol_metadata_and_transaction_win_even_when_lower() -> None:
    state = replayed(
        [Protocol(3, 7), Metadata("t", "{}"), SetTransaction("app", 9), SetTransaction("other", 1)],
        [Protocol(1, 2), Metadata("t", "{}", name="n"), SetTransaction("app", 3)],
    )
    assert (state.protocol, state.metadata, state.transactions) == (
        Protocol(1, 2),
        Metadata("t", "{}", name="n"),
        {"app": SetTransaction("app", 3), "other": SetTransaction("other", 1)},
    )


def test_removed_domain_is_gone_and_may_come_back() -> None:
    commits: list[list[Action]] = [
        [DomainMetadata("d", "1"), DomainMetadata("e", "1")],
        [DomainMetadata("d", "1", removed=True)],
        [DomainMetadata("d", "2")],
    ]
    assert replayed(*commits[:2]).domains == {"e": DomainMetadata("e", "1")}
    assert replayed(*commits).domains["d"] == DomainMetadata("d", "2")


def test_actions_that_are_no_state_are_passed_over() -> None:
    state = replayed([CommitInfo({"operation": "WRITE"}), AddCDCFile("c"), UnknownAction("future", {})])
    assert state == TableState(version=0)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("/x/y", "file:/x/y", True),
        ("/x/y", "file:///x/y", True),
        ("file:/x%20y", "file:///x%20y", True),
        ("a%2fb", "a%2Fb", True),
        ("a%20b", "a b", False),
        ("x/y", "/x/y", False),
        ("s3://b/x", "s3a://b/x", False),
        ("file.parquet", "file:/file.parquet", False),
    ],
)
def test_paths_are_compared_as_delta_compares_them(one: str, other: str, same: bool) -> None:
    assert (path_key(one) == path_key(other)) is same


def test_removal_by_another_spelling_of_an_absolute_path_removes() -> None:
    state = replayed([AddFile("/x/a%20b")], [RemoveFile("file:/x/a%20b")])
    assert (state.files, len(state.tombstones)) == ({}, 1)


def test_relative_path_is_its_own_key() -> None:
    file = AddFile("p=1/part-0.parquet", deletion_vector=FIRST)
    assert file_key(file) == file.key


def test_versions_must_follow_one_another() -> None:
    state = replayed([AddFile("a")])
    with pytest.raises(CorruptLog, match="version 2: it cannot be applied after version 0"):
        state.apply(2, [])


def test_checkpoint_may_start_at_any_version() -> None:
    state = TableState()
    state.apply(10, [AddFile("a")])
    state.apply(11, [RemoveFile("a")])
    assert (state.version, state.files) == (11, {})


@pytest.mark.parametrize(
    ("actions", "absent"),
    [
        ([Protocol(1, 2)], "no metaData action"),
        ([Metadata("t", "{}")], "no protocol action"),
        ([], "no protocol and no metaData action"),
    ],
)
def test_state_without_protocol_or_metadata_is_refused(actions: list[Action], absent: str) -> None:
    with pytest.raises(CorruptLog, match=f"/lake/t: the log up to version 0 has {absent}"):
        replayed(actions).checked("/lake/t")


def test_checked_gives_protocol_and_metadata() -> None:
    assert replayed([Protocol(1, 2), Metadata("t", "{}")]).checked("t") == (
        Protocol(1, 2),
        Metadata("t", "{}"),
    )


FILE_ACTIONS = st.builds(
    lambda kind, path, vector: kind(path, deletion_vector=vector),
    st.sampled_from([AddFile, RemoveFile]),
    st.sampled_from(["a", "b", "/c", "file:/c"]),
    st.sampled_from([None, FIRST, SECOND]),
)


@given(st.lists(FILE_ACTIONS))
def test_file_is_active_or_removed_by_its_last_action(actions: list[AddFile | RemoveFile]) -> None:
    state = replayed(list(actions))
    last = {file_key(action): action for action in actions}
    assert state.files == {key: one for key, one in last.items() if isinstance(one, AddFile)}
    assert state.tombstones == {key: one for key, one in last.items() if isinstance(one, RemoveFile)}


@given(st.lists(st.lists(FILE_ACTIONS), min_size=1), st.data())
def test_checkpoint_of_any_version_leads_to_the_same_state(
    commits: list[list[AddFile | RemoveFile]], data: st.DataObject
) -> None:
    whole = replayed(*[list(commit) for commit in commits])
    cut = data.draw(st.integers(0, len(commits) - 1))
    before = replayed(*[list(commit) for commit in commits[: cut + 1]])
    state = TableState()
    state.apply(cut, [*before.files.values(), *before.tombstones.values()])
    for version in range(cut + 1, len(commits)):
        state.apply(version, commits[version])
    assert state == whole
