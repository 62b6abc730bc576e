"""Transactions of Spark: how they end, how they lose, and how they are repeated."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

import deltaplane as dp
from deltaplane.errors import (
    ConfigError,
    LedgerError,
    StatementRefused,
    TransactionConflict,
    TransactionDoomed,
    TransactionEnded,
)
from deltaplane.ledger import Retries, completing
from spark_ledger.actors import Actor
from spark_ledger.conftest import Lake, elsewhere

pytestmark = pytest.mark.spark
on_sqlite = pytest.mark.parametrize("ledger_uri", ["sqlite"], indirect=True)
IDS = "SELECT id FROM {items} ORDER BY id"


@pytest.fixture
def items(lake: Lake) -> Lake:
    """A table with the row 0, and an empty one."""
    lake.table("items", rows=1)
    lake.table("notes", "id bigint")
    return lake


def ids(lake: Lake) -> list[int]:
    return [row.id for row in lake.rows(IDS)]


def outside_append(lake: Lake, number: int) -> None:
    """An append of a writer that knows nothing of the ledger."""
    rows = lake.spark.createDataFrame([(number, "outside")], "id bigint, state string").toArrow()
    write_deltalake(lake.path("items"), rows, mode="append")


# ---- ends


@on_sqlite
def test_nesting_is_refused_and_the_outer_block_goes_on(items: Lake) -> None:
    lake = items
    point = lake.ledger.read_point()

    def inner(where: str, block: Callable[[], object]) -> None:
        said = f"This thread is {where} already"
        with pytest.raises(LedgerError, match=said), block():  # type: ignore[attr-defined]
            lake.sql("DELETE FROM {items}")

    with dp.transaction(lake.spark) as outer:
        lake.sql("INSERT INTO {items} VALUES (1, 'outer')")
        inner("in a transaction", lambda: dp.transaction(lake.spark))
        inner("in a transaction", lambda: dp.reading_at(lake.spark, point))
        assert ids(lake) == [0, 1]
    assert outer.result is not None
    with dp.reading_at(lake.spark, point):
        inner("at a read point", lambda: dp.transaction(lake.spark))
        inner("at a read point", lambda: dp.reading_at(lake.spark, point))
        assert ids(lake) == [0]
    assert ids(lake) == [0, 1]


@on_sqlite
@pytest.mark.parametrize("when", ["before a statement", "after the last statement"])
def test_a_transaction_that_takes_too_long_is_given_up(items: Lake, when: str) -> None:
    lake = items
    before = lake.log("items")

    def run() -> None:
        with dp.transaction(lake.spark, timeout=0.01 if when == "before a statement" else 20):
            if when == "before a statement":
                time.sleep(0.02)
                lake.sql("DELETE FROM {items}")
            lake.sql("DELETE FROM {items}")
            view = next(iter(dp.spark.attaching.attachment_of(lake.spark).port.views.values()))
            view.deadline = time.monotonic() - 1  # type: ignore[attr-defined]

    expected = TransactionEnded if when == "before a statement" else TransactionDoomed
    with pytest.raises(expected, match="took longer than its timeout allows"):
        run()
    assert (ids(lake), lake.log("items")) == ([0], before)
    with dp.transaction(lake.spark, timeout=600):
        lake.sql("DELETE FROM {items}")
    assert ids(lake) == []


@on_sqlite
def test_numbers_that_cannot_be_meant_are_refused(items: Lake) -> None:
    for wrong in (0, -1.5, float("nan")):
        with (
            pytest.raises(ConfigError, match=r"timeout.*more than 0"),
            dp.transaction(items.spark, timeout=wrong),
        ):
            items.sql("DELETE FROM {items}")
    with pytest.raises(ConfigError, match="cannot repeat -1 times"):
        dp.run_transaction(items.spark, lambda: items.sql("DELETE FROM {items}"), retries=-1)
    assert ids(items) == [0]


@on_sqlite
def test_a_view_is_not_dropped_inside(items: Lake) -> None:
    items.sql("CREATE VIEW lasting AS SELECT 1 AS id")
    with pytest.raises(StatementRefused, match=r"DROP VIEW cannot run inside.*seen by everybody"):
        dp.run_transaction(items.spark, lambda: items.sql("DROP VIEW lasting"))
    items.sql("DROP VIEW lasting")


@on_sqlite
def test_rollback_ends_the_transaction_and_nothing_of_it_stays(items: Lake) -> None:
    lake = items
    before = lake.log("items"), lake.log("notes")
    with dp.transaction(lake.spark) as transaction:
        lake.sql("INSERT INTO {items} VALUES (1, 'no')")
        lake.sql("INSERT INTO {notes} VALUES (1)")
        assert ids(lake) == [0, 1]
        transaction.rollback()
        assert ids(lake) == [0]
        with pytest.raises(LedgerError, match="has ended"):
            transaction.rollback()
        with pytest.raises(LedgerError, match="This thread is in a transaction already"):
            dp.transaction(lake.spark).__enter__()
    assert transaction.result is None
    assert (lake.log("items"), lake.log("notes")) == before
    assert lake.ledger.outcome(transaction.transaction_id) is False


@on_sqlite
def test_what_a_block_does_behind_its_rollback_is_refused(items: Lake) -> None:
    """It would be committed, statement by statement, by somebody who believes to be in a transaction."""

    def go_on() -> None:
        with dp.transaction(items.spark) as transaction:
            items.sql("INSERT INTO {notes} VALUES (1)")
            transaction.rollback()
            assert ids(items) == [0]
            items.sql("INSERT INTO {items} VALUES (1, 'behind')")

    with pytest.raises(TransactionEnded, match="was rolled back, and its block goes on"):
        go_on()
    items.sql("INSERT INTO {items} VALUES (2, 'after')")
    assert ids(items) == [0, 2]
    assert items.value("SELECT count(*) FROM {notes}") == 0


@on_sqlite
def test_a_block_may_end_in_another_thread(items: Lake) -> None:
    """As where a framework runs the two halves of a generator in threads of its own."""

    def halves() -> Iterator[None]:
        with dp.transaction(items.spark):
            items.sql("INSERT INTO {items} VALUES (1, 'first half')")
            yield

    both = halves()
    next(both)
    elsewhere(lambda: next(both, None))
    assert ids(items) == [0, 1]
    with dp.transaction(items.spark):
        items.sql("INSERT INTO {items} VALUES (2, 'next')")
    assert ids(items) == [0, 1, 2]


@on_sqlite
def test_a_table_has_one_state_inside_whichever_path_leads_to_it(items: Lake, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(items.folder)
    linked = f"SELECT count(*) FROM delta.`{link}/items`"
    with dp.transaction(items.spark):
        items.sql("INSERT INTO {items} VALUES (1, 'inside')")
        assert items.value(linked) == 2
        items.sql(f"INSERT INTO delta.`{link}/items` VALUES (2, 'linked')")
        assert ids(items) == [0, 1, 2]
    assert (ids(items), items.value(linked)) == ([0, 1, 2], 3)


@on_sqlite
@pytest.mark.parametrize("statement", ["INSERT INTO {exported} VALUES (2)", "GENERATE"])
def test_nothing_is_exported_to_other_engines_before_the_commit(items: Lake, statement: str) -> None:
    """Delta writes manifests behind its own commits, past the log, and they would outlive a rollback."""
    items.table("exported", "id bigint", "'delta.compatibility.symlinkFormatManifest.enabled' = true")
    items.sql("INSERT INTO {exported} VALUES (1)")
    manifest = Path(items.path("exported")) / "_symlink_format_manifest" / "manifest"
    before = manifest.read_text()
    told = "GENERATE cannot run inside"
    if statement == "GENERATE":
        statement = "GENERATE symlink_format_manifest FOR TABLE {exported}"
    else:
        told = "cannot be written inside of a transaction while delta.compatibility.symlink"
    with pytest.raises(StatementRefused, match=told), dp.transaction(items.spark):
        items.sql(statement)
    assert manifest.read_text() == before
    items.sql(statement)
    assert items.value("SELECT max(id) FROM {exported}") == (1 if "GENERATE" in statement else 2)


@on_sqlite
def test_a_transaction_that_writes_nothing_leaves_no_trace(items: Lake) -> None:
    with dp.transaction(items.spark) as transaction:
        assert ids(items) == [0]
    assert transaction.result is not None
    assert (transaction.result.versions, items.version("items")) == ({}, 1)


# ---- conflicts


@on_sqlite
def test_a_conflict_names_the_table_the_version_the_winner_and_what_both_did(items: Lake) -> None:
    lake = items
    with Actor(lake) as a, Actor(lake) as b:
        a.begins(author="ann", message="close the books").sql("UPDATE {items} SET state = 'a'")
        a.sql("INSERT INTO {notes} VALUES (1)")
        b.begins(author="bob").sql("DELETE FROM {items} WHERE id = 0")
        b.commits()
        with pytest.raises(TransactionConflict) as lost:
            a.commits()
    error = lost.value
    assert (error.table, error.version) == (lake.path("items"), 2)
    assert re.fullmatch(
        re.escape(f"{lake.path('items')}: version 2 was taken by bob (DELETE) at ")
        + r"[-0-9: ]+(UTC)?: our UPDATE is not a blind append, so it cannot be moved behind the other\. "
        r"Nothing was written\. Read the table again and repeat, or see: deltaplane ledger history .*/items",
        str(error),
    ), str(error)
    assert (ids(lake), lake.value("SELECT count(*) FROM {notes}")) == ([], 0)


def test_blind_appends_move_behind_those_of_others(items: Lake) -> None:
    """Two commits of the transaction; a statement, an outside writer and a DELETE come in between."""
    lake = items
    with Actor(lake) as a:
        a.begins().sql("INSERT INTO {items} VALUES (1, 'a')", "INSERT INTO {items} VALUES (2, 'a')")
        a.sql("INSERT INTO {notes} VALUES (1)")
        lake.sql("INSERT INTO {items} VALUES (3, 'statement')")
        outside_append(lake, 4)
        lake.sql("DELETE FROM {items} WHERE id = 0")
        assert a.column(IDS) == [0, 1, 2]
        assert a.commits() == {"items": 6, "notes": 1}
    assert ids(lake) == [1, 2, 3, 4]
    assert sorted(DeltaTable(lake.path("items")).to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3, 4]


@on_sqlite
@pytest.mark.parametrize(
    ("feature", "reason"),
    [
        ("'delta.enableInCommitTimestamps' = 'true'", "cannot be moved .* keeps the commit's time"),
        ("'delta.enableRowTracking' = 'true'", "cannot be moved behind the other: the table tracks rows"),
    ],
)
def test_appends_do_not_move_where_their_bytes_would_have_to_change(
    lake: Lake, feature: str, reason: str
) -> None:
    """H13: a moved commit would carry a time before the winner's, or numbers that the winner's rows have."""
    lake.table("items", properties=feature, rows=1)
    with Actor(lake) as a:
        a.begins().sql("INSERT INTO {items} VALUES (1, 'a')")
        lake.sql("INSERT INTO {items} VALUES (2, 'statement')")
        with pytest.raises(TransactionConflict, match=rf"\(WRITE\).*: our WRITE {reason}"):
            a.commits()
        assert (
            dp.run_transaction(lake.spark, lambda: lake.sql("INSERT INTO {items} VALUES (3, 'a')"))
            is not None
        )
    assert ids(lake) == [0, 2, 3]


@on_sqlite
def test_an_append_does_not_move_behind_a_change_of_the_schema(items: Lake) -> None:
    lake = items
    with Actor(lake) as a:
        a.begins().sql("INSERT INTO {items} VALUES (1, 'a')")
        lake.sql("ALTER TABLE {items} ADD COLUMN price int")
        with pytest.raises(TransactionConflict, match=r"\(ADD COLUMNS\).*our WRITE .* it changed the schema"):
            a.commits()
    assert ids(lake) == [0]


# ---- repeating


def test_run_transaction_repeats_what_lost_on_the_new_state(items: Lake) -> None:
    lake = items
    seen: list[list[int]] = []

    def work(spark: SparkSession) -> int:
        assert spark is lake.spark
        seen.append(ids(lake))
        if len(seen) == 1:
            with Actor(lake) as other:
                other.begins().sql("INSERT INTO {items} VALUES (7, 'winner')")
                other.commits()
        lake.sql("UPDATE {items} SET state = 'done'")
        return len(seen)

    assert dp.run_transaction(lake.spark, work, author="ann", message="why") == 2
    assert dp.run_transaction(lake.spark, lambda mine=3: mine) == 3
    assert seen == [[0], [0, 7]]
    assert {row.state for row in lake.rows("SELECT state FROM {items}")} == {"done"}
    last = lake.ledger.history(lake.path("items"), limit=1)[0]
    assert (last.author, last.message, last.version) == ("ann", "why", 3)


@on_sqlite
def test_run_transaction_gives_up_and_repeats_nothing_else(
    items: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = items
    monkeypatch.setattr(Retries, "pause", lambda *_: None)
    calls: list[int] = []

    def loses() -> None:
        calls.append(1)
        lake.sql("UPDATE {items} SET state = 'mine'")
        with Actor(lake) as other:
            other.sql("UPDATE {items} SET state = 'theirs'")

    with pytest.raises(TransactionConflict):
        dp.run_transaction(lake.spark, loses, retries=1)
    assert (len(calls), lake.value("SELECT state FROM {items}")) == (2, "theirs")

    def fails(statement: str) -> None:
        calls.append(1)
        lake.sql(statement)
        raise KeyError("mine")

    calls.clear()
    with pytest.raises(KeyError):
        dp.run_transaction(lake.spark, lambda: fails("DELETE FROM {items}"))
    with pytest.raises(StatementRefused, match="VACUUM cannot run inside of a transaction"):
        dp.run_transaction(lake.spark, lambda: fails("VACUUM {items}"))
    assert (len(calls), ids(lake)) == (2, [0])


def test_statements_are_refused_in_every_session_of_the_application(items: Lake) -> None:
    """A transaction belongs to a thread, and its statements may come from any session."""
    with pytest.raises(StatementRefused, match="DROP TABLE cannot run inside"), dp.transaction(items.spark):
        items.spark.newSession().sql(f"DROP TABLE delta.`{items.path('items')}`")
    assert items.value("SELECT count(*) FROM {items}") > 0


# ---- large versions


def test_statements_and_transactions_whose_rows_follow_them(
    items: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every version counts as large: whatever comes next meets rows that are still to be written."""
    monkeypatch.setattr(completing, "LARGE", 1)
    lake = items
    lake.sql("INSERT INTO {items} SELECT id, 'more' FROM range(1, 5)")
    lake.sql("UPDATE {items} SET state = 'paid' WHERE id = 3")
    with dp.transaction(lake.spark):
        lake.sql("DELETE FROM {items} WHERE id = 4")
        lake.sql("INSERT INTO {notes} SELECT id FROM {items}")
        lake.sql("CREATE TABLE {fresh} USING delta AS SELECT * FROM {items}")
        lake.sql("INSERT INTO {fresh} VALUES (9, 'fresh')")
        assert lake.value("SELECT count(*) FROM {notes}") == 4
    lake.sql("DELETE FROM {items}")
    lake.sql("RESTORE TABLE {items} TO VERSION AS OF 2")
    with dp.transaction(lake.spark) as transaction:
        lake.sql("DELETE FROM {notes}")
        transaction.rollback()
    assert ids(lake) == [0, 1, 2, 3, 4]
    assert lake.value("SELECT sum(id) FROM {notes}") == 6
    assert lake.value("SELECT count(*) FROM {fresh}") == 5
    for name in ("items", "notes", "fresh"):
        seen = DeltaTable(lake.path(name))
        assert lake.ledger.snapshot(lake.path(name)).num_files == len(seen.file_uris())


@on_sqlite
def test_whoever_loses_against_a_large_version_is_told(items: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completing, "LARGE", 1)
    lake = items

    def loses() -> None:
        lake.sql("UPDATE {items} SET state = 'mine'")
        with Actor(lake) as other:
            other.sql("UPDATE {items} SET state = 'theirs'")

    with pytest.raises(TransactionConflict, match=r"items.*UPDATE"):
        dp.run_transaction(lake.spark, loses, retries=0)
    assert lake.value("SELECT state FROM {items}") == "theirs"
