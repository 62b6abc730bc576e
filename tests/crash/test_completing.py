"""A process is killed at every step of a large commit, and at every step of the rows that follow it."""

from __future__ import annotations

import pytest

from crash.world import KILLS_BRIEF_ELSEWHERE, Ended, World, every_kill
from deltaplane.ledger import Ledger


def by_the_next_writer(world: World, ledger: Ledger, identity: str) -> None:
    world.commit(ledger, f"{identity}-after")


def by_a_reader(world: World, ledger: Ledger, _: str) -> None:
    world.check(ledger)
    world.publish(ledger)


def by_the_reconciler(_: World, ledger: Ledger, __: str) -> None:
    assert ledger.reconcile(force=True).failed == ()


FINISHERS = (by_the_next_writer, by_a_reader, by_the_reconciler)


@pytest.mark.parametrize("case", KILLS_BRIEF_ELSEWHERE, indirect=True)
def test_large_commit_killed_at_every_step_is_whole_or_not_there(world: World, kind: str | None) -> None:
    acknowledged: list[str] = []

    def work(number: int) -> Ended:
        world.renew(number, 2, checkpointInterval="4")
        identity = f"large-{number}"
        ended = world.run("large", identity, kill_at=number, kind=kind)
        if ended.acknowledged:
            acknowledged.append(identity)
        with world.open() as ledger:
            FINISHERS[number % 3](world, ledger, identity)
            if number % 3:
                # Rows that lack are written where they are needed: nobody has to look for them.
                world.publish(ledger)
            world.check(ledger, finished=True)
            assert world.landed(ledger)[identity] in ({2} if ended.acknowledged else {0, 2})
            for table in world.tables:
                assert all(entry.num_files is not None for entry in ledger.history(table))
        return ended

    events = every_kill(work)
    assert [event for event in events if event == "step complete.done"] == ["step complete.done"] * 2
    # Whoever was acknowledged was so before the rows were written.
    assert len(acknowledged) > 2
