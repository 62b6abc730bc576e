"""Changes as SQL of Databricks: keys, tags and NOT NULL have statements of their own there."""

from __future__ import annotations

from collections.abc import Mapping

from deltaplane.planning import changes as ch
from deltaplane.planning.observed import Key, table_keys
from deltaplane.schema import DeltaTable, QualifiedName
from deltaplane.spark.dialect import Dialect, Naming, Step
from deltaplane.sqltext import load_statements, quote_identifier, quote_literal, quote_path

__all__ = ["DatabricksDialect"]


class DatabricksDialect(Dialect):
    """Writes changes as statements of Databricks."""

    def __init__(self, engine_name: Naming) -> None:
        super().__init__(engine_name)
        self._databricks = load_statements("deltaplane.databricks.sql", "databricks.sql")

    def statement(self, template: str, /, **values: str) -> str:
        """Fill a template of Databricks, or of open-source Spark where they do not differ."""
        if template in self._databricks:
            return self._databricks.render(template, **values)
        return super().statement(template, **values)

    def after_creation(self, change: ch.CreateTable) -> tuple[Step, ...]:
        """Return the keys and tags of a new table, which CREATE TABLE does not take."""
        table = change.declaration
        keys = [step for key in table_keys(table) for step in self.add_key(change, key)]
        tags: list[Step] = []
        for column, values in ((None, table.tags), *((c.name, c.tags) for c in table.columns)):
            if values:
                tags += self.set_tags(ch.SetTags(change.table, column, {}, values))
        return (*keys, *tags)

    def kept_in_properties(self, table: DeltaTable) -> dict[str, str]:
        """Keep nothing in properties: Databricks has SQL for keys and tags."""
        return {}

    def hold_not_null(self, change: ch.Change, path: ch.Path) -> tuple[Step, ...]:
        """Forbid null in a column."""
        return (self._alter(change, "set_not_null", path=quote_path(path)),)

    def add_key(self, change: ch.Change, key: Key) -> tuple[Step, ...]:
        """Add a key as a constraint."""
        values = {
            "name": quote_identifier(key.name),
            "columns": ", ".join(quote_identifier(column) for column in key.columns),
        }
        if key.kind == "foreign":
            target = QualifiedName.parse(key.references or "", catalog=change.table.catalog)
            there = ", ".join(quote_identifier(column) for column in key.referenced_columns)
            values |= {"target": self.table(target), "target_columns": f" ({there})" if there else ""}
        return (self._alter(change, f"add_{key.kind}_key", **values),)

    def drop_key(self, change: ch.Change, key: Key) -> tuple[Step, ...]:
        """Drop a key's constraint."""
        if key.kind == "primary":
            return (self._alter(change, "drop_primary_key"),)
        return (self._alter(change, "drop_key", name=quote_identifier(key.name)),)

    def set_tags(self, change: ch.SetTags) -> tuple[Step, ...]:
        """Set and unset tags."""
        prefix = "" if change.column is None else "column_"
        place = {} if change.column is None else {"column": quote_identifier(change.column)}
        values = {tag: value for tag, value in change.after.items() if change.before.get(tag) != value}
        gone = [tag for tag in change.before if tag not in change.after]
        steps = []
        if values:
            steps.append(self._alter(change, f"set_{prefix}tags", tags=_tags(values), **place))
        if gone:
            keys = ", ".join(quote_literal(tag) for tag in gone)
            steps.append(self._alter(change, f"unset_{prefix}tags", keys=keys, **place))
        return tuple(steps)


def _tags(values: Mapping[str, str]) -> str:
    return ", ".join(
        f"{quote_literal(tag)} = {quote_literal(value)}" for tag, value in sorted(values.items())
    )
