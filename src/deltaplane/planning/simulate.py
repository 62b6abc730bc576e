"""What a table looks like after a change: Delta's behaviour as a pure function.

Used to show the protocol after a plan, and by the in-memory engine of `deltaplane.testing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import singledispatch
from typing import Any, cast

from deltaplane.planning import changes as ch
from deltaplane.planning.capabilities import Capabilities
from deltaplane.planning.features import Protocol, required_features
from deltaplane.planning.observed import (
    Key,
    ObservedTable,
    Pending,
    keys_to_declaration,
    table_keys,
)
from deltaplane.planning.observed import not_null_constraint as nn_name
from deltaplane.schema import Array, Column, DataType, DeltaTable, Field, Map, Struct
from deltaplane.schema.frozen import FrozenMap
from deltaplane.schema.names import join_path, split_path

__all__ = ["created", "simulate", "simulate_all"]

Node = Column | Field
Edit = Callable[[tuple[Node, ...]], Iterable[Node]]


def created(change: ch.CreateTable) -> ObservedTable:
    """Return the table that a CREATE TABLE makes."""
    table = change.declaration
    stored = _evolve(
        table,
        columns=tuple(_without_history(c) for c in table.columns),
        properties=FrozenMap({**table.properties, **change.implied}),
    )
    return ObservedTable(
        table=stored,
        protocol=Protocol().with_features(required_features(stored)),
        owner=change.owner,
        managed_properties=frozenset(table.properties),
    )


def simulate_all(
    observed: ObservedTable | None, changes: Iterable[ch.Change], caps: Capabilities
) -> ObservedTable | None:
    """Apply changes in order. None stands for a table that does not exist."""
    explicit: set[str] = set()
    for change in changes:
        if isinstance(change, ch.CreateTable):
            observed = created(change)
        elif isinstance(change, ch.DropTable):
            observed = None
        elif observed is not None:
            observed = replace(_apply(change, observed, caps), version=observed.version + 1)
            if isinstance(change, ch.EnableFeature):
                explicit.add(change.feature)
    return None if observed is None else _with_protocol(observed, explicit)


def simulate(observed: ObservedTable, change: ch.Change, caps: Capabilities) -> ObservedTable:
    """Return the table after one change."""
    after = simulate_all(observed, [change], caps)
    assert after is not None
    return after


def _with_protocol(state: ObservedTable, explicit: set[str]) -> ObservedTable:
    needed = required_features(state.table, held_not_null=bool(state.not_null_checks)) | explicit
    return replace(state, protocol=state.protocol.with_features(needed))


@singledispatch
def _apply(change: ch.Change, observed: ObservedTable, caps: Capabilities) -> ObservedTable:
    """Changes that do not show in the declaration leave it as it is."""
    return observed


@_apply.register
def _add_column(change: ch.AddColumn, observed: ObservedTable, caps: Capabilities) -> ObservedTable:
    column = _without_history(change.column)
    real_not_null = change.not_null_held and caps.set_not_null
    stored: Node = replace(column, nullable=not change.not_null_held, tags=FrozenMap())
    if change.parent:
        stored = Field(column.name, column.type, True, column.comment)

    def insert(nodes: tuple[Node, ...]) -> list[Node]:
        names = [node.name.casefold() for node in nodes]
        at = names.index(change.after.casefold()) + 1 if change.after else 0
        return [*nodes[:at], stored, *nodes[at:]]

    after = _edit(observed, change.parent, insert)
    if change.not_null_held and not real_not_null:
        held = {**after.not_null_checks, column.name.casefold(): nn_name(column.name)}
        after = replace(after, not_null_checks=FrozenMap(held))
    return after


@_apply.register
def _backfill(change: ch.Backfill, observed: ObservedTable, caps: Capabilities) -> ObservedTable:
    folded = change.column.casefold()
    pending = observed.pending
    after = replace(
        observed,
        pending=replace(
            pending,
            backfill=tuple(c for c in pending.backfill if c != folded),
            not_null=tuple(c for c in pending.not_null if c != folded),
        ),
    )
    return _hold(after, (change.column,), caps) if change.hold_not_null else after


@_apply.register
def _clear_notes(change: ch.ClearNotes, observed: ObservedTable, caps: Capabilities) -> ObservedTable:
    pending, done = observed.pending, change.done
    left = Pending(
        tuple(c for c in pending.backfill if c not in done.backfill),
        tuple(c for c in pending.not_null if c not in done.not_null),
        FrozenMap({k: v for k, v in pending.renames.items() if k not in done.renames}),
    )
    return replace(observed, pending=left)


@_apply.register
def _rename_column(change: ch.RenameColumn, observed: ObservedTable, caps: Capabilities) -> ObservedTable:
    old = change.path[-1].casefold()

    # Where tags are kept in properties, they are kept under the old name and do not follow.
    loses_tags = not caps.tags_follow_columns and change.new_name.casefold() != old

    def renamed(node: Node) -> Node:
        if loses_tags and isinstance(node, Column):
            return replace(node, name=change.new_name, tags=FrozenMap())
        return replace(node, name=change.new_name)

    def rename(nodes: tuple[Node, ...]) -> list[Node]:
        return [renamed(n) if n.name.casefold() == old else n for n in nodes]

    after = _edit(observed, change.path[:-1], rename)
    renames = {
        k: v for k, v in after.pending.renames.items() if k.casefold() != ch.show_path(change.path).casefold()
    }
    after = replace(after, pending=replace(after.pending, renames=FrozenMap(renames)))
    table = after.table
    new_path = (*change.path[:-1], change.new_name)
    clustered = tuple(_renamed_path(key, change.path, new_path) for key in table.clustered_by)
    partitioned = table.partitioned_by
    if len(change.path) == 1:
        partitioned = tuple(change.new_name if c.casefold() == old else c for c in partitioned)
    return _with_table(after, partitioned_by=partitioned, clustered_by=clustered)


def _renamed_path(key: str, old: ch.Path, new: ch.Path) -> str:
    parts = split_path(key)
    if [part.casefold() for part in parts[: len(old)]] != [part.casefold() for part in old]:
        return key
    return join_path([*new, *parts[len(old) :]])


@_apply.register
def _change_type(change: ch.ChangeType, observed: ObservedTable, caps: Capabilities) -> ObservedTable:
    def retype(node: Node) -> Node:
        return replace(node, type=_replace_type(node.type, change.path[1:], change.new))

    first = change.path[0].casefold()
    columns = tuple(retype(c) if c.name.casefold() == first else c for c in observed.table.columns)
    return _with_table(observed, columns=columns)


@_apply.register
def _drop_not_null(change: ch.DropNotNull, observed: ObservedTable, caps: Capabilities) -> ObservedTable:
    return _set_nullable(observed, change.path, True)


@_apply.register
def _hold_not_null(change: ch.HoldNotNull, observed: ObservedTable, caps: Capabilities) -> ObservedTable:
    after = _hold(observed, change.path, caps)
    waiting = tuple(c for c in after.pending.not_null if c != change.path[0].casefold())
    return replace(after, pending=replace(after.pending, not_null=waiting))


@_apply.register
def _release_not_null(
    change: ch.ReleaseNotNull, observed: ObservedTable, caps: Capabilities
) -> ObservedTable:
    after = _set_nullable(observed, (change.column,), True)
    held = {k: v for k, v in after.not_null_checks.items() if k != change.column.casefold()}
    pending = after.pending
    if change.until is not None:
        pending = replace(pending, not_null=(*pending.not_null, change.until.casefold()))
    return replace(after, not_null_checks=FrozenMap(held), pending=pending)


@_apply.register
def _set_default(change: ch.SetDefault, observed: ObservedTable, caps: Capabilities) -> ObservedTable:
    return _edit_column(observed, change.column, default=change.default)


@_apply.register
def _drop_default(change: ch.DropDefault, observed: ObservedTable, caps: Capabilities) -> ObservedTable:
    return _edit_column(observed, change.column, default=None)


@_apply.register
def _reorder(change: ch.Reorder, observed: ObservedTable, caps: Capabilities) -> ObservedTable:
    def move(nodes: tuple[Node, ...]) -> list[Node]:
        result = list(nodes)
        for name, after in change.moves:
            node = next(n for n in result if n.name.casefold() == name.casefold())
            result.remove(node)
            at = [n.name.casefold() for n in result].index(after.casefold()) + 1 if after else 0
            result.insert(at, node)
        return result

    return _edit(observed, change.parent, move)


@_apply.register
def _column_comments(
    change: ch.SetColumnComments, observed: ObservedTable, caps: Capabilities
) -> ObservedTable:
    for path, comment in change.comments:
        last = path[-1].casefold()

        def set_comment(
            nodes: tuple[Node, ...], last: str = last, comment: str | None = comment
        ) -> list[Node]:
            return [replace(n, comment=comment) if n.name.casefold() == last else n for n in nodes]

        observed = _edit(observed, path[:-1], set_comment)
    return observed


@_apply.register
def _table_comment(change: ch.SetTableComment, observed: ObservedTable, caps: Capabilities) -> ObservedTable:
    return _with_table(observed, comment=change.comment)


@_apply.register
def _add_check(change: ch.AddCheck, observed: ObservedTable, caps: Capabilities) -> ObservedTable:
    return _with_table(observed, checks=(*observed.table.checks, change.check))


@_apply.register
def _drop_check(change: ch.DropCheck, observed: ObservedTable, caps: Capabilities) -> ObservedTable:
    left = tuple(c for c in observed.table.checks if c.name != change.check.name)
    return _with_table(observed, checks=left)


@_apply.register
def _add_key(change: ch.AddKey, observed: ObservedTable, caps: Capabilities) -> ObservedTable:
    return _with_keys(observed, (*table_keys(observed.table), change.key))


@_apply.register
def _drop_key(change: ch.DropKey, observed: ObservedTable, caps: Capabilities) -> ObservedTable:
    return _with_keys(observed, tuple(k for k in table_keys(observed.table) if k.name != change.key.name))


@_apply.register
def _set_tags(change: ch.SetTags, observed: ObservedTable, caps: Capabilities) -> ObservedTable:
    if change.column is None:
        return _with_table(observed, tags=FrozenMap(change.after))
    return _edit_column(observed, change.column, tags=FrozenMap(change.after))


@_apply.register
def _set_clustering(change: ch.SetClustering, observed: ObservedTable, caps: Capabilities) -> ObservedTable:
    return _with_table(observed, clustered_by=change.after)


@_apply.register
def _repartition(change: ch.Repartition, observed: ObservedTable, caps: Capabilities) -> ObservedTable:
    held = {**observed.not_null_checks, **{column.casefold(): nn_name(column) for column in change.not_null}}
    columns = tuple(replace(c, type=_nullable_inside(c.type)) for c in observed.table.columns)
    after = _with_table(observed, partitioned_by=change.after, columns=columns)
    return after if caps.set_not_null else replace(after, not_null_checks=FrozenMap(held))


@_apply.register
def _set_properties(change: ch.SetProperties, observed: ObservedTable, caps: Capabilities) -> ObservedTable:
    folded = {key.casefold() for key in change.values}
    kept = {k: v for k, v in observed.table.properties.items() if k.casefold() not in folded}
    after = _with_table(observed, properties=FrozenMap({**kept, **change.values}))
    return replace(after, managed_properties=frozenset(change.managed))


@_apply.register
def _unset_properties(
    change: ch.UnsetProperties, observed: ObservedTable, caps: Capabilities
) -> ObservedTable:
    kept = {k: v for k, v in observed.table.properties.items() if k not in change.keys}
    after = _with_table(observed, properties=FrozenMap(kept))
    return replace(after, managed_properties=frozenset(change.managed))


@_apply.register
def _drop_column(change: ch.DropColumn, observed: ObservedTable, caps: Capabilities) -> ObservedTable:
    last = change.path[-1].casefold()
    return _edit(observed, change.path[:-1], lambda nodes: [n for n in nodes if n.name.casefold() != last])


def _hold(observed: ObservedTable, path: ch.Path, caps: Capabilities) -> ObservedTable:
    after = _set_nullable(observed, path, False)
    if caps.set_not_null or len(path) > 1:
        return after
    held = {**after.not_null_checks, path[0].casefold(): nn_name(path[0])}
    return replace(after, not_null_checks=FrozenMap(held))


def _set_nullable(observed: ObservedTable, path: ch.Path, nullable: bool) -> ObservedTable:
    last = path[-1].casefold()

    def change(nodes: tuple[Node, ...]) -> list[Node]:
        return [replace(n, nullable=nullable) if n.name.casefold() == last else n for n in nodes]

    return _edit(observed, path[:-1], change)


def _edit_column(observed: ObservedTable, name: str, **values: Any) -> ObservedTable:
    folded = name.casefold()
    columns = tuple(
        replace(c, **values) if c.name.casefold() == folded else c for c in observed.table.columns
    )
    return _with_table(observed, columns=columns)


def _with_keys(observed: ObservedTable, keys: tuple[Key, ...]) -> ObservedTable:
    primary, unique, foreign = keys_to_declaration(keys)
    return _with_table(observed, primary_key=primary, unique=unique, foreign_keys=foreign)


def _with_table(observed: ObservedTable, **values: Any) -> ObservedTable:
    return replace(observed, table=_evolve(observed.table, **values))


def _evolve(table: DeltaTable, **values: Any) -> DeltaTable:
    """Copy a declaration without validating it: between two changes it may be inconsistent for a moment."""
    copy = object.__new__(DeltaTable)
    for name in DeltaTable.__dataclass_fields__:
        object.__setattr__(copy, name, values.get(name, getattr(table, name)))
    return copy


def _edit(observed: ObservedTable, parent: ch.Path, edit: Edit) -> ObservedTable:
    if not parent:
        return _with_table(observed, columns=tuple(edit(observed.table.columns)))
    first = parent[0].casefold()
    columns = tuple(
        replace(c, type=_edit_type(c.type, parent[1:], edit)) if c.name.casefold() == first else c
        for c in observed.table.columns
    )
    return _with_table(observed, columns=columns)


def _edit_type(data_type: DataType, path: ch.Path, edit: Edit) -> DataType:
    if isinstance(data_type, Struct):
        if not path:
            return Struct(cast(Iterable[Field], edit(data_type.fields)))
        first = path[0].casefold()
        return Struct(
            replace(f, type=_edit_type(f.type, path[1:], edit)) if f.name.casefold() == first else f
            for f in data_type.fields
        )
    if isinstance(data_type, Array):
        return Array(_edit_type(data_type.element, path[1:], edit))
    if isinstance(data_type, Map) and path[0] == "key":
        return Map(_edit_type(data_type.key, path[1:], edit), data_type.value)
    if isinstance(data_type, Map):
        return Map(data_type.key, _edit_type(data_type.value, path[1:], edit))
    return data_type


def _replace_type(data_type: DataType, path: ch.Path, new: DataType) -> DataType:
    if not path:
        return new
    if isinstance(data_type, Struct):
        first = path[0].casefold()
        return Struct(
            replace(f, type=_replace_type(f.type, path[1:], new)) if f.name.casefold() == first else f
            for f in data_type.fields
        )
    if isinstance(data_type, Array):
        return Array(_replace_type(data_type.element, path[1:], new))
    if isinstance(data_type, Map) and path[0] == "key":
        return Map(_replace_type(data_type.key, path[1:], new), data_type.value)
    if isinstance(data_type, Map):
        return Map(data_type.key, _replace_type(data_type.value, path[1:], new))
    return data_type


def _nullable_inside(data_type: DataType) -> DataType:
    """A rewrite makes every nested field nullable."""
    if isinstance(data_type, Struct):
        return Struct(replace(f, nullable=True, type=_nullable_inside(f.type)) for f in data_type.fields)
    if isinstance(data_type, Array):
        return Array(_nullable_inside(data_type.element))
    if isinstance(data_type, Map):
        return Map(_nullable_inside(data_type.key), _nullable_inside(data_type.value))
    return data_type


def _without_history(column: Column) -> Column:
    return replace(column, renamed_from=None, type=_forget(column.type))


def _forget(data_type: DataType) -> DataType:
    if isinstance(data_type, Struct):
        return Struct(replace(f, renamed_from=None, type=_forget(f.type)) for f in data_type.fields)
    if isinstance(data_type, Array):
        return Array(_forget(data_type.element))
    if isinstance(data_type, Map):
        return Map(_forget(data_type.key), _forget(data_type.value))
    return data_type
