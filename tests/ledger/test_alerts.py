"""Each alert: when it is raised, who is told, and what is never told."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from deltaplane import telemetry
from deltaplane.errors import ConfigError
from deltaplane.ledger.alerts import Alert, Notifier, Thresholds, Webhook, find_alerts, unreachable
from deltaplane.ledger.model import Lag
from deltaplane.ledger.status import LedgerStatus

CLEAN = Lag("/lake/t", "s.t", "managed", None, 9, 9, -1, 0, 0.0, 0, None)
BEHIND = replace(CLEAN, published_version=4, versions=5, seconds=60.0, attempts=3, last_error="disk full")
NEVER = Thresholds(None, None, None, False, False)


def alerts_of(lag: Lag, thresholds: Thresholds, failure: str | None = None) -> tuple[Alert, ...]:
    failures = {lag.location: failure} if failure else {}
    return find_alerts(LedgerStatus("deltasql://sqlite/x", 0, (CLEAN, lag)), thresholds, failures)


RAISED = {
    "more versions than allowed": (
        BEHIND,
        replace(NEVER, max_lag_versions=4),
        None,
        Alert(
            "lag_versions",
            "s.t",
            "s.t: 5 versions are not published, more than 4. The last error: disk full",
            5,
            4,
        ),
    ),
    "waiting longer than allowed": (
        BEHIND,
        replace(NEVER, max_lag_seconds=59.5),
        None,
        Alert(
            "lag_seconds",
            "s.t",
            "s.t: a version has been waiting 60 s for publication, longer than 59.5 s. "
            "The last error: disk full",
            60.0,
            59.5,
        ),
    ),
    "failed more often than allowed": (
        BEHIND,
        replace(NEVER, max_attempts=2),
        None,
        Alert(
            "attempts", "s.t", "s.t: publication failed 3 times, more than 2. The last error: disk full", 3, 2
        ),
    ),
    "frozen": (
        replace(CLEAN, state="frozen", frozen_reason="two stories of version 9"),
        replace(NEVER, frozen=True),
        None,
        Alert(
            "frozen",
            "s.t",
            "s.t is frozen for writes: two stories of version 9. Compare with: deltaplane ledger verify s.t, "
            "then decide with: deltaplane ledger repair s.t",
        ),
    ),
    "not reconciled": (
        CLEAN,
        replace(NEVER, failed=True),
        "the table's folder is gone",
        Alert("failed", "s.t", "the table's folder is gone"),
    ),
}


@pytest.mark.parametrize(("lag", "thresholds", "failure", "expected"), RAISED.values(), ids=RAISED.keys())
def test_an_alert_is_raised(lag: Lag, thresholds: Thresholds, failure: str | None, expected: Alert) -> None:
    assert expected in alerts_of(lag, thresholds, failure)
    assert {alert.kind for alert in alerts_of(lag, thresholds, failure)} == {expected.kind}


SILENT = {
    "at the limits": (BEHIND, Thresholds(5, 60.0, 3, False, False), None),
    "nothing is watched": (replace(BEHIND, state="frozen"), NEVER, "failed"),
    "a delayed publication is judged by its lag": (BEHIND, replace(NEVER, failed=True), "disk full"),
    "a frozen table is one alert and not two": (
        replace(CLEAN, state="frozen"),
        replace(NEVER, failed=True),
        "frozen",
    ),
}


@pytest.mark.parametrize(("lag", "thresholds", "failure"), SILENT.values(), ids=SILENT.keys())
def test_no_alert_is_raised(lag: Lag, thresholds: Thresholds, failure: str | None) -> None:
    assert find_alerts(LedgerStatus("x", 0, (lag,)), thresholds, {lag.location: failure or ""}) == ()


def test_the_defaults_watch_everything() -> None:
    lag = replace(BEHIND, versions=101, seconds=301.0, attempts=6, state="frozen")
    kinds = [alert.kind for alert in find_alerts(LedgerStatus("x", 0, (lag,)), Thresholds())]
    assert kinds == ["lag_versions", "lag_seconds", "attempts", "frozen"]


ONE, TWO = Alert("frozen", "a", "a is frozen"), Alert("frozen", "b", "b is frozen")


def test_an_alert_is_told_once_while_it_lasts_and_once_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "deltaplane")
    notifier = Notifier("deltasql://sqlite/x")
    rounds = [[ONE], [replace(ONE, message="still")], [ONE, TWO], [TWO], [], [ONE]]
    told = [notifier.update(alerts) for alerts in rounds]
    assert told == [((ONE,), ()), ((), ()), ((TWO,), ()), ((), (ONE,)), ((), (TWO,)), ((ONE,), ())]
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "alert frozen: a is frozen"),
        ("WARNING", "alert frozen: b is frozen"),
        ("INFO", "alert frozen is over: a"),
        ("INFO", "alert frozen is over: b"),
        ("WARNING", "alert frozen: a is frozen"),
    ]
    assert {record.name for record in caplog.records} == {"deltaplane"}


def test_a_raised_alert_is_counted() -> None:
    counted: list[tuple[str, float, dict[str, str]]] = []

    class Keeper:
        def count(self, name: str, amount: float, labels: Any) -> None:
            counted.append((name, amount, dict(labels)))

        def observe(self, name: str, value: float, labels: Any) -> None:
            raise AssertionError(name)

    stop = telemetry.record(Keeper())
    notifier = Notifier("x")
    notifier.update([ONE, unreachable("nobody answers")])
    notifier.update([])
    stop()
    assert counted == [
        ("ledger_alerts_total", 1, {"kind": "frozen"}),
        ("ledger_alerts_total", 1, {"kind": "unreachable"}),
    ]


@dataclass
class Receiver:
    """A web server on loopback that keeps what it is sent."""

    url: str = ""
    answers: list[int] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, str], Any]] = field(default_factory=list)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    kept = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            kept.requests.append((self.command, self.path, dict(self.headers), body))
            code = kept.answers.pop(0) if kept.answers else 200
            self.send_response(code)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def do_GET(self) -> None:
            kept.requests.append((self.command, self.path, {}, None))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Silent."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    kept.url = f"http://127.0.0.1:{server.server_port}"
    yield kept
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_webhook_gets_what_began_and_what_ended(receiver: Receiver) -> None:
    notifier = Notifier("deltasql://sqlite//l.db", Webhook(f"{receiver.url}/hook?key=s3cret"))
    for alerts in ([ONE, TWO], [ONE, TWO], [TWO]):
        notifier.update(alerts)
    bodies = [body | {"at": ""} for _, _, _, body in receiver.requests]
    assert [path for _, path, _, _ in receiver.requests] == ["/hook?key=s3cret"] * 2
    common = {"source": "deltaplane", "ledger": "deltasql://sqlite//l.db", "at": ""}
    assert bodies == [
        {
            **common,
            "event": "alert.started",
            "text": "a is frozen\nb is frozen",
            "alerts": [ONE.to_json(), TWO.to_json()],
        },
        {**common, "event": "alert.ended", "text": "over: a is frozen", "alerts": [ONE.to_json()]},
    ]
    assert receiver.requests[0][2]["Content-Type"] == "application/json"


def test_a_user_in_the_address_becomes_an_authorization(receiver: Receiver) -> None:
    place = receiver.url.replace("http://", "http://bot:s3cret@")
    assert Webhook(f"{place}/hook").post({})
    expected = base64.b64encode(b"bot:s3cret").decode()
    assert receiver.requests[0][2]["Authorization"] == f"Basic {expected}"


def test_the_webhook_is_tried_twice(receiver: Receiver) -> None:
    receiver.answers = [503]
    assert Webhook(receiver.url).post({"a": 1})
    assert len(receiver.requests) == 2


FAILURES = {"an error": ([500, 500], "it answered 500"), "a redirect": ([302, 302], "it answered 302")}


@pytest.mark.parametrize(("answers", "said"), FAILURES.values(), ids=FAILURES.keys())
def test_a_webhook_that_refuses_is_logged_and_harms_nothing(
    receiver: Receiver, answers: list[int], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers = answers
    notifier = Notifier("x", Webhook(f"{receiver.url}/s3cret?key=s3cret"))
    assert notifier.update([ONE]) == ((ONE,), ())
    assert [method for method, _, _, _ in receiver.requests] == ["POST", "POST"]
    assert f"The webhook at 127.0.0.1 did not take an alert: {said}" in caplog.text
    assert "s3cret" not in caplog.text


def test_a_webhook_that_nobody_answers_is_logged_without_its_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        port = server.server_port
    notifier = Notifier("x", Webhook(f"http://bot:s3cret@127.0.0.1:{port}/s3cret?key=s3cret"))
    assert notifier.update([ONE]) == ((ONE,), ())
    assert "The webhook at 127.0.0.1 did not take an alert: Connection refused" in caplog.text
    assert "s3cret" not in caplog.text


def test_a_webhook_that_hangs_is_given_up_in_time(caplog: pytest.LogCaptureFixture) -> None:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        assert not Webhook(f"http://127.0.0.1:{server.server_port}", timeout=0.1).post({})
    assert "did not take an alert: no answer in time" in caplog.text


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://x/y", "s3cret", "http://", "http://[s3cret", "//x"]
)
def test_an_address_that_is_none_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match=r"ledger\.alerts\.webhook") as caught:
        Webhook(url)
    assert "s3cret" not in str(caught.value)


def test_an_address_is_not_shown() -> None:
    assert repr(Webhook("https://bot:s3cret@chat.example/s3cret")) == "Webhook(timeout=10.0)"
