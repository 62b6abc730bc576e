"""The catalog of a Spark session: reads and changes Delta tables through SQL."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deltaplane.errors import CatalogError, StatementFailed
from deltaplane.planning import OPEN_SOURCE, Capabilities, ObservedTable
from deltaplane.planning.changes import Change
from deltaplane.planning.rules import Violations
from deltaplane.schema import QualifiedName
from deltaplane.spark.dialect import Dialect, Step
from deltaplane.spark.failures import ENGINE_ERRORS, explain
from deltaplane.spark.readback import RawTable, observed_from
from deltaplane.sqltext import quote_identifier
from deltaplane.sync.ports import CommitNote

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

__all__ = ["SESSION_CATALOG", "SparkCatalog"]

SESSION_CATALOG = "spark_catalog"
REHEARSAL_SCHEMA = "deltaplane_rehearsal_"
SAMPLES = 5


class SparkCatalog:
    """Delta tables as open-source Spark sees them.

    Args:
        spark: A classic session with Delta.
        catalogs: The engine's catalog for declared ones. A declared catalog that Spark does not know and
            that is
            not named here becomes the session's catalog.
    """

    def __init__(self, spark: SparkSession, catalogs: Mapping[str, str] | None = None) -> None:
        self._spark = _private_session(spark)
        self._catalogs = {name.casefold(): target for name, target in (catalogs or {}).items()}
        self._dialect = self._make_dialect()

    def _make_dialect(self) -> Dialect:
        return Dialect(self._engine_name)

    @property
    def capabilities(self) -> Capabilities:
        """What open-source Spark can do."""
        return OPEN_SOURCE

    def catalog_of(self, declared: str) -> str:
        """Return the engine's catalog for a declared one."""
        mapped = self._catalogs.get(declared.casefold())
        if mapped is not None:
            return mapped
        known = self._spark.conf.get(f"spark.sql.catalog.{declared}", None) is not None
        return declared if known else SESSION_CATALOG

    def missing_schemas(self, schemas: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return those schemas that do not exist, with one call per catalog."""
        present: dict[str, set[str]] = {}
        missing = []
        for catalog, schema in schemas:
            engine = self.catalog_of(catalog)
            if engine not in present:
                present[engine] = {name.casefold() for name in self.list_schemas(catalog)}
            if schema.casefold() not in present[engine]:
                missing.append((catalog, schema))
        return missing

    def list_schemas(self, catalog: str) -> list[str]:
        """Return the names of the schemas in a catalog."""
        engine = quote_identifier(self.catalog_of(catalog))
        rows = self._collect(self._dialect.statement("show_schemas", catalog=engine))
        return sorted(row[0].strip("`").rpartition(".")[2] for row in rows)

    def list_tables(self, catalog: str, schema: str) -> list[QualifiedName]:
        """Return the names of the tables in a schema."""
        place = self._dialect.schema(QualifiedName(catalog, schema, "*"))
        rows = self._collect(self._dialect.statement("show_tables", schema=place))
        names = [QualifiedName(catalog, schema, row["tableName"]) for row in rows if not row["isTemporary"]]
        return sorted(names)

    def read(self, name: QualifiedName) -> ObservedTable | None:
        """Return the table as it is: DESCRIBE DETAIL, one look into its log, one at its catalog entry."""
        row = self._describe(name)
        if row is None:
            return None
        if (row["format"] or "").casefold() != "delta":
            raise CatalogError(
                f"{name} exists and is not a Delta table (format {row['format']}). It was not touched. "
                "Convert it with CONVERT TO DELTA, or declare another name."
            )
        try:
            return observed_from(name, self._raw(name, row))
        except ENGINE_ERRORS as error:
            raise CatalogError(f"{name}: its log could not be read: {explain(error).text}") from None

    def _describe(self, name: QualifiedName) -> Row | None:
        sql = self._dialect.statement("describe_detail", table=self._dialect.table(name))
        try:
            return self._spark.sql(sql).collect()[0]
        except ENGINE_ERRORS as error:
            refusal = explain(error)
            if refusal.not_found:
                return None
            if refusal.condition.startswith("EXPECT_TABLE_NOT_VIEW"):
                raise CatalogError(
                    f"{name} is a view. It was not touched. Declare another name, or drop it."
                ) from None
            raise CatalogError(f"{name}: {refusal.text}") from None

    def _raw(self, name: QualifiedName, row: Row) -> RawTable:
        schema_string, version = self._log_state(name, row["location"])
        return RawTable(
            schema_string=schema_string,
            properties=row["properties"] or {},
            partition_columns=row["partitionColumns"] or (),
            clustering_columns=row["clusteringColumns"] or (),
            comment=row["description"],
            location=row["location"],
            external=self._is_external(name),
            reader=row["minReaderVersion"],
            writer=row["minWriterVersion"],
            features=row["tableFeatures"] or (),
            version=version,
            num_files=row["numFiles"] or 0,
            size_bytes=row["sizeInBytes"] or 0,
        )

    def _log_state(self, name: QualifiedName, location: str) -> tuple[str, int]:
        """Return the raw schema and the version. SQL shows no generation expressions or char lengths."""
        jvm: Any = self._spark._jvm
        log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self._jsession, location)
        none = jvm.scala.Option.empty()
        snapshot = log.update(False, none, none)
        return snapshot.metadata().schemaString(), snapshot.version()

    def _is_external(self, name: QualifiedName) -> bool:
        catalog, schema, table = self._engine_name(name)
        if catalog != SESSION_CATALOG:
            return False
        jvm: Any = self._spark._jvm
        identifier = jvm.org.apache.spark.sql.catalyst.TableIdentifier(table, jvm.scala.Option.apply(schema))
        entry = self._jsession.sessionState().catalog().getTableMetadata(identifier)
        return bool(entry.tableType().name() == "EXTERNAL")

    @property
    def _jsession(self) -> Any:
        return self._spark._jsparkSession

    def count_violations(
        self,
        name: QualifiedName,
        columns: Mapping[str, str],
        checks: Mapping[str, str],
        keys: tuple[str, ...],
    ) -> Mapping[str, Violations]:
        """Count violating rows of all checks in one scan, then fetch samples where there are any."""
        counts = ", ".join(f"count_if(NOT ({text}) OR ({text}) IS NULL)" for text in checks.values())
        source = {
            "columns": ", ".join(f"{text} AS {quote_identifier(column)}" for column, text in columns.items()),
            "table": self._dialect.table(name),
        }
        row = self._collect(self._dialect.statement("count_violations", counts=counts, **source))[0]
        found = {}
        for (check, text), count in zip(checks.items(), row, strict=True):
            samples = self._samples(source, text, keys) if count and keys else ()
            found[check] = Violations(count, samples)
        return found

    def _samples(self, source: Mapping[str, str], expression: str, keys: tuple[str, ...]) -> tuple[str, ...]:
        shown = ", ".join(quote_identifier(key) for key in keys)
        sql = self._dialect.statement(
            "sample_violations", keys=shown, expression=expression, most=str(SAMPLES), **source
        )
        return tuple(", ".join(f"{k} = {v}" for k, v in row.asDict().items()) for row in self._collect(sql))

    def statements(self, change: Change) -> tuple[str, ...]:
        """Return the SQL a change stands for."""
        return tuple(step.sql for step in self._dialect.steps(change))

    def execute(self, change: Change, note: CommitNote) -> None:
        """Run the statements of a change; each commit carries the note as user metadata."""
        self._spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", note.to_text())
        for number, step in enumerate(self._dialect.steps(change)):
            try:
                self._run(step, change.table)
            except StatementFailed as failure:
                failure.statements_done = number
                raise

    def _run(self, step: Step, name: QualifiedName) -> None:
        try:
            if step.repartition_by is None:
                self._spark.sql(step.sql)
            else:
                self._repartition(name, step.repartition_by)
        except ENGINE_ERRORS as error:
            refusal = explain(error)
            raise StatementFailed(step.sql, refusal.text, concurrent=refusal.concurrent) from None

    def _repartition(self, name: QualifiedName, columns: tuple[str, ...]) -> None:
        """Overwrite the table with itself: one commit that keeps properties, checks and comments."""
        table = self._dialect.table(name)
        writer = (
            self._spark.table(table).write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        )
        # The writer reads these names as paths, so that one with a dot or a backtick has to be quoted.
        names = [column if column.isidentifier() else quote_identifier(column) for column in columns]
        (writer.partitionBy(*names) if names else writer).saveAsTable(table)

    def begin_rehearsal(self, catalog: str) -> QualifiedName:
        """Make a schema of its own for a rehearsal."""
        place = QualifiedName(catalog, REHEARSAL_SCHEMA + uuid.uuid4().hex[:8], "*")
        self._command(self._dialect.statement("create_schema", schema=self._dialect.schema(place)))
        return place

    def clone(self, name: QualifiedName, stage: QualifiedName) -> None:
        """Make a shallow copy, which shares the data files and has a log of its own."""
        sql = self._dialect.statement(
            "shallow_clone", stage=self._dialect.table(stage), table=self._dialect.table(name)
        )
        self._command(sql)

    def end_rehearsal(self, schema: QualifiedName) -> None:
        """Remove the schema of a rehearsal. Only one that a rehearsal made is ever removed."""
        if not schema.schema.startswith(REHEARSAL_SCHEMA):
            raise CatalogError(f"{schema.schema} is not the schema of a rehearsal. It was not touched.")
        self._command(self._dialect.statement("drop_schema", schema=self._dialect.schema(schema)))

    def restore_command(self, name: QualifiedName, version: int) -> str:
        """Return the SQL that brings a table back to a version."""
        return self._dialect.statement("restore", table=self._dialect.table(name), version=str(int(version)))

    def _engine_name(self, name: QualifiedName) -> tuple[str, ...]:
        return (self.catalog_of(name.catalog), name.schema, name.name)

    def _collect(self, sql: str) -> list[Row]:
        try:
            return self._spark.sql(sql).collect()
        except ENGINE_ERRORS as error:
            raise CatalogError(f"{explain(error).text} (statement: {sql})") from None

    def _command(self, sql: str) -> None:
        try:
            self._spark.sql(sql)
        except ENGINE_ERRORS as error:
            refusal = explain(error)
            raise StatementFailed(sql, refusal.text, concurrent=refusal.concurrent) from None


def _private_session(spark: SparkSession) -> SparkSession:
    """Clone the session, so that settings made here (the commit note, no ${…}) never show in the user's
    own.
    """
    from pyspark.sql import SparkSession as ClassicSession

    jsession = getattr(spark, "_jsparkSession", None)
    if jsession is None:
        raise CatalogError(
            "This is a Spark Connect session, and planning needs a classic one, which runs in the "
            "driver. Nothing was "
            "changed. Open one with dp.spark_session(), or pass the driver's own session."
        )
    private = ClassicSession(spark.sparkContext, jsession.cloneSession())
    private.conf.set("spark.sql.variable.substitute", "false")
    # Literals are written with backslash escapes; under this setting a quote would end them too early.
    private.conf.set("spark.sql.parser.escapedStringLiterals", "false")
    return private
