"""Safety rules: pure functions from a planned table to findings."""

from __future__ import annotations

from deltaplane.planning.rules.catalogue import RULES, Rule
from deltaplane.planning.rules.columns import COLUMN_RULES
from deltaplane.planning.rules.context import RuleContext, Violations
from deltaplane.planning.rules.finding import Finding, finding
from deltaplane.planning.rules.tables import TABLE_RULES
from deltaplane.planning.rules.values import VALUE_RULES

__all__ = ["RULES", "Finding", "Rule", "RuleContext", "Violations", "check_rules", "finding"]


def check_rules(ctx: RuleContext) -> tuple[Finding, ...]:
    """Return everything the rules have to say about one table, in a stable order."""
    found = [item for rule in (*COLUMN_RULES, *VALUE_RULES, *TABLE_RULES) for item in rule(ctx)]
    return tuple(sorted(found, key=lambda f: (f.code, f.column or "", f.text)))
