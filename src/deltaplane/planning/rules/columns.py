"""Rules about columns that come, go, or get another name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from deltaplane.planning.changes import (
    AddColumn,
    Change,
    ChangeGeneration,
    ChangeType,
    CreateTable,
    DropCheck,
    DropColumn,
    HoldNotNull,
    RenameColumn,
    Repartition,
    SetProperties,
    show_path,
)
from deltaplane.planning.compare import has_special_characters, uses
from deltaplane.planning.observed import MAPPING_MODE
from deltaplane.planning.rules.context import RuleContext
from deltaplane.planning.rules.finding import Finding, finding
from deltaplane.schema import Array, DataType, Field, Map, Struct
from deltaplane.schema.names import join_path
from deltaplane.schema.types import walk

__all__ = ["COLUMN_RULES"]

CHANGE_FEED_NAMES = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})


def dropped_columns(ctx: RuleContext) -> Iterator[Finding]:
    """DS102, DP101: a column or field goes, and its values with it."""
    for change in ctx.each(DropColumn):
        where = show_path(change.path)
        yield finding(
            "DS102", ctx.table, where, f"column {where} ({change.dropped.type}) would be dropped.", change
        )
        layout = (
            ()
            if ctx.observed is None
            else (*ctx.observed.table.partitioned_by, *ctx.observed.table.clustered_by)
        )
        if join_path(change.path).casefold() in {column.casefold() for column in layout}:
            yield finding(
                "DP101",
                ctx.table,
                where,
                f"column {where} is part of the table's layout and would be dropped.",
                change,
            )


def lookalike_renames(ctx: RuleContext) -> Iterator[Finding]:
    """DS103: a drop and an add of the same type, which is how a forgotten rename looks."""
    added = [(change.parent, change.column) for change in ctx.each(AddColumn)]
    for change in ctx.each(DropColumn):
        parent = change.path[:-1]
        twins = [c.name for place, c in added if len(place) == len(parent) and c.type == change.dropped.type]
        if twins:
            where = show_path(change.path)
            yield finding(
                "DS103",
                ctx.table,
                where,
                f"column {where} would be dropped and {', '.join(twins)} of the same type "
                f"{change.dropped.type} added. "
                f"If that is a rename, write renamed_from={change.path[-1]!r}.",
                change,
            )


def unused_renames(ctx: RuleContext) -> Iterator[Finding]:
    """DS103: a rename onto a name that exists does not happen, and the old column would be lost."""
    if ctx.declared is None or ctx.observed is None:
        return
    dropped = {change.path[0].casefold(): change for change in ctx.each(DropColumn) if len(change.path) == 1}
    for column in ctx.declared.columns:
        old = (column.renamed_from or "").casefold()
        if old in dropped and ctx.observed.table.column(column.name) is not None:
            yield finding(
                "DS103",
                ctx.table,
                column.renamed_from,
                f"{column.name} says renamed_from={column.renamed_from!r}, but {column.name} exists already: "
                f"the values of {column.renamed_from} would not move, they would be dropped.",
                dropped[old],
                remedy="Rename in two steps through a new name; or waive DS103 if the values may go.",
            )


def mapping_needed(ctx: RuleContext) -> Iterator[Finding]:
    """DS104: a drop or rename while column mapping is off."""
    implied = any(change.implied and MAPPING_MODE in change.values for change in ctx.each(SetProperties))
    if not implied:
        return
    changes: list[RenameColumn | DropColumn] = [*ctx.each(RenameColumn), *ctx.each(DropColumn)]
    for change in changes:
        where = show_path(change.path)
        verb = "rename" if isinstance(change, RenameColumn) else "drop"
        yield finding(
            "DS104", ctx.table, where, f"to {verb} {where}, column mapping must be on, and it is off.", change
        )


def dependants(ctx: RuleContext) -> Iterator[Finding]:
    """DP102: a CHECK or generated column stands on a column that changes."""
    if ctx.observed is None:
        return
    touching: list[Change] = [*ctx.each(RenameColumn), *ctx.each(ChangeType), *ctx.each(DropColumn)]
    for check in (change.check for change in ctx.each(DropCheck) if change.temporary):
        for change in touching:
            path = _path(change)
            if uses(check.expression, path):
                yield finding(
                    "DP102",
                    ctx.table,
                    show_path(path),
                    f"check {check.name} ({check.expression}) uses {show_path(path)}; it would be "
                    f"dropped and "
                    "restored around the change, and rows written in between are not checked until then.",
                    change,
                )
    for column in ctx.observed.table.columns:
        for change in touching:
            path = _path(change)
            if column.generated is None or column.name.casefold() == path[0].casefold():
                continue
            if uses(column.generated, path):
                yield finding(
                    "DP102",
                    ctx.table,
                    show_path(path),
                    f"generated column {column.name} ({column.generated}) uses {show_path(path)}, and "
                    f"Delta refuses "
                    "the change.",
                    change,
                    remedy="Drop the generated column first, or waive DP102 to leave the column as it is.",
                    keep=True,
                )


def _path(change: Change) -> tuple[str, ...]:
    return change.path if isinstance(change, RenameColumn | ChangeType | DropColumn) else ()


def last_column(ctx: RuleContext) -> Iterator[Finding]:
    """DP103: nothing of the table, or of a struct, would be left."""
    if ctx.observed is None:
        return
    lost = Counter(change.path[:-1] for change in ctx.each(DropColumn))
    for parent, count in lost.items():
        if parent:
            data_type = ctx.observed.table.type_at(join_path(parent))
            size = len(data_type.fields) if isinstance(data_type, Struct) else 0
        else:
            size = len(ctx.observed.table.columns)
        if count == size:
            what = f"struct {show_path(parent)}" if parent else "the table"
            yield finding(
                "DP103",
                ctx.table,
                show_path(parent) or None,
                f"every column that {what} has now would be dropped.",
            )


def not_null(ctx: RuleContext) -> Iterator[Finding]:
    """NL101, NL102: NOT NULL where rows may already be without a value."""
    for add in ctx.each(AddColumn):
        where = show_path(add.path)
        if not add.column.nullable and (add.parent or add.column.default is None):
            text = f"column {where} is NOT NULL without a default, and rows that exist have no value for it."
            if add.parent:
                text = f"field {where} is NOT NULL; Delta adds nested fields as nullable only."
            has_rows = ctx.observed is not None and ctx.observed.num_files > 0
            yield finding("NL101", ctx.table, where, text, add, keep=has_rows and not add.parent)
        elif _has_not_null_inside(add.column.type):
            yield finding(
                "NL101",
                ctx.table,
                where,
                f"column {where} ({add.column.type}) has NOT NULL inside; Delta adds nullable fields only.",
                add,
                remedy="Declare those fields nullable; or waive NL101 to leave the column out.",
                keep=True,
            )
    creation = ctx.creation
    if creation is not None:
        for column in creation.declaration.columns:
            if _not_null_in_collection(column.type, inside=False):
                yield finding(
                    "NL101",
                    ctx.table,
                    column.name,
                    f"column {column.name} has a NOT NULL field inside an array or map, which Delta "
                    f"cannot hold.",
                    creation,
                    remedy="Declare the field nullable.",
                )
    for hold in ctx.each(HoldNotNull):
        if hold.resumed or (ctx.caps.set_not_null and len(hold.path) == 1):
            continue
        nested = len(hold.path) > 1
        text = f"{show_path(hold.path)} is nullable and would become NOT NULL."
        if nested:
            text += " A CHECK cannot hold that for a nested field; a waiver leaves it nullable."
        yield finding("NL102", ctx.table, show_path(hold.path), text, hold, keep=nested)
    if any(True for _ in ctx.each(Repartition)) and ctx.observed is not None:
        yield from _lost_in_rewrite(ctx)


def _lost_in_rewrite(ctx: RuleContext) -> Iterator[Finding]:
    rewrite = next(ctx.each(Repartition))
    assert ctx.observed is not None
    for column in ctx.observed.table.columns:
        if column.generated is not None or column.identity is not None:
            yield finding(
                "GN101",
                ctx.table,
                column.name,
                f"column {column.name} is generated, and a rewrite cannot carry that over.",
                rewrite,
                remedy="Keep the partitioning, or create a new table; or waive GN101 to leave the layout "
                "as it is.",
            )
        if isinstance(column.type, Struct) and _has_not_null(column.type):
            yield finding(
                "NL102",
                ctx.table,
                column.name,
                f"column {column.name} has NOT NULL fields, and a rewrite cannot carry them over.",
                rewrite,
                remedy="Declare those fields nullable first; or waive NL102 to leave the layout as it is.",
                keep=True,
            )


def _has_not_null(struct: Struct) -> bool:
    return any(
        not field.nullable or (isinstance(field.type, Struct) and _has_not_null(field.type))
        for field in struct.fields
    )


def _has_not_null_inside(data_type: DataType) -> bool:
    return any(not field.nullable for field in _all_fields(data_type))


def _not_null_in_collection(data_type: DataType, *, inside: bool) -> bool:
    if isinstance(data_type, Array):
        return _not_null_in_collection(data_type.element, inside=True)
    if isinstance(data_type, Map):
        return any(_not_null_in_collection(t, inside=True) for t in (data_type.key, data_type.value))
    if isinstance(data_type, Struct):
        return any(
            (inside and not field.nullable) or _not_null_in_collection(field.type, inside=inside)
            for field in data_type.fields
        )
    return False


def defaults(ctx: RuleContext) -> Iterator[Finding]:
    """DF101: what a default on an added column means for rows that exist."""
    for add in ctx.each(AddColumn):
        if add.column.default is None:
            continue
        name = add.column.name
        if ctx.property("delta.appendOnly").casefold() == "true":
            yield finding(
                "DF101",
                ctx.table,
                name,
                f"column {name} has a default, but the table is append-only: existing rows cannot be "
                f"updated.",
                add,
                severity="error",
                remedy="Switch delta.appendOnly off first; or waive DF101 to leave the column out.",
                keep=True,
            )
            continue
        yield finding(
            "DF101",
            ctx.table,
            name,
            f"column {name} is added in four steps: feature allowColumnDefaults, ADD COLUMN, SET DEFAULT "
            f"{add.column.default}, and UPDATE of the rows that exist.",
            add,
        )


def generation(ctx: RuleContext) -> Iterator[Finding]:
    """GN101: generated and identity columns exist from creation or not at all."""
    for change in ctx.each(ChangeGeneration):
        yield finding(
            "GN101",
            ctx.table,
            change.column,
            f"{change.column} is generated by {change.old or 'nothing'} and would be by "
            f"{change.new or 'nothing'}.",
            change,
        )
    for add in ctx.each(AddColumn):
        if add.column.generated is not None or add.column.identity is not None:
            yield finding(
                "GN101",
                ctx.table,
                add.column.name,
                f"column {add.column.name} is generated and cannot be added to a table that exists.",
                add,
            )


def names(ctx: RuleContext) -> Iterator[Finding]:
    """NM101: names that Delta or the catalog does not take as they are."""
    for rename in ctx.each(RenameColumn):
        if rename.via is not None:
            yield finding(
                "NM101",
                ctx.table,
                show_path(rename.path),
                f"{show_path(rename.path)} differs from {rename.new_name} only in case; Delta renames it "
                f"only "
                "through a temporary name.",
                rename,
            )
    yield from _new_names(ctx)
    if ctx.creation is not None and ctx.caps.plain_names_only:
        for what, text in (("schema", ctx.table.schema), ("table", ctx.table.name)):
            if not (text.isascii() and text.replace("_", "a").isalnum()):
                yield finding(
                    "NM101",
                    ctx.table,
                    None,
                    f"{what} name {text!r}: {ctx.caps.engine} takes only letters, digits and underscores "
                    f"there.",
                    remedy="Choose another name.",
                )


def _new_names(ctx: RuleContext) -> Iterator[Finding]:
    mapped = ctx.property(MAPPING_MODE, "none").casefold() != "none"
    feed = ctx.property("delta.enableChangeDataFeed").casefold() == "true"
    created = [c for change in ctx.each(CreateTable) for c in change.declaration.columns]
    renamed = [change.new_name for change in ctx.each(RenameColumn)]
    added = [change.column for change in ctx.each(AddColumn)]
    fields = [f.name for c in (*created, *added) for f in _all_fields(c.type)]
    for name in (*(c.name for c in created), *(c.name for c in added), *renamed, *fields):
        if has_special_characters(name) and not mapped:
            yield finding(
                "NM101",
                ctx.table,
                name,
                f"column {name!r} has a character that Delta takes only with column mapping.",
                remedy="Declare delta.columnMapping.mode = name, or waive NM101 to let the plan switch "
                "it on.",
            )
        if feed and name.casefold() in CHANGE_FEED_NAMES:
            yield finding(
                "NM101",
                ctx.table,
                name,
                f"column {name} is a name the change data feed keeps for itself.",
                remedy="Rename the column, or switch delta.enableChangeDataFeed off.",
            )


def _all_fields(data_type: DataType) -> Iterator[Field]:
    for inner in walk(data_type):
        if isinstance(inner, Struct):
            yield from inner.fields


COLUMN_RULES = (
    dropped_columns,
    lookalike_renames,
    unused_renames,
    mapping_needed,
    dependants,
    last_column,
    not_null,
    defaults,
    generation,
    names,
)
