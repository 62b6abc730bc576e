"""Alerts: which thresholds are passed (pure), and who is told when an alert begins and ends."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from deltaplane import telemetry
from deltaplane.errors import ConfigError
from deltaplane.ledger.model import Lag
from deltaplane.ledger.status import LedgerStatus
from deltaplane.ledger.times import clock_text, now_ms

__all__ = ["Alert", "Notifier", "Thresholds", "Webhook", "find_alerts", "unreachable"]

_ATTEMPTS = 2


@dataclass(frozen=True)
class Thresholds:
    """When to raise an alert. None means: never.

    Attributes:
        max_lag_versions: More versions than this wait for publication.
        max_lag_seconds: The oldest of them waits longer than this.
        max_attempts: Publication failed more often than this.
        frozen: A table takes no writes until it is repaired.
        failed: A table could not be reconciled for a reason other than a delayed publication.
    """

    max_lag_versions: int | None = 100
    max_lag_seconds: float | None = 300.0
    max_attempts: int | None = 5
    frozen: bool = True
    failed: bool = True


@dataclass(frozen=True)
class Alert:
    """Something that a person should look at.

    Attributes:
        kind: lag_versions, lag_seconds, attempts, frozen, failed, or unreachable (the ledger itself).
        table: The table's name or place; empty when it is about the ledger.
        message: One sentence, with what to do.
        value: What was measured, where there is a number.
        limit: The threshold that it passed.
    """

    kind: str
    table: str
    message: str
    value: float | None = None
    limit: float | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What makes two alerts the same one, however long it lasts."""
        return self.kind, self.table

    def to_json(self) -> dict[str, Any]:
        """The alert as plain values."""
        return asdict(self)


def find_alerts(
    status: LedgerStatus, thresholds: Thresholds, failures: Mapping[str, str] | None = None
) -> tuple[Alert, ...]:
    """Hold a status against thresholds.

    Args:
        status: How the tables stand.
        thresholds: The limits.
        failures: Why a table could not be reconciled, by location.
    """
    found: list[Alert] = []
    for table in status.tables:
        found += _of_table(table, thresholds, (failures or {}).get(table.location))
    return tuple(found)


def _of_table(lag: Lag, limits: Thresholds, failure: str | None) -> Iterable[Alert]:
    cause = f" The last error: {lag.last_error}" if lag.last_error else ""
    if limits.max_lag_versions is not None and lag.versions > limits.max_lag_versions:
        text = f"{lag.label}: {lag.versions} versions are not published, more than {limits.max_lag_versions}."
        yield Alert("lag_versions", lag.label, text + cause, lag.versions, limits.max_lag_versions)
    if limits.max_lag_seconds is not None and lag.seconds > limits.max_lag_seconds:
        text = (
            f"{lag.label}: a version has been waiting {lag.seconds:.0f} s for publication, longer than "
            f"{limits.max_lag_seconds:g} s."
        )
        yield Alert("lag_seconds", lag.label, text + cause, lag.seconds, limits.max_lag_seconds)
    if limits.max_attempts is not None and lag.attempts > limits.max_attempts:
        text = f"{lag.label}: publication failed {lag.attempts} times, more than {limits.max_attempts}."
        yield Alert("attempts", lag.label, text + cause, lag.attempts, limits.max_attempts)
    if limits.frozen and lag.state == "frozen":
        text = (
            f"{lag.label} is frozen for writes: {lag.frozen_reason}. Compare with: deltaplane ledger verify "
            f"{lag.label}, then decide with: deltaplane ledger repair {lag.label}"
        )
        yield Alert("frozen", lag.label, text)
    # A delayed publication is repeated by itself and is judged by lag and attempts; the rest needs a person.
    if limits.failed and failure and not lag.versions and lag.state != "frozen":
        yield Alert("failed", lag.label, failure)


def unreachable(cause: str) -> Alert:
    """The alert for a ledger that does not answer."""
    return Alert("unreachable", "", f"The ledger cannot be read: {cause}")


@dataclass(frozen=True)
class Webhook:
    """Where alerts are posted as JSON. The address is a secret more often than not, so it is never shown.

    Attributes:
        url: http or https; a user and password in it become a Basic authorization.
        timeout: Seconds for one attempt. There are two.
    """

    url: str = field(repr=False)
    timeout: float = 10.0

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable:
            raise ConfigError(
                "The webhook for alerts is not an address of http or https. Correct ledger.alerts.webhook, "
                "or the variable that holds it."
            )

    @property
    def host(self) -> str:
        """All of the address that may be shown."""
        return urlsplit(self.url).hostname or ""

    def post(self, content: Mapping[str, Any]) -> bool:
        """Send an object. A failure is logged and never stops the caller."""
        for attempt in range(_ATTEMPTS):
            try:
                self._send(json.dumps(content).encode())
            except (OSError, ValueError) as error:
                if attempt + 1 == _ATTEMPTS:
                    telemetry.LOGGER.warning(
                        "The webhook at %s did not take an alert: %s", self.host, _said(error)
                    )
            else:
                return True
        return False

    def _send(self, body: bytes) -> None:
        parts = urlsplit(self.url)
        place = parts.netloc.rpartition("@")[2]
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            parts._replace(netloc=place, fragment="").geturl(), body, {"Content-Type": "application/json"}
        )
        if parts.username is not None:
            pair = base64.b64encode(f"{parts.username}:{parts.password or ''}".encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {pair}")
        with _OPENER.open(request, timeout=self.timeout):
            return


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would turn the POST into a GET, and may lead anywhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)


def _said(error: Exception) -> str:
    """The cause without the address: the library's own text may repeat it."""
    if isinstance(error, urllib.error.HTTPError):
        return f"it answered {error.code}"
    reason = getattr(error, "reason", error)
    return (
        type(reason).__name__ if not isinstance(reason, OSError) else (reason.strerror or "no answer in time")
    )


class Notifier:
    """Tells of alerts once when they begin and once when they end: log, webhook and metric.

    Attributes:
        active: The alerts that last.
    """

    def __init__(self, ledger: str, webhook: Webhook | None = None) -> None:
        self.active: tuple[Alert, ...] = ()
        self._ledger = ledger
        self._webhook = webhook

    def update(self, alerts: Iterable[Alert]) -> tuple[tuple[Alert, ...], tuple[Alert, ...]]:
        """Take in how things stand now.

        Returns:
            The alerts that began, and those that ended.
        """
        now = tuple(alerts)
        before, after = {alert.key for alert in self.active}, {alert.key for alert in now}
        started = tuple(alert for alert in now if alert.key not in before)
        ended = tuple(alert for alert in self.active if alert.key not in after)
        self.active = now
        for alert in started:
            telemetry.LOGGER.warning("alert %s: %s", alert.kind, alert.message)
            telemetry.count("ledger_alerts_total", kind=alert.kind)
        for alert in ended:
            telemetry.LOGGER.info("alert %s is over: %s", alert.kind, alert.table or self._ledger)
        self._post("started", started)
        self._post("ended", ended)
        return started, ended

    def _post(self, event: Literal["started", "ended"], alerts: tuple[Alert, ...]) -> None:
        if self._webhook is None or not alerts:
            return
        words = "over: " if event == "ended" else ""
        self._webhook.post(
            {
                "source": "deltaplane",
                "event": f"alert.{event}",
                "ledger": self._ledger,
                "at": clock_text(now_ms()),
                # What chat systems show.
                "text": "\n".join(f"{words}{alert.message}" for alert in alerts),
                "alerts": [alert.to_json() for alert in alerts],
            }
        )
