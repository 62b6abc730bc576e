"""How far tables are behind, in versions and seconds, on every database."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deltaplane.ledger import Lag, Ledger
from deltaplane.ledger.publish import freeze
from deltaplane.ledger.status import LedgerStatus
from ledger.conftest import SCHEMA
from ledger.unpublished import block, commit, delayed, table_behind


def test_an_empty_ledger_has_an_empty_status(ledger: Ledger) -> None:
    status = ledger.status()
    assert (status.tables, status.behind, status.frozen, status.versions, status.worst) == (
        (),
        (),
        (),
        0,
        None,
    )
    assert (status.ledger, status.to_json()["seconds_behind"]) == (ledger.uri, 0.0)


def test_a_published_table_is_not_behind(ledger: Ledger, tmp_path: Path) -> None:
    ledger.create(tmp_path / "t", SCHEMA, name="s.t")
    commit(ledger, "s.t", 1, 2)
    assert ledger.status().tables == (
        Lag(str(tmp_path / "t"), "s.t", "managed", None, 2, 2, -1, 0, 0.0, 0, None),
    )


def test_versions_and_the_age_of_the_oldest_are_counted(ledger: Ledger, tmp_path: Path) -> None:
    table_behind(ledger, tmp_path, "t", 0)
    started = ledger._ctx.store.now()
    ledger._ctx.clock = lambda: started - 90_000
    with delayed():
        commit(ledger, "t", 1)
    ledger._ctx.clock = lambda: started - 10_000
    with delayed():
        commit(ledger, "t", 2)
    status = ledger.status()
    lag = status.tables[0]
    assert (lag.head_version, lag.published_version, lag.versions, lag.attempts) == (2, 0, 2, 0)
    assert 90 <= lag.seconds < 120
    assert status.worst == lag


def test_a_clock_that_was_ahead_gives_no_negative_lag(ledger: Ledger, tmp_path: Path) -> None:
    table_behind(ledger, tmp_path, "t", 0)
    ledger._ctx.clock = lambda: ledger._ctx.store.now() + 3_600_000
    with delayed():
        commit(ledger, "t", 1)
    lag = ledger.status().tables[0]
    assert (lag.versions, lag.seconds) == (1, 0.0)


def test_failed_attempts_and_their_reason_are_shown_until_it_works(ledger: Ledger, tmp_path: Path) -> None:
    table = table_behind(ledger, tmp_path, "t", 0)
    place = block(table, 1)
    commit(ledger, "t", 1)
    commit(ledger, "t", 2)
    lag = ledger.status().tables[0]
    assert (lag.versions, lag.attempts) == (2, 2)
    assert "Is a directory" in (lag.last_error or "")
    place.rmdir()
    ledger.publish("t")
    lag = ledger.status().tables[0]
    assert (lag.versions, lag.seconds, lag.attempts, lag.last_error) == (0, 0.0, 0, None)


def test_a_frozen_table_says_why(ledger: Ledger, tmp_path: Path) -> None:
    table_behind(ledger, tmp_path, "t", 1)
    with pytest.raises(Exception, match="two stories"):
        freeze(ledger._ctx, ledger.tables()[0], "two stories of version 1")
    status = ledger.status()
    assert [(lag.state, lag.frozen_reason, lag.versions) for lag in status.frozen] == [
        ("frozen", "two stories of version 1", 1)
    ]


def test_the_worst_table_is_the_one_that_waits_longest_and_totals_are_over_all() -> None:
    one = Lag("/a", "a", "managed", None, 9, 2, -1, 7, 5.0, 0, None)
    status = LedgerStatus(
        "deltasql://sqlite/x",
        1000,
        (
            one,
            replace(one, location="/b", name=None, versions=1, seconds=50.0),
            replace(one, name="c", versions=0),
        ),
    )
    assert (status.versions, [lag.label for lag in status.behind]) == (8, ["a", "/b"])
    assert status.worst is status.tables[1]
    content = status.to_json()
    assert {key: content[key] for key in content if key != "tables"} == {
        "ledger": "deltasql://sqlite/x",
        "at": 1000,
        "tables_behind": 2,
        "versions_behind": 8,
        "seconds_behind": 50.0,
        "worst": "/b",
        "frozen": [],
    }
    assert content["tables"][0]["head_version"] == 9
