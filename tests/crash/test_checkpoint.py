"""A process is killed at every step of a commit that writes a checkpoint, classic and v2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crash.world import KILLS_BRIEF_ELSEWHERE, SLOW_ELSEWHERE, STEPS, Ended, World, every_kill


def commit_until_killed_everywhere(world: World, kind: str | None, interval: int, **properties: str) -> None:
    def work(number: int) -> Ended:
        world.renew(number, 1, checkpointInterval=str(interval), **properties)
        identity = f"checkpoint-{number}"
        ended = world.run("commit", identity, kill_at=number, kind=kind)
        with world.open() as ledger:
            world.check(ledger)
            landed = world.landed(ledger)[identity]
            assert landed == 1 or not ended.acknowledged
            world.publish(ledger)
            while ledger.snapshot(world.tables[0]).version % interval != interval - 1:
                world.commit(ledger, f"{identity}-after-{ledger.snapshot(world.tables[0]).version}")
            world.check(ledger, finished=True)
            assert world.landed(ledger)[identity] == landed
        return ended

    events = every_kill(work)
    assert {"step checkpoint.written", "step checkpoint.pointed"} <= set(events)
    last = json.loads((Path(world.tables[0]) / "_delta_log" / "_last_checkpoint").read_text())
    assert last["version"] % interval == 0
    assert last["version"] > 0


def test_checkpoint_killed_at_every_step_leaves_a_readable_table(world: World, kind: str | None) -> None:
    commit_until_killed_everywhere(world, kind, interval=1)


@pytest.mark.parametrize("case", STEPS)
def test_checkpoint_of_every_second_version_killed_at_every_step(world: World, kind: str | None) -> None:
    commit_until_killed_everywhere(world, kind, interval=2)


@pytest.mark.parametrize("case", KILLS_BRIEF_ELSEWHERE)
def test_v2_checkpoint_killed_at_every_step_leaves_a_readable_table(world: World, kind: str | None) -> None:
    commit_until_killed_everywhere(world, kind, interval=1, checkpointPolicy="v2")


@pytest.mark.parametrize("engine", SLOW_ELSEWHERE)
def test_lease_of_a_killed_checkpoint_writer_runs_out(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.create_tables(1, checkpointInterval="1")
    ended = world.run("commit", "dies", kill_at=7, kind="step", lease_seconds=600)
    assert ended.where == "step checkpoint.written"
    log = Path(world.tables[0]) / "_delta_log"
    with world.open() as ledger:
        world.commit(ledger, "next")
        world.check(ledger, finished=True)
        assert not (log / "_last_checkpoint").exists(), "somebody may still be writing it"
        real = ledger._ctx.store.now
        monkeypatch.setattr(ledger._ctx.store, "now", lambda: real() + 700_000)
        world.commit(ledger, "later")
        world.check(ledger, finished=True)
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 3
