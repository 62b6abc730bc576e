"""From two states to a plan: compare, order, judge, render. Pure: no input, no output, no SQL."""

from deltaplane.planning.capabilities import DATABRICKS, OPEN_SOURCE, Capabilities
from deltaplane.planning.changes import Change
from deltaplane.planning.observed import ObservedTable
from deltaplane.planning.plan import Plan, TablePlan, plan_drop, plan_table
from deltaplane.planning.rules import RULES, Finding

__all__ = [
    "DATABRICKS",
    "OPEN_SOURCE",
    "RULES",
    "Capabilities",
    "Change",
    "Finding",
    "ObservedTable",
    "Plan",
    "TablePlan",
    "plan_drop",
    "plan_table",
]
