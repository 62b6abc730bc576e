"""The reconciler: whatever was left unfinished is finished, table by table.

Any number may run at once. A table is done by the one that holds its lease; a table that fails does not stop
the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from deltaplane import telemetry
from deltaplane.errors import DeltaplaneError, TableFrozen, TableNotManaged
from deltaplane.ledger.alerts import Alert, Notifier, Thresholds, find_alerts, unreachable
from deltaplane.ledger.checkpointing import checkpoint_if_due
from deltaplane.ledger.completing import Lacking, complete_table
from deltaplane.ledger.context import Context
from deltaplane.ledger.creations import sweep_creations
from deltaplane.ledger.foreign import notice_foreign_commits
from deltaplane.ledger.leases import lease
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.names import LOG_FOLDER
from deltaplane.ledger.publish import LONGEST_BACKOFF_MS, publish_pending
from deltaplane.ledger.staged import sweep_staged
from deltaplane.ledger.status import LedgerStatus, read_status

__all__ = ["Grace", "ReconcileReport", "TableReport", "reconcile", "watch"]

_LEASE_SECONDS = 600.0
_SWEPT_FOLDERS = (LOG_FOLDER, f"{LOG_FOLDER}/_sidecars")


@dataclass(frozen=True)
class Grace:
    """How old leftovers must be before they are removed: somebody may still be at work on younger ones.

    Attributes:
        temporaries_ms: Temporary files of killed writers.
        staged_ms: Staged commits of transactions that did not end.
    """

    temporaries_ms: int = 3_600_000
    staged_ms: int = 86_400_000


@dataclass(frozen=True)
class TableReport:
    """What was done for one table.

    Attributes:
        location: Where it lies.
        name: What it is called.
        outcome: clean (nothing to do), done, waiting (publication is tried again later), busy (another
            reconciler has it), frozen, adopting (its adoption is not finished), gone (it left the ledger
            meanwhile) or failed.
        published: How many versions were published.
        imported: How many commits of outside writers were imported.
        completed: Whether the rows of a large commit were written, whose process died behind it.
        checkpoint: The version of the checkpoint that was written.
        removed: Leftovers that were removed.
        error: Why it failed, or why it is frozen.
    """

    location: str
    name: str | None
    outcome: str
    published: int = 0
    imported: int = 0
    checkpoint: int | None = None
    removed: tuple[str, ...] = ()
    error: str | None = None
    completed: bool = False

    @property
    def label(self) -> str:
        """What people call the table."""
        return self.name or self.location


@dataclass(frozen=True)
class ReconcileReport:
    """One round over all tables.

    Attributes:
        tables: What was done, by table.
        status: How the tables stand afterwards.
        alerts: The thresholds that are passed.
        expired_leases: How many leases of dead processes were removed.
        abandoned: Where dead transactions had begun to make tables; what they left there was removed.
    """

    tables: tuple[TableReport, ...]
    status: LedgerStatus
    alerts: tuple[Alert, ...] = ()
    expired_leases: int = 0
    abandoned: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[TableReport, ...]:
        """The tables that could not be reconciled."""
        return tuple(table for table in self.tables if table.outcome == "failed")

    def to_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "tables": [{**asdict(table), "removed": list(table.removed)} for table in self.tables],
            "expired_leases": self.expired_leases,
            "abandoned": list(self.abandoned),
            "alerts": [alert.to_json() for alert in self.alerts],
            "status": self.status.to_json(),
        }


@dataclass
class _Work:
    """One table while it is worked on."""

    table: ManagedTable
    outcome: str = ""
    published: int = 0
    imported: int = 0
    completed: bool = False
    checkpoint: int | None = None
    removed: tuple[str, ...] = ()
    errors: list[str] = field(default_factory=list)
    frozen: str | None = None

    def attempt(self, stage: Callable[..., None], *arguments: Any) -> None:
        """Run a stage; its failure is kept for the report."""
        try:
            stage(self, *arguments)
        except TableFrozen as error:
            self.outcome, self.frozen = "frozen", str(error)
        except (DeltaplaneError, OSError) as error:
            self.errors.append(str(error))
        except Exception as error:
            # Not foreseen, and still no reason to leave the other tables alone; the trace goes to the log.
            telemetry.LOGGER.exception("%s: reconciling failed unexpectedly", self.table.label)
            self.errors.append(f"{self.table.label}: {type(error).__name__}: {error}")

    def report(self) -> TableReport:
        """What came of it."""
        touched = (
            self.published or self.imported or self.completed or self.removed or self.checkpoint is not None
        )
        outcome = "failed" if self.errors else self.outcome or ("done" if touched else "clean")
        error = " ".join(self.errors) or self.frozen
        table = self.table
        return TableReport(
            table.location,
            table.name,
            outcome,
            self.published,
            self.imported,
            self.checkpoint,
            self.removed,
            error,
            self.completed,
        )


def reconcile(
    ctx: Context,
    thresholds: Thresholds,
    *,
    force: bool = False,
    grace: Grace | None = None,
    stop: threading.Event | None = None,
) -> ReconcileReport:
    """Go over all tables once. See `Ledger.reconcile`."""
    with telemetry.span("ledger.reconcile") as note:
        with ctx.store.reading() as session:
            tables = [ManagedTable.from_row(row) for row in session.rows("all_tables")]
        reports = []
        for table in tables:
            if stop is not None and stop.is_set():
                break
            reports.append(_reconcile_table(ctx, table, force, grace or Grace()))
        abandoned = sweep_creations(ctx, (grace or Grace()).staged_ms)
        expired = _expire_leases(ctx)
        status = read_status(ctx)
        failures = {report.location: report.error or "" for report in reports if report.outcome == "failed"}
        note(tables=len(reports), failed=len(failures))
    alerts = find_alerts(status, thresholds, failures)
    return ReconcileReport(tuple(reports), status, alerts, expired, abandoned)


def _reconcile_table(ctx: Context, table: ManagedTable, force: bool, grace: Grace) -> TableReport:
    work = _Work(table)
    work.attempt(_under_lease, ctx, force, grace)
    return work.report()


def _under_lease(work: _Work, ctx: Context, force: bool, grace: Grace) -> None:
    with lease(ctx, f"reconcile:{work.table.table_id}", _LEASE_SECONDS) as held:
        if not held:
            work.outcome = "busy"
            return
        try:
            # Another reconciler may have finished it a moment ago.
            work.table = ctx.by_id(work.table.table_id)
        except TableNotManaged:
            work.outcome = "gone"
            return
        if work.table.state == "adopting":
            work.outcome = "adopting"
            return
        # First, because it may be what frees the space that publication needs.
        work.attempt(_sweep, ctx, grace)
        work.attempt(_complete, ctx)
        if work.table.state == "frozen":
            work.outcome, work.frozen = "frozen", work.table.frozen_reason
            return
        work.attempt(_bring_up, ctx, force)


def _complete(work: _Work, ctx: Context) -> None:
    """The rows of a large version whose committer died behind it."""
    work.completed = complete_table(ctx, Lacking(work.table))


def _sweep(work: _Work, ctx: Context, grace: Grace) -> None:
    storage = ctx.storage(work.table.location)
    for folder in _SWEPT_FOLDERS:
        work.removed += storage.sweep_temporaries(folder, grace.temporaries_ms)
    work.removed += sweep_staged(ctx, work.table, grace.staged_ms)


def _bring_up(work: _Work, ctx: Context, force: bool) -> None:
    """Publish, import and checkpoint, in this order: a checkpoint may only be of a published version."""
    before = work.table
    pending = before.published_version < before.head_version
    if pending and not force and _waits(ctx, before):
        work.outcome = "waiting"
        return
    try:
        if pending:
            publish_pending(ctx, before)
        work.imported = notice_foreign_commits(ctx, ctx.by_id(before.table_id))
        now = ctx.by_id(before.table_id)
        checkpoint_if_due(ctx, now, now.published_version)
    finally:
        # Also what was done before a failure counts, and publication writes checkpoints as well.
        after = ctx.by_id(before.table_id)
        work.published = min(after.published_version, before.head_version) - before.published_version
        if after.checkpoint_version > before.checkpoint_version:
            work.checkpoint = after.checkpoint_version


def _waits(ctx: Context, table: ManagedTable) -> bool:
    """Whether the next attempt is not due yet."""
    with ctx.store.reading() as session:
        row = session.row("pending", table_id=table.table_id, limit=1)
    left = row[3] - ctx.clock() if row else 0
    # A longer wait than we ever ask for was noted by a clock that has jumped.
    return bool(0 < left <= LONGEST_BACKOFF_MS)


def _expire_leases(ctx: Context) -> int:
    now = ctx.store.now()
    with ctx.store.relaxed() as session:
        return session.run("expire_leases", now=now)


def watch(
    ctx: Context,
    thresholds: Thresholds,
    notifier: Notifier,
    interval: float,
    stop: threading.Event,
    each: Callable[[ReconcileReport | None], None],
    *,
    force: bool = False,
) -> None:
    """Reconcile again and again until `stop` is set.

    A ledger that cannot be reached raises an alert and is tried again.

    Args:
        ctx: The ledger.
        thresholds: When to raise alerts.
        notifier: Who is told.
        interval: Seconds from the end of a round to the next.
        stop: Ends the loop, after the table that is being worked on.
        each: Called after every round, with None when the ledger could not be read.
        force: Do not wait for the next attempt that is due.
    """
    while not stop.is_set():
        report: ReconcileReport | None = None
        try:
            report = reconcile(ctx, thresholds, force=force, stop=stop)
        except DeltaplaneError as error:
            notifier.update(_together(notifier.active, (unreachable(str(error)),)))
        else:
            if not stop.is_set():
                notifier.update(_together(_unseen(notifier.active, report), report.alerts))
        each(report)
        stop.wait(interval)


def _unseen(active: tuple[Alert, ...], report: ReconcileReport) -> tuple[Alert, ...]:
    """Failures of tables that another reconciler has in hand: whether they are over is not known here."""
    busy = {table.label for table in report.tables if table.outcome == "busy"}
    return tuple(alert for alert in active if alert.kind == "failed" and alert.table in busy)


def _together(older: tuple[Alert, ...], newer: tuple[Alert, ...]) -> tuple[Alert, ...]:
    return tuple({alert.key: alert for alert in (*older, *newer)}.values())
