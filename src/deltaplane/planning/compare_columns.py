"""Compare columns, level by level: what is added, dropped, renamed, moved, widened, commented."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from deltaplane.planning.capabilities import Capabilities
from deltaplane.planning.changes import (
    AddColumn,
    Backfill,
    Change,
    ChangeGeneration,
    ChangeType,
    ClearNotes,
    DropColumn,
    DropDefault,
    DropNotNull,
    HoldNotNull,
    Path,
    ReleaseNotNull,
    RenameColumn,
    Reorder,
    SetColumnComments,
    SetDefault,
    SetTags,
    show_path,
)
from deltaplane.planning.matching import Match, Node, anchors, match_columns, moves
from deltaplane.planning.observed import ObservedTable, Pending
from deltaplane.schema import Array, Column, DataType, DeltaTable, Map, Struct
from deltaplane.schema.expressions import canonical
from deltaplane.schema.frozen import FrozenMap

__all__ = ["compare_columns"]

TEMPORARY_PREFIX = "deltaplane_tmp_"
# No name contains NUL, so this marks a column that will be dropped.
_GONE = "\0"


@dataclass(frozen=True)
class _Level:
    """One struct, or the table itself: its path with the names of now (`old`) and of afterwards (`new`)."""

    old: Path
    new: Path
    match: Match
    declared: tuple[Node, ...]
    observed: tuple[Node, ...]

    @cached_property
    def present_order(self) -> list[str]:
        """The observed columns under their declared names; those to be dropped are marked."""
        back = {old.name: new.name for new, old in self.match.pairs}
        return [back.get(node.name, _GONE + node.name) for node in self.observed]

    @cached_property
    def places(self) -> dict[str, tuple[str, bool]]:
        """Where each added column goes."""
        if not self.match.added:
            return {}
        order = [node.name for node in self.declared]
        return anchors(order, self.present_order, [node.name for node in self.match.added])


def compare_columns(declared: DeltaTable, observed: ObservedTable, caps: Capabilities) -> list[Change]:
    """Return every change of columns and nested fields, in no particular order."""
    same = declared.columns == observed.table.columns and declared.tags == observed.table.tags
    if same and observed.pending.is_empty:
        return []
    return _Comparison(declared, observed, caps).changes()


class _Comparison:
    """Collects the changes of one table."""

    def __init__(self, declared: DeltaTable, observed: ObservedTable, caps: Capabilities) -> None:
        self.declared = declared
        self.observed = observed
        self.caps = caps
        self.name = declared.qualified_name
        self.levels = list(self._levels((), (), declared.columns, observed.table.columns))
        self.renames_first = any(level.match.reuses_names for level in self.levels)

    def changes(self) -> list[Change]:
        found: list[Change] = []
        comments: list[tuple[Path, str | None]] = []
        for level in self.levels:
            found += self._adds(level)
            found += self._renames(level)
            found += self._reorders(level)
            found += [DropColumn(self.name, (*level.new, node.name), node) for node in level.match.dropped]
            for new, old in level.match.differing:
                path = (*level.new, new.name)
                found += self._type_changes(path, new.type, old.type)
                found += self._nullability(path, new, old)
                if (new.comment or None) != (old.comment or None):
                    comments.append((path, new.comment))
        if comments:
            found.append(SetColumnComments(self.name, tuple(sorted(comments))))
        top = self.levels[0].match
        for column, before in top.pairs if self.observed.pending.backfill else top.differing:
            if isinstance(column, Column) and isinstance(before, Column):
                found += self._defaults(column, before)
                found += self._generation(column, before)
        found += self._tags()
        found += self._finished_notes(found)
        return found

    def _levels(
        self, old: Path, new: Path, declared: Sequence[Node], observed: Sequence[Node]
    ) -> Iterator[_Level]:
        match = match_columns(declared, observed, self._unfinished_renames(old))
        yield _Level(old, new, match, tuple(declared), tuple(observed))
        for mine, theirs in match.pairs if self.observed.pending.renames else match.differing:
            yield from self._nested((*old, theirs.name), (*new, mine.name), mine.type, theirs.type)

    def _nested(self, old: Path, new: Path, mine: DataType, theirs: DataType) -> Iterator[_Level]:
        if mine == theirs and not self.observed.pending.renames:
            return
        if isinstance(mine, Struct) and isinstance(theirs, Struct):
            yield from self._levels(old, new, mine.fields, theirs.fields)
        elif isinstance(mine, Array) and isinstance(theirs, Array):
            yield from self._nested((*old, "element"), (*new, "element"), mine.element, theirs.element)
        elif isinstance(mine, Map) and isinstance(theirs, Map):
            yield from self._nested((*old, "key"), (*new, "key"), mine.key, theirs.key)
            yield from self._nested((*old, "value"), (*new, "value"), mine.value, theirs.value)

    def _unfinished_renames(self, parent: Path) -> Mapping[str, str]:
        prefix = show_path(parent) + "." if parent else ""
        return {
            temporary.removeprefix(prefix): final
            for temporary, final in self.observed.pending.renames.items()
            if temporary.startswith(prefix) and "." not in temporary.removeprefix(prefix)
        }

    def _adds(self, level: _Level) -> Iterator[Change]:
        now = {new.name: old.name for new, old in level.match.pairs} if not self.renames_first else {}
        places = level.places
        parent = level.new if self.renames_first else level.old
        for node in level.match.added:
            after, at_end = places[node.name]
            column = (
                node
                if isinstance(node, Column)
                else Column(node.name, node.type, node.nullable, node.comment)
            )
            held = not column.nullable and not level.new
            yield AddColumn(self.name, parent, column, now.get(after, after), at_end, not_null_held=held)

    def _renames(self, level: _Level) -> Iterator[Change]:
        for old, new in level.match.renames:
            case_only = old.casefold() == new.casefold()
            via = f"{TEMPORARY_PREFIX}{new.casefold()}" if case_only else None
            yield RenameColumn(self.name, (*level.new, old), new, via)
        if level.new or not self.observed.not_null_checks:
            return
        for new_node, old_node in level.match.pairs:
            held = self.observed.not_null_checks.get(old_node.name.casefold())
            touched = new_node.name != old_node.name or _shape_changes(new_node.type, old_node.type)
            if held and touched and not new_node.nullable:
                yield ReleaseNotNull(self.name, old_node.name, held, until=new_node.name)
                yield HoldNotNull(self.name, (new_node.name,), resumed=True)
        for node in level.match.dropped:
            held = self.observed.not_null_checks.get(node.name.casefold())
            if held:
                yield ReleaseNotNull(self.name, node.name, held)

    def _reorders(self, level: _Level) -> Iterator[Change]:
        current = list(level.present_order)
        for name, (after, _) in level.places.items():
            current.insert(current.index(after) + 1 if after else 0, name)
        kept = [name for name in current if not name.startswith(_GONE)]
        order = [node.name for node in level.declared]
        needed = moves(order, kept) if order != kept else ()
        if needed:
            yield Reorder(self.name, level.new, needed)

    def _type_changes(self, path: Path, mine: DataType, theirs: DataType) -> Iterator[Change]:
        if isinstance(mine, Struct) and isinstance(theirs, Struct):
            return
        if isinstance(mine, Array) and isinstance(theirs, Array):
            yield from self._type_changes((*path, "element"), mine.element, theirs.element)
        elif isinstance(mine, Map) and isinstance(theirs, Map):
            yield from self._type_changes((*path, "key"), mine.key, theirs.key)
            yield from self._type_changes((*path, "value"), mine.value, theirs.value)
        elif mine != theirs:
            yield ChangeType(self.name, path, theirs, mine)

    def _nullability(self, path: Path, new: Node, old: Node) -> Iterator[Change]:
        if new.nullable == old.nullable:
            return
        if not new.nullable:
            pending = self.observed.pending
            if len(path) == 1 and old.name.casefold() in pending.backfill:
                return
            yield HoldNotNull(
                self.name, path, resumed=path[0].casefold() in pending.not_null and len(path) == 1
            )
            return
        held = self.observed.not_null_checks.get(old.name.casefold()) if len(path) == 1 else None
        if held:
            yield ReleaseNotNull(self.name, old.name, held)
        else:
            yield DropNotNull(self.name, path)

    def _defaults(self, new: Column, old: Column) -> Iterator[Change]:
        if new.default is None and old.default is not None:
            yield DropDefault(self.name, new.name)
        elif new.default is not None and (
            old.default is None or canonical(new.default) != canonical(old.default)
        ):
            yield SetDefault(self.name, new.name, new.default)
        if new.default is not None and new.name.casefold() in self.observed.pending.backfill:
            yield Backfill(self.name, new.name, hold_not_null=not new.nullable and old.nullable)

    def _generation(self, new: Column, old: Column) -> Iterator[Change]:
        same_expression = canonical(new.generated or "") == canonical(old.generated or "")
        if not same_expression:
            yield ChangeGeneration(self.name, new.name, old.generated, new.generated)
        if new.identity != old.identity:
            yield ChangeGeneration(self.name, new.name, old.identity, new.identity)

    def _finished_notes(self, found: list[Change]) -> Iterator[Change]:
        """Notes that no change of this plan will clear: the interrupted run had done the step itself."""
        ends_backfill = {c.column.casefold() for c in found if isinstance(c, Backfill)}
        ends_backfill |= {
            c.column.name.casefold() for c in found if isinstance(c, AddColumn) and not c.parent
        }
        ends_not_null = {c.path[0].casefold() for c in found if isinstance(c, HoldNotNull)} | ends_backfill
        renamed = {show_path(c.path) for c in found if isinstance(c, RenameColumn)}
        pending = self.observed.pending
        done = Pending(
            tuple(column for column in pending.backfill if column not in ends_backfill),
            tuple(column for column in pending.not_null if column not in ends_not_null),
            FrozenMap({name: final for name, final in pending.renames.items() if name not in renamed}),
        )
        if not done.is_empty:
            yield ClearNotes(self.name, done)

    def _tags(self) -> Iterator[Change]:
        none = FrozenMap()
        if self.declared.tags != self.observed.table.tags:
            yield SetTags(self.name, None, self.observed.table.tags, self.declared.tags)
        match = self.levels[0].match
        for new, old in match.differing:
            if not isinstance(new, Column) or not isinstance(old, Column) or not (new.tags or old.tags):
                continue
            renamed = new.name.casefold() != old.name.casefold()
            if renamed and old.tags and not self.caps.tags_follow_columns:
                yield SetTags(self.name, old.name, old.tags, none)
                if new.tags:
                    yield SetTags(self.name, new.name, none, new.tags)
            elif new.tags != old.tags:
                yield SetTags(self.name, new.name, old.tags, new.tags)
        for node in match.added:
            if isinstance(node, Column) and node.tags:
                yield SetTags(self.name, node.name, none, node.tags)
        for node in match.dropped:
            if isinstance(node, Column) and node.tags and not self.caps.tags_follow_columns:
                yield SetTags(self.name, node.name, node.tags, none)


def _shape_changes(mine: DataType, theirs: DataType) -> bool:
    """Whether Delta would refuse the change while a CHECK uses the column: any change of type."""
    return mine.text != theirs.text
