"""The endpoint for Prometheus: what it counts, how tables stand, and who can reach it."""

from __future__ import annotations

import builtins
import importlib
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

from deltaplane import telemetry
from deltaplane.errors import CommitConflict, ConfigError
from deltaplane.ledger import Lag, Ledger, connect
from deltaplane.ledger.alerts import Alert
from deltaplane.ledger.status import LedgerStatus
from deltaplane.metrics import Metrics, serve


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with connect(f"deltasql://sqlite/{tmp_path}/ledger.db") as opened:
        yield opened


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    kept = Metrics()
    stop = telemetry.record(kept)
    yield kept
    stop()


def numbers(text: str) -> dict[tuple[str, ...], float]:
    """Every sample by its name and labels, creation times left out."""
    return {
        (sample.name.removeprefix("deltaplane_ledger_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def append(number: int) -> dict[str, Any]:
    body = {"path": f"{number}.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1}
    return {"add": body | {"dataChange": True}}


def test_commits_publications_checkpoints_and_conflicts_are_counted(
    ledger: Ledger, metrics: Metrics, tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.int64())])
    ledger.create(tmp_path / "t", schema, name="s.t", properties={"delta.checkpointInterval": "2"})
    for number in (1, 2):
        with ledger.transaction() as tx:
            tx.commit("s.t", [append(number)])
    with pytest.raises(CommitConflict), ledger.transaction() as tx:
        tx.commit("s.t", [append(3)], expected_version=0)
    found = numbers(metrics.text())
    assert {
        key: found[key]
        for key in (
            ("commits_total",),
            ("conflicts_total",),
            ("retries_total",),
            ("publications_total", "s.t"),
            ("checkpoints_total", "s.t"),
            ("commit_seconds_count",),
            ("publish_seconds_count",),
            ("checkpoint_seconds_count",),
        )
    } == {
        ("commits_total",): 3,
        ("conflicts_total",): 1,
        ("retries_total",): 0,
        ("publications_total", "s.t"): 3,
        ("checkpoints_total", "s.t"): 1,
        ("commit_seconds_count",): 4,
        ("publish_seconds_count",): 3,
        ("checkpoint_seconds_count",): 1,
    }
    assert 0 < found["commit_seconds_sum",] < 60


def test_failed_publications_are_counted_by_table(ledger: Ledger, metrics: Metrics, tmp_path: Path) -> None:
    ledger.create(tmp_path / "t", pa.schema([("id", pa.int64())]), name="s.t")
    (tmp_path / "t" / "_delta_log" / f"{1:020d}.json").mkdir()
    with ledger.transaction() as tx:
        tx.commit("s.t", [append(1)])
    found = numbers(metrics.text())
    assert (found["publication_failures_total", "s.t"], found["commits_total",]) == (1, 2)


def lag(name: str, **values: Any) -> Lag:
    fields: dict[str, Any] = {
        "location": f"/{name}",
        "name": name,
        "state": "managed",
        "frozen_reason": None,
        "head_version": 9,
        "published_version": 9,
        "checkpoint_version": -1,
        "versions": 0,
        "seconds": 0.0,
        "attempts": 0,
        "last_error": None,
    }
    return Lag(**(fields | values))


def gauges(metrics: Metrics) -> dict[tuple[str, ...], float]:
    names = {
        name.removeprefix("ledger_") for name, metric in telemetry.METRICS.items() if metric.kind == "gauge"
    }
    return {key: value for key, value in numbers(metrics.text()).items() if key[0] in names}


def test_before_the_first_look_the_ledger_is_not_up() -> None:
    assert gauges(Metrics()) == {("up",): 0}


def test_gauges_are_those_of_the_last_status_and_a_table_that_left_leaves_none() -> None:
    metrics = Metrics()
    metrics.show(LedgerStatus("x", 1_000, (lag("gone"), lag("a"))))
    behind = lag("a", published_version=4, versions=5, seconds=7.5, attempts=2, state="frozen")
    metrics.show(LedgerStatus("x", 2_500, (behind,)), [Alert("frozen", "a", "…")])
    assert gauges(metrics) == {
        ("up",): 1,
        ("status_timestamp_seconds",): 2.5,
        ("lag_versions", "a"): 5,
        ("lag_seconds", "a"): 7.5,
        ("publication_attempts", "a"): 2,
        ("head_version", "a"): 9,
        ("published_version", "a"): 4,
        ("frozen", "a"): 1,
        ("alert", "frozen", "a"): 1,
    }


def test_a_ledger_that_is_away_keeps_the_last_numbers_and_is_down() -> None:
    metrics = Metrics()
    metrics.show(LedgerStatus("x", 1_000, (lag("a", versions=3),)))
    metrics.show_unreachable([Alert("unreachable", "", "…")])
    found = gauges(metrics)
    assert (found["up",], found["lag_versions", "a"], found["status_timestamp_seconds",]) == (0, 3, 1)
    assert found["alert", "unreachable", ""] == 1


def test_every_metric_is_explained_at_the_endpoint() -> None:
    text = Metrics().text()
    missing = [name for name, metric in telemetry.METRICS.items() if f"HELP deltaplane_{name}" not in text]
    assert missing == []


def test_labels_of_any_spelling_are_served() -> None:
    name = 'a "quoted"\n\\ näme'
    metrics = Metrics()
    metrics.show(LedgerStatus("x", 0, (lag(name, versions=2),)))
    assert gauges(metrics)["lag_versions", name] == 2


def test_the_endpoint_serves_on_loopback_until_it_is_closed(ledger: Ledger, tmp_path: Path) -> None:
    endpoint = serve(Metrics(), 0)
    address = f"http://{endpoint.host}:{endpoint.port}/metrics"
    try:
        assert endpoint.host == "127.0.0.1"
        ledger.create(tmp_path / "t", pa.schema([("id", pa.int64())]))
        with urllib.request.urlopen(address, timeout=10) as answer:
            assert numbers(answer.read().decode())["commits_total",] == 1
    finally:
        endpoint.close()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address, timeout=10)
    assert telemetry._recorders == []


def test_a_port_that_is_taken_is_one_clear_error() -> None:
    endpoint = serve(Metrics(), 0)
    try:
        with pytest.raises(
            ConfigError, match=rf"127\.0\.0\.1:{endpoint.port}: Address already in use.*another port"
        ):
            serve(Metrics(), endpoint.port)
    finally:
        endpoint.close()


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *arguments: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.delitem(sys.modules, "deltaplane.metrics")
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ConfigError, match=r"deltaplane\[metrics\]"):
        importlib.import_module("deltaplane.metrics")
