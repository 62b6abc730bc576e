"""A driver is killed at every step of a transaction over four tables: all of it takes place, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from deltaplane.ledger import Ledger, connect
from deltaplane.ledger.alerts import Thresholds
from deltaplane.ledger.reconcile import Grace, reconcile
from spark_ledger.drivers import Driver

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
TABLES = ("one", "two", "three", "new")
# In the order in which they come; the tables are published side by side, by several threads.
BEFORE = [
    ("spark.staged", 1),
    ("spark.staged", 3),
    ("spark.staged", 5),
    ("before the end", 1),
    ("commit.begin", 1),
    ("commit.rows_written", 1),
    ("commit.rows_written", 5),
    ("commit.before_commit", 1),
]
AFTER = [
    ("commit.ratified", 1),
    ("publish.file_written", 1),
    ("publish.file_written", 2),
    ("publish.file_written", 4),
    ("publish.marked", 1),
    ("publish.marked", 3),
    ("end", 1),
]
EVERY_STEP = [*BEFORE, *AFTER]
MAIN_STEPS = [
    ("spark.staged", 3),
    ("commit.rows_written", 5),
    ("commit.before_commit", 1),
    ("commit.ratified", 1),
    ("publish.file_written", 2),
    ("publish.marked", 1),
]
STEPS = {
    "spark.staged": 5,
    "before the end": 1,
    "commit.begin": 1,
    "commit.rows_written": 5,
    "commit.before_commit": 1,
    "commit.ratified": 1,
    "publish.file_written": 5,
    "publish.marked": 4,
    "end": 1,
}


def outside_names(place: Path) -> dict[str, list[str]]:
    """The rows of every table as an outside reader sees them."""
    found = {}
    for table in TABLES:
        try:
            found[table] = sorted(DeltaTable(place / table).to_pyarrow_table()["name"].to_pylist())
        except TableNotFoundError:
            found[table] = []
    return found


def published_without_a_gap(ledger: Ledger, place: Path) -> None:
    """Invariants 2 and 3, at any moment."""
    managed = {table.location: table.head_version for table in ledger.tables()}
    for table in TABLES:
        files = sorted((place / table / "_delta_log").glob("*.json"))
        assert [file.name for file in files] == [f"{version:020d}.json" for version in range(len(files))]
        assert len(files) <= managed.get(str(place / table), -1) + 1, "published and not ratified"
        for version, file in enumerate(files):
            assert file.read_bytes() == ledger.read_commit(place / table, version)


def check_after_kill(ledger: Ledger, place: Path, driver: Driver, took_place: bool) -> None:
    (identity,) = driver.said("begun")
    published_without_a_gap(ledger, place)
    ledger.reconcile(force=True)
    published_without_a_gap(ledger, place)
    assert ledger.outcome(identity) is took_place
    assert driver.said("acknowledged") in ([], [identity] if took_place else [])
    assert outside_names(place) == {table: ["killed"] if took_place else [] for table in TABLES}
    managed = [table for table in TABLES if took_place or table != "new"]
    landed = Counter(
        entry.transaction_id for table in managed for entry in ledger.history(str(place / table))
    )
    assert landed[identity] == (5 if took_place else 0)
    for table in managed:
        assert ledger.verify(str(place / table), every=True).differences == ()


def assert_swept(ledger: Ledger, places: Iterable[Path]) -> None:
    """A day later the reconciler removes what dead drivers staged, of every table that the ledger knows."""
    reconcile(ledger.context, Thresholds(), force=True, grace=Grace(0, 0))
    known = {table.location for table in ledger.tables()}
    found = [file for place in places for file in place.glob("*/_delta_log/_staged_commits/*.json")]
    assert [file for file in found if str(file.parents[2]) in known] == []


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(MAIN_STEPS, id="main"),
        pytest.param(EVERY_STEP, id="every", marks=pytest.mark.exhaustive),
    ],
)
def test_a_driver_killed_at_any_step_leaves_all_or_nothing(
    steps: list[tuple[str, int]], tmp_path: Path
) -> None:
    uri = f"deltasql://sqlite/{tmp_path}/ledger.db"
    places = {step: tmp_path / f"{step[0]}-{step[1]}".replace(" ", "-") for step in steps}
    job = {"work": "group", "uri": uri, "folder": str(tmp_path)}
    with connect(uri) as ledger:
        for place in places.values():
            for table in TABLES[:3]:
                ledger.create(str(place / table), SCHEMA)

        def kill_at(step: tuple[str, int]) -> None:
            place = places[step]
            driver = Driver(
                tmp_path / f"report-{place.name}", name="killed", kill_at=step, places=[str(place)], **job
            )
            assert driver.ended() == -9, driver.output()
            assert driver.said("step").count(step[0]) == step[1]
            check_after_kill(ledger, place, driver, step in AFTER)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(kill_at, places))
        assert_swept(ledger, places.values())
        # The next driver writes to all of them, as if nothing had happened.
        roots = [str(place) for place in places.values()]
        last = Driver(tmp_path / "report-last", name="later", places=roots, **job)
        assert last.ended() == 0, last.output()
        assert Counter(last.said("step")) == {step: times * len(places) for step, times in STEPS.items()}
        for step, place in places.items():
            names = ["killed", "later"] if step in AFTER else ["later"]
            assert outside_names(place) == dict.fromkeys(TABLES, names)
            for table in TABLES:
                assert ledger.verify(str(place / table), every=True).differences == ()
