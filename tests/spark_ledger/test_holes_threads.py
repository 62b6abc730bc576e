"""Holes H6 and H7: streams, threads and tables that a transaction does not reach, and those that it does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark import InheritableThread
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

import deltaplane as dp
from deltaplane.errors import SparkStartError, StatementRefused, TransactionDoomed, TransactionEnded
from spark_ledger.actors import Actor
from spark_ledger.conftest import Lake, elsewhere

pytestmark = [pytest.mark.spark, pytest.mark.parametrize("ledger_uri", ["sqlite"], indirect=True)]

PATIENCE = 120


def ids(lake: Lake, name: str = "items") -> list[int]:
    return sorted(row.id for row in lake.rows(f"SELECT id FROM {{{name}}}"))


def stream(lake: Lake, tmp_path: Path, batch: Callable[[DataFrame, int], None]) -> StreamingQuery:
    """A query over the items that ends with those which are there."""
    source = lake.spark.readStream.format("delta").load(lake.path("items"))
    sink = source.writeStream.foreachBatch(batch).trigger(availableNow=True)
    return sink.option("checkpointLocation", str(tmp_path / "checkpoint")).start()


def test_a_stream_started_inside_is_refused_and_loses_no_rows_later(lake: Lake, tmp_path: Path) -> None:
    """H6: it kept a staged version in its checkpoint, and skipped what came under that number later."""
    lake.table("items", rows=1)
    seen: list[int] = []

    def note(batch: DataFrame, _: int) -> None:
        seen.extend(row.id for row in batch.collect())

    with Actor(lake) as a:
        a.begins().sql("INSERT INTO {items} VALUES (10, 'a')")
        query = a.does(lambda: stream(lake, tmp_path, note))
        with pytest.raises(StreamingQueryException, match="was started inside of the transaction"):
            query.awaitTermination(PATIENCE)
        assert (seen, a.does(lambda: ids(lake))) == ([], [0, 10])
        a.rollback()
    lake.sql("INSERT INTO {items} VALUES (20, 'later')")
    assert stream(lake, tmp_path, note).awaitTermination(PATIENCE)
    assert sorted(seen) == [0, 20]


def test_a_batch_of_a_stream_may_have_a_transaction_of_its_own(lake: Lake, tmp_path: Path) -> None:
    """H6: it begins and ends inside of the batch, in the session of the batch or in another one."""
    lake.table("items", rows=2)
    for name in ("copies", "counts"):
        lake.table(name, "id bigint")

    def copy(batch: DataFrame, _: int) -> None:
        for session in (batch.sparkSession, lake.spark):
            with dp.transaction(session):
                batch.select("id").write.format("delta").mode("append").save(lake.path("copies"))
                counted = f"SELECT count(*) FROM delta.`{lake.path('copies')}`"
                session.sql(f"INSERT INTO delta.`{lake.path('counts')}` {counted}")
                assert elsewhere(lambda: lake.version("counts")) == lake.version("copies")

    assert stream(lake, tmp_path, copy).awaitTermination(PATIENCE)
    assert (ids(lake, "copies"), ids(lake, "counts")) == ([0, 0, 1, 1], [2, 4])
    assert (lake.version("copies"), lake.version("counts")) == (2, 2)


def test_a_plain_thread_works_outside_of_the_transaction(lake: Lake) -> None:
    """H7: Python's own pools do not hand the transaction on; what they write stands for itself."""
    lake.table("items", rows=1)
    with Actor(lake) as a, ThreadPoolExecutor(1) as pool:
        a.begins().sql("INSERT INTO {items} VALUES (10, 'a')")
        a.does(lambda: pool.submit(lake.sql, "INSERT INTO {items} VALUES (20, 'pool')").result())
        assert (a.does(lambda: ids(lake)), ids(lake)) == ([0, 10], [0, 20])
        a.rollback()
    assert ids(lake) == [0, 20]


def test_bound_functions_and_threads_of_spark_take_part(lake: Lake) -> None:
    """H7: two at a time, each on its table; both commit or none does."""
    for name in ("items", "others", "third"):
        lake.table(name, "id bigint")
    both = threading.Barrier(2)

    def write(name: str) -> list[int]:
        both.wait(PATIENCE)
        lake.sql(f"INSERT INTO {{{name}}} VALUES (1)")
        both.wait(PATIENCE)
        return ids(lake, "items") + ids(lake, "others")

    with ThreadPoolExecutor(2) as pool:
        with dp.transaction(lake.spark) as transaction:
            seen = list(pool.map(transaction.bind(write), ["items", "others"]))
            thread = InheritableThread(target=lambda: lake.sql("INSERT INTO {third} VALUES (1)"))
            thread.start()
            thread.join()
            inside = elsewhere(lambda: ids(lake, "items") + ids(lake, "third"))
        assert (seen, inside) == ([[1, 1], [1, 1]], [])
        # The threads of the pool are free again.
        assert pool.submit(ids, lake, "items").result(PATIENCE) == [1]
    assert transaction.result is not None
    assert transaction.result.versions == {lake.path(name): 1 for name in ("items", "others", "third")}


def test_threads_of_one_transaction_append_to_one_table(lake: Lake) -> None:
    """H7: the slower one is told so, and goes behind the other, as outside of a transaction."""
    lake.table("items", "id bigint")
    with ThreadPoolExecutor(3) as pool, dp.transaction(lake.spark) as transaction:
        write = transaction.bind(lambda number: lake.sql(f"INSERT INTO {{items}} VALUES ({number})"))
        list(pool.map(write, range(6)))
        assert sorted(ids(lake, "items")) == [0, 1, 2, 3, 4, 5]
    assert (sorted(ids(lake, "items")), lake.version("items")) == ([0, 1, 2, 3, 4, 5], 6)


def test_whoever_still_runs_at_the_end_of_a_transaction_writes_nothing(lake: Lake) -> None:
    """H7: a bound function at work dooms it; a thread of Spark that comes too late is told so."""
    lake.table("items", rows=1)
    running, go_on = threading.Event(), threading.Event()
    late: list[BaseException] = []

    def wait() -> None:
        running.set()
        assert go_on.wait(PATIENCE)

    def write() -> None:
        assert go_on.wait(PATIENCE)
        try:
            lake.sql("INSERT INTO {items} VALUES (30, 'late')")
        except Exception as error:
            late.append(error)

    with Actor(lake) as a, ThreadPoolExecutor(1) as pool:
        a.begins().sql("INSERT INTO {items} VALUES (10, 'a')")
        assert a.transaction is not None
        thread = InheritableThread(target=write)
        a.does(thread.start)
        bound = pool.submit(a.transaction.bind(wait))
        assert running.wait(PATIENCE)
        with pytest.raises(TransactionDoomed):
            a.commits()
        go_on.set()
        bound.result(PATIENCE)
        thread.join()
        assert ["has ended" in str(error) for error in late] == [True]
        again = pool.submit(a.transaction.bind(lake.sql), "INSERT INTO {items} VALUES (40, 'late')")
        with pytest.raises(TransactionEnded):
            again.result(PATIENCE)
        assert pool.submit(ids, lake).result(PATIENCE) == [0]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO {there} VALUES (1)",
        "OPTIMIZE {there}",
        "CREATE TABLE {new} USING delta AS SELECT 1 AS id",
    ],
)
def test_a_table_that_is_not_managed_is_read_inside_and_not_written(
    lake: Lake, tmp_path: Path, statement: str
) -> None:
    """H7: the write took place at once, whatever became of the transaction."""
    plain = Lake(lake.spark, lake.ledger, tmp_path / "plain")
    for _ in range(2):
        lake.spark.range(1).coalesce(1).write.format("delta").mode("append").save(plain.path("there"))
    lake.table("items", rows=1)
    before = plain.log("there")

    def write() -> None:
        with dp.transaction(lake.spark):
            assert ids(plain, "there") == [0, 0]
            lake.sql("INSERT INTO {items} VALUES (10, 'a')")
            plain.sql(statement)

    with pytest.raises(StatementRefused, match=r"is not managed|in which new tables are managed"):
        write()
    assert (plain.log("there"), ids(plain, "there"), ids(lake)) == (before, [0, 0], [0])
    assert not (plain.folder / "new/_delta_log/00000000000000000000.json").exists()


def test_threads_that_share_one_of_java_are_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """H7: with PYSPARK_PIN_THREAD=false transactions would be shared at random."""
    monkeypatch.setenv("PYSPARK_PIN_THREAD", "false")
    with pytest.raises(SparkStartError, match="PYSPARK_PIN_THREAD"):
        dp.attach(lake.spark, lake.ledger)


def test_pools_of_spark_and_delta_work_for_whoever_asks(lake: Lake) -> None:
    """H7, H16: they read checkpoints, history and broadcasts, and have served somebody else before."""
    lake.table("items", "id bigint", "'delta.checkpointInterval' = '1', 'delta.checkpointPolicy' = 'v2'")
    lake.sql("INSERT INTO {items} SELECT id FROM range(3)")

    def look() -> tuple[Any, ...]:
        joined = "SELECT /*+ BROADCAST(b) */ count(*) FROM {items} a JOIN {items} b ON a.id = b.id"
        nested = "SELECT count(*) FROM {items} WHERE id <= (SELECT max(id) FROM {items})"
        history = [row.version for row in lake.rows("DESCRIBE HISTORY {items}")]
        earlier = lake.value("SELECT count(*) FROM {items} VERSION AS OF 2") if 2 in history else None
        return lake.value(joined), lake.value(nested), history, earlier

    outside = look()
    with Actor(lake) as a:
        a.begins().sql("INSERT INTO {items} VALUES (10)", "DELETE FROM {items} WHERE id = 0")
        assert (a.does(look), look()) == ((3, 3, [3, 2, 1, 0], 4), outside)
        a.rollback()
    assert look() == outside == (3, 3, [1, 0], None)
