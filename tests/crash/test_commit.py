"""A process is killed at every step of a commit to one table."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from crash.world import (
    ENGINES,
    KILLS_BRIEF_ELSEWHERE,
    KILLS_ON_EVERY_ENGINE,
    SLOW_ELSEWHERE,
    STEPS,
    Ended,
    World,
    every_kill,
)
from deltaplane.errors import CommitRefused
from deltaplane.ledger import Ledger


def settle(world: World, identity: str, ended: Ended, number: int, commits: int) -> None:
    """Whoever comes after a kill: looks, finds out or repeats, finishes, goes on."""
    with world.open() as ledger:
        world.check(ledger)
        before = world.landed(ledger)[identity]
        assert before in {0, commits}, f"half of it is visible after a kill at {ended.where}"
        if ended.acknowledged:
            assert before == commits
        if number % 2:
            assert ledger.outcome(identity) is (before > 0)
        world.publish(ledger)
        world.commit(ledger, f"{identity}-after")
        world.check(ledger, finished=True)
        expected = Counter({identity: before, f"{identity}-after": len(world.tables)})
        landed = world.landed(ledger)
        assert {key: landed[key] for key in expected} == dict(expected)


def commit_and_settle(world: World, scenario: str, kind: str | None, commits: int) -> list[str]:
    def work(number: int) -> Ended:
        world.renew(number, 1, checkpointInterval="100000")
        identity = f"{scenario}-{number}"
        ended = world.run(scenario, identity, kill_at=number, kind=kind)
        settle(world, identity, ended, number, commits)
        return ended

    return every_kill(work)


@pytest.mark.parametrize("case", KILLS_ON_EVERY_ENGINE)
def test_commit_killed_at_every_step_is_there_once_or_not_at_all(world: World, kind: str | None) -> None:
    events = commit_and_settle(world, "commit", kind, commits=1)
    steps = [event.removeprefix("step ") for event in events if event.startswith("step ")]
    assert steps == [
        "commit.begin",
        "commit.rows_written",
        "commit.before_commit",
        "commit.ratified",
        "publish.file_written",
        "publish.marked",
        "end",
    ]
    if kind is None:
        assert {"statement COMMIT", "file fsync", "file link", "file write"} <= set(events)


@pytest.mark.parametrize("case", STEPS)
def test_commit_repeated_by_the_same_id_after_a_kill_takes_place_once(world: World, kind: str | None) -> None:
    world.create_tables(1, checkpointInterval="100000")

    def work(number: int) -> Ended:
        identity = f"again-{number}"
        ended = world.run("commit", identity, kill_at=number, kind=kind)
        again = world.run("commit", identity)
        with world.open() as ledger:
            world.check(ledger, finished=True)
            entry = ledger.history(world.tables[0], limit=1)[0]
            assert (entry.transaction_id, entry.version) == (identity, number)
            assert again.acknowledged == [{world.tables[0]: number}]
            assert world.landed(ledger)[identity] == 1
        return ended

    every_kill(work)


@pytest.mark.parametrize("case", KILLS_BRIEF_ELSEWHERE)
def test_creation_killed_at_every_step_is_finished_or_repeated(world: World, kind: str | None) -> None:
    def work(number: int) -> Ended:
        world.tables[:] = [str(world.folder / f"created{number}")]
        ended = world.run("create", f"create-{number}", kill_at=number, kind=kind)
        with world.open() as ledger:
            exists = world.tables[0] in [table.location for table in ledger.tables()]
        assert exists or not ended.acknowledged
        if not exists:
            world.run("create", f"create-{number}-again")
        with world.open() as ledger:
            world.check(ledger)
            world.publish(ledger)
            world.commit(ledger, f"create-{number}-after")
            world.check(ledger, finished=True)
            assert ledger.snapshot(world.tables[0]).version == 1
        return ended

    every_kill(work)


@pytest.mark.parametrize("engine", SLOW_ELSEWHERE)
@pytest.mark.parametrize("rounds", [2, pytest.param(25, marks=pytest.mark.slow)])
def test_kill_at_any_moment_loses_no_acknowledged_commit(world: World, rounds: int) -> None:
    """Also in the midst of COMMIT or of a write: the process does not choose the moment."""
    world.create_tables(2, checkpointInterval="7")
    chance = random.Random(4)
    acknowledged: dict[str, dict[str, int]] = {}
    for number in range(rounds):
        ended = world.run("endless", f"any-{number}", kill_after=chance.random() / 4)
        assert ended.killed
        acknowledged |= dict(ended.acknowledged)
        with world.open() as ledger:
            world.check(ledger)
            ledger.publish()
            world.check(ledger, finished=True)
            landed = {key: n for key, n in world.landed(ledger).items() if key.startswith("any-")}
            assert set(landed.values()) <= {2}, "a group is half visible, or doubled"
            assert acknowledged.keys() <= landed.keys()
            # The last one may have taken place without an answer, never more than that.
            assert len(landed) <= len(acknowledged) + number + 1
            assert_at_their_versions(ledger, world, acknowledged)
    assert len(acknowledged) >= rounds


def assert_at_their_versions(ledger: Ledger, world: World, acknowledged: dict[str, dict[str, int]]) -> None:
    for table in world.tables:
        found = {entry.transaction_id: entry.version for entry in ledger.history(table)}
        assert {key: versions[table] for key, versions in acknowledged.items()} == {
            key: found[key] for key in acknowledged
        }


@pytest.mark.parametrize("engine", ENGINES)
def test_commit_found_out_as_not_done_cannot_take_place_later(world: World) -> None:
    world.create_tables(1)
    ended = world.run("commit", "late", kill_at=3, kind="step")
    assert ended.where == "step commit.before_commit"
    with world.open() as ledger:
        assert ledger.outcome("late") is False
        with pytest.raises(CommitRefused, match="given up earlier"):
            world.commit(ledger, "late")
        assert world.landed(ledger)["late"] == 0
