from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltaplane.errors import CorruptLog
from deltaplane.log.actions import Action, AddFile, CommitInfo, Metadata
from deltaplane.log.in_commit_time import (
    enabled_since,
    next_timestamp,
    read_timestamp,
    with_enablement,
    with_timestamp,
)

ADD = AddFile("p")


@given(st.integers(0, 2**60), st.none() | st.integers(0, 2**60))
def test_time_strictly_increases_and_is_no_earlier_than_now(now: int, previous: int | None) -> None:
    found = next_timestamp(now, previous)

    assert found >= now
    assert previous is None or found > previous
    assert found in (now, (previous or 0) + 1)


@pytest.mark.parametrize(
    ("actions", "expected"),
    [
        ((ADD,), (CommitInfo({"inCommitTimestamp": 7}), ADD)),
        (
            (ADD, CommitInfo({"operation": "WRITE"})),
            (CommitInfo({"operation": "WRITE", "inCommitTimestamp": 7}), ADD),
        ),
        ((CommitInfo({"inCommitTimestamp": 3}), ADD), (CommitInfo({"inCommitTimestamp": 7}), ADD)),
    ],
)
def test_the_timestamp_stands_in_the_first_action(
    actions: tuple[Action, ...], expected: tuple[Action, ...]
) -> None:
    stamped = with_timestamp(actions, 7)

    assert stamped == expected
    assert read_timestamp(stamped, "7.json") == 7


@pytest.mark.parametrize(
    "actions",
    [
        (),
        (ADD,),
        (CommitInfo({}), ADD),
        (ADD, CommitInfo({"inCommitTimestamp": 7})),
        (CommitInfo({"inCommitTimestamp": "7"}),),
    ],
)
def test_a_commit_without_its_timestamp_is_corrupt(actions: tuple[Action, ...]) -> None:
    with pytest.raises(CorruptLog, match=r"7\.json: the table has in-commit timestamps"):
        read_timestamp(actions, "7.json")


def test_when_an_existing_table_switched_over_is_kept_in_its_properties() -> None:
    before = Metadata("id", "{}", configuration={"a": "b"})

    after = with_enablement(before, 12, 1_700_000_000_000)

    assert (enabled_since(before), enabled_since(after)) == (None, (12, 1_700_000_000_000))
    assert after.configuration["a"] == "b"


def test_a_switch_over_that_is_no_number_is_corrupt() -> None:
    broken = {
        "delta.inCommitTimestampEnablementVersion": "x",
        "delta.inCommitTimestampEnablementTimestamp": "1",
    }

    with pytest.raises(CorruptLog, match="must be whole numbers"):
        enabled_since(Metadata("id", "{}", configuration=broken))
