"""Spans as OpenTelemetry sees them, steps, and one place for every name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import deltaplane
from deltaplane import telemetry
from deltaplane.errors import CommitConflict
from deltaplane.ledger import Ledger, connect

SOURCES = Path(deltaplane.__file__).parent
SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # The process-wide provider can be set only once, so it is only lent for this test.
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with connect(f"deltasql://sqlite/{tmp_path}/ledger.db") as opened:
        yield opened


def append(number: int) -> dict[str, Any]:
    body = {"path": f"{number}.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1}
    return {"add": body | {"dataChange": True}}


def shown(span: ReadableSpan) -> tuple[str, dict[str, Any]]:
    return span.name, dict(span.attributes or {})


def test_a_commit_gives_spans_with_tables_and_versions(
    ledger: Ledger, spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    ledger.create(tmp_path / "a", SCHEMA, name="s.a")
    ledger.create(tmp_path / "b", SCHEMA, name="s.b")
    spans.clear()
    with ledger.transaction(author="s3cret-author", message="s3cret-message") as tx:
        tx.commit("s.a", [append(1)])
        tx.commit("s.a", [append(2)])
        tx.commit("s.b", [append(1)])
    *published, whole = spans.get_finished_spans()
    # Tables of a group are published at the same time, and either may be the first to end.
    first, second = sorted(published, key=lambda span: str(shown(span)))
    assert [shown(span) for span in (first, second, whole)] == [
        (
            "deltaplane.ledger.publish",
            {"deltaplane.table": "s.a", "deltaplane.version": 2, "deltaplane.versions": 2},
        ),
        (
            "deltaplane.ledger.publish",
            {"deltaplane.table": "s.b", "deltaplane.version": 1, "deltaplane.versions": 1},
        ),
        (
            "deltaplane.ledger.commit",
            {"deltaplane.tables": 2, "deltaplane.table": ("s.a", "s.b"), "deltaplane.versions": (2, 1)},
        ),
    ]
    assert whole.context is not None
    assert {span.parent.span_id if span.parent else None for span in (first, second)} == {
        whole.context.span_id
    }
    assert "s3cret" not in "".join(span.to_json() for span in (first, second, whole))


def test_a_failure_marks_the_span_by_its_type_and_tells_nothing_else(
    ledger: Ledger, spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    ledger.create(tmp_path / "a", SCHEMA, name="s.a")
    ledger.create(tmp_path / "b", SCHEMA, name="s.b")
    with ledger.transaction(author="s3cret") as tx:
        tx.commit("s.a", [append(1)])
    spans.clear()
    with pytest.raises(CommitConflict, match="s3cret"), ledger.transaction() as tx:
        tx.commit("s.a", [append(2)], expected_version=0)
    (failed,) = spans.get_finished_spans()
    assert (failed.status.status_code, failed.status.description) == (
        trace.StatusCode.ERROR,
        "CommitConflict",
    )
    assert dict(failed.attributes or {})["error.type"] == "CommitConflict"
    assert (failed.events, "s3cret" in failed.to_json()) == ((), False)


def test_reconciling_is_a_span_around_the_publications(
    ledger: Ledger, spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    ledger.create(tmp_path / "a", SCHEMA, name="s.a")
    spans.clear()
    ledger.reconcile()
    assert [shown(span) for span in spans.get_finished_spans()] == [
        ("deltaplane.ledger.reconcile", {"deltaplane.tables": 1, "deltaplane.failed": 0})
    ]


def test_without_opentelemetry_a_span_still_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "_trace", None)
    heard: list[str] = []

    class Keeper:
        def count(self, name: str, amount: float, labels: Any) -> None:
            heard.append(f"{name} {dict(labels)}")

        def observe(self, name: str, value: float, labels: Any) -> None:
            heard.append(name)
            assert value >= 0

    stop = telemetry.record(Keeper())
    with telemetry.span("ledger.publish", table="t") as note:
        note(version=3)
    with pytest.raises(OSError, match="full"), telemetry.span("ledger.publish", table="t"):
        raise OSError("full")
    stop()
    with telemetry.span("ledger.publish", table="t"):
        pass
    assert heard == [
        "ledger_publish_seconds",
        "ledger_publish_seconds",
        "ledger_publication_failures_total {'table': 't'}",
    ]


def test_a_listener_hears_every_step_until_it_leaves() -> None:
    heard: list[tuple[str, dict[str, Any]]] = []
    stop = telemetry.listen(lambda name, values: heard.append((name, values)))
    telemetry.step("x.y", table="t")
    stop()
    telemetry.step("x.z")
    assert heard == [("x.y", {"table": "t"})]


def named(function: str) -> set[str]:
    """Every name that is given to a function of telemetry, anywhere in the package."""
    found: set[str] = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == f"telemetry.{function}":
                assert isinstance(node.args[0], ast.Constant), f"{path}: {ast.unparse(node)}"
                found.add(str(node.args[0].value))
    return found


def test_every_span_is_in_the_list_of_spans() -> None:
    assert named("span") == set(telemetry.SPANS)


def test_every_number_is_in_the_list_of_metrics() -> None:
    assert named("count") | named("observe") <= set(telemetry.METRICS)
    assert set(telemetry._COUNTED_STEPS.values()) <= set(telemetry.METRICS)
    assert {name for _, name in telemetry._COUNTED_FAILURES.values()} <= set(telemetry.METRICS)


def test_every_counted_step_is_one_that_is_taken() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py"))
    assert [step for step in telemetry._COUNTED_STEPS if f'telemetry.step("{step}"' not in source] == []
