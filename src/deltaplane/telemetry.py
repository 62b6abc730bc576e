"""Spans, steps and metrics, named in one place.

OpenTelemetry and Prometheus are used when they are installed, and nothing here fails when they are not.

- A *span* is a piece of work with a duration. OpenTelemetry shows it as `deltaplane.<name>`.
- A *step* is a point that a piece of work passes, such as "ratified"; who wants to know subscribes with
  `listen`.
- A *metric* is a number for monitoring. Recorders, such as `deltaplane.metrics`, subscribe with `record`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from deltaplane.errors import CommitConflict

__all__ = [
    "LOGGER",
    "METRICS",
    "SPANS",
    "Metric",
    "Note",
    "Recorder",
    "count",
    "listen",
    "observe",
    "record",
    "span",
    "step",
]

LOGGER = logging.getLogger("deltaplane")
Listener = Callable[[str, dict[str, Any]], None]
Note = Callable[..., None]
_listeners: list[Listener] = []
_recorders: list[Recorder] = []

try:
    from opentelemetry import trace as _trace
except ImportError:  # the extra `metrics` is not installed
    _trace = None  # type: ignore[assignment]

SPANS = {
    "ledger.commit": "One transaction, from the search for foreign commits to its publication.",
    "ledger.publish": "The versions of one table that appear in its log.",
    "ledger.checkpoint": "One checkpoint, written from the database.",
    "ledger.reconcile": "One round over all tables.",
    "ledger.adopt": "A table that comes in.",
    "ledger.verify": "The comparison of a published log with the ledger.",
    "ledger.repair": "A table whose log and ledger are made to agree.",
    "ledger.release": "A table that leaves.",
    "spark.commit": "One commit of Spark, outside of a transaction, as the ledger takes it.",
    "spark.transaction": "A transaction of Spark, from its begin to its end.",
}


@dataclass(frozen=True)
class Metric:
    """What a number means.

    Attributes:
        kind: A counter only grows, a gauge is how things stand, a histogram tells how long things take.
        help: One sentence for whoever reads the endpoint.
        labels: What it is told apart by.
    """

    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()


_TABLE = ("table",)
METRICS: Mapping[str, Metric] = {
    "ledger_commits_total": Metric("counter", "Transactions that this process ratified."),
    "ledger_conflicts_total": Metric("counter", "Transactions that lost against another writer."),
    "ledger_retries_total": Metric("counter", "Attempts to commit that were rolled back and repeated."),
    "ledger_publications_total": Metric("counter", "Versions that this process published.", _TABLE),
    "ledger_publication_failures_total": Metric("counter", "Publications that failed.", _TABLE),
    "ledger_checkpoints_total": Metric("counter", "Checkpoints that this process wrote.", _TABLE),
    "ledger_checkpoint_failures_total": Metric("counter", "Checkpoints that failed.", _TABLE),
    "ledger_imports_total": Metric("counter", "Commits of outside writers that were imported.", _TABLE),
    "ledger_pack_mismatches_total": Metric(
        "counter", "Reads for which packs did not agree with the commit; rows were read.", _TABLE
    ),
    "ledger_alerts_total": Metric("counter", "Alerts that were raised.", ("kind",)),
    "spark_transactions_total": Metric("counter", "Transactions of Spark that ended.", ("outcome",)),
    "spark_transaction_retries_total": Metric("counter", "Transactions of Spark that lost and ran again."),
    "spark_staged_bytes_total": Metric("counter", "Bytes of commits that transactions of Spark staged."),
    "spark_commit_seconds": Metric("histogram", "How long a commit of Spark takes in the ledger."),
    "spark_transaction_seconds": Metric("histogram", "How long a transaction of Spark lasts."),
    "ledger_commit_seconds": Metric("histogram", "How long a transaction takes, with its publication."),
    "ledger_publish_seconds": Metric("histogram", "How long a publication takes."),
    "ledger_checkpoint_seconds": Metric("histogram", "How long a checkpoint takes."),
    "ledger_reconcile_seconds": Metric("histogram", "How long a round over all tables takes."),
    "ledger_up": Metric("gauge", "1 when the ledger could be read last time, 0 when not."),
    "ledger_status_timestamp_seconds": Metric("gauge", "When these gauges were read, since 1970."),
    "ledger_lag_versions": Metric("gauge", "Versions that are ratified and not published.", _TABLE),
    "ledger_lag_seconds": Metric("gauge", "Age of the oldest unpublished version.", _TABLE),
    "ledger_publication_attempts": Metric("gauge", "Failed attempts at the pending publication.", _TABLE),
    "ledger_head_version": Metric("gauge", "The newest version of the table.", _TABLE),
    "ledger_published_version": Metric("gauge", "The newest version in the published log.", _TABLE),
    "ledger_frozen": Metric("gauge", "1 when the table takes no writes until it is repaired.", _TABLE),
    "ledger_alert": Metric("gauge", "1 while an alert lasts.", ("kind", "table")),
}

_COUNTED_STEPS = {
    "commit.ratified": "ledger_commits_total",
    "commit.retried": "ledger_retries_total",
    "publish.file_written": "ledger_publications_total",
    "checkpoint.pointed": "ledger_checkpoints_total",
    "foreign.imported": "ledger_imports_total",
}
_COUNTED_FAILURES: Mapping[str, tuple[type[BaseException], str]] = {
    "ledger.commit": (CommitConflict, "ledger_conflicts_total"),
    "ledger.publish": (Exception, "ledger_publication_failures_total"),
    "ledger.checkpoint": (Exception, "ledger_checkpoint_failures_total"),
}


class Recorder(Protocol):
    """Whoever keeps numbers. Labels are those that `METRICS` names."""

    def count(self, name: str, amount: float, labels: Mapping[str, str]) -> None:
        """Add to a counter."""
        ...

    def observe(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        """Add a value to a histogram."""
        ...


@contextmanager
def span(name: str, **attributes: Any) -> Iterator[Note]:
    """Time a piece of work: a span of OpenTelemetry under `deltaplane.<name>`, and a histogram.

    Yields:
        A function that adds attributes which are known only later.
    """
    started = time.perf_counter()
    failure: BaseException | None = None
    try:
        with _traced(name, attributes) as note:
            yield note
    except BaseException as error:
        failure = error
        raise
    finally:
        _finished(name, time.perf_counter() - started, failure, attributes)


@contextmanager
def _traced(name: str, attributes: Mapping[str, Any]) -> Iterator[Note]:
    if _trace is None:
        yield lambda **_: None
        return
    # An exception's text and stack may quote what a driver was given, so only its type is noted.
    quiet: dict[str, Any] = {"record_exception": False, "set_status_on_exception": False}
    with _trace.get_tracer("deltaplane").start_as_current_span(f"deltaplane.{name}", **quiet) as opened:

        def note(**values: Any) -> None:
            opened.set_attributes({f"deltaplane.{key}": value for key, value in values.items()})

        note(**attributes)
        try:
            yield note
        except BaseException as error:
            opened.set_attribute("error.type", type(error).__name__)
            opened.set_status(_trace.StatusCode.ERROR, type(error).__name__)
            raise


def _finished(name: str, seconds: float, failure: BaseException | None, attributes: dict[str, Any]) -> None:
    if not _recorders:
        return
    histogram = f"{name.replace('.', '_')}_seconds"
    if histogram in METRICS:
        observe(histogram, seconds)
    kind, metric = _COUNTED_FAILURES.get(name, (None, ""))
    if kind is not None and isinstance(failure, kind):
        _count(metric, _labels(metric, attributes))


def step(name: str, **attributes: Any) -> None:
    """Say that a piece of work has come to a named point."""
    for listener in tuple(_listeners):
        listener(name, attributes)
    if _recorders and name in _COUNTED_STEPS:
        metric = _COUNTED_STEPS[name]
        _count(metric, _labels(metric, attributes))


def _labels(metric: str, attributes: Mapping[str, Any]) -> dict[str, str]:
    return {label: str(attributes[label]) for label in METRICS[metric].labels}


def listen(listener: Listener) -> Callable[[], None]:
    """Hear of every step; the function returned ends it."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def count(name: str, amount: float = 1, **labels: str) -> None:
    """Add to a counter of `METRICS`."""
    _count(name, labels, amount)


def _count(name: str, labels: Mapping[str, str], amount: float = 1) -> None:
    for recorder in tuple(_recorders):
        recorder.count(name, amount, labels)


def observe(name: str, value: float, **labels: str) -> None:
    """Add a value to a histogram of `METRICS`."""
    for recorder in tuple(_recorders):
        recorder.observe(name, value, labels)


def record(recorder: Recorder) -> Callable[[], None]:
    """Hand every count and value to a recorder; the function returned ends it."""
    _recorders.append(recorder)
    return lambda: _recorders.remove(recorder)
