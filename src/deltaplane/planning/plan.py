"""A plan: for every table what would be done, what the rules say, and what it would cost. Values only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from deltaplane.planning.capabilities import Capabilities
from deltaplane.planning.changes import Change, CreateSchema, DropTable
from deltaplane.planning.codec import digest
from deltaplane.planning.compare import DEFAULT_OWNER, compare
from deltaplane.planning.features import Protocol
from deltaplane.planning.observed import ObservedTable
from deltaplane.planning.order import order_changes, phase
from deltaplane.planning.rules import Finding, RuleContext, Violations, check_rules
from deltaplane.planning.simulate import simulate_all
from deltaplane.planning.waiving import leave_out
from deltaplane.schema import DeltaTable, QualifiedName, Waiver
from deltaplane.schema.registry import normal_location

__all__ = ["Plan", "TablePlan", "plan_drop", "plan_table"]

Status = Literal["unchanged", "pending", "blocked", "read_failed"]


@dataclass(frozen=True)
class TablePlan:
    """What would happen to one table.

    Attributes:
        table: Its name.
        changes: In the order in which they would run.
        findings: What the rules say, waived or not.
        before: The protocol now; None when the table does not exist.
        after: The protocol afterwards; None when the table would be dropped.
        version: The table's version when it was read.
        num_files: Active files now.
        size_bytes: Their size.
        state: The table as it was, or the fingerprint of a saved plan; "" when there is nothing to compare.
        depends_on: Tables that have to be right before this one.
        error: Why the table could not be read, or None.
    """

    table: QualifiedName
    changes: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()
    before: Protocol | None = None
    after: Protocol | None = None
    version: int | None = None
    num_files: int = 0
    size_bytes: int = 0
    state: ObservedTable | str = field(default="", repr=False, compare=False)
    depends_on: tuple[QualifiedName, ...] = ()
    error: str | None = None

    @cached_property
    def fingerprint(self) -> str:
        """The state the plan was made from; "" for a table that does not exist or does not change."""
        return self.state if isinstance(self.state, str) else self.state.fingerprint

    @property
    def status(self) -> Status:
        """Where the table stands."""
        if self.error is not None:
            return "read_failed"
        if any(finding.blocks for finding in self.findings):
            return "blocked"
        return "pending" if self.changes else "unchanged"

    @property
    def rewrites(self) -> bool:
        """Whether any change rewrites data."""
        return any(change.cost == "rewrite" for change in self.changes) and self.num_files > 0


@dataclass(frozen=True)
class Plan:
    """What would happen to all tables of a registry.

    Attributes:
        tables: One entry per table, by name.
        schemas: Schemas to create first.
        engine: The engine the plan was made for.
    """

    tables: tuple[TablePlan, ...] = ()
    schemas: tuple[CreateSchema, ...] = ()
    engine: str = ""
    _by_key: dict[tuple[str, str, str], TablePlan] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        self._by_key.update({entry.table.key: entry for entry in self.tables})

    @property
    def changes(self) -> tuple[Change, ...]:
        """Every change: creations, then adds, changes and drops, each by table."""
        ordered = [change for entry in self.tables for change in entry.changes]
        return (*self.schemas, *sorted(ordered, key=phase))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything the rules say, by table."""
        return tuple(finding for entry in self.tables for finding in entry.findings)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do. A table that could not be read makes a plan not empty."""
        return not self.schemas and all(entry.status == "unchanged" for entry in self.tables)

    @property
    def is_blocked(self) -> bool:
        """Whether a rule keeps at least one table from being changed."""
        return any(entry.status == "blocked" for entry in self.tables)

    @cached_property
    def plan_id(self) -> str:
        """A stable identifier of the plan's content; every commit it makes carries it."""
        content = tuple(
            (e.table, e.fingerprint, e.changes, _judged(e.findings), e.depends_on, e.error)
            for e in self.tables
        )
        return digest((self.schemas, content))

    def to_text(self) -> str:
        """Write the plan for a terminal."""
        from deltaplane.planning.render import to_text

        return to_text(self)

    def to_markdown(self) -> str:
        """Write the plan for a pull request."""
        from deltaplane.planning.render import to_markdown

        return to_markdown(self)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain JSON types; `plan.schema.json` describes them."""
        from deltaplane.planning.saved import to_json

        return to_json(self)

    def __str__(self) -> str:
        return self.to_text()

    def get(self, name: QualifiedName) -> TablePlan | None:
        """Return the entry of a table, ignoring case."""
        return self._by_key.get(name.key)

    def counts(self) -> Counter[str]:
        """Return how many tables there are of each status."""
        return Counter(entry.status for entry in self.tables)


def plan_table(
    declared: DeltaTable,
    observed: ObservedTable | None,
    caps: Capabilities,
    *,
    owner: str = DEFAULT_OWNER,
    waivers: Sequence[Waiver] = (),
    violations: Mapping[str, Violations] | None = None,
    inbound: tuple[QualifiedName, ...] = (),
    depends_on: tuple[QualifiedName, ...] = (),
) -> TablePlan:
    """Compare one table, order the changes, apply the rules and the waivers."""
    name = declared.qualified_name
    changes = order_changes(compare(declared, observed, caps, owner))
    if not changes and observed is not None and _same_place(declared, observed):
        return _entry(name, (), (), observed, observed, depends_on)
    findings: tuple[Finding, ...] = ()
    for _ in range(2):
        after = simulate_all(observed, changes, caps)
        ctx = RuleContext(name, declared, observed, changes, caps, after, violations or {}, inbound)
        found = [finding.waived_by(tuple(waivers)) for finding in check_rules(ctx)]
        findings = _merge(findings, found)
        kept = [finding for finding in found if finding.waived is not None and finding.keep]
        if not kept:
            break
        # Once more without them: what they brought along, such as a feature, goes too.
        changes = leave_out(changes, kept)
    return _entry(name, changes, findings, observed, after, depends_on)


def plan_drop(observed: ObservedTable, caps: Capabilities, waivers: Sequence[Waiver] = ()) -> TablePlan:
    """Plan the end of a table that is no longer declared."""
    change = DropTable(observed.name, observed.owner, observed.size_bytes)
    ctx = RuleContext(observed.name, None, observed, (change,), caps)
    findings = tuple(finding.waived_by(tuple(waivers)) for finding in check_rules(ctx))
    return _entry(observed.name, (change,), findings, observed, None, ())


def _judged(findings: Iterable[Finding]) -> tuple[tuple[str | None, ...], ...]:
    """What the rules said: a saved plan in which somebody edits a waiver in is no longer the same plan."""
    return tuple((f.code, f.severity, f.column, f.waived) for f in findings)


def _same_place(declared: DeltaTable, observed: ObservedTable) -> bool:
    if not declared.location or not observed.table.location:
        return True
    return normal_location(declared.location) == normal_location(observed.table.location)


def _merge(first: Iterable[Finding], second: Iterable[Finding]) -> tuple[Finding, ...]:
    """Keep waived findings of the first pass whose changes are gone in the second."""
    kept = [finding for finding in first if finding.keep and finding.waived is not None]
    fresh = [finding for finding in second if finding not in kept]
    return tuple(sorted((*kept, *fresh), key=lambda f: (f.code, f.column or "", f.text)))


def _entry(
    name: QualifiedName,
    changes: tuple[Change, ...],
    findings: tuple[Finding, ...],
    observed: ObservedTable | None,
    after: ObservedTable | None,
    depends_on: tuple[QualifiedName, ...],
) -> TablePlan:
    return TablePlan(
        table=name,
        changes=changes,
        findings=findings,
        before=observed.protocol if observed else None,
        after=after.protocol if after else None,
        version=observed.version if observed else None,
        num_files=observed.num_files if observed else 0,
        size_bytes=observed.size_bytes if observed else 0,
        # Only a table that changes has to be found as it was when the plan is applied.
        state=observed if observed and changes else "",
        depends_on=depends_on,
    )
