"""Rules about the table as a whole: its protocol, layout, properties, keys and existence."""

from __future__ import annotations

import re
from collections.abc import Iterator

from deltaplane.planning.changes import (
    Change,
    CreateTable,
    DropKey,
    DropTable,
    EnableFeature,
    Repartition,
    SetClustering,
    SetProperties,
    UnsetProperties,
)
from deltaplane.planning.features import FEATURES, Feature
from deltaplane.planning.observed import MAPPING_MODE
from deltaplane.planning.properties import is_known_property
from deltaplane.planning.rules.context import RuleContext
from deltaplane.planning.rules.finding import Finding, finding
from deltaplane.schema import DataType, DeltaTable, Struct
from deltaplane.schema.names import join_path, normal_path
from deltaplane.schema.registry import normal_location

__all__ = ["TABLE_RULES"]

MAX_CLUSTERING_KEYS = 4
DEFAULT_STATS_COLUMNS = 32
_READERS_SHUT_OUT = {
    "columnMapping": "Delta Lake for Spark before 1.2 and readers without column mapping",
    "deletionVectors": "Delta Lake for Spark before 2.3 and readers without deletion vectors",
    "timestampNtz": "Delta Lake for Spark before 2.4 and readers without timestampNtz",
    "v2Checkpoint": "Delta Lake for Spark before 3.0 and readers without v2 checkpoints",
    "typeWidening": "Delta Lake for Spark before 4.0 and delta-rs 1.6",
    "variantType": "Delta Lake for Spark before 4.0 and readers without variant",
    "vacuumProtocolCheck": "Delta Lake for Spark before 3.1 and delta-rs 1.6",
}
_RETENTION_DAYS = {"delta.logretentionduration": 30.0, "delta.deletedfileretentionduration": 7.0}
_UNIT_DAYS = {
    "second": 1 / 86400,
    "minute": 1 / 1440,
    "hour": 1 / 24,
    "day": 1,
    "week": 7,
    "month": 30,
    "year": 365,
}


def dropped_table(ctx: RuleContext) -> Iterator[Finding]:
    """DS101: a table goes, with all its data."""
    for change in ctx.each(DropTable):
        yield finding(
            "DS101",
            ctx.table,
            None,
            f"the table is no longer declared and would be dropped with {show_size(change.size_bytes)} "
            f"of data.",
            change,
        )


def protocol(ctx: RuleContext) -> Iterator[Finding]:
    """PR101, PR102: features lock out old readers and writers."""
    if ctx.observed is None or ctx.after is None:
        return
    before, after = ctx.observed.protocol, ctx.after.protocol
    added = sorted(after.features - before.features)
    for_readers = [name for name in added if FEATURES.get(name, Feature(name, 1, 7)).concerns_readers]
    if for_readers or after.reader > before.reader:
        shut_out = "; ".join(_READERS_SHUT_OUT.get(name, f"readers without {name}") for name in for_readers)
        yield finding(
            "PR101",
            ctx.table,
            None,
            f"the protocol goes from {before} to {after} with {', '.join(for_readers)}. Shut out: "
            f"{shut_out}.",
        )
    lasting = [name for name in added if name in FEATURES and not FEATURES[name].droppable]
    if after.writer > before.writer or lasting:
        text = (
            f"writers need {after.writer} instead of {before.writer}" if after.writer > before.writer else ""
        )
        stays = f"{', '.join(lasting)} cannot be dropped again" if lasting else ""
        yield finding("PR102", ctx.table, None, f"{'; '.join(part for part in (text, stays) if part)}.")


def mapping_off(ctx: RuleContext) -> Iterator[Finding]:
    """PR103: switching column mapping off rewrites every file."""
    for change in ctx.each(SetProperties):
        if (
            ctx.observed
            and ctx.observed.is_mapped
            and change.values.get(MAPPING_MODE, "").casefold() == "none"
        ):
            size = show_size(ctx.observed.size_bytes)
            text = f"switching column mapping off rewrites {size}."
            if "clustering" in ctx.observed.protocol.features or (ctx.declared and ctx.declared.clustered_by):
                # Delta 4.4 keeps clustering keys under their physical names, and cannot read the table
                # afterwards.
                yield finding(
                    "PR103",
                    ctx.table,
                    MAPPING_MODE,
                    "the table is clustered, and Delta cannot read a clustered table whose mapping was "
                    "switched off.",
                    change,
                    remedy="Leave delta.columnMapping.mode = name declared; or waive PR103 to leave it on.",
                    keep=True,
                )
            else:
                yield finding("PR103", ctx.table, MAPPING_MODE, text, change)


def mapping_mode(ctx: RuleContext) -> Iterator[Finding]:
    """PP101: only none to name, and back to none, is possible on a table that exists."""
    if ctx.observed is None:
        return
    before = ctx.observed.table.properties.get(MAPPING_MODE, "none").casefold()
    for change in ctx.each(SetProperties):
        after = change.values.get(MAPPING_MODE, "").casefold()
        if after and after != "none" and (before, after) != ("none", "name"):
            yield finding(
                "PP101",
                ctx.table,
                MAPPING_MODE,
                f"the column mapping of a table that exists cannot go from {before} to {after}.",
                change,
                remedy="Declare the mode the table has, or name; or waive PP101 to leave the mode as it is.",
            )


def unknown_features(ctx: RuleContext) -> Iterator[Finding]:
    """PP101: a feature nobody here knows."""
    named: list[tuple[str, Change]] = [(change.feature, change) for change in ctx.each(EnableFeature)]
    if ctx.creation is not None:
        named += [(feature, ctx.creation) for feature in ctx.creation.declaration.features]
    for feature, change in named:
        if feature not in FEATURES and not ctx.caps.databricks_properties:
            yield finding(
                "PP101",
                ctx.table,
                feature,
                f"{ctx.caps.engine} does not know the table feature {feature}.",
                change,
            )


def layout(ctx: RuleContext) -> Iterator[Finding]:
    """LY101 to LY103: partitions and clustering."""
    for change in ctx.each(Repartition):
        size = show_size(ctx.observed.size_bytes if ctx.observed else 0)
        files = ctx.observed.num_files if ctx.observed else 0
        text = f"{change.summary}: {size} in {files:,} file{'' if files == 1 else 's'}."
        yield finding("LY101", ctx.table, None, text, change)
        if ctx.property("delta.appendOnly").casefold() == "true":
            yield finding(
                "LY101",
                ctx.table,
                "delta.appendOnly",
                "the table is append-only, and Delta refuses to rewrite it.",
                change,
                remedy="Switch delta.appendOnly off first; or waive LY101 to leave the layout as it is.",
                keep=True,
            )
        if change.after and ctx.observed and "clustering" in ctx.observed.protocol.features:
            yield finding(
                "LY102",
                ctx.table,
                None,
                "Delta refuses to partition a table that has been clustered.",
                change,
            )
    for clustering in ctx.each(SetClustering):
        yield from _clustering_keys(ctx, clustering.after, clustering)
        if clustering.after and ctx.observed and ctx.observed.num_files:
            yield finding(
                "LY103",
                ctx.table,
                None,
                f"{clustering.summary}: existing files stay as they are.",
                clustering,
            )
    if ctx.creation is not None:
        yield from _clustering_keys(ctx, ctx.creation.declaration.clustered_by, ctx.creation)


def _clustering_keys(
    ctx: RuleContext, keys: tuple[str, ...], change: SetClustering | CreateTable
) -> Iterator[Finding]:
    if len(keys) > MAX_CLUSTERING_KEYS:
        yield finding(
            "LY102",
            ctx.table,
            None,
            f"{len(keys)} clustering keys ({', '.join(keys)}); Delta takes four.",
            change,
        )
    if ctx.declared is None:
        return
    chosen = ctx.property("delta.dataSkippingStatsColumns")
    limit = ctx.property("delta.dataSkippingNumIndexedCols", str(DEFAULT_STATS_COLUMNS))
    with_stats = _indexed(
        ctx.declared, chosen, int(limit) if re.fullmatch(r"-?\d+", limit) else DEFAULT_STATS_COLUMNS
    )
    for key in keys:
        if with_stats is not None and key.casefold() not in with_stats:
            yield finding(
                "LY102",
                ctx.table,
                key,
                f"clustering key {key} has no statistics: they cover the first {limit} columns only.",
                change,
                remedy="Move the column forward, or name it in delta.dataSkippingStatsColumns; "
                "or waive LY102 to leave the layout as it is.",
            )


def _indexed(table: DeltaTable, chosen: str, limit: int) -> set[str] | None:
    if chosen:
        names = {normal_path(part.strip()).casefold() for part in chosen.split(",")}
        leaves = {leaf for column in table.columns for leaf in _leaves([column.name], column.type)}
        return {leaf for leaf in leaves if any(f"{leaf}.".startswith(f"{name}.") for name in names)}
    if limit < 0:
        return None
    ordered = [leaf for column in table.columns for leaf in _leaves([column.name], column.type)]
    return set(ordered[:limit])


def _leaves(path: list[str], data_type: DataType) -> list[str]:
    if isinstance(data_type, Struct):
        return [leaf for field in data_type.fields for leaf in _leaves([*path, field.name], field.type)]
    return [join_path(path).casefold()]


def location(ctx: RuleContext) -> Iterator[Finding]:
    """LC101: the declared location is not where the table is."""
    if ctx.declared is None or ctx.observed is None or not ctx.declared.location:
        return
    there = ctx.observed.table.location
    if there and normal_location(there) != normal_location(ctx.declared.location):
        yield finding("LC101", ctx.table, None, f"it is at {there}, and {ctx.declared.location} is declared.")


def properties(ctx: RuleContext) -> Iterator[Finding]:
    """PP101, PP102: properties Delta refuses, and retention that shrinks."""
    values: list[tuple[str, str, Change]] = []
    for setting in ctx.each(SetProperties):
        values += [(key, value, setting) for key, value in setting.values.items()]
    if ctx.creation is not None:
        values += [(k, v, ctx.creation) for k, v in ctx.creation.declaration.properties.items()]
    for key, value, change in values:
        if not ctx.caps.databricks_properties and not is_known_property(key):
            yield finding(
                "PP101", ctx.table, key, f"{ctx.caps.engine} does not know the property {key}.", change
            )
        yield from _retention(ctx, key, value)
    for unset in ctx.each(UnsetProperties):
        for key in unset.keys:
            yield from _retention(ctx, key, None)


def _retention(ctx: RuleContext, key: str, value: str | None) -> Iterator[Finding]:
    default = _RETENTION_DAYS.get(key.casefold())
    if default is None:
        return
    before = default
    if ctx.observed is not None:
        present = {k.casefold(): v for k, v in ctx.observed.table.properties.items()}.get(key.casefold())
        before = _days(present) or default
    after = (_days(value) if value is not None else default) or default
    if after < before:
        yield finding("PP102", ctx.table, key, f"{key} shrinks from {before:g} to {after:g} days.")


def _days(text: str | None) -> float | None:
    pairs = re.findall(
        r"(\d+(?:\.\d+)?)\s*(second|minute|hour|day|week|month|year)s?", (text or "").casefold()
    )
    return sum(float(number) * _UNIT_DAYS[unit] for number, unit in pairs) if pairs else None


def primary_key(ctx: RuleContext) -> Iterator[Finding]:
    """FK101: others point to the key that changes."""
    for change in ctx.each(DropKey):
        if change.key.kind == "primary" and ctx.inbound:
            others = ", ".join(str(name) for name in ctx.inbound)
            columns = ", ".join(change.key.columns)
            yield finding(
                "FK101",
                ctx.table,
                None,
                f"the primary key ({columns}) changes, and {others} point to it.",
                change,
            )


def show_size(size: int) -> str:
    """Write a number of bytes the way people say it."""
    value = float(size)
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{size} B"


TABLE_RULES = (
    dropped_table,
    protocol,
    mapping_off,
    mapping_mode,
    unknown_features,
    layout,
    location,
    properties,
    primary_key,
)
