"""Unity Catalog through a Spark session on Databricks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from deltaplane.databricks.dialect import DatabricksDialect
from deltaplane.errors import CatalogError
from deltaplane.planning import DATABRICKS, Capabilities, ObservedTable
from deltaplane.planning.observed import Key
from deltaplane.schema import Column, Identity, QualifiedName
from deltaplane.spark.catalog import SparkCatalog
from deltaplane.spark.dialect import Dialect
from deltaplane.spark.readback import RawTable
from deltaplane.sqltext import quote_identifier, quote_literal

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

__all__ = ["DatabricksCatalog", "is_databricks"]

_KINDS = {"PRIMARY KEY": "primary", "FOREIGN KEY": "foreign", "UNIQUE": "unique"}


def is_databricks(spark: SparkSession) -> bool:
    """Tell whether a session runs on Databricks."""
    if os.environ.get("DATABRICKS_RUNTIME_VERSION"):
        return True
    return spark.conf.get("spark.databricks.clusterUsageTags.sparkVersion", None) is not None


class DatabricksCatalog(SparkCatalog):
    """Delta tables as Unity Catalog sees them. Reads each table with five calls."""

    def _make_dialect(self) -> Dialect:
        return DatabricksDialect(self._engine_name)

    @property
    def capabilities(self) -> Capabilities:
        """What Databricks can do."""
        return DATABRICKS

    def catalog_of(self, declared: str) -> str:
        """Return the engine's catalog: the declared one, unless configuration says otherwise."""
        return self._catalogs.get(declared.casefold(), declared)

    def read(self, name: QualifiedName) -> ObservedTable | None:
        """Return the table as it is, with what only SHOW CREATE TABLE knows of its columns."""
        observed = super().read(name)
        if observed is None:
            return None
        rows = self._collect(self._dialect.statement("show_create", table=self._dialect.table(name)))
        columns = _with_generation(observed.table.columns, rows[0][0])
        return replace(observed, table=replace(observed.table, columns=columns))

    def _raw(self, name: QualifiedName, row: Row) -> RawTable:
        values = {
            "catalog": quote_identifier(self.catalog_of(name.catalog)),
            "schema": quote_literal(name.schema.lower()),
            "table": quote_literal(name.name.lower()),
        }
        keys = _keys(self._collect(self._dialect.statement("list_keys", **values)))
        tags = _tags(self._collect(self._dialect.statement("list_tags", **values)))
        return replace(super()._raw(name, row), keys=keys, tags=tags)

    def _log_state(self, name: QualifiedName, location: str) -> tuple[str, int]:
        """Return the schema as Spark shows it; the log itself is out of reach on Databricks."""
        table = self._dialect.table(name)
        history = self._collect(self._dialect.statement("latest_version", table=table))
        return self._spark.table(table).schema.json(), history[0][0] if history else 0

    def _is_external(self, name: QualifiedName) -> bool:
        return False


def _keys(rows: list[Row]) -> tuple[Key, ...]:
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        entry = found.setdefault(
            row["constraint_name"], {"kind": row["constraint_type"], "columns": [], "to": []}
        )
        if row["column_name"] not in entry["columns"]:
            entry["columns"].append(row["column_name"])
        if row["to_table"]:
            entry["target"] = str(QualifiedName(row["to_catalog"], row["to_schema"], row["to_table"]))
            if row["to_column"] not in entry["to"]:
                entry["to"].append(row["to_column"])
    return tuple(
        Key(_KINDS[e["kind"]], name, tuple(e["columns"]), e.get("target"), tuple(e["to"]))
        for name, e in sorted(found.items())
        if e["kind"] in _KINDS
    )


def _tags(rows: list[Row]) -> Mapping[str | None, Mapping[str, str]]:
    found: dict[str | None, dict[str, str]] = {None: {}}
    for row in rows:
        found.setdefault(row["column_name"], {})[row["tag_name"]] = row["tag_value"] or ""
    return found


def _with_generation(columns: tuple[Column, ...], ddl: str) -> tuple[Column, ...]:
    """Add generation expressions and identities, which only the DDL text shows."""
    try:
        tree = sqlglot.parse_one(ddl, dialect="databricks")
    except SqlglotError as error:
        raise CatalogError(
            f"SHOW CREATE TABLE gave text that cannot be read: {str(error).splitlines()[0]}"
        ) from None
    definitions = {node.name.casefold(): node for node in tree.find_all(exp.ColumnDef)}
    return tuple(_generated(column, definitions.get(column.name.casefold())) for column in columns)


def _generated(column: Column, definition: exp.ColumnDef | None) -> Column:
    for constraint in definition.constraints if definition is not None else ():
        kind = constraint.kind
        if isinstance(kind, exp.ComputedColumnConstraint):
            return replace(column, generated=kind.this.sql(dialect="databricks"))
        if isinstance(kind, exp.GeneratedAsIdentityColumnConstraint):
            if kind.expression:
                return replace(column, generated=kind.expression.sql(dialect="databricks"))
            start, step = (
                int(part.name) if part else 1 for part in (kind.args.get("start"), kind.args.get("increment"))
            )
            return replace(column, identity=Identity(start, step, always=bool(kind.this)))
    return column
