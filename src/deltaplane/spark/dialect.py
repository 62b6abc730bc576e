"""Changes as SQL of open-source Spark with Delta. The templates are in sql/open_source.sql.

Databricks differs in a few statements: see `deltaplane.databricks.dialect`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import singledispatchmethod

from deltaplane.planning import changes as ch
from deltaplane.planning.observed import Key, not_null_constraint, table_keys
from deltaplane.schema import Column, DeltaTable, QualifiedName
from deltaplane.schema.expressions import is_single_token
from deltaplane.schema.names import split_path
from deltaplane.schema.typetext import render_type
from deltaplane.spark import notes
from deltaplane.sqltext import Statements, load_statements, quote_identifier, quote_literal, quote_path

__all__ = ["Dialect", "Step"]

Naming = Callable[[QualifiedName], tuple[str, ...]]


@dataclass(frozen=True)
class Step:
    """One statement. `repartition_by` is set when it runs through the DataFrame writer instead of as SQL."""

    sql: str
    repartition_by: tuple[str, ...] | None = None


class Dialect:
    """Writes changes as statements.

    Args:
        engine_name: Maps a declared name to the parts of the engine's name.
    """

    def __init__(self, engine_name: Naming) -> None:
        self._engine_name = engine_name
        self._own: Statements = load_statements("deltaplane.spark.sql", "open_source.sql")

    def statement(self, template: str, /, **values: str) -> str:
        """Fill one template of the dialect."""
        return self._own.render(template, **values)

    def table(self, name: QualifiedName) -> str:
        """Write a table's name."""
        return quote_path(self._engine_name(name))

    def schema(self, name: QualifiedName) -> str:
        """Write the name of a table's schema."""
        return quote_path(self._engine_name(name)[:-1])

    @singledispatchmethod
    def steps(self, change: ch.Change) -> tuple[Step, ...]:
        """Return the statements of a change, in order."""
        raise TypeError(f"no statement for {type(change).__name__}")

    def _alter(self, change: ch.Change, template: str, /, **values: str) -> Step:
        return Step(self.statement(template, table=self.table(change.table), **values))

    def _set(self, change: ch.Change, values: Mapping[str, str]) -> Step:
        return self._alter(change, "set_properties", properties=_pairs(values))

    def _unset(self, change: ch.Change, *keys: str) -> Step:
        return self._alter(change, "unset_properties", keys=", ".join(quote_literal(key) for key in keys))

    @steps.register
    def _create_schema(self, change: ch.CreateSchema) -> tuple[Step, ...]:
        return (Step(self.statement("create_schema", schema=self.schema(change.table))),)

    @steps.register
    def _create_table(self, change: ch.CreateTable) -> tuple[Step, ...]:
        table = change.declaration
        columns = ", ".join(_column_definition(column) for column in table.columns)
        # Delta's parser finds CLUSTER BY by counting, and miscounts when an emoji is part of a name before
        # it.
        cluster_later = bool(table.clustered_by) and any(ord(character) > 0xFFFF for character in columns)
        create = self._alter(
            change,
            "create_table",
            columns=columns,
            layout="" if cluster_later else _layout(table),
            comment=f" COMMENT {quote_literal(table.comment)}" if table.comment else "",
            location=f" LOCATION {quote_literal(table.location)}" if table.location else "",
            properties=f" TBLPROPERTIES ({_pairs(self.creation_properties(change))})",
        )
        checks = (
            self._alter(
                change, "add_check", name=quote_identifier(check.name or ""), expression=check.expression
            )
            for check in table.checks
        )
        clustering = self._set_clustering(ch.SetClustering(change.table, (), table.clustered_by))
        return (create, *(clustering if cluster_later else ()), *checks, *self.after_creation(change))

    def after_creation(self, change: ch.CreateTable) -> tuple[Step, ...]:
        """Return what a new table needs beyond CREATE TABLE and its checks."""
        return ()

    def creation_properties(self, change: ch.CreateTable) -> dict[str, str]:
        """Return everything that goes into TBLPROPERTIES of a new table."""
        table = change.declaration
        features = set(table.features)
        if any(column.default is not None for column in table.columns):
            features.add("allowColumnDefaults")
        properties = {**table.properties, **change.implied, notes.OWNER: change.owner}
        properties |= {f"delta.feature.{feature}": "supported" for feature in features}
        if table.properties:
            properties[notes.MANAGED] = notes.managed_to_text(tuple(table.properties))
        return properties | self.kept_in_properties(table)

    def kept_in_properties(self, table: DeltaTable) -> dict[str, str]:
        """Return keys and tags, for which open-source Spark has no SQL."""
        kept = {notes.KEY + key.name: notes.key_to_text(key) for key in table_keys(table)}
        kept |= {notes.TAG + tag: value for tag, value in table.tags.items()}
        for column in table.columns:
            if column.tags:
                kept[notes.COLUMN_TAGS + column.name.casefold()] = _tags_text(column.tags)
        return kept

    @steps.register
    def _drop_table(self, change: ch.DropTable) -> tuple[Step, ...]:
        return (self._alter(change, "drop_table"),)

    @steps.register
    def _add_column(self, change: ch.AddColumn) -> tuple[Step, ...]:
        column = change.column
        place = (
            ""
            if change.at_end
            else (f" AFTER {quote_identifier(change.after)}" if change.after else " FIRST")
        )
        comment = f" COMMENT {quote_literal(column.comment)}" if column.comment else ""
        add = self._alter(
            change,
            "add_column",
            column=f"{quote_path(change.path)} {render_type(column.type)}{comment}{place}",
        )
        held = self.hold_not_null(change, change.path) if change.not_null_held else ()
        if column.default is None:
            return (add, *held)
        marks = {notes.pending_backfill(column.name): "true"}
        if change.not_null_held:
            marks[notes.pending_not_null(column.name)] = "true"
        path = quote_path(change.path)
        return (
            self._set(change, marks),
            add,
            self._alter(change, "set_default", path=path, default=_default(column.default)),
            self._alter(change, "backfill", path=path),
            *held,
            self._unset(change, *marks),
        )

    @steps.register
    def _backfill(self, change: ch.Backfill) -> tuple[Step, ...]:
        held = self.hold_not_null(change, (change.column,)) if change.hold_not_null else ()
        return (
            self._alter(change, "backfill", path=quote_identifier(change.column)),
            *held,
            self._unset(change, notes.pending_backfill(change.column), notes.pending_not_null(change.column)),
        )

    @steps.register
    def _clear_notes(self, change: ch.ClearNotes) -> tuple[Step, ...]:
        keys = [notes.pending_backfill(column) for column in change.done.backfill]
        keys += [notes.pending_not_null(column) for column in change.done.not_null]
        keys += [notes.pending_rename(name) for name in change.done.renames]
        return (self._unset(change, *keys),)

    @steps.register
    def _rename_column(self, change: ch.RenameColumn) -> tuple[Step, ...]:
        path = quote_path(change.path)
        new = quote_identifier(change.new_name)
        if change.via is None:
            rename = self._alter(change, "rename_column", path=path, new=new)
            note = notes.pending_rename(ch.show_path(change.path))
            unfinished = change.path[-1].startswith("deltaplane_tmp_")
            return (rename, self._unset(change, note)) if unfinished else (rename,)
        between = (*change.path[:-1], change.via)
        note = notes.pending_rename(ch.show_path(between))
        return (
            self._set(change, {note: change.new_name}),
            self._alter(change, "rename_column", path=path, new=quote_identifier(change.via)),
            self._alter(change, "rename_column", path=quote_path(between), new=new),
            self._unset(change, note),
        )

    @steps.register
    def _change_type(self, change: ch.ChangeType) -> tuple[Step, ...]:
        return (
            self._alter(change, "change_type", path=quote_path(change.path), type=render_type(change.new)),
        )

    @steps.register
    def _drop_not_null(self, change: ch.DropNotNull) -> tuple[Step, ...]:
        return (self._alter(change, "drop_not_null", path=quote_path(change.path)),)

    @steps.register
    def _hold_not_null(self, change: ch.HoldNotNull) -> tuple[Step, ...]:
        steps = self.hold_not_null(change, change.path)
        return (
            (*steps, self._unset(change, notes.pending_not_null(change.path[0]))) if change.resumed else steps
        )

    def hold_not_null(self, change: ch.Change, path: ch.Path) -> tuple[Step, ...]:
        """Forbid null in a column: open-source Spark cannot SET NOT NULL, so a CHECK does it."""
        name = quote_identifier(not_null_constraint(path[0]))
        return (self._alter(change, "add_check", name=name, expression=f"{quote_path(path)} IS NOT NULL"),)

    @steps.register
    def _release_not_null(self, change: ch.ReleaseNotNull) -> tuple[Step, ...]:
        drop = self._alter(change, "drop_check", name=quote_identifier(change.constraint))
        if change.until is None:
            return (drop,)
        return (self._set(change, {notes.pending_not_null(change.until): "true"}), drop)

    @steps.register
    def _set_default(self, change: ch.SetDefault) -> tuple[Step, ...]:
        path = quote_identifier(change.column)
        return (self._alter(change, "set_default", path=path, default=_default(change.default)),)

    @steps.register
    def _drop_default(self, change: ch.DropDefault) -> tuple[Step, ...]:
        return (self._alter(change, "drop_default", path=quote_identifier(change.column)),)

    @steps.register
    def _reorder(self, change: ch.Reorder) -> tuple[Step, ...]:
        return tuple(
            self._alter(
                change,
                "move_column",
                path=quote_path((*change.parent, name)),
                place=f"AFTER {quote_identifier(after)}" if after else "FIRST",
            )
            for name, after in change.moves
        )

    @steps.register
    def _column_comments(self, change: ch.SetColumnComments) -> tuple[Step, ...]:
        comments = ", ".join(
            f"{quote_path(path)} COMMENT {quote_literal(comment or '')}" for path, comment in change.comments
        )
        return (self._alter(change, "column_comments", comments=comments),)

    @steps.register
    def _table_comment(self, change: ch.SetTableComment) -> tuple[Step, ...]:
        return (self._alter(change, "table_comment", comment=quote_literal(change.comment or "")),)

    @steps.register
    def _add_check(self, change: ch.AddCheck) -> tuple[Step, ...]:
        check = change.check
        name = quote_identifier(check.name or "")
        return (self._alter(change, "add_check", name=name, expression=check.expression),)

    @steps.register
    def _drop_check(self, change: ch.DropCheck) -> tuple[Step, ...]:
        return (self._alter(change, "drop_check", name=quote_identifier(change.check.name or "")),)

    @steps.register
    def _add_key(self, change: ch.AddKey) -> tuple[Step, ...]:
        return self.add_key(change, change.key)

    def add_key(self, change: ch.Change, key: Key) -> tuple[Step, ...]:
        """Keep a key: in a property, because open-source Spark has no SQL for it."""
        return (self._set(change, {notes.KEY + key.name: notes.key_to_text(key)}),)

    @steps.register
    def _drop_key(self, change: ch.DropKey) -> tuple[Step, ...]:
        return self.drop_key(change, change.key)

    def drop_key(self, change: ch.Change, key: Key) -> tuple[Step, ...]:
        """Forget a key."""
        return (self._unset(change, notes.KEY + key.name),)

    @steps.register
    def _set_tags(self, change: ch.SetTags) -> tuple[Step, ...]:
        return self.set_tags(change)

    def set_tags(self, change: ch.SetTags) -> tuple[Step, ...]:
        """Keep tags: in properties, because open-source Spark has no SQL for them."""
        if change.column is not None:
            key = notes.COLUMN_TAGS + change.column.casefold()
            return (
                self._set(change, {key: _tags_text(change.after)})
                if change.after
                else self._unset(change, key),
            )
        gone = [notes.TAG + tag for tag in change.before if tag not in change.after]
        values = {
            notes.TAG + tag: value for tag, value in change.after.items() if change.before.get(tag) != value
        }
        steps = (self._set(change, values),) if values else ()
        return (*steps, self._unset(change, *gone)) if gone else steps

    @steps.register
    def _set_clustering(self, change: ch.SetClustering) -> tuple[Step, ...]:
        columns = f"({', '.join(_dotted(key) for key in change.after)})" if change.after else "NONE"
        return (self._alter(change, "cluster_by", columns=columns),)

    @steps.register
    def _repartition(self, change: ch.Repartition) -> tuple[Step, ...]:
        return self.repartition(change)

    def repartition(self, change: ch.Repartition) -> tuple[Step, ...]:
        """Rewrite the table in one commit, then hold NOT NULL again, which no rewrite keeps."""
        columns = ", ".join(quote_identifier(column) for column in change.after)
        marks = {notes.pending_not_null(column): "true" for column in change.not_null}
        rewrite = Step(
            self.statement("repartition", table=self.table(change.table), columns=columns),
            repartition_by=change.after,
        )
        held = [step for column in change.not_null for step in self.hold_not_null(change, (column,))]
        if not marks:
            return (rewrite,)
        return (self._set(change, marks), rewrite, *held, self._unset(change, *marks))

    @steps.register
    def _set_properties(self, change: ch.SetProperties) -> tuple[Step, ...]:
        values = dict(change.values)
        if change.managed:
            values[notes.MANAGED] = notes.managed_to_text(change.managed)
        return (self._set(change, values),)

    @steps.register
    def _unset_properties(self, change: ch.UnsetProperties) -> tuple[Step, ...]:
        if not change.managed:
            return (self._unset(change, *change.keys, notes.MANAGED),)
        managed = {notes.MANAGED: notes.managed_to_text(change.managed)}
        return (self._unset(change, *change.keys), self._set(change, managed))

    @steps.register
    def _enable_feature(self, change: ch.EnableFeature) -> tuple[Step, ...]:
        return (self._set(change, {f"delta.feature.{change.feature}": "supported"}),)

    @steps.register
    def _drop_column(self, change: ch.DropColumn) -> tuple[Step, ...]:
        return (self._alter(change, "drop_column", path=quote_path(change.path)),)


def _column_definition(column: Column) -> str:
    text = f"{quote_identifier(column.name)} {render_type(column.type)}"
    if column.identity is not None:
        kind = "ALWAYS" if column.identity.always else "BY DEFAULT"
        numbers = f"START WITH {int(column.identity.start)} INCREMENT BY {int(column.identity.step)}"
        text += f" GENERATED {kind} AS IDENTITY ({numbers})"
    if column.generated is not None:
        text += f" GENERATED ALWAYS AS ({column.generated})"
    if not column.nullable:
        text += " NOT NULL"
    if column.default is not None:
        text += f" DEFAULT {_default(column.default)}"
    if column.comment:
        text += f" COMMENT {quote_literal(column.comment)}"
    return text


def _default(expression: str) -> str:
    """Parentheses keep everything inside the default; a single literal cannot leave it anyway."""
    return expression if is_single_token(expression) else f"({expression})"


def _layout(table: DeltaTable) -> str:
    if table.partitioned_by:
        return f" PARTITIONED BY ({', '.join(quote_identifier(column) for column in table.partitioned_by)})"
    if table.clustered_by:
        return f" CLUSTER BY ({', '.join(_dotted(key) for key in table.clustered_by)})"
    return ""


def _dotted(path: str) -> str:
    return quote_path(split_path(path))


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(
        f"{quote_literal(key)} = {quote_literal(value)}" for key, value in sorted(values.items())
    )


def _tags_text(tags: Mapping[str, str]) -> str:
    return json.dumps(dict(tags), sort_keys=True, ensure_ascii=False)
