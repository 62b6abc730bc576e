"""deltaplane ledger status, publish and reconcile: what keeps the published logs up to date."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltaplane.cli.ledger_opening import LedgerOption, OutputOption, open_ledger
from deltaplane.cli.ledger_output import counted, reconcile_text, round_text, status_text
from deltaplane.cli.output import (
    EXIT_BLOCKED,
    EXIT_CLEAN,
    EXIT_ERROR,
    EXIT_PENDING,
    Output,
    OutputFormat,
)
from deltaplane.config import Config, load_config
from deltaplane.errors import ConfigError, DeltaplaneError

if TYPE_CHECKING:
    from deltaplane.ledger import Ledger
    from deltaplane.ledger.alerts import Notifier, Thresholds
    from deltaplane.ledger.reconcile import ReconcileReport
    from deltaplane.metrics import Metrics

__all__ = ["register"]

# An alert says, as a rule that blocks a table does, that a person must decide.
EXIT_ALERT = EXIT_BLOCKED


def register(app: typer.Typer) -> None:
    """Put the commands into their group."""
    app.command(epilog="Example: deltaplane ledger status --check")(status)
    app.command(epilog="Example: deltaplane ledger publish sales.orders")(publish)
    app.command(epilog="Example: deltaplane ledger reconcile --watch --metrics-port 9464")(reconcile)


def status(
    check: Annotated[
        bool, typer.Option("--check", help="Leave with 3 when a table is behind, 4 when an alert is due.")
    ] = False,
    ledger: LedgerOption = None,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Show how far the published logs are behind. Leaves with 0; with --check also with 3 (behind) or 4 (a
    threshold of the configuration is passed).
    """
    out = Output(output)
    with open_ledger(ledger) as opened:
        from deltaplane.ledger.alerts import find_alerts

        found = opened.status()
    alerts = find_alerts(found, _thresholds(load_config()))
    out.text(status_text(found, alerts))
    out.json({**found.to_json(), "alerts": [alert.to_json() for alert in alerts]})
    if check:
        raise typer.Exit(EXIT_ALERT if alerts else EXIT_PENDING if found.behind else EXIT_CLEAN)


def publish(
    table: Annotated[
        str | None,
        typer.Argument(metavar="[TABLE]", help="The table: its path, name or address; left out, all."),
    ] = None,
    ledger: LedgerOption = None,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Publish what is pending, now. Leaves with 0, or 1 when a table could not be published."""
    out = Output(output)
    published: dict[str, int] = {}
    failed: dict[str, str] = {}
    with open_ledger(ledger, table) as opened, out.working():
        names = [table] if table else [t.location for t in opened.tables() if t.state != "adopting"]
        before = {t.location: t.published_version for t in opened.tables()}
        for name in names:
            try:
                published |= _published(opened, name)
            except DeltaplaneError as error:
                failed[name] = str(error)
    new = {location: version - before[location] for location, version in published.items()}
    for location in (each for each in new if new[each] or table):
        said = f"{counted(new[location], 'version')} published" if new[location] else "nothing was pending"
        out.text(f"{location}: {said}; the log is at version {published[location]}.")
    for reason in failed.values():
        out.text(f"  ! {reason}")
    if table is None:
        failing = f", {len(failed)} failed" if failed else ""
        out.text(
            f"{counted(len(names), 'table')}: {counted(sum(new.values()), 'version')} published{failing}."
        )
    out.json({"published": published, "failed": failed})
    raise typer.Exit(EXIT_ERROR if failed else EXIT_CLEAN)


def _published(ledger: Ledger, name: str) -> dict[str, int]:
    found = ledger.publish(name)
    if not found:
        raise ConfigError(
            f"{name} is frozen for writes and is not published. See what differs with: deltaplane ledger "
            f"verify {name}"
        )
    return found


def reconcile(
    watch: Annotated[bool, typer.Option("--watch", help="Go on until Ctrl-C or SIGTERM.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two rounds of --watch.")] = 30.0,
    force: Annotated[
        bool, typer.Option("--force", help="Also publish what failed a moment ago and waits.")
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Serve Prometheus metrics there while --watch runs."),
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="The address for the metrics.")] = "127.0.0.1",
    ledger: LedgerOption = None,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Finish what was left unfinished: publish, import, write checkpoints, remove leftovers. Leaves with 0
    (clean), 1 (a table failed), 3 (something still waits) or 4 (an alert); a watch that is stopped with 0.
    """
    out = Output(output)
    if metrics_port is not None and not watch:
        raise typer.BadParameter("--metrics-port goes with --watch.")
    config = load_config()
    with open_ledger(ledger, lasting=watch) as opened:
        limits, notifier = _thresholds(config), _notifier(opened, config)
        if watch:
            with _serving(metrics_port, metrics_host) as metrics:
                _watch(opened, limits, notifier, interval, force, metrics, out)
            return
        with out.working():
            report = opened.reconcile(limits, force=force, notifier=notifier)
    out.text(reconcile_text(report))
    out.json(report.to_json())
    raise typer.Exit(_code(report))


def _code(report: ReconcileReport) -> int:
    if report.alerts:
        return EXIT_ALERT
    if report.failed:
        return EXIT_ERROR
    return EXIT_PENDING if report.status.behind else EXIT_CLEAN


def _thresholds(config: Config) -> Thresholds:
    from deltaplane.ledger.alerts import Thresholds

    limits: dict[str, Any] = dict(config.ledger.alerts.limits)
    return Thresholds(**limits)


def _notifier(ledger: Ledger, config: Config) -> Notifier:
    from deltaplane.ledger.alerts import Notifier, Webhook

    url = config.ledger.alerts.webhook
    return Notifier(ledger.uri, Webhook(url) if url else None)


@contextmanager
def _serving(port: int | None, host: str) -> Iterator[Metrics | None]:
    if port is None:
        yield None
        return
    from deltaplane.metrics import Metrics, serve

    metrics = Metrics()
    endpoint = serve(metrics, port, host)
    sys.stderr.write(f"metrics: http://{endpoint.host}:{endpoint.port}/metrics\n")
    try:
        yield metrics
    finally:
        endpoint.close()


def _watch(
    ledger: Ledger,
    limits: Thresholds,
    notifier: Notifier,
    interval: float,
    force: bool,
    metrics: Metrics | None,
    out: Output,
) -> None:
    rounds = 0

    def each(report: ReconcileReport | None) -> None:
        nonlocal rounds
        rounds += 1
        if metrics is not None and report is not None:
            metrics.show(report.status, notifier.active)
        elif metrics is not None:
            metrics.show_unreachable(notifier.active)
        _show_round(report, out, first=rounds == 1)

    with _stopped_by_signals() as stop:
        ledger.watch(each, limits, interval=interval, stop=stop, force=force, notifier=notifier)
    out.text(f"Stopped after {counted(rounds, 'round')}. Nothing is left half-done.")


def _show_round(report: ReconcileReport | None, out: Output, *, first: bool) -> None:
    """In text what is new, in JSON one line for every round."""
    if out.format is OutputFormat.json:
        content = {"error": "the ledger cannot be read"} if report is None else report.to_json()
        sys.stdout.write(json.dumps(content) + "\n")
    elif report is not None and (first or round_text(report)):
        out.text(reconcile_text(report) if first else round_text(report) or "")
    sys.stdout.flush()


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """The first signal ends the loop after the table in hand; a second one interrupts at once."""
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def end(number: int, _frame: object) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.default_int_handler)

    for number in before:
        signal.signal(number, end)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
