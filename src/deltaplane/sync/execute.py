"""Carry a plan out, table by table. One table's failure does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter

from deltaplane.errors import DeltaplaneError, StatementFailed
from deltaplane.planning import Plan, TablePlan
from deltaplane.planning.changes import DropTable
from deltaplane.sync.ports import CommitNote, TableCatalog
from deltaplane.sync.report import Report, Status, TableReport

__all__ = ["Execution", "execute_plan"]

Key = tuple[str, str, str]


@dataclass(frozen=True)
class Execution:
    """What carrying a plan out needs.

    Attributes:
        catalog: The adapter.
        note: What every commit says about itself.
        progress: Called with a sentence before each table.
        accepted_stale: Tables whose change since the plan somebody has waived.
    """

    catalog: TableCatalog
    note: CommitNote
    progress: Callable[[str], None] = lambda text: None
    accepted_stale: set[Key] = field(default_factory=set)


def execute_plan(plan: Plan, execution: Execution) -> Report:
    """Create what is missing, then change table after table, those that others depend on first."""
    broken_schemas = _create_schemas(plan, execution)
    reports: dict[Key, TableReport] = {}
    for entry in dependency_order(plan.tables):
        cause = broken_schemas.get((entry.table.catalog.casefold(), entry.table.schema.casefold()))
        if cause is not None and entry.changes:
            reports[entry.table.key] = _report(entry, "failed", error=cause)
        else:
            reports[entry.table.key] = _one_table(entry, reports, execution)
    ordered = tuple(reports[entry.table.key] for entry in plan.tables)
    return Report(plan.plan_id, execution.note.author, ordered)


def dependency_order(tables: Iterable[TablePlan]) -> list[TablePlan]:
    """Return the tables so that those others depend on come first, alphabetical otherwise, drops last."""
    entries = {entry.table.key: entry for entry in tables}
    graph = {key: {n.key for n in entry.depends_on if n.key in entries} for key, entry in entries.items()}
    order = [entries[key] for key in _alphabetical_topology(graph)]
    return sorted(order, key=lambda entry: any(isinstance(change, DropTable) for change in entry.changes))


def _alphabetical_topology(graph: dict[Key, set[Key]]) -> list[Key]:
    sorter = TopologicalSorter(graph)
    sorter.prepare()
    ordered: list[Key] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        ordered += ready
        sorter.done(*ready)
    return ordered


def _create_schemas(plan: Plan, execution: Execution) -> dict[tuple[str, str], str]:
    failures: dict[tuple[str, str], str] = {}
    for change in plan.schemas:
        place = (change.table.catalog.casefold(), change.table.schema.casefold())
        inside = [e for e in plan.tables if (e.table.catalog.casefold(), e.table.schema.casefold()) == place]
        if not any(entry.status == "pending" for entry in inside):
            continue
        try:
            execution.catalog.execute(change, execution.note)
        except DeltaplaneError as error:
            failures[place] = f"its schema could not be created: {error}"
    return failures


def _one_table(entry: TablePlan, done: dict[Key, TableReport], execution: Execution) -> TableReport:
    if entry.status == "read_failed":
        return _report(entry, "read_failed", error=entry.error)
    if entry.status == "blocked":
        return _report(entry, "blocked", error="a rule forbids it; no statement was run on this table.")
    if entry.status == "unchanged":
        return _report(entry, "unchanged")
    broken = [name for name in entry.depends_on if name.key in done and not done[name.key].ok]
    if broken:
        names = ", ".join(f"{name} ({done[name.key].status})" for name in broken)
        return _report(entry, "skipped", error=f"it depends on {names}; no statement was run on this table.")
    execution.progress(f"changing {entry.table}")
    return _run(entry, execution)


def _run(entry: TablePlan, execution: Execution) -> TableReport:
    refusal = _changed_meanwhile(entry, execution)
    if refusal is not None:
        return _report(entry, "failed", error=refusal)
    applied = 0
    try:
        for change in entry.changes:
            execution.catalog.execute(change, execution.note)
            applied += 1
    except StatementFailed as failure:
        return _failed(entry, applied, failure, execution)
    except DeltaplaneError as failure:
        return _report(entry, "failed", done=applied, error=str(failure))
    except Exception as failure:
        # A defect of ours or of an adapter: it must not keep the other tables from being changed and
        # reported.
        cause = f"unexpected {type(failure).__name__}: {failure}. Please report it."
        return _report(entry, "failed", done=applied, error=cause)
    report = _report(entry, "applied", done=applied)
    return replace(report, restore=_restore(entry, execution))


def _changed_meanwhile(entry: TablePlan, execution: Execution) -> str | None:
    if entry.table.key in execution.accepted_stale:
        return None
    try:
        now = execution.catalog.read(entry.table)
    except DeltaplaneError as error:
        return f"it could not be read before the change: {error}"
    if (now.fingerprint if now is not None else "") == entry.fingerprint:
        return None
    if now is not None and entry.before is None:
        return (
            "PL101: somebody else created it in the meantime. Nothing was changed. Plan again and look at it."
        )
    return "PL101: somebody else changed it in the meantime. Nothing was changed. Plan again and look at it."


def _failed(entry: TablePlan, applied: int, failure: StatementFailed, execution: Execution) -> TableReport:
    cause = failure.cause_text
    if failure.concurrent:
        cause = f"somebody else changed the table at the same moment, and was first: {cause}"
    report = _report(entry, "failed", done=applied, error=cause, sql=failure.sql)
    if failure.statements_done:
        begun, *rest = report.not_applied
        report = replace(report, begun=begun, not_applied=tuple(rest))
    touched = applied or failure.statements_done
    return replace(report, restore=_restore(entry, execution) if touched else None)


def _restore(entry: TablePlan, execution: Execution) -> str | None:
    if entry.version is None or any(isinstance(change, DropTable) for change in entry.changes):
        return None
    return execution.catalog.restore_command(entry.table, entry.version)


def _report(
    entry: TablePlan, status: Status, *, done: int = 0, error: str | None = None, sql: str | None = None
) -> TableReport:
    summaries = tuple(change.summary for change in entry.changes)
    return TableReport(
        table=entry.table,
        status=status,
        applied=summaries[:done],
        not_applied=summaries[done:],
        findings=entry.findings,
        error=error,
        sql=sql,
        before=entry.before,
        after=entry.after,
    )
