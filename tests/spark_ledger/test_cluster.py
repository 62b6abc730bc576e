"""Hole H8: executors that live in processes of their own can load the log store, and ask nobody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spark_ledger.drivers import SHORT_LIVED

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DRIVER = Path(__file__).with_name("cluster_driver.py")
WORK = ["WRITE", "DELETE", "OPTIMIZE", "VACUUM START", "VACUUM END"]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("cluster")
    run = subprocess.run(
        [sys.executable, str(DRIVER), str(folder)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, **SHORT_LIVED},
    )
    assert run.returncode == 0, run.stderr[-4000:]
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("table", ["managed", "plain"])
def test_history_vacuum_and_manifests_work_on_executors(seen: dict[str, Any], table: str) -> None:
    """H8: they failed on tables that are not managed too, once a ledger was attached."""
    assert seen["executors"] == 2
    assert seen[table] == {
        "history": [[version, name] for version, name in enumerate(WORK)][::-1],
        "ids": [1, 2, 3],
        "manifest": 1,
        "files": 1,
    }


def test_a_whole_transaction_works_on_executors(seen: dict[str, Any]) -> None:
    """H8: tasks write data files and read staged commits; only the driver decides."""
    inside = [[11, 12, 13], [0, 11, 12, 13], [0, 11, 12, 13]]
    assert seen["transaction"] == {
        "rollback": {
            "inside": inside,
            "operations": ["UPDATE"],
            "after": [[1, 2, 3], [0]],
            "new": False,
        },
        "commit": {"inside": inside, "operations": ["UPDATE"], "after": inside[:2], "new": True},
    }
    assert seen["differences"] == [0, 0, 0]


def test_an_executor_that_is_killed_inside_of_a_transaction_costs_nothing(seen: dict[str, Any]) -> None:
    """Spark repeats its tasks; what the lost ones wrote is part of no commit."""
    new = list(range(100, 108))
    assert seen["loss"] == {"killed": True, "ids": [new, new], "written again": True}
