"""Hole H3: Spark's cache of query results knows nothing of versions and serves what it holds to everybody."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from pyspark.errors import UnsupportedOperationException
from pyspark.sql import DataFrame

import deltaplane as dp
from spark_ledger.actors import Actor, setting
from spark_ledger.conftest import Lake, elsewhere

pytestmark = [pytest.mark.spark, pytest.mark.parametrize("ledger_uri", ["sqlite"], indirect=True)]


@pytest.fixture
def items(lake: Lake) -> Iterator[Lake]:
    lake.table("items", rows=1)
    yield lake
    lake.spark.catalog.clearCache()


def read(lake: Lake) -> DataFrame:
    return lake.spark.read.format("delta").load(lake.path("items"))


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.collect())


def test_what_was_cached_before_is_not_used_inside_and_stays_clean_outside(items: Lake) -> None:
    """H3: cached and computed before the begin."""
    frame = read(items).cache()
    assert ids(frame) == [0]
    with Actor(items) as a:
        a.begins().sql("INSERT INTO {items} VALUES (10, 'a')", "UPDATE {items} SET state = 'a'")
        assert a.does(lambda: ids(read(items))) == [0, 10]
        assert (ids(frame), elsewhere(lambda: ids(read(items)))) == ([0], [0])
        a.rollback()
        assert (ids(frame), elsewhere(lambda: ids(read(items)))) == ([0], [0])


def test_what_was_cached_before_is_computed_anew_after_the_commit(items: Lake) -> None:
    """H3: as after every write, the next query must not be answered from before it."""
    cached = read(items).cache()
    assert ids(cached) == [0]
    with dp.transaction(items.spark):
        items.sql("INSERT INTO {items} VALUES (10, 'a')")
    assert (ids(read(items)), elsewhere(lambda: ids(read(items)))) == ([0, 10], [0, 10])
    assert cached.storageLevel.useMemory


@pytest.mark.parametrize("way", ["INSERT", "OVERWRITE", "insertInto", "writeTo", "saveAsTable"])
def test_a_table_that_is_cached_by_its_name_is_written_inside(items: Lake, way: str) -> None:
    """H3: Spark computes it anew behind a write, when the commit is staged already."""
    spark = items.spark
    name = f"cached{uuid.uuid4().hex[:6]}"
    spark.sql(f"CREATE TABLE {name} USING delta LOCATION '{items.path('items')}'")
    cached = spark.table(name).cache()
    assert ids(cached) == [0]
    row = spark.createDataFrame([(10, "a")], "id bigint, state string")
    with dp.transaction(spark):
        if way == "INSERT":
            spark.sql(f"INSERT INTO {name} VALUES (10, 'a')")
        elif way == "OVERWRITE":
            spark.sql(f"INSERT OVERWRITE {name} VALUES (0, 'a'), (10, 'a')")
        elif way == "insertInto":
            row.write.insertInto(name)
        elif way == "writeTo":
            row.writeTo(name).append()
        else:
            row.write.format("delta").mode("append").saveAsTable(name)
        assert (ids(spark.table(name)), elsewhere(lambda: ids(spark.table(name)))) == ([0, 10], [0])
    assert ids(spark.table(name)) == [0, 10]
    spark.sql(f"DROP TABLE {name}")


def test_what_was_marked_before_is_not_computed_inside(items: Lake) -> None:
    """H3: caching is lazy, so the first one to ask may be a transaction, and leave staged rows to others."""
    frame = read(items).cache()
    with Actor(items) as a:
        a.begins().sql("INSERT INTO {items} VALUES (10, 'a')")
        with pytest.raises(UnsupportedOperationException, match="made before the transaction"):
            a.does(frame.collect)
        assert (a.does(lambda: ids(read(items))), ids(read(items))) == ([0, 10], [0])
        a.rollback()
    assert ids(read(items)) == [0]


@pytest.mark.parametrize("way", ["cache", "CACHE TABLE", "CACHE LAZY TABLE"])
def test_nothing_is_cached_inside(items: Lake, way: str) -> None:
    """H3: what a transaction caches would be served to everybody, also after its rollback."""

    def cache() -> None:
        if way == "cache":
            read(items).cache().collect()
        else:
            items.sql(f"{way} held AS SELECT * FROM {{items}}")

    with Actor(items) as a:
        a.begins().sql("INSERT INTO {items} VALUES (10, 'a')")
        with pytest.raises(Exception, match="Nothing was changed"):
            a.does(cache)
        a.rollback()
    assert ids(read(items)) == [0]


@pytest.mark.parametrize("fresh", ["0s", "1h"])
def test_a_frame_of_a_transaction_that_is_cached_after_its_end_serves_nothing_of_it(
    items: Lake, fresh: str
) -> None:
    """H3: it was built over a version that was rolled back, which somebody else has made meanwhile."""
    with setting(items.spark, "spark.databricks.delta.stalenessLimit", fresh), Actor(items) as a:
        a.begins().sql("INSERT INTO {items} VALUES (10, 'a')")
        frame = a.does(lambda: read(items))
        a.rollback()
        items.sql("INSERT INTO {items} VALUES (20, 'later')")
        frame.cache().collect()
        assert (ids(read(items)), elsewhere(lambda: ids(read(items)))) == ([0, 20], [0, 20])


def test_a_frame_that_others_cache_meanwhile_holds_what_is_committed(items: Lake) -> None:
    """H3: cached outside, in the middle of a transaction."""
    with Actor(items) as a:
        a.begins().sql("INSERT INTO {items} VALUES (10, 'a')")
        frame = read(items).cache()
        assert (ids(frame), a.does(lambda: ids(read(items)))) == ([0], [0, 10])
        a.rollback()
    assert ids(read(items)) == [0]
