"""Snapshot isolation over many tables: the anomalies that it rules out, and the one that it allows."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

import deltaplane as dp
from deltaplane import telemetry
from deltaplane.errors import TransactionConflict
from spark_ledger.actors import Actor
from spark_ledger.checker import Read, Recorded
from spark_ledger.conftest import Lake, elsewhere
from spark_ledger.histories import LISTS, client, create_lists, faults_of, ids_in, versions_now

pytestmark = pytest.mark.spark
on_sqlite = pytest.mark.parametrize("ledger_uri", ["sqlite"], indirect=True)

TOTAL = "SELECT sum(amount) FROM {accounts}"
BOTH = "SELECT (SELECT sum(amount) FROM {accounts}) + (SELECT sum(amount) FROM {savings})"


@pytest.fixture
def bank(lake: Lake) -> Lake:
    """One account with 100 in each of two tables."""
    for name in ("accounts", "savings"):
        lake.sql(f"CREATE TABLE {{{name}}} USING delta AS SELECT 1L AS id, 100L AS amount")
    return lake


def outside(lake: Lake, name: str, version: int | None = None) -> int:
    """The sum of a table as a reader sees it that knows nothing of the ledger."""
    return sum(DeltaTable(lake.path(name), version=version).to_pyarrow_table()["amount"].to_pylist())


def transfer(actor: Actor, amount: int) -> None:
    actor.sql(
        f"UPDATE {{accounts}} SET amount = amount - {amount}",
        f"UPDATE {{savings}} SET amount = amount + {amount}",
    )


def everybody_sees(lake: Lake) -> dict[str, int]:
    """The total of the accounts, by who looks."""
    point = lake.ledger.read_point()

    def at_the_point() -> int:
        with dp.reading_at(lake.spark, point):
            return int(lake.value(TOTAL))

    other = lake.spark.newSession()
    with Actor(lake) as transaction:
        inside = transaction.begins().value(TOTAL)
    return {
        "another thread": elsewhere(lambda: lake.value(TOTAL)),
        "another session": other.sql(f"SELECT sum(amount) FROM delta.`{lake.path('accounts')}`").collect()[0][
            0
        ],
        "another transaction": inside,
        "a read point": elsewhere(at_the_point),
        "deltalake": outside(lake, "accounts"),
        "deltalake at the point": outside(lake, "accounts", point.versions[lake.path("accounts")]),
    }


def test_dirty_read(bank: Lake) -> None:
    """Nobody sees what a transaction wrote before it has committed, and nobody after it was rolled back."""
    with Actor(bank) as a:
        a.begins().sql("UPDATE {accounts} SET amount = 0", "INSERT INTO {accounts} VALUES (2, 7)")
        assert a.value(TOTAL) == 7
        seen = everybody_sees(bank)
        assert seen == dict.fromkeys(seen, 100)
        a.rollback()
        assert (a.value(TOTAL), outside(bank, "accounts")) == (100, 100)
        a.begins().sql("UPDATE {accounts} SET amount = 50")
        a.commits()
        seen = everybody_sees(bank)
        assert seen == dict.fromkeys(seen, 50)


def test_nonrepeatable_read(bank: Lake) -> None:
    """What was read once is read again, whoever commits meanwhile: this driver or an outside writer."""
    point = bank.ledger.read_point()
    rows = bank.spark.createDataFrame([(9, 1)], "id bigint, amount bigint").toArrow()
    with Actor(bank) as a, Actor(bank) as reader:
        a.begins()
        held = dp.reading_at(bank.spark, point)
        reader.does(held.__enter__)
        for _ in range(3):
            assert (a.value(BOTH), reader.value(BOTH)) == (200, 200)
            bank.sql("UPDATE {accounts} SET amount = amount + 1")
            write_deltalake(bank.path("savings"), rows, mode="append")
        reader.does(lambda: held.__exit__(None, None, None))
        a.rollback()
        assert (a.value(BOTH), reader.value(BOTH)) == (206, 206)
    bank.ledger.refresh(bank.path("savings"))


@on_sqlite
def test_phantom(bank: Lake) -> None:
    """Rows of others do not come or go under a predicate, also not for a statement that writes."""
    small = "SELECT count(*), sum(amount) FROM {accounts} WHERE amount < 50"
    with Actor(bank) as a:
        a.begins()
        assert a.does(lambda: tuple(bank.rows(small)[0])) == (0, None)
        bank.sql("INSERT INTO {accounts} VALUES (2, 10)")
        bank.sql("DELETE FROM {accounts} WHERE id = 1")
        assert a.does(lambda: tuple(bank.rows(small)[0])) == (0, None)
        a.sql("INSERT INTO {savings} SELECT 2, count(*) FROM {accounts} WHERE amount >= 50")
        assert a.column("SELECT amount FROM {savings} ORDER BY id") == [100, 1]
        assert a.commits() == {"savings": 1}
    assert bank.rows(small)[0][0] == 1


def test_lost_update(bank: Lake) -> None:
    """Two transactions add to the balance that both have read: the second to commit loses, and may repeat."""
    add = "UPDATE {accounts} SET amount = amount + 10"
    with Actor(bank) as a, Actor(bank) as b:
        a.begins()
        b.begins()
        a.sql(add)
        b.sql(add)
        assert (a.value(TOTAL), b.value(TOTAL)) == (110, 110)
        assert b.commits() == {"accounts": 1}
        with pytest.raises(TransactionConflict):
            a.commits()
    assert (bank.value(TOTAL), outside(bank, "accounts")) == (110, 110)
    begun = threading.Barrier(2)

    def both(attempts: list[int]) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            begun.wait(60)
        bank.sql(add)

    told: tuple[list[int], list[int]] = ([], [])
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda mine: dp.run_transaction(bank.spark, lambda: both(mine), retries=5), told))
    assert (bank.value(TOTAL), outside(bank, "accounts")) == (130, 130)
    assert sorted(map(len, told)) == [1, 2]


@on_sqlite
@pytest.mark.parametrize("first", ["a statement", "an outside writer"])
def test_lost_update_against_those_who_are_in_no_transaction(bank: Lake, first: str) -> None:
    with Actor(bank) as a:
        a.begins().sql("UPDATE {accounts} SET amount = amount + 10", "UPDATE {savings} SET amount = 0")
        if first == "a statement":
            bank.sql("UPDATE {accounts} SET amount = amount + 1")
        else:
            DeltaTable(bank.path("accounts")).update({"amount": "amount + 1"})
        with pytest.raises(TransactionConflict):
            a.commits()
    assert (bank.value(TOTAL), bank.value(BOTH)) == (101, 201)


@on_sqlite
def test_a_statement_loses_nothing_against_a_transaction_that_commits_while_it_runs(bank: Lake) -> None:
    """A statement of its own that began before the commit, and writes after it: Delta's rules decide."""
    with Actor(bank) as a:
        a.begins().sql("UPDATE {accounts} SET amount = amount + 10")
        done = threading.Event()

        def commit_first(name: str, told: dict[str, Any]) -> None:
            if name == "commit.begin" and not done.is_set():
                done.set()
                a.commits()

        stop = telemetry.listen(commit_first)
        try:
            with pytest.raises(Exception, match="DELTA_CONCURRENT"):
                bank.sql("UPDATE {accounts} SET amount = amount + 1")
        finally:
            stop()
    assert (bank.value(TOTAL), outside(bank, "accounts")) == (110, 110)


def test_torn_read_over_two_tables(bank: Lake) -> None:
    """A transfer commits between the reads of the two tables it moves money between."""
    points = []
    with Actor(bank) as a, Actor(bank) as inside, Actor(bank) as at_point:
        for amount in (5, 7):
            points.append(bank.ledger.read_point())
            held = dp.reading_at(bank.spark, points[-1])
            at_point.does(held.__enter__)
            inside.begins()
            before = inside.value(TOTAL), at_point.value(TOTAL)
            a.begins()
            transfer(a, amount)
            a.commits()
            after = (
                inside.value("SELECT sum(amount) FROM {savings}"),
                at_point.value("SELECT sum(amount) FROM {savings}"),
            )
            assert (before[0] + after[0], before[1] + after[1]) == (200, 200)
            assert (inside.value(BOTH), at_point.value(BOTH)) == (200, 200)
            at_point.does(lambda block=held: block.__exit__(None, None, None))
            inside.rollback()
    seen = [
        [outside(bank, name, point.versions[bank.path(name)]) for name in ("accounts", "savings")]
        for point in (*points, bank.ledger.read_point())
    ]
    assert seen == [[100, 100], [95, 105], [88, 112]]


def test_torn_read_between_the_publications_of_two_tables(bank: Lake) -> None:
    """The group is ratified, and none of its tables is published, or one: whoever begins sees all of it."""
    seen: dict[str, list[tuple[int, int]]] = {}
    once = threading.Lock()

    def look() -> list[tuple[int, int]]:
        # A read point is taken last: it publishes what it names.
        with dp.transaction(bank.spark):
            inside = bank.value(TOTAL), bank.value(BOTH)
        with dp.reading_at(bank.spark, bank.ledger.read_point()):
            return [inside, (bank.value(TOTAL), bank.value(BOTH))]

    def between(name: str, told: dict[str, Any]) -> None:
        if name == "commit.ratified" or (name == "publish.file_written" and once.acquire(blocking=False)):
            seen[name] = elsewhere(look)

    with Actor(bank) as a:
        a.begins()
        transfer(a, 5)
        stop = telemetry.listen(between)
        try:
            a.commits()
        finally:
            stop()
    whole = [(95, 200), (95, 200)]
    assert seen == {"commit.ratified": whole, "publish.file_written": whole}
    assert outside(bank, "accounts") + outside(bank, "savings") == 200


def test_write_skew_is_allowed_and_a_common_row_prevents_it(bank: Lake) -> None:
    """A table may go below zero as long as the sum does not: both look at it, each takes from its own."""
    take = "UPDATE {{{}}} SET amount = amount - 150"

    def race(*common: str) -> list[str]:
        lost = []
        with Actor(bank) as a, Actor(bank) as b:
            for actor, name in ((a, "accounts"), (b, "savings")):
                actor.begins().sql(*common)
                if actor.value(BOTH) >= 150:
                    actor.sql(take.format(name))
            a.commits()
            try:
                b.commits()
            except TransactionConflict as error:
                lost.append(error.table)
        return lost

    assert race() == []
    assert bank.value(BOTH) == -100
    bank.sql("INSERT INTO {savings} VALUES (2, 300)")
    bank.table("guard", "turn bigint")
    bank.sql("INSERT INTO {guard} VALUES (0)")
    assert race("UPDATE {guard} SET turn = turn + 1") == [bank.path("guard")]
    assert (bank.value(BOTH), bank.value("SELECT turn FROM {guard}")) == (50, 1)


# ---- recorded histories


def poll(lake: Lake, record: list[Recorded], stop: threading.Event, *, with_spark: bool) -> None:
    while not stop.wait(0.05):
        floor = versions_now(lake)
        point = lake.ledger.read_point()
        if with_spark:
            with dp.reading_at(lake.spark, point):
                reads = [ids_in(lake, table) for table in LISTS]
        else:
            reads = []
            for table in LISTS:
                lake.ledger.publish(lake.path(table))
                found = DeltaTable(lake.path(table), version=point.versions[lake.path(table)])
                texts = found.to_pyarrow_table()["ids"].to_pylist()
                reads.append(Read(table, tuple(one for text in texts for one in text.split())))
        record.append(
            Recorded(f"reader {len(record)}", tuple(reads), floor=floor, ceiling=versions_now(lake))
        )


@pytest.mark.parametrize(
    "ledger_uri", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True
)
def test_recorded_histories_of_threads_and_outside_readers_are_snapshot_isolated(lake: Lake) -> None:
    create_lists(lake)
    record: list[Recorded] = []
    stop = threading.Event()
    with ThreadPoolExecutor(5) as pool:
        readers = [pool.submit(poll, lake, record, stop, with_spark=spark) for spark in (True, False)]
        clients = [pool.submit(client, lake, number, 3, record.append) for number in range(3)]
        try:
            for one in clients:
                one.result(300)
        finally:
            stop.set()
        for one in readers:
            one.result(60)
    assert faults_of(lake, record) == []
    outcomes = Counter(one.acknowledged for one in record if one.writes)
    # A commit makes at most one transaction of every other client lose.
    assert outcomes[True] + outcomes[False] == 9
    assert outcomes[True] >= 3
    assert outcomes[False] >= 1
