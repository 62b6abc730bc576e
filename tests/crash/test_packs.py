"""A process is killed at every step of packing: what is read stays what it was, and the next finishes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from crash.test_adopt import assert_like_outside, copied, source
from crash.world import KILLS_BRIEF_ELSEWHERE, Ended, World, every_kill
from deltaplane.errors import TableNotManaged
from deltaplane.ledger import Ledger, packs
from deltaplane.ledger.packs import listed_packs, pack_files

__all__ = ["source"]


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packs, "STRETCH", 2)


def covered(ledger: Ledger, table: str) -> list[tuple[int, int]]:
    managed = ledger._ctx.table(table)
    with ledger._ctx.store.reading() as session:
        return [(pack.first_file, pack.beyond_file) for pack in listed_packs(session, managed)]


@pytest.mark.parametrize("case", KILLS_BRIEF_ELSEWHERE)
def test_packing_after_an_adoption_killed_at_every_step(world: World, kind: str | None, source: Path) -> None:
    with world.open() as ledger:
        assert ledger.tables() == []

    def work(number: int) -> Ended:
        table = str(copied(source, world.folder / f"packed{number}", "checkpoint"))
        world.tables[:] = [table]
        ended = world.run("adopt", f"pack-{number}", kill_at=number, kind=kind, chunk=4, stretch=2)
        with world.open() as ledger:
            try:
                found = ledger.snapshot(table)
            except TableNotManaged:
                assert not ended.acknowledged
                return ended
            assert found.version == 5
            assert_like_outside(ledger, table, 3, 5)
            pack_files(ledger._ctx, ledger._ctx.table(table))
            assert covered(ledger, table) == [(0, 2), (2, 4), (4, 6)]
            assert_like_outside(ledger, table, 3, 5)
            assert ledger.verify(table, every=True).differences == ()
        return ended

    events = every_kill(work)
    assert events.count("step pack.written") == 3


@pytest.mark.parametrize("case", KILLS_BRIEF_ELSEWHERE)
def test_packing_after_a_checkpoint_killed_at_every_step(world: World, kind: str | None) -> None:
    def work(number: int) -> Ended:
        world.renew(number, 1, checkpointInterval="1")
        table = world.tables[0]
        ended = world.run("commit", f"checkpoint-{number}", kill_at=number, kind=kind, stretch=2)
        with world.open() as ledger:
            world.check(ledger)
            world.publish(ledger)
            world.commit(ledger, f"after-{number}")
            world.check(ledger, finished=True)
            files = ledger._ctx.table(table).next_file_id
            assert covered(ledger, table) == [(first, first + 2) for first in range(0, files - 1, 2)]
        return ended

    every_kill(work)
