"""A process is killed at every step of a transaction over three tables: all of it or none of it."""

from __future__ import annotations

from collections import Counter

import pytest

from crash.world import STEPS, Ended, World, every_kill


def test_group_killed_at_every_step_is_visible_whole_or_not_at_all(world: World, kind: str | None) -> None:
    def work(number: int) -> Ended:
        world.renew(number, 3, checkpointInterval="100000")
        identity = f"group-{number}"
        ended = world.run("group", identity, kill_at=number, kind=kind)
        with world.open() as ledger:
            world.check(ledger)
            landed = world.landed(ledger)[identity]
            # One commit to the first, one to the second and two to the third table.
            assert landed in {0, 4}, f"half of it is visible after a kill at {ended.where}"
            assert landed == 4 or not ended.acknowledged
            assert ledger.outcome(identity) is (landed == 4)
            world.publish(ledger)
            world.commit(ledger, f"{identity}-after")
            world.check(ledger, finished=True)
            assert world.landed(ledger)[identity] == landed
        return ended

    events = every_kill(work)
    steps = Counter(event.removeprefix("step ") for event in events if event.startswith("step "))
    assert steps == {
        "commit.begin": 1,
        "commit.rows_written": 4,
        "commit.before_commit": 1,
        "commit.ratified": 1,
        "publish.file_written": 4,
        "publish.marked": 3,
        "end": 1,
    }


@pytest.mark.parametrize("case", STEPS)
def test_group_repeated_by_the_same_id_after_a_kill_takes_place_once(world: World, kind: str | None) -> None:
    world.create_tables(3, checkpointInterval="100000")

    def work(number: int) -> Ended:
        identity = f"again-{number}"
        ended = world.run("group", identity, kill_at=number, kind=kind)
        if number % 2:
            # Somebody else comes in between; the repeated one must still be told its own versions.
            world.run("commit", f"between-{number}")
        again = world.run("group", identity)
        with world.open() as ledger:
            world.check(ledger, finished=True)
            assert world.landed(ledger)[identity] == 4
            newest = {
                table: max(e.version for e in ledger.history(table) if e.transaction_id == identity)
                for table in world.tables
            }
            assert again.acknowledged == [newest]
        return ended

    every_kill(work)
