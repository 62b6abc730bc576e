"""Compare a declaration with what is there: a list of changes, as values."""

from __future__ import annotations

from collections.abc import Iterator

from deltaplane.planning.capabilities import Capabilities
from deltaplane.planning.changes import (
    AddCheck,
    AddColumn,
    AddKey,
    Change,
    ChangeType,
    CreateTable,
    DropCheck,
    DropColumn,
    DropKey,
    EnableFeature,
    Path,
    RenameColumn,
    Repartition,
    SetClustering,
    SetDefault,
    SetProperties,
    SetTableComment,
    UnsetProperties,
)
from deltaplane.planning.compare_columns import compare_columns
from deltaplane.planning.features import type_features
from deltaplane.planning.observed import MAPPING_MODE, Key, ObservedTable, table_keys
from deltaplane.planning.widening import widening
from deltaplane.schema import Check, DeltaTable, Struct
from deltaplane.schema.expressions import canonical, references
from deltaplane.schema.frozen import FrozenMap
from deltaplane.schema.names import constraint_name, join_path, split_path
from deltaplane.schema.types import walk

__all__ = ["DEFAULT_OWNER", "compare", "uses"]

DEFAULT_OWNER = "deltaplane"
TYPE_WIDENING = "delta.enableTypeWidening"
# Its value names columns, so it has a place of its own in the order.
STATS_COLUMNS = "delta.dataSkippingStatsColumns"


def compare(
    declared: DeltaTable, observed: ObservedTable | None, caps: Capabilities, owner: str = DEFAULT_OWNER
) -> list[Change]:
    """Return the changes that turn `observed` into `declared`, in no particular order.

    Changes that Delta refuses are returned too; the rules name them.
    """
    name = declared.qualified_name
    if observed is None:
        return [CreateTable(name, declared, owner, _implied_at_creation(declared))]
    changes = compare_columns(declared, observed, caps)
    changes += _checks(declared, observed, changes)
    changes += _keys(declared, observed)
    changes += _layout(declared, observed)
    changes += _properties(declared, observed)
    if (declared.comment or None) != (observed.table.comment or None):
        changes.append(SetTableComment(name, declared.comment))
    changes += _features(declared, observed, changes)
    changes += _prerequisites(declared, observed, changes)
    return changes


def _implied_at_creation(declared: DeltaTable) -> FrozenMap:
    names = [column.name for column in declared.columns]
    names += [
        f.name for c in declared.columns for t in walk(c.type) if isinstance(t, Struct) for f in t.fields
    ]
    if MAPPING_MODE not in declared.properties and any(has_special_characters(name) for name in names):
        return FrozenMap({MAPPING_MODE: "name"})
    return FrozenMap()


def uses(expression: str, path: Path) -> bool:
    """Tell whether an expression depends on the column or field at `path`."""
    wanted = tuple(part.casefold() for part in path)
    return any(
        used[: len(wanted)] == wanted or wanted[: len(used)] == used for used in references(expression)
    )


def touched_paths(changes: list[Change]) -> list[Path]:
    """Return the present paths of columns that are renamed, retyped or dropped."""
    renamed_back = {
        change.new_name.casefold(): change.path[-1]
        for change in changes
        if isinstance(change, RenameColumn) and len(change.path) == 1
    }
    paths: list[Path] = []
    for change in changes:
        if isinstance(change, RenameColumn | ChangeType | DropColumn):
            path = change.path
            if not (isinstance(change, RenameColumn) and len(path) == 1):
                path = (renamed_back.get(path[0].casefold(), path[0]), *path[1:])
            paths.append(path)
    return paths


def _checks(declared: DeltaTable, observed: ObservedTable, changes: list[Change]) -> Iterator[Change]:
    name = declared.qualified_name
    touched = touched_paths(changes)
    left = {check.name: check for check in observed.table.checks}
    missing: list[Check] = []
    for check in declared.checks:
        twin = left.get(check.name) or _same_rule_elsewhere(declared, check, list(left.values()))
        if twin is None or not check.same_rule(twin):
            missing.append(check)
            continue
        del left[twin.name]
        if any(uses(twin.expression, path) for path in touched):
            yield DropCheck(name, twin, temporary=True)
            yield AddCheck(name, twin, restored=True)
    for check in left.values():
        yield DropCheck(name, check)
    for check in missing:
        yield AddCheck(name, check)


def _same_rule_elsewhere(declared: DeltaTable, check: Check, observed: list[Check]) -> Check | None:
    """A check whose name was derived is satisfied by the same rule under any name."""
    if check.name != constraint_name("ck", declared.name, canonical(check.expression)):
        return None
    return next((twin for twin in observed if twin.same_rule(check)), None)


def _keys(declared: DeltaTable, observed: ObservedTable) -> Iterator[Change]:
    name = declared.qualified_name
    wanted = {key.name.casefold(): key for key in table_keys(declared)}
    present = {key.name.casefold(): key for key in table_keys(observed.table)}

    def same(a: Key | None, b: Key | None) -> bool:
        return a is not None and b is not None and a.same_as(b)

    for folded, key in present.items():
        if not same(key, wanted.get(folded)):
            yield DropKey(name, key)
    for folded, key in wanted.items():
        if not same(key, present.get(folded)):
            yield AddKey(name, key)


def _layout(declared: DeltaTable, observed: ObservedTable) -> Iterator[Change]:
    name = declared.qualified_name
    renamed = {
        (c.renamed_from or "").casefold(): c.name
        for c in declared.columns
        if c.renamed_from and observed.table.column(c.name) is None
    }

    def now(columns: tuple[str, ...]) -> list[str]:
        paths = (split_path(column) for column in columns)
        return [join_path([renamed.get(first.casefold(), first), *rest]).casefold() for first, *rest in paths]

    partitions = (observed.table.partitioned_by, declared.partitioned_by)
    clustering = (observed.table.clustered_by, declared.clustered_by)
    if [renamed.get(c.casefold(), c).casefold() for c in partitions[0]] != [
        c.casefold() for c in partitions[1]
    ]:
        yield Repartition(name, *partitions, _real_not_null(declared, observed))
    if now(clustering[0]) != [c.casefold() for c in clustering[1]]:
        yield SetClustering(name, *clustering)


def _real_not_null(declared: DeltaTable, observed: ObservedTable) -> tuple[str, ...]:
    """The columns that are NOT NULL by schema and stay so; a rewrite makes them nullable."""
    found = []
    for column in declared.columns:
        before = observed.table.column(column.name) or observed.table.column(column.renamed_from or "")
        if before is None or column.nullable or before.nullable:
            continue
        if before.name.casefold() not in observed.not_null_checks:
            found.append(column.name)
    return tuple(found)


def _properties(declared: DeltaTable, observed: ObservedTable) -> Iterator[Change]:
    name = declared.qualified_name
    present = {key.casefold(): value for key, value in observed.table.properties.items()}
    wanted = {key.casefold(): key for key in declared.properties}
    changed = {
        key: value
        for key, value in declared.properties.items()
        if not _same_value(present.get(key.casefold()), value)
    }
    stale = sorted(
        key
        for key in observed.table.properties
        if key.casefold() not in wanted
        and key.casefold() in {k.casefold() for k in observed.managed_properties}
    )
    if MAPPING_MODE in stale:
        # Delta cannot unset the mode; turning it off is a change of its own, with a rule of its own.
        stale.remove(MAPPING_MODE)
        if observed.is_mapped:
            changed[MAPPING_MODE] = "none"
    managed = tuple(sorted(declared.properties))
    if observed.is_mapped and changed.get(MAPPING_MODE, "").casefold() == "none":
        yield SetProperties(name, FrozenMap({MAPPING_MODE: changed.pop(MAPPING_MODE)}), managed)
    if STATS_COLUMNS in changed:
        yield SetProperties(name, FrozenMap({STATS_COLUMNS: changed.pop(STATS_COLUMNS)}), managed)
    if changed:
        yield SetProperties(name, FrozenMap(changed), managed)
    if stale:
        yield UnsetProperties(name, tuple(stale), managed)


def _same_value(present: str | None, wanted: str) -> bool:
    if present is None:
        return False
    if wanted.casefold() in ("true", "false"):
        return present.casefold() == wanted.casefold()
    return present == wanted


def _features(declared: DeltaTable, observed: ObservedTable, changes: list[Change]) -> Iterator[Change]:
    needed = set(declared.features)
    for change in changes:
        if isinstance(change, SetDefault) or (
            isinstance(change, AddColumn) and change.column.default is not None
        ):
            needed.add("allowColumnDefaults")
        new_type = change.column.type if isinstance(change, AddColumn) else None
        if isinstance(change, ChangeType):
            new_type = change.new
        needed |= type_features(new_type) if new_type else set()
    for feature in sorted(needed - observed.protocol.features):
        yield EnableFeature(declared.qualified_name, feature)


def _prerequisites(declared: DeltaTable, observed: ObservedTable, changes: list[Change]) -> Iterator[Change]:
    """Settings that other changes need although nobody declared them; rules DS104, TY102 and NM101 ask for
    consent.
    """
    implied: dict[str, str] = {}
    mode = declared.properties.get(MAPPING_MODE, observed.table.properties.get(MAPPING_MODE, "none"))
    if mode.casefold() == "none" and any(_needs_mapping(change) for change in changes):
        implied[MAPPING_MODE] = "name"
    widens = any(isinstance(c, ChangeType) and widening(c.old, c.new) == "feature" for c in changes)
    setting = declared.properties.get(TYPE_WIDENING, observed.table.properties.get(TYPE_WIDENING, "false"))
    if widens and setting.casefold() != "true":
        implied[TYPE_WIDENING] = "true"
    if implied:
        yield SetProperties(
            declared.qualified_name, FrozenMap(implied), tuple(sorted(declared.properties)), True
        )


def _needs_mapping(change: Change) -> bool:
    if isinstance(change, AddColumn):
        return any(has_special_characters(name) for name in added_names(change))
    return isinstance(change, RenameColumn | DropColumn)


def added_names(change: AddColumn) -> list[str]:
    """Return the name of an added column and of every field inside it."""
    inside = [f.name for t in walk(change.column.type) if isinstance(t, Struct) for f in t.fields]
    return [change.column.name, *inside]


def has_special_characters(name: str) -> bool:
    """Tell whether Delta takes a column of that name only with column mapping."""
    return any(character in " ,;{}()\n\t=" for character in name)
