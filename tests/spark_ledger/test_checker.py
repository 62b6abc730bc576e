"""The checker finds every kind of history that is not snapshot isolated, and no other."""

from __future__ import annotations

import pytest

from spark_ledger.checker import Read, Recorded, Versions, check_history

# a and b were created, then T wrote both and U appended to c.
VERSIONS: Versions = {"a": [None, "T", "V"], "b": [None, "T"], "c": [None, "U", "V"]}
T = Recorded("T", (Read("a", ()), Read("b", ()), Read("a", ("T",), own=1)), {"a": 1, "b": 1})
U = Recorded("U", writes={"c": 1}, appends=frozenset("c"))
V = Recorded("V", (Read("a", ("T",)), Read("c", ())), {"a": 1, "c": 1}, frozenset("c"))


def reader(*reads: Read, floor: int = 0, ceiling: int = 9) -> Recorded:
    return Recorded("R", reads, floor={"a": floor}, ceiling={"a": ceiling})


def test_a_snapshot_isolated_history_passes() -> None:
    moments = [
        reader(Read("a", ()), Read("b", ()), Read("c", ())),
        reader(Read("a", ("T",)), Read("b", ("T",)), Read("c", ("U",)), Read("b", ("T",))),
        reader(Read("c", ("U", "V")), Read("b", ("T",)), Read("a", ("T", "V")), floor=2),
    ]
    for one in moments:
        assert check_history(VERSIONS, [T, U, V, one]) == []


def test_write_skew_passes_because_snapshot_isolation_allows_it() -> None:
    both = (Read("a", ()), Read("b", ()))
    skewed = [Recorded("T", both, {"a": 1}), Recorded("U", both, {"b": 1})]
    assert check_history({"a": [None, "T"], "b": [None, "U"]}, skewed) == []


BROKEN = {
    "dirty read": (
        "one point",
        {"a": [None]},
        [Recorded("T", writes={"a": 1}, acknowledged=False), reader(Read("a", ("T",)))],
    ),
    "non-repeatable read": ("one point", VERSIONS, [T, U, V, reader(Read("a", ()), Read("a", ("T",)))]),
    "own write not read": (
        "one point",
        {"a": [None, "T"]},
        [Recorded("T", (Read("a", ()), Read("a", (), own=1)), {"a": 1})],
    ),
    "lost update": (
        "one point",
        {"a": [None, "T", "U"]},
        [Recorded("T", writes={"a": 1}), Recorded("U", writes={"a": 1}), reader(Read("a", ("U",)))],
    ),
    "torn read over two tables": (
        "no torn point",
        VERSIONS,
        [T, U, V, reader(Read("a", ("T",)), Read("b", ()))],
    ),
    "half of a transaction's commits to one table": (
        "no torn point",
        {"a": [None, "T", "T"]},
        [Recorded("T", writes={"a": 2}), reader(Read("a", ("T",)))],
    ),
    "stale read": ("fresh", VERSIONS, [T, U, V, reader(Read("a", ()), floor=1)]),
    "read of the future": ("fresh", VERSIONS, [T, U, V, reader(Read("a", ("T", "V")), ceiling=1)]),
    "second committer wins": (
        "first committer wins",
        {"a": [None, "T", "U"]},
        [Recorded("T", (Read("a", ()),), {"a": 1}), Recorded("U", (Read("a", ()),), {"a": 1})],
    ),
    "somebody between two commits": (
        "first committer wins",
        {"a": [None, "T", "U", "T"]},
        [Recorded("T", writes={"a": 2}, appends=frozenset("a")), Recorded("U", writes={"a": 1})],
    ),
    "second committer wins without a read": (
        "first committer wins",
        {"a": [None, "T", "U"]},
        [Recorded("T", writes={"a": 1}), Recorded("U", writes={"a": 1}, ceiling={"a": 0})],
    ),
    "half of a group": (
        "atomicity",
        {"a": [None, "T"], "b": [None]},
        [Recorded("T", writes={"a": 1, "b": 1}, acknowledged=None)],
    ),
    "acknowledged and lost": ("once", {"a": [None]}, [Recorded("T", writes={"a": 1})]),
    "acknowledged and doubled": ("once", {"a": [None, "T", "T"]}, [Recorded("T", writes={"a": 1})]),
    "failed and there": ("once", {"a": [None, "T"]}, [Recorded("T", writes={"a": 1}, acknowledged=False)]),
    "by nobody": ("once", {"a": [None, "T"]}, []),
}


@pytest.mark.parametrize(("rule", "versions", "history"), BROKEN.values(), ids=BROKEN)
def test_a_history_that_breaks_a_rule_is_found(
    rule: str, versions: Versions, history: list[Recorded]
) -> None:
    faults = check_history(versions, history)
    assert faults
    assert {fault.partition(":")[0] for fault in faults} == {rule}


def test_a_transaction_whose_end_nobody_saw_may_have_taken_place_or_not() -> None:
    unseen = Recorded("T", writes={"a": 1, "b": 1}, acknowledged=None)
    for versions in ({"a": [None, "T"], "b": [None, "T"]}, {"a": [None], "b": [None]}):
        assert check_history(versions, [unseen]) == []
