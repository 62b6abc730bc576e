"""What happened to every table of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from deltaplane.planning import Finding
from deltaplane.planning.features import Protocol
from deltaplane.planning.render import finding_lines, visible
from deltaplane.schema import QualifiedName

__all__ = ["Report", "Status", "TableReport"]

Status = Literal["unchanged", "applied", "blocked", "read_failed", "failed", "skipped"]
_GOOD: tuple[Status, ...] = ("unchanged", "applied")
_PREVIEW = 300


@dataclass(frozen=True)
class TableReport:
    """What happened to one table.

    Attributes:
        table: Its name.
        status: unchanged, applied, blocked, read_failed, failed or skipped.
        applied: The changes that were carried out, as sentences.
        not_applied: Those that were not.
        begun: One that stopped halfway; the next run finishes it.
        findings: What the rules said.
        error: Why it failed, was skipped or could not be read.
        sql: The statement that failed.
        restore: The command that brings the table back to how it was before.
        before: The protocol before.
        after: The protocol afterwards, as planned.
    """

    table: QualifiedName
    status: Status
    applied: tuple[str, ...] = ()
    not_applied: tuple[str, ...] = ()
    begun: str | None = None
    findings: tuple[Finding, ...] = ()
    error: str | None = None
    sql: str | None = None
    restore: str | None = None
    before: Protocol | None = None
    after: Protocol | None = None

    @property
    def ok(self) -> bool:
        """Whether the table is as declared."""
        return self.status in _GOOD

    @property
    def protocol_stays(self) -> str | None:
        """What RESTORE cannot undo."""
        if self.restore is None or self.before is None or self.after is None or self.before == self.after:
            return None
        added = ", ".join(sorted(self.after.features - self.before.features))
        return f"RESTORE does not undo the protocol: it stays at {self.after}" + (
            f" with {added}." if added else "."
        )

    def lines(self) -> Iterator[str]:
        """Write the report of this table."""
        yield f"{self.table}: {self.status}"
        for summary in self.applied:
            yield f"  done: {visible(summary)}"
        if self.begun:
            yield f"  begun, to be finished by the next run: {visible(self.begun)}"
        for summary in self.not_applied:
            yield f"  not done: {visible(summary)}"
        if self.error:
            yield f"  ! {_preview(self.error)}"
        if self.sql:
            yield f"    statement: {_preview(self.sql)}"
        for finding in self.findings:
            if finding.blocks or finding.waived is not None or finding.severity == "warning":
                yield from finding_lines(finding)
        if self.restore:
            yield f"  to undo: {self.restore}"
        if self.protocol_stays:
            yield f"    {self.protocol_stays}"

    def to_json(self) -> dict[str, Any]:
        """Return the report of this table as plain JSON types."""
        return {
            "table": str(self.table),
            "status": self.status,
            "applied": list(self.applied),
            "begun": self.begun,
            "not_applied": list(self.not_applied),
            "findings": [
                {
                    "code": f.code,
                    "severity": f.severity,
                    "column": f.column,
                    "text": f.text,
                    "waived": f.waived,
                }
                for f in self.findings
            ],
            "error": self.error,
            "sql": self.sql,
            "restore": self.restore,
            "protocol_stays": self.protocol_stays,
        }


@dataclass(frozen=True)
class Report:
    """What happened to all tables.

    Attributes:
        plan_id: The plan that was carried out; every commit carries it.
        author: Who ran it.
        tables: One entry per table, by name.
        rehearsal: Whether everything happened on clones that are gone again.
    """

    plan_id: str
    author: str
    tables: tuple[TableReport, ...] = ()
    rehearsal: bool = False

    @property
    def ok(self) -> bool:
        """Whether every table is as declared."""
        return all(entry.ok for entry in self.tables)

    def counts(self) -> Counter[str]:
        """Return how many tables there are of each status."""
        return Counter(entry.status for entry in self.tables)

    def get(self, name: str) -> TableReport | None:
        """Return the entry of a table by its full name, ignoring case."""
        return next((e for e in self.tables if str(e.table).casefold() == name.casefold()), None)

    def one_line(self) -> str:
        """Sum the run up in one line."""
        counts = self.counts()
        order: tuple[Status, ...] = ("applied", "unchanged", "blocked", "read_failed", "failed", "skipped")
        words = {"applied": "would be applied"} if self.rehearsal else {}
        parts = [f"{counts[s]} {words.get(s, s.replace('_', ' '))}" for s in order if counts[s]]
        total = len(self.tables)
        noun = "table" if total == 1 else "tables"
        return f"{total} {noun}: {', '.join(parts) or 'nothing to do'}. Plan {self.plan_id}."

    def to_text(self) -> str:
        """Write the whole report; tables that did not change are only counted."""
        lines: list[str] = []
        for entry in self.tables:
            if entry.status != "unchanged" or entry.findings:
                lines += [*entry.lines(), ""]
        return "\n".join([*lines, self.one_line()])

    def __str__(self) -> str:
        return self.to_text()

    def failure_text(self) -> str:
        """Say what went wrong, table by table."""
        bad = [entry for entry in self.tables if not entry.ok]
        head = f"{len(bad)} of {len(self.tables)} tables could not be brought to their declaration."
        lines = [head]
        for entry in bad:
            lines += [*entry.lines(), ""]
        fine = sum(entry.ok for entry in self.tables)
        if fine:
            lines.append(f"The other {fine} {'is' if fine == 1 else 'are'} as declared.")
        lines.append("Mend the declaration or the table, then run it again: it does only what is missing.")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON types."""
        return {
            "plan_id": self.plan_id,
            "author": self.author,
            "rehearsal": self.rehearsal,
            "ok": self.ok,
            "summary": self.one_line(),
            "tables": [entry.to_json() for entry in self.tables],
        }


def _preview(text: str) -> str:
    flat = visible(" ".join(text.split()))
    return flat if len(flat) <= _PREVIEW else flat[: _PREVIEW - 1] + "…"
