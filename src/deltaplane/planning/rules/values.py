"""Rules about types and about what rows may contain."""

from __future__ import annotations

from collections.abc import Iterator

from deltaplane.planning.changes import AddCheck, Change, ChangeType, HoldNotNull, SetProperties, show_path
from deltaplane.planning.compare import TYPE_WIDENING
from deltaplane.planning.observed import not_null_constraint
from deltaplane.planning.rules.context import RuleContext
from deltaplane.planning.rules.finding import Finding, finding
from deltaplane.planning.widening import widening
from deltaplane.schema import Byte, Char, Check, Decimal, Double, Integer, Long, Short, Varchar
from deltaplane.schema.expressions import canonical, has_subquery, nondeterministic_functions, references

__all__ = ["VALUE_RULES"]

_UNIFORM = "delta.universalFormat.enabledFormats"


def types(ctx: RuleContext) -> Iterator[Finding]:
    """TY101 to TY104: only some types can become others."""
    implied = any(change.implied and TYPE_WIDENING in change.values for change in ctx.each(SetProperties))
    for change in ctx.each(ChangeType):
        where = show_path(change.path)
        kind = widening(change.old, change.new)
        nested_text = len(change.path) > 1 and isinstance(change.old, Varchar | Char)
        if kind == "none" or nested_text:
            yield finding(
                "TY101",
                ctx.table,
                where,
                f"{where} is {change.old} and cannot become {change.new} in place.",
                change,
            )
            continue
        if kind == "feature" and implied:
            yield finding(
                "TY102",
                ctx.table,
                where,
                f"{where}: {change.old} to {change.new} needs {TYPE_WIDENING}.",
                change,
            )
        if isinstance(change.old, Byte | Short | Integer | Long) and isinstance(change.new, Decimal | Double):
            yield finding(
                "TY103", ctx.table, where, f"{where} changes from {change.old} to {change.new}.", change
            )
        if kind == "feature" and ctx.property(_UNIFORM):
            yield finding(
                "TY104",
                ctx.table,
                where,
                f"{where} would be widened while the table is also published as {ctx.property(_UNIFORM)}.",
                change,
            )


def violated_checks(ctx: RuleContext) -> Iterator[Finding]:
    """CK101: rows that exist and that the new CHECK would refuse."""
    named: list[tuple[str, str, Change]] = []
    for add in ctx.each(AddCheck):
        named.append((add.check.name or "", add.check.expression, add))
    for hold in ctx.each(HoldNotNull):
        if len(hold.path) == 1:
            named.append((not_null_constraint(hold.path[0]), f"{hold.path[0]} IS NOT NULL", hold))
    for name, expression, change in named:
        rows = ctx.violations.get(name)
        if rows is None or rows.count == 0:
            continue
        shown = f", for example {'; '.join(rows.samples)}" if rows.samples else ""
        yield finding(
            "CK101",
            ctx.table,
            name,
            f"{rows.count:,} existing row{'s' if rows.count != 1 else ''} "
            f"violate{'s' if rows.count == 1 else ''} "
            f"{expression}{shown}.",
            change,
        )


def check_expressions(ctx: RuleContext) -> Iterator[Finding]:
    """CK102, CK103: checks that fail later, or that refuse more than they seem to."""
    for check in _new_checks(ctx):
        functions = nondeterministic_functions(check.expression)
        if has_subquery(check.expression):
            yield finding(
                "CK102", ctx.table, check.name, f"check {check.name} contains a subquery: {check.expression}."
            )
        elif functions:
            yield finding(
                "CK102",
                ctx.table,
                check.name,
                f"check {check.name} calls {', '.join(functions)}: {check.expression}.",
            )
        nullable = _nullable_columns(ctx, check)
        if nullable:
            yield finding(
                "CK103",
                ctx.table,
                check.name,
                f"check {check.name} ({check.expression}) refuses rows in which {', '.join(nullable)} is "
                f"NULL.",
            )


def _new_checks(ctx: RuleContext) -> Iterator[Check]:
    if ctx.creation is not None:
        yield from ctx.creation.declaration.checks
    yield from (change.check for change in ctx.each(AddCheck) if not change.restored)


def _nullable_columns(ctx: RuleContext, check: Check) -> list[str]:
    words = canonical(check.expression)
    if (
        ctx.declared is None
        or " is null" in words
        or " is not null" in words
        or "coalesce" in words
        or "<=>" in words
    ):
        return []
    columns = (ctx.declared.column(path[0]) for path in references(check.expression))
    return sorted({column.name for column in columns if column is not None and column.nullable})


VALUE_RULES = (types, violated_checks, check_expressions)
