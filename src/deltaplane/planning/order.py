"""The order of changes: create, adds, changes, drops; alphabetical inside; what others need comes first."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from deltaplane.planning.changes import (
    AddCheck,
    AddColumn,
    AddKey,
    Backfill,
    Change,
    ChangeGeneration,
    ChangeType,
    ClearNotes,
    CreateSchema,
    CreateTable,
    DropCheck,
    DropColumn,
    DropDefault,
    DropKey,
    DropNotNull,
    DropTable,
    EnableFeature,
    HoldNotNull,
    ReleaseNotNull,
    RenameColumn,
    Reorder,
    Repartition,
    SetClustering,
    SetColumnComments,
    SetDefault,
    SetProperties,
    SetTableComment,
    SetTags,
    UnsetProperties,
)
from deltaplane.planning.compare import STATS_COLUMNS, added_names, has_special_characters
from deltaplane.planning.features import type_features
from deltaplane.planning.observed import MAPPING_MODE

__all__ = ["order_changes", "phase"]

# First digit: the phase (1 create, 2 adds, 3 changes, 4 drops). The rest: what has to come before what
# inside it.
_RANK: dict[type[Change], int] = {
    CreateSchema: 100,
    CreateTable: 110,
    AddColumn: 250,
    DropKey: 300,
    EnableFeature: 305,
    DropCheck: 310,
    ReleaseNotNull: 312,
    SetProperties: 320,
    RenameColumn: 330,
    ChangeType: 340,
    ChangeGeneration: 342,
    SetDefault: 345,
    DropDefault: 346,
    Backfill: 347,
    DropNotNull: 350,
    Reorder: 352,
    SetColumnComments: 354,
    SetTableComment: 356,
    SetClustering: 360,
    Repartition: 362,
    HoldNotNull: 370,
    AddCheck: 372,
    AddKey: 374,
    SetTags: 376,
    UnsetProperties: 380,
    ClearNotes: 390,
    DropColumn: 400,
    DropTable: 410,
}
_CLUSTER_AFTER_REPARTITION = 364
# Statistics columns go by the names they have by then.
_AFTER_RENAMES = 348
# Renames and drops need the mapping, so it goes last.
_MAPPING_OFF = 405
_BEFORE_ADDS = {
    EnableFeature: 210,
    DropCheck: 215,
    ReleaseNotNull: 216,
    SetProperties: 220,
    RenameColumn: 230,
}


def phase(change: Change) -> int:
    """Return 1 for creations, 2 for adds and what they need, 3 for changes, 4 for drops."""
    return _RANK[type(change)] // 100


def order_changes(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Put the changes of one table in the order in which they run. The same input always gives the same
    order.
    """
    found = list(changes)
    adds = [change for change in found if isinstance(change, AddColumn)]
    early = _needed_by_adds(adds, found)

    def sort_key(change: Change) -> tuple[int, int, str]:
        rank = _BEFORE_ADDS[type(change)] if id(change) in early else _RANK[type(change)]
        if isinstance(change, SetClustering) and change.after:
            rank = _CLUSTER_AFTER_REPARTITION
        if isinstance(change, SetProperties) and STATS_COLUMNS in change.values:
            rank = _AFTER_RENAMES
        if isinstance(change, SetProperties) and change.values.get(MAPPING_MODE, "").casefold() == "none":
            rank = _MAPPING_OFF
        # A parent is renamed before its fields: their paths are written with the new name.
        depth = len(change.path) if isinstance(change, RenameColumn) else 0
        return (rank, depth, "" if isinstance(change, RenameColumn) else change.subject)

    others = sorted((c for c in found if not isinstance(c, AddColumn)), key=sort_key)
    before = [c for c in others if sort_key(c)[0] < _RANK[AddColumn]]
    after = [c for c in others if sort_key(c)[0] >= _RANK[AddColumn]]
    return (*before, *_order_adds(adds), *after)


def _needed_by_adds(adds: list[AddColumn], changes: list[Change]) -> set[int]:
    features = {feature for add in adds for feature in type_features(add.column.type)}
    if any(add.column.default is not None for add in adds):
        features.add("allowColumnDefaults")
    names = {(tuple(p.casefold() for p in add.parent), add.column.name.casefold()) for add in adds}
    special = any(has_special_characters(name) for add in adds for name in added_names(add))
    renames = [c for c in changes if isinstance(c, RenameColumn)]
    taken = any((tuple(p.casefold() for p in c.path[:-1]), c.path[-1].casefold()) in names for c in renames)
    early = {id(c) for c in changes if isinstance(c, EnableFeature) and c.feature in features}
    if taken:
        early |= {id(c) for c in changes if isinstance(c, RenameColumn | DropCheck | ReleaseNotNull)}
    if taken or special:
        early |= {
            id(c) for c in changes if isinstance(c, SetProperties) and c.values.get(MAPPING_MODE) == "name"
        }
    return early


def _order_adds(adds: list[AddColumn]) -> list[Change]:
    """Alphabetical, except that a column added after another added one has to wait for it."""
    by_place = {(add.parent, add.column.name): add for add in adds}
    followers: dict[tuple[tuple[str, ...], str], list[AddColumn]] = {}
    ready: list[tuple[str, AddColumn]] = []
    for add in adds:
        if (add.parent, add.after) in by_place:
            followers.setdefault((add.parent, add.after), []).append(add)
        else:
            ready.append((add.subject, add))
    heap = [(subject, index) for index, (subject, _) in enumerate(ready)]
    pool = [add for _, add in ready]
    heapq.heapify(heap)
    ordered: list[Change] = []
    while heap:
        _, index = heapq.heappop(heap)
        add = pool[index]
        ordered.append(add)
        for follower in followers.get((add.parent, add.column.name), ()):
            pool.append(follower)
            heapq.heappush(heap, (follower.subject, len(pool) - 1))
    return ordered
