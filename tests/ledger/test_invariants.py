"""The ten invariants of the ledger, each with a check that passes, and fails when the invariant is broken.

`check_…` states what must hold. The functions below it each replace one part of the ledger by one that breaks
the contract, and the same check must notice. A check that cannot fail would prove nothing.
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from deltaplane.errors import (
    CommitConflict,
    CommitOutcomeUnknown,
    DeltaplaneError,
    ForeignCommit,
    TableFrozen,
)
from deltaplane.ledger import Ledger, connect, erase, publish, ratify
from deltaplane.ledger import cleanup as cleaning
from deltaplane.ledger import commit as committing
from deltaplane.ledger.commit import Request
from deltaplane.ledger.context import Retries
from deltaplane.ledger.placing import Staged
from deltaplane.ledger.prepare import prepare_bytes
from deltaplane.ledger.staged import staged_path, sweep_staged
from deltaplane.ledger.stores.base import ConnectionLost
from deltaplane.log.jsonlines import write_commit
from ledger.conftest import SCHEMA, add
from ledger.independent_replay import published_versions
from ledger.test_adopt import fingerprint, log_file
from ledger.test_foreign import outside_commit, state_of
from ledger.test_stateful import STEPS, Crash, crashing
from ledger.unpublished import commit, delayed, log_of

QUICK = Retries(attempts=3, first_wait=0.001, longest_wait=0.001)


class World:
    """A ledger in a file of SQLite with room for tables."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.database = root / "ledger.db"
        self.ledger = self.connected()

    def connected(self) -> Ledger:
        return connect(f"deltasql://sqlite/{self.database}", author="tester", retries=QUICK)

    def reconnect(self) -> None:
        self.ledger.close()
        self.ledger = self.connected()

    def table(self, name: str = "t", **properties: str) -> Path:
        named = {f"delta.{key}": value for key, value in properties.items()}
        self.ledger.create(self.root / name, SCHEMA, properties=named)
        return self.root / name

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.database) as connection:
            return connection.execute(sql).fetchall()


def failure_of(work: Callable[[], Any]) -> type[BaseException] | None:
    """How a piece of work ended."""
    try:
        work()
    except (DeltaplaneError, Crash) as error:
        return type(error)
    return None


def commit_at(ledger: Ledger, table: Path, number: int, expected: int | None = None) -> None:
    with ledger.transaction() as tx:
        tx.commit(str(table), [add(number)], expected_version=expected)


# 1. A version is ratified exactly once, by one row.


def check_versions_are_ratified_once(world: World) -> None:
    table, ledger = world.table(), world.ledger
    ends: list[type[BaseException] | None] = []
    begin = threading.Barrier(4)

    def race(number: int) -> None:
        begin.wait()
        ends.append(failure_of(lambda: commit_at(ledger, table, number, expected=0)))

    threads = [threading.Thread(target=race, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ends, key=str) == [CommitConflict, CommitConflict, CommitConflict, None]
    assert world.rows("SELECT version FROM commits ORDER BY version") == [(0,), (1,)]


def everybody_wins(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(committing, "place", lambda _staged, head, own, _winners, _fixed: head + 1 + own)


def no_row_is_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ratify, "commit_rows", lambda *_: ())


# 2. Only ratified versions appear, in order and without a gap.


def check_only_ratified_versions_appear_in_order(world: World) -> None:
    table = world.table(checkpointInterval="2")
    with delayed():
        commit(world.ledger, str(table), 1, 2, 3)

    def look(*_: Any) -> None:
        ((ratified,),) = world.rows("SELECT max(version) FROM commits")
        versions = published_versions(table)
        assert versions == list(range(len(versions))), "there is a gap"
        assert versions[-1] <= ratified, "a version appears that is not ratified"
        others = [int(name[:20]) for name in log_of(table) if ".checkpoint" in name or name.endswith(".crc")]
        assert max(others, default=0) <= versions[-1], "a checkpoint appears before its version"

    stop = publish.telemetry.listen(look)
    try:
        world.ledger.publish(table)
        commit(world.ledger, str(table), 4, 5)
    finally:
        stop()
    assert published_versions(table) == [0, 1, 2, 3, 4, 5]


def published_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    attempt = committing._attempt

    def early(ctx: Any, session: Any, request: Request) -> Any:
        landed = attempt(ctx, session, request)
        for landing in landed.values():
            for version in landing.written:
                place = f"_delta_log/{version.number:020d}.json"
                ctx.storage(landing.table.location).put_if_absent(place, version.content)
        return landed

    patch.setattr(committing, "_attempt", early)


def published_backwards(patch: pytest.MonkeyPatch) -> None:
    contents = publish._contents
    patch.setattr(publish, "_contents", lambda *arguments: contents(*arguments)[::-1])


def checkpoint_before_its_version(patch: pytest.MonkeyPatch) -> None:
    publish_all = publish.publish_all

    def early(ctx: Any, publications: Any) -> Any:
        for wanted in publications:
            publish.checkpoint_if_due(ctx, wanted.table, wanted.upto, wanted.metadata)
        return publish_all(ctx, publications)

    patch.setattr(publish, "publish_all", early)


# 3. What is published is byte for byte what the writer handed over.


def check_bytes_are_those_of_the_writer(world: World) -> None:
    ledger = world.ledger
    table, timed = world.table("t"), world.table("timed", enableInCommitTimestamps="true")
    content = json.dumps(add(7), separators=(" ,  ", " :  ")).encode() + b"\n\n \n"

    def hand_over(place: Path, content: bytes) -> None:
        read = replace(ledger._ctx.table(str(place)), head_version=0)
        staged = Staged(read, prepare_bytes(content, "the writer"), 0, exact=False)
        committing.commit(ledger._ctx, Request(str(uuid.uuid4()), (staged,), None, None))

    commit_at(ledger, table, 1)
    hand_over(table, content)
    assert log_file(table, 2).read_bytes() == content, "renumbering changes no byte"
    assert ledger.read_commit(table, 2) == content
    commit_at(ledger, timed, 1)
    stamped = (
        json.dumps({"commitInfo": {"inCommitTimestamp": 5}}).encode() + b"\n" + json.dumps(add(8)).encode()
    )
    assert failure_of(lambda: hand_over(timed, stamped)) is CommitConflict, "it would have to change"


def bytes_are_written_anew(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        committing, "authored_bytes", lambda prepared, *_: (prepared, write_commit(prepared.actions))
    )


def a_wrong_time_is_published(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(committing, "fixed_reason", lambda *_: None)


# 4. A group is ratified whole or not at all.


def check_groups_are_whole(world: World) -> None:
    ledger, one, two = world.ledger, world.table("one"), world.table("two")
    commit_at(ledger, two, 1)

    def group(stale: int) -> None:
        with ledger.transaction() as tx:
            tx.commit(str(one), [add(2)])
            tx.commit(str(two), [add(3)], expected_version=stale)

    assert failure_of(lambda: group(stale=0)) is not None
    assert (ledger.latest_version(one), ledger.latest_version(two)) == (0, 1), "half of it took place"
    with crashing(("commit.rows_written", 1), []):
        assert failure_of(lambda: group(stale=1)) is Crash
    assert (ledger.latest_version(one), ledger.latest_version(two)) == (0, 1), "half of it took place"
    group(stale=1)
    identities = {ledger.history(table, 1)[0].transaction_id for table in (one, two)}
    assert (ledger.latest_version(one), ledger.latest_version(two), len(identities)) == (1, 2, 1)


def each_table_by_itself(patch: pytest.MonkeyPatch) -> None:
    ratified = committing._ratified

    def split(ctx: Any, request: Request) -> Any:
        landed: Any = {}
        for staged in request.staged:
            alone = replace(request, staged=(staged,), transaction_id=str(uuid.uuid4()))
            landed |= ratified(ctx, alone)
        return landed if request.staged else ratified(ctx, request)

    patch.setattr(committing, "_ratified", split)


# 5. A process may die between any two steps; whoever comes next finishes.


def check_a_crash_loses_and_doubles_nothing(world: World) -> None:
    for number, step in enumerate(STEPS[1:]):
        table = world.table(f"t{number}", checkpointInterval="1")
        seen: list[str] = []
        with crashing((step, 1), seen):
            assert failure_of(lambda table=table: commit_at(world.ledger, table, 1)) is Crash
        world.reconnect()
        assert failure_of(lambda table=table: commit_at(world.ledger, table, 2)) is None
        expected = [1, 2] if "commit.ratified" in seen else [2]
        files = sorted(world.ledger.snapshot(table).files()["path"].to_pylist())
        assert files == [f"part-{part:05d}.parquet" for part in expected], step
        assert published_versions(table) == list(range(len(expected) + 1)), step
        assert world.ledger.verify(table, every=True).differences == (), step


def a_file_that_is_there_is_an_enemy(patch: pytest.MonkeyPatch) -> None:
    def put(ctx: Any, storage: Any, table: Any, version: int, content: bytes) -> None:
        if not storage.put_if_absent(f"_delta_log/{version:020d}.json", content):
            publish.freeze(ctx, table, "there is a file")

    patch.setattr(publish, "_put", put)


def marked_before_it_is_written(patch: pytest.MonkeyPatch) -> None:
    publish_all = publish.publish_all

    def early(ctx: Any, publications: Any) -> Any:
        publish._mark(ctx, publications)
        return publish_all(ctx, publications)

    patch.setattr(committing, "publish_all", early)


# 6. An unknown outcome is found out, never repeated blindly.


@contextmanager
def losing_the_connection(ledger: Ledger, times: int, *, after_commit: bool) -> Iterator[None]:
    """The connection breaks during COMMIT, after or before the database has done it."""
    store, writing = ledger._ctx.store, ledger._ctx.store.writing
    left = [times]

    @contextmanager
    def broken() -> Iterator[Any]:
        left[0] -= 1
        lost = left[0] >= 0
        with writing() as session:
            yield session
            if lost and not after_commit:
                raise ConnectionLost("the cable", during_commit=True)
        if lost:
            raise ConnectionLost("the cable", during_commit=True)

    store.writing = broken  # type: ignore[method-assign]
    try:
        yield
    finally:
        store.writing = writing  # type: ignore[method-assign]


def check_unknown_outcomes_are_found_out(world: World) -> None:
    ledger = world.ledger
    for name, after_commit in (("done", True), ("undone", False)):
        table = world.table(name)
        with losing_the_connection(ledger, 1, after_commit=after_commit):
            assert failure_of(lambda table=table: commit_at(ledger, table, 1)) is None
        assert state_of(ledger, table) == (1, ["part-00001.parquet"]), "it took place once"
    table = world.table("gone")
    tx = ledger.transaction()
    with losing_the_connection(ledger, 99, after_commit=False):

        def attempt() -> None:
            with tx:
                tx.commit(str(table), [add(1)])

        assert failure_of(attempt) is CommitOutcomeUnknown, "nobody may believe that it failed"
    assert ledger.outcome(tx.transaction_id) is False
    assert ledger.latest_version(table) == 0


def repeated_blindly(patch: pytest.MonkeyPatch) -> None:
    attempt = committing._attempt

    def afresh(ctx: Any, session: Any, request: Request) -> Any:
        return attempt(ctx, session, replace(request, transaction_id=str(uuid.uuid4())))

    patch.setattr(committing, "_attempt", afresh)


def taken_for_a_failure(patch: pytest.MonkeyPatch) -> None:
    pause = committing._pause_or_give_up
    patch.setattr(committing, "_pause_or_give_up", lambda *told: pause(*told[:-1], False))


# 7. The database can be rebuilt from the log, and verify proves that the two are equal.

VECTOR = '{"storageType":"i","pathOrInlineDv":"x","sizeInBytes":1,"cardinality":1}'
HARMS = (
    "UPDATE files SET size = size + 1",
    f"UPDATE files SET deletion_vector = '{VECTOR}'",
    "UPDATE domains SET configuration = 'other'",
    "UPDATE app_transactions SET app_version = 2",
    "UPDATE protocols SET content = replace(content, 'domainMetadata', 'checkConstraints')",
    "UPDATE metadata SET content = replace(content, 'name', 'title')",
    "UPDATE commits SET sha256 = 'x' WHERE version = 1",
)


def check_the_log_rebuilds_the_database_and_verify_proves_it(world: World) -> None:
    table = world.table(**{"feature.domainMetadata": "supported"})
    domain = {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}}
    with world.ledger.transaction() as tx:
        tx.commit(str(table), [add(1), {"txn": {"appId": "a", "version": 1}}, domain])
    with connect(f"deltasql://sqlite/{world.root}/second.db") as second:
        second.adopt(table)
        assert second.verify(table, every=True).differences == ()
    for harm in HARMS:
        with sqlite3.connect(world.database) as connection:
            before = "\n".join(connection.iterdump())
            connection.execute(harm)
        world.reconnect()
        assert not world.ledger.verify(table, every=True).ok, harm
        world.ledger.close()
        _restore(world.database, before)
        world.reconnect()
    assert world.ledger.verify(table, every=True).differences == ()


def _restore(database: Path, dump: str) -> None:
    for file in database.parent.glob(f"{database.name}*"):
        file.unlink()
    with sqlite3.connect(database) as connection:
        connection.executescript(dump)


def verify_looks_away(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("deltaplane.ledger.verify._state_differences", lambda *_: [])


def adoption_forgets_domains(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ratify, "write_domains", lambda *_: None)


# 8. An outside writer is noticed before our next commit.


def check_outside_writers_are_noticed_first(world: World) -> None:
    ledger, table = world.ledger, world.table("import")
    outside_commit(table, 1, [add(1)])
    commit_at(ledger, table, 2)
    assert state_of(ledger, table) == (2, ["part-00001.parquet", "part-00002.parquet"])
    strict = world.root / "strict"
    ledger.create(strict, SCHEMA, foreign_commits="refuse")
    outside_commit(strict, 1, [add(1)])
    assert failure_of(lambda: commit_at(ledger, strict, 2)) is ForeignCommit
    diverged = world.table("diverged")
    with delayed():
        commit_at(ledger, diverged, 1)
    outside_commit(diverged, 1, [add(9)])
    assert failure_of(lambda: commit_at(ledger, diverged, 2)) is TableFrozen
    assert ledger.latest_version(diverged) == 1, "ratified on top of a divergence"
    ledger.repair(diverged, "ledger", dry_run=False)
    commit_at(ledger, diverged, 2)
    assert ledger.verify(diverged, every=True).differences == ()


def nobody_looks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(committing, "notice_foreign_commits", lambda *_: 0)


def nobody_looks_at_what_is_pending(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("deltaplane.ledger.foreign._check_pending", lambda *_: None)


# 9. A table leaves as easily as it came.


def check_a_released_table_is_an_ordinary_one(world: World) -> None:
    table = world.table()
    with delayed():
        commit_at(world.ledger, table, 1)
    before = fingerprint(table)
    assert world.ledger.release(table).version == 1
    after = fingerprint(table)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {f"_delta_log/{1:020d}.json"}, "what was pending is published"
    for (name,) in world.rows(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE '%table_id %'"
    ):
        assert world.rows(f"SELECT count(*) FROM {name}") == [(0,)], name
    write_deltalake(table, pa.table({"id": [1], "name": ["a"]}, schema=SCHEMA), mode="append")
    assert DeltaTable(table).version() == 2


def released_unpublished(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("deltaplane.ledger.release.publish_pending", lambda *_: 0)


def rows_are_left_behind(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(erase, "_HISTORIES", tuple(name for name in erase._HISTORIES if name != "metadata"))


# 10. Clean-up deletes only what we own, and a dry run comes first.


def check_cleanup_deletes_only_what_is_ours_and_expired(world: World) -> None:
    ledger = world.ledger
    table = world.table(checkpointInterval="2", logRetentionDuration="interval 1 days")
    commit(ledger, str(table), 1, 2, 3)
    ours, theirs = staged_path(4, str(uuid.uuid4())), "_delta_log/_staged_commits/4.spark.json"
    for name in (ours, theirs):
        ledger._ctx.storage(str(table)).put(name, b"{}")
    before = fingerprint(table)
    clock = ledger._ctx.clock
    ledger._ctx.clock = lambda: clock() + 2 * 86_400_000
    commit(ledger, str(table), 4)
    before = fingerprint(table)
    (plan,) = ledger.cleanup(table)
    assert fingerprint(table) == before, "a dry run deletes nothing"
    ledger.cleanup(table, dry_run=False)
    sweep_staged(ledger._ctx, ledger._ctx.table(str(table)), older_than_ms=1)
    expired = {f"_delta_log/{version:020d}.json" for version in (0, 1)}
    assert set(plan.files) == expired
    assert set(before) - set(fingerprint(table)) == expired | {ours}
    assert DeltaTable(table, version=3).version() == 3, "everybody reads what is left"


def everything_is_expired(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cleaning, "expired_files", lambda listing, _: list(listing.commits.values()))


def a_dry_run_deletes(patch: pytest.MonkeyPatch) -> None:
    clean = cleaning.clean_log
    patch.setattr(
        "deltaplane.ledger.connection.clean_log",
        lambda ctx, table, _, author: clean(ctx, table, False, author),
    )


def staged_files_of_others_go_too(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("deltaplane.ledger.staged._OURS", re.compile(r"(.*)"))


@dataclass(frozen=True)
class Invariant:
    check: Callable[[World], None]
    breaks: tuple[Callable[[pytest.MonkeyPatch], None], ...]


INVARIANTS = {
    1: Invariant(check_versions_are_ratified_once, (everybody_wins, no_row_is_written)),
    2: Invariant(
        check_only_ratified_versions_appear_in_order,
        (published_before_the_commit, published_backwards, checkpoint_before_its_version),
    ),
    3: Invariant(check_bytes_are_those_of_the_writer, (bytes_are_written_anew, a_wrong_time_is_published)),
    4: Invariant(check_groups_are_whole, (each_table_by_itself,)),
    5: Invariant(
        check_a_crash_loses_and_doubles_nothing,
        (a_file_that_is_there_is_an_enemy, marked_before_it_is_written),
    ),
    6: Invariant(check_unknown_outcomes_are_found_out, (repeated_blindly, taken_for_a_failure)),
    7: Invariant(
        check_the_log_rebuilds_the_database_and_verify_proves_it,
        (verify_looks_away, adoption_forgets_domains),
    ),
    8: Invariant(check_outside_writers_are_noticed_first, (nobody_looks, nobody_looks_at_what_is_pending)),
    9: Invariant(check_a_released_table_is_an_ordinary_one, (released_unpublished, rows_are_left_behind)),
    10: Invariant(
        check_cleanup_deletes_only_what_is_ours_and_expired,
        (everything_is_expired, a_dry_run_deletes, staged_files_of_others_go_too),
    ),
}
BREAKS = [(number, broken) for number, invariant in INVARIANTS.items() for broken in invariant.breaks]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.ledger.close()


@pytest.mark.parametrize("number", INVARIANTS)
def test_the_invariant_holds(world: World, number: int) -> None:
    INVARIANTS[number].check(world)


@pytest.mark.parametrize(
    ("number", "broken"), BREAKS, ids=[f"{number}-{broken.__name__}" for number, broken in BREAKS]
)
def test_a_broken_invariant_is_noticed(
    world: World, number: int, broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        INVARIANTS[number].check(world)
