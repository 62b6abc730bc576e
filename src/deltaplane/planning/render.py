"""A plan for people: as text for the terminal and as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Iterator

from deltaplane.planning.changes import Change
from deltaplane.planning.order import phase
from deltaplane.planning.plan import Plan, TablePlan
from deltaplane.planning.rules import Finding
from deltaplane.planning.rules.tables import show_size

__all__ = ["change_line", "finding_lines", "one_line", "to_markdown", "to_text", "visible"]

_SIGN = {1: "+", 2: "+", 3: "~", 4: "-"}
_ADDING = frozenset({"create_schema", "create_table", "add_column", "add_check", "add_key"})


def to_text(plan: Plan, *, applied: bool = False) -> str:
    """Write the whole plan for a terminal."""
    lines: list[str] = []
    for schema in plan.schemas:
        lines += [f"{schema.table.catalog}.{schema.table.schema}", change_line(schema), ""]
    for entry in plan.tables:
        if entry.status != "unchanged" or entry.findings:
            lines += [*_table_lines(entry), ""]
    lines.append(one_line(plan, applied=applied))
    return "\n".join(lines)


def one_line(plan: Plan, *, applied: bool = False) -> str:
    """Sum the plan up in one line."""
    counts = plan.counts()
    parts = [_count(len(plan.tables), "table"), _count(len(plan.changes), "change")]
    rewriting = [entry for entry in plan.tables if entry.rewrites]
    if rewriting:
        size = show_size(sum(entry.size_bytes for entry in rewriting))
        parts.append(f"{len(rewriting)} rewrites data (about {size})")
    for status, word in (("blocked", "blocked"), ("read_failed", "could not be read")):
        if counts[status]:
            parts.append(f"{counts[status]} {word}")
    end = "" if applied else " Nothing applied."
    kept = sum(finding.keep and finding.waived is not None for finding in plan.findings)
    if plan.is_empty:
        end = " Everything is as declared."
        if kept:
            end = f" Nothing to do; {_count(kept, 'difference')} left as waived."
    return ", ".join(parts) + "." + end


def change_line(change: Change) -> str:
    """One change as a line: a sign, its cost, what it does."""
    sign = "+" if change.kind in _ADDING else _SIGN[phase(change)]
    return f"  {sign} {'[' + change.cost + ']':<13} {visible(change.summary)}"


def finding_lines(finding: Finding) -> list[str]:
    """One finding as lines: what, and what to do about it."""
    label, text = f"{finding.code} {finding.severity}", visible(finding.text)
    if finding.waived is not None:
        kept = "; left as it is" if finding.keep else ""
        return [f"  ! {label}, waived{kept} ({visible(finding.waived)}): {text}"]
    lines = [f"  ! {label}: {text}"]
    return [*lines, f"      {finding.remedy}"] if finding.severity != "info" else lines


def to_markdown(plan: Plan) -> str:
    """Write the plan for a pull request."""
    lines = ["## Table plan", "", one_line(plan), ""]
    if plan.schemas:
        lines += [*(f"- {schema.summary}" for schema in plan.schemas), ""]
    for entry in plan.tables:
        if entry.status == "unchanged" and not entry.findings:
            continue
        lines += [f"### {_escape(str(entry.table))}", "", _escape(_facts(entry)), ""]
        if entry.error:
            lines += [f"> {_escape(entry.error)}", ""]
        if entry.changes:
            lines += ["| change | cost | consequence |", "|---|---|---|"]
            lines += [
                f"| {_escape(c.summary)} | {c.cost} | {_escape(c.consequence or '')} |" for c in entry.changes
            ]
            lines.append("")
        lines += [f"- {_escape(_markdown_finding(finding))}" for finding in entry.findings]
        if entry.findings:
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _markdown_finding(finding: Finding) -> str:
    if finding.waived is not None:
        kept = ", left as it is" if finding.keep else ""
        return f"**{finding.code}** waived{kept} ({finding.waived}): {finding.text}"
    return f"**{finding.code} {finding.severity}**: {finding.text} {finding.remedy}"


def _escape(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def _table_lines(entry: TablePlan) -> Iterator[str]:
    facts = _facts(entry)
    yield f"{entry.table}" + (f"  ({facts})" if facts else "")
    if entry.error:
        yield f"  ! could not be read: {entry.error}"
    for change in entry.changes:
        yield change_line(change)
        if change.consequence:
            yield f"{'':19}{change.consequence}"
    for finding in entry.findings:
        yield from finding_lines(finding)


def _facts(entry: TablePlan) -> str:
    facts = []
    if entry.before and entry.after and entry.before != entry.after:
        added = sorted(entry.after.features - entry.before.features)
        same = str(entry.before) == str(entry.after)
        versions = f"protocol {entry.before}" + ("" if same else f" -> {entry.after}")
        facts.append(versions + (f", adds {', '.join(added)}" if added else ""))
    elif entry.after and not entry.before:
        facts.append(f"new, protocol {entry.after}")
    elif entry.before:
        facts.append(f"protocol {entry.before}")
    if entry.num_files:
        facts.append(f"{show_size(entry.size_bytes)} in {_count(entry.num_files, 'file')}")
    return ", ".join(facts)


def visible(text: str) -> str:
    """Write control characters out, so that a name cannot break a line or move the cursor."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
