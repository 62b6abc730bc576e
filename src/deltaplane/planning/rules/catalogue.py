"""The rules: their codes, how severe they are, what to do, and what a waiver means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["RULES", "OnWaiver", "Rule", "Severity"]

Severity = Literal["error", "warning", "info"]
# proceed: the change runs. keep: the change is left out, and the table stays as it is in this point.
OnWaiver = Literal["proceed", "keep"]


@dataclass(frozen=True)
class Rule:
    """One safety rule.

    Attributes:
        code: Stable; used in waivers.
        severity: An error blocks the table until it is mended or waived.
        title: When it fires.
        remedy: What to do.
        on_waiver: What a waiver does.
    """

    code: str
    severity: Severity
    title: str
    remedy: str
    on_waiver: OnWaiver = "proceed"


RULES: dict[str, Rule] = {
    rule.code: rule
    for rule in (
        Rule(
            "DS101",
            "error",
            "A table of this registry would be dropped",
            "Declare it again, or waive DS101 for it to agree to the loss of its data.",
        ),
        Rule(
            "DS102",
            "error",
            "A column or field would be dropped",
            "Declare it again, or waive DS102 for it to agree to the loss of its values.",
        ),
        Rule(
            "DS103",
            "error",
            "A drop and an add of the same type look like a rename",
            "Say renamed_from on the new column, or waive DS103 if they are unrelated.",
        ),
        Rule(
            "DS104",
            "error",
            "A drop or rename needs column mapping, which is off",
            "Declare the property delta.columnMapping.mode = name, or waive DS104 to let the plan switch "
            "it on.",
        ),
        Rule(
            "DP101",
            "error",
            "A partition or clustering column would be dropped",
            "Change the layout first in a plan of its own, or waive DP101 to do both in one.",
        ),
        Rule(
            "DP102",
            "error",
            "A CHECK or a generated column uses the changed column",
            "Remove the CHECK first, or waive DP102 to have it dropped and restored around the change.",
        ),
        Rule(
            "DP103",
            "error",
            "No column of the old table would be left",
            "Keep at least one column, or declare a new table under another name.",
        ),
        Rule(
            "TY101",
            "error",
            "The new type is not a widening of the old one",
            "Add a column of the new type and copy the values; or waive TY101 to keep the old type.",
            "keep",
        ),
        Rule(
            "TY102",
            "error",
            "Widening needs delta.enableTypeWidening, which is off",
            "Declare the property delta.enableTypeWidening = true, or waive TY102 to let the plan switch "
            "it on.",
        ),
        Rule(
            "TY103",
            "warning",
            "An integer becomes a decimal or a double",
            "Check that readers expect it: the values are equal, their type and rounding are not.",
        ),
        Rule(
            "TY104",
            "error",
            "Widening a table that is also published as Iceberg (UniForm)",
            "Switch UniForm off first, or waive TY104 if every Iceberg reader knows the new type.",
        ),
        Rule(
            "NL101",
            "error",
            "NOT NULL on an added column without a default",
            "Give the column a default, or declare it nullable; or waive NL101: an empty table gets the "
            "column, "
            "and one with rows stays as it is.",
        ),
        Rule(
            "NL102",
            "error",
            "A nullable column becomes NOT NULL, which open-source Spark cannot alter",
            "Waive NL102 to have a CHECK hold it, or declare a CHECK yourself.",
        ),
        Rule(
            "CK101",
            "error",
            "Existing rows violate a new CHECK",
            "Correct or delete those rows first; Delta refuses the CHECK while they exist.",
        ),
        Rule(
            "CK102",
            "error",
            "A CHECK contains a subquery or a non-deterministic function",
            "Rewrite it over the columns of one row: Delta accepts it now and then fails every insert.",
        ),
        Rule(
            "CK103",
            "warning",
            "A CHECK over a nullable column also refuses NULL",
            "Write it as (column IS NULL OR …) if rows without a value are allowed.",
        ),
        Rule(
            "DF101",
            "info",
            "A default on an added column takes four steps",
            "Nothing to do: feature, column, default and existing rows are handled one after the other.",
        ),
        Rule(
            "GN101",
            "error",
            "A generated or identity column can only be made when the table is created",
            "Keep the old expression, or create a new table; or waive GN101 to leave the column as it is.",
            "keep",
        ),
        Rule(
            "PR101",
            "error",
            "The table would need newer readers",
            "Check the readers named here, then waive PR101 for this table to approve it.",
        ),
        Rule(
            "PR102",
            "warning",
            "The table would need newer writers, or a feature that cannot be dropped again",
            "Check that everything that writes this table knows the feature.",
        ),
        Rule(
            "PR103",
            "error",
            "Column mapping would be switched off, which rewrites the table",
            "Leave delta.columnMapping.mode = name declared, or waive PR103 to rewrite.",
        ),
        Rule(
            "LY101",
            "error",
            "The partitioning changes, which rewrites every file",
            "Waive LY101 when the rewrite may run, or keep the partitioning.",
        ),
        Rule(
            "LY102",
            "error",
            "These clustering keys are not supported",
            "Choose up to four keys that have statistics on a table without partitions; or waive LY102 "
            "to leave the layout as it is.",
            "keep",
        ),
        Rule(
            "LY103",
            "info",
            "The clustering changes for new files only",
            "Run OPTIMIZE … FULL to bring existing files into the new clustering.",
        ),
        Rule(
            "LC101",
            "error",
            "The table is somewhere else than declared",
            "Correct the declared location; or waive LC101 to leave the table where it is.",
            "keep",
        ),
        Rule(
            "PP101",
            "error",
            "A property is unknown to Delta here, or known to Databricks alone",
            "Correct its name; or waive PP101 to leave it out on this engine.",
            "keep",
        ),
        Rule(
            "PP102",
            "warning",
            "A retention becomes shorter",
            "Time travel and RESTORE reach back less far from now on.",
        ),
        Rule(
            "FK101",
            "error",
            "A primary key changes while other tables point to it",
            "Change the foreign keys of those tables in the same plan, or waive FK101.",
        ),
        Rule(
            "NM101",
            "error",
            "A name that Delta does not take as it is",
            "Choose another name; or waive NM101 to go on (a rename of case goes through a temporary "
            "name, special characters through column mapping).",
        ),
        Rule(
            "PL101",
            "error",
            "The table changed since the plan was made",
            "Make the plan again and look at it.",
        ),
    )
}
