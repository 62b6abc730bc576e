"""Try a plan on shallow clones first: the same statements, on copies that share the data files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from deltaplane.errors import DeltaplaneError, StatementFailed
from deltaplane.planning import Plan, TablePlan
from deltaplane.planning.changes import Change, CreateTable, DropTable
from deltaplane.schema import QualifiedName
from deltaplane.sync.ports import CommitNote, TableCatalog
from deltaplane.sync.report import Report, TableReport

__all__ = ["rehearse_plan"]


def rehearse_plan(
    plan: Plan, catalog: TableCatalog, note: CommitNote, progress: Callable[[str], None]
) -> Report:
    """Run every pending table's changes on a clone, discard the clones, and report what would have happened.

    A schema of its own holds the clones, so that nothing shows among the user's tables.
    """
    stages: dict[str, QualifiedName] = {}
    reports = []
    try:
        for number, entry in enumerate(plan.tables):
            if entry.status == "pending":
                progress(f"rehearsing {entry.table}")
                catalog_name = entry.table.catalog
                if catalog_name not in stages:
                    stages[catalog_name] = catalog.begin_rehearsal(catalog_name)
                stage = replace(stages[catalog_name], name=f"rehearsal_{number}")
                reports.append(_rehearse_table(entry, stage, catalog, note))
            else:
                reports.append(_not_rehearsed(entry))
    finally:
        for schema in stages.values():
            catalog.end_rehearsal(schema)
    return Report(plan.plan_id, note.author, tuple(reports), rehearsal=True)


def _not_rehearsed(entry: TablePlan) -> TableReport:
    base = TableReport(
        entry.table, "unchanged", findings=entry.findings, before=entry.before, after=entry.after
    )
    if entry.status == "read_failed":
        return replace(base, status="read_failed", error=entry.error)
    if entry.status == "blocked":
        summaries = tuple(change.summary for change in entry.changes)
        return replace(base, status="blocked", not_applied=summaries, error="a rule forbids it.")
    return base


def _rehearse_table(
    entry: TablePlan, stage: QualifiedName, catalog: TableCatalog, note: CommitNote
) -> TableReport:
    summaries = tuple(change.summary for change in entry.changes)
    base = TableReport(
        entry.table, "applied", findings=entry.findings, before=entry.before, after=entry.after
    )
    done = 0
    try:
        if entry.before is not None:
            catalog.clone(entry.table, stage)
        for change in entry.changes:
            if not isinstance(change, DropTable):
                catalog.execute(_on(change, stage), note)
            done += 1
    except DeltaplaneError as failure:
        cause = failure.cause_text if isinstance(failure, StatementFailed) else str(failure)
        return replace(
            base,
            status="failed",
            applied=summaries[:done],
            not_applied=summaries[done:],
            error=f"the rehearsal failed, and the table itself was not touched: {cause}",
            sql=failure.sql if isinstance(failure, StatementFailed) else None,
        )
    return replace(base, applied=summaries)


def _on(change: Change, stage: QualifiedName) -> Change:
    if isinstance(change, CreateTable):
        return replace(change, table=stage, declaration=replace(change.declaration, location=None))
    return replace(change, table=stage)
