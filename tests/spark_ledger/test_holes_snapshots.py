"""Holes H1, H2 and H4: what Delta remembers of a table, writes beside its commits, and tries again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

import deltaplane as dp
from deltaplane.errors import StatementRefused, TransactionConflict
from spark_ledger.actors import Actor, setting
from spark_ledger.conftest import Lake, elsewhere

pytestmark = pytest.mark.spark
on_sqlite = pytest.mark.parametrize("ledger_uri", ["sqlite"], indirect=True)

IDS = "SELECT id FROM {items} ORDER BY id"


def outside_ids(lake: Lake, name: str = "items") -> list[int]:
    """What a reader sees that knows nothing of the ledger, and remembers nothing."""
    return sorted(DeltaTable(lake.path(name)).to_pyarrow_table()["id"].to_pylist())


def written_beside_commits(lake: Lake, name: str = "items") -> list[str]:
    return [file for file in lake.log(name) if not file.endswith(".json")]


# ---- H1: snapshots that leak between views


def test_two_transactions_at_the_same_version_do_not_see_each_other(lake: Lake) -> None:
    """H1: staged version 2 of A, staged version 2 of B and published version 2 count as equal for Delta."""
    lake.table("items", rows=1)
    with Actor(lake) as a, Actor(lake) as b:
        a.begins().sql("INSERT INTO {items} VALUES (10, 'a')")
        b.begins().sql("INSERT INTO {items} VALUES (20, 'b')")
        seen = a.column(IDS), b.column(IDS), elsewhere(lambda: lake.value("SELECT count(*) FROM {items}"))
        assert seen == ([0, 10], [0, 20], 1)
        lake.sql("INSERT INTO {items} VALUES (30, 'outside')")
        b.sql("INSERT INTO {items} VALUES (21, 'b')")
        assert (a.column(IDS), b.column(IDS)) == ([0, 10], [0, 20, 21])
        b.rollback()
        assert a.column(IDS) == [0, 10]
        assert a.commits() == {"items": 3}
    assert [row.id for row in lake.rows(IDS)] == [0, 10, 30] == outside_ids(lake)


def test_a_foreign_publication_of_a_staged_version_is_not_read_inside(lake: Lake) -> None:
    """H1: somebody publishes the version that is staged, before the staging and after it."""
    for name in ("items", "others"):
        lake.table(name, "id bigint", "'delta.checkpointInterval' = '100'")
    rows = lake.spark.range(5, 6).toArrow()
    with Actor(lake) as a:
        a.begins().sql("INSERT INTO {items} VALUES (1)")
        for name in ("items", "others"):
            write_deltalake(lake.path(name), rows, mode="append")
        a.sql("INSERT INTO {others} VALUES (2)")
        staged = "SELECT (SELECT collect_list(id) FROM {items}), (SELECT collect_list(id) FROM {others})"
        inside = a.does(lambda: [tuple(row) for row in lake.rows(staged)])
        outside = elsewhere(lambda: [tuple(row) for row in lake.rows(staged)])
        assert (inside, outside) == ([([1], [2])], [([5], [5])])
        assert a.commits() == {"items": 2, "others": 2}
    assert (outside_ids(lake), outside_ids(lake, "others")) == ([1, 5], [2, 5])


@on_sqlite
@pytest.mark.parametrize("lock", ["true", "false"])
def test_a_commit_outside_checkpoints_nothing_that_is_staged(lake: Lake, lock: str) -> None:
    """H1: an append outside checkpointed rows that were staged; they outlived the rollback."""
    lake.table("items", "id bigint", "'delta.checkpointInterval' = '1'")
    lake.sql("INSERT INTO {items} VALUES (0)")
    with setting(lake.spark, "spark.databricks.delta.commitLock.enabled", lock), Actor(lake) as a:
        a.begins().sql("INSERT INTO {items} VALUES (10)", "INSERT INTO {items} VALUES (11)")
        ratified = {f"{version:020d}.checkpoint.parquet" for version in (1,)}
        assert {file for file in lake.log("items") if "checkpoint.parquet" in file} == ratified
        lake.sql("INSERT INTO {items} VALUES (1)")
        a.sql("DELETE FROM {items} WHERE id = 0")
        lake.sql("INSERT INTO {items} VALUES (2)")
        assert a.column(IDS) == [10, 11]
        a.rollback()
    ratified = {f"{version:020d}.checkpoint.parquet" for version in (1, 2, 3)}
    assert {file for file in lake.log("items") if "checkpoint.parquet" in file} == ratified
    hint = json.loads((lake.folder / "items/_delta_log/_last_checkpoint").read_text())
    assert hint["version"] == 3
    for version in (1, 2, 3):
        (lake.folder / f"items/_delta_log/{version:020d}.json").rename(lake.folder / f"{version}.json")
    # Only the checkpoints are left to read from.
    assert outside_ids(lake) == [0, 1, 2]
    for version in (1, 2, 3):
        (lake.folder / f"{version}.json").rename(lake.folder / f"items/_delta_log/{version:020d}.json")


@on_sqlite
def test_a_snapshot_that_counts_as_fresh_enough_is_still_the_views_own(lake: Lake) -> None:
    """H1: with a staleness limit Delta plans with whatever snapshot somebody loaded last, unlisted."""
    lake.table("items", rows=1)
    with setting(lake.spark, "spark.databricks.delta.stalenessLimit", "1h"), Actor(lake) as a:
        outside = [lake.sql(IDS)]
        a.begins().sql("INSERT INTO {items} VALUES (10, 'a')")
        inside = a.does(lambda: lake.sql(IDS))
        assert [row.id for row in outside[0].collect()] == [0]
        lake.sql("INSERT INTO {items} VALUES (20, 'outside')")
        outside.append(lake.sql(IDS))
        assert [row.id for row in a.does(inside.collect)] == [0, 10]
        a.sql("INSERT INTO {items} VALUES (11, 'a')")
        assert [row.id for row in outside[1].collect()] == [0, 20]
        a.rollback()
    assert [row.id for row in lake.rows(IDS)] == [0, 20]


def finish_update(lake: Lake, name: str) -> None:
    """Wait for the update that Delta runs in its own pool for the log that the calling thread sees."""
    jvm: Any = lake.spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(lake.spark._jsparkSession, lake.path(name))
    [field] = [f for f in log.getClass().getDeclaredFields() if f.getName().endswith("asyncUpdateTask")]
    field.setAccessible(True)
    field.get(log).get()


@on_sqlite
def test_updates_in_deltas_own_pool_keep_to_the_view_that_asked_for_them(lake: Lake) -> None:
    """H1, H16: threads of that pool lived before the transaction, and would list the log for everybody."""
    lake.table("items", rows=1)
    with setting(lake.spark, "spark.databricks.delta.stalenessLimit", "1h"), Actor(lake) as a:
        for _ in range(8):  # as many threads as the pool has
            lake.value("SELECT count(*) FROM {items}")
            finish_update(lake, "items")
        a.begins().sql("INSERT INTO {items} VALUES (10, 'a')")
        for number in (30, 31):  # a log at the same version would count as the same
            lake.sql(f"INSERT INTO {{items}} VALUES ({number}, 'outside')")
        # A query that is planned after an update in the pool reads what that update found.
        frames = a.does(lambda: [lake.sql(IDS), lake.sql(IDS)])
        for frame in frames:
            assert [row.id for row in a.does(frame.collect)] == [0, 10]
            a.does(lambda: finish_update(lake, "items"))
        a.rollback()
        lake.value("SELECT count(*) FROM {items}")
        finish_update(lake, "items")
        assert [row.id for row in lake.rows(IDS)] == [0, 30, 31]


# ---- H2: checksum files that lie


@on_sqlite
def test_a_rolled_back_alter_leaves_no_checksum(lake: Lake) -> None:
    """H2: the checksum of a version that never came made cold readers see a column that is not there."""
    lake.table("items", rows=1)
    before = lake.log("items")
    other = lake.spark.newSession()
    with Actor(lake) as a:
        a.begins().sql("ALTER TABLE {items} ADD COLUMN price int", "INSERT INTO {items} VALUES (1, 'x', 7)")
        a.does(lambda: other.sql(f"INSERT INTO delta.`{lake.path('items')}` VALUES (2, 'y', 8)"))
        assert written_beside_commits(lake) == [name for name in before if not name.endswith(".json")]
        a.rollback()
    assert lake.log("items") == before
    lake.sql("INSERT INTO {items} VALUES (3, 'z')")
    forget_all(lake)
    assert lake.sql("SELECT * FROM {items}").columns == ["id", "state"]


def forget_all(lake: Lake) -> None:
    """Let Delta read the logs anew, as a driver does that has just started."""
    jvm: Any = lake.spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


@on_sqlite
def test_a_checksum_above_the_pin_is_not_read(lake: Lake) -> None:
    """H2: somebody else's checksum of the same version gave a staged one the wrong schema."""
    lake.table("items", rows=1)
    with Actor(lake) as a:
        a.begins()
        lake.spark.newSession().sql(f"ALTER TABLE delta.`{lake.path('items')}` ADD COLUMN price int")
        assert "00000000000000000002.crc" in lake.log("items")
        a.sql("INSERT INTO {items} VALUES (10, 'a')")
        a.does(lambda: forget_all(lake))
        assert a.does(lambda: lake.sql("SELECT * FROM {items}").columns) == ["id", "state"]
        assert a.column(IDS) == [0, 10]
        a.rollback()
    assert lake.sql("SELECT * FROM {items}").columns == ["id", "state", "price"]


# ---- H4: trying again for ever


def test_a_write_below_newer_versions_does_not_spin(lake: Lake) -> None:
    """H4: told of a lost race above its pin, Delta looks for a winner that it cannot see, again and again."""
    lake.table("items", rows=1)
    with setting(lake.spark, "spark.databricks.delta.maxCommitAttempts", "3"), Actor(lake) as a:
        a.begins()
        lake.sql("UPDATE {items} SET state = 'outside'")
        a.sql("UPDATE {items} SET state = 'a'")
        assert a.column("SELECT state FROM {items}") == ["a"]
        with pytest.raises(TransactionConflict) as lost:
            a.commits()
        assert (lost.value.table, lost.value.version) == (lake.path("items"), 2)
        point = lake.ledger.read_point()
        lake.sql("UPDATE {items} SET state = 'later'")
        before = lake.log("items")
        with pytest.raises(StatementRefused), dp.reading_at(lake.spark, point):
            lake.sql("UPDATE {items} SET state = 'pinned'")
    assert lake.log("items") == before
    assert lake.value("SELECT state FROM {items}") == "later"
