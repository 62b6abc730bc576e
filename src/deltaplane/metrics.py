"""Prometheus: the numbers of `telemetry.METRICS` on an HTTP endpoint. Needs the extra `metrics`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltaplane import telemetry
from deltaplane.errors import ConfigError

if TYPE_CHECKING:
    from deltaplane.ledger.alerts import Alert
    from deltaplane.ledger.status import LedgerStatus

try:
    from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, start_http_server
    from prometheus_client.core import GaugeMetricFamily
except ImportError as missing:
    raise ConfigError(
        "Metrics need prometheus-client, which is not installed. Install it with: pip install "
        "'deltaplane[metrics]'"
    ) from missing

__all__ = ["Endpoint", "Metrics", "serve"]

_PREFIX = "deltaplane_"
# From a commit on a local disk to a checkpoint of a large table.
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_Sample = tuple[tuple[str, ...], float]


class Metrics:
    """Keeps the numbers. Hand it to `telemetry.record`, and give it every status that is read.

    Gauges are those of the last status, so a table that left the ledger leaves no number behind.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._kept: dict[str, Any] = {}
        self._gauges: dict[str, list[_Sample]] = {"ledger_up": [((), 0.0)]}
        for name, metric in telemetry.METRICS.items():
            if metric.kind == "counter":
                self._kept[name] = Counter(_PREFIX + name, metric.help, metric.labels, registry=self.registry)
            elif metric.kind == "histogram":
                self._kept[name] = Histogram(
                    _PREFIX + name, metric.help, metric.labels, registry=self.registry, buckets=_BUCKETS
                )
        self.registry.register(self)

    def count(self, name: str, amount: float, labels: Mapping[str, str]) -> None:
        """Add to a counter."""
        self._of(name, labels).inc(amount)

    def observe(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        """Add a value to a histogram."""
        self._of(name, labels).observe(value)

    def _of(self, name: str, labels: Mapping[str, str]) -> Any:
        kept = self._kept[name]
        return kept.labels(**labels) if telemetry.METRICS[name].labels else kept

    def show(self, status: LedgerStatus, alerts: Iterable[Alert] = ()) -> None:
        """Take in how the tables stand."""
        gauges: dict[str, list[_Sample]] = {
            "ledger_up": [((), 1.0)],
            "ledger_status_timestamp_seconds": [((), status.at / 1000)],
            "ledger_alert": _alert_samples(alerts),
        }
        for table in status.tables:
            values = {
                "ledger_lag_versions": table.versions,
                "ledger_lag_seconds": table.seconds,
                "ledger_publication_attempts": table.attempts,
                "ledger_head_version": table.head_version,
                "ledger_published_version": table.published_version,
                "ledger_frozen": float(table.state == "frozen"),
            }
            for name, value in values.items():
                gauges.setdefault(name, []).append(((table.label,), value))
        self._gauges = gauges

    def show_unreachable(self, alerts: Iterable[Alert] = ()) -> None:
        """Take in that the ledger could not be read: the last known numbers stay, with their time."""
        self._gauges = {
            **self._gauges,
            "ledger_up": [((), 0.0)],
            "ledger_alert": _alert_samples(alerts),
        }

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """What `collect` may give; asked for when it is registered."""
        for name, metric in telemetry.METRICS.items():
            if metric.kind == "gauge":
                yield GaugeMetricFamily(_PREFIX + name, metric.help, labels=metric.labels)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The gauges as they stand."""
        gauges = self._gauges
        for family in self.describe():
            for labels, value in gauges.get(family.name.removeprefix(_PREFIX), []):
                family.add_metric(labels, value)
            yield family

    def text(self) -> str:
        """Everything in the format of Prometheus."""
        return str(generate_latest(self.registry).decode())


def _alert_samples(alerts: Iterable[Alert]) -> list[_Sample]:
    return [((alert.kind, alert.table), 1.0) for alert in alerts]


@dataclass(frozen=True)
class Endpoint:
    """An HTTP server with numbers. Close it when they are not wanted any more.

    Attributes:
        host: The address that it listens on.
        port: The port, also where 0 was asked for.
    """

    host: str
    port: int
    _end: Callable[[], None]

    def close(self) -> None:
        """Stop serving."""
        self._end()


def serve(metrics: Metrics, port: int, host: str = "127.0.0.1") -> Endpoint:
    """Serve the numbers under /metrics, and count everything from now on.

    Args:
        metrics: What to serve.
        port: Where; 0 takes a free one.
        host: The address to listen on. Only this machine can reach the default.

    Raises:
        ConfigError: The address is taken or does not exist.
    """
    try:
        server, thread = start_http_server(port, host, metrics.registry)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"The metrics cannot be served on {host}:{port}: {getattr(error, 'strerror', None) or error}. "
            f"Choose another port or host."
        ) from error
    return Endpoint(host, server.server_port, _ending(server, thread, telemetry.record(metrics)))


def _ending(server: Any, thread: threading.Thread, forget: Callable[[], None]) -> Callable[[], None]:
    def end() -> None:
        forget()
        server.shutdown()
        server.server_close()
        thread.join()

    return end
