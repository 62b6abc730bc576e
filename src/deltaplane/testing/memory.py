"""A catalog in memory that behaves as Delta does, for tests without Spark."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from deltaplane.errors import CatalogError, StatementFailed
from deltaplane.planning import OPEN_SOURCE, Capabilities, ObservedTable
from deltaplane.planning import changes as ch
from deltaplane.planning.compare import uses
from deltaplane.planning.rules import Violations
from deltaplane.planning.simulate import created, simulate
from deltaplane.planning.widening import widening
from deltaplane.schema import Char, QualifiedName, Varchar
from deltaplane.schema.names import join_path
from deltaplane.sync.ports import CommitNote

__all__ = ["InMemoryCatalog"]

Key = tuple[str, str, str]


class InMemoryCatalog:
    """Holds tables as values and refuses what Delta refuses.

    Attributes:
        tables: The tables, by case-folded name.
        executed: Every change that was carried out, with its note.
        calls: How often each table was read.
        violating: Rows that violate a check, by the check's name.
        unreadable: Why a table cannot be read, by its full name.
        fail: Asked before each change; a text it returns is the refusal.
    """

    def __init__(self, capabilities: Capabilities = OPEN_SOURCE) -> None:
        self._capabilities = capabilities
        self._lock = threading.Lock()
        self.schemas: set[tuple[str, str]] = set()
        self.tables: dict[Key, ObservedTable] = {}
        self.executed: list[tuple[ch.Change, CommitNote]] = []
        self.calls: dict[Key, int] = {}
        self.violating: dict[str, Violations] = {}
        self.unreadable: dict[str, str] = {}
        self.fail: Callable[[ch.Change], str | None] = lambda change: None

    @property
    def capabilities(self) -> Capabilities:
        """What the engine it stands for can do."""
        return self._capabilities

    def catalog_of(self, declared: str) -> str:
        """Open-source engines have one catalog; others keep the declared ones apart."""
        return "spark_catalog" if self._capabilities.plain_names_only else declared

    def missing_schemas(self, schemas: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return those schemas that do not exist."""
        return [place for place in schemas if self._place(*place) not in self.schemas]

    def list_schemas(self, catalog: str) -> list[str]:
        """Return the names of the schemas in a catalog."""
        return sorted(
            schema for place, schema in self.schemas if place == self.catalog_of(catalog).casefold()
        )

    def list_tables(self, catalog: str, schema: str) -> list[QualifiedName]:
        """Return the names of the tables in a schema."""
        place = self._place(catalog, schema)
        names = [state.name for key, state in self.tables.items() if key[:2] == place]
        return sorted(replace(name, catalog=catalog) for name in names)

    def read(self, name: QualifiedName) -> ObservedTable | None:
        """Return the table as it is."""
        with self._lock:
            self.calls[self._key(name)] = self.calls.get(self._key(name), 0) + 1
        if str(name) in self.unreadable:
            raise CatalogError(f"{name}: {self.unreadable[str(name)]}")
        return self.tables.get(self._key(name))

    def count_violations(
        self,
        name: QualifiedName,
        columns: Mapping[str, str],
        checks: Mapping[str, str],
        keys: tuple[str, ...],
    ) -> Mapping[str, Violations]:
        """Return the violations that the test has laid down."""
        return {check: self.violating.get(check, Violations(0)) for check in checks}

    def statements(self, change: ch.Change) -> tuple[str, ...]:
        """Return a sentence in place of SQL."""
        return (change.summary,)

    def execute(self, change: ch.Change, note: CommitNote) -> None:
        """Carry a change out, or refuse it as Delta would."""
        refusal = self.fail(change) or self._refusal(change)
        if refusal:
            raise StatementFailed(change.summary, refusal)
        self.executed.append((change, note))
        key = self._key(change.table)
        if isinstance(change, ch.CreateSchema):
            self.schemas.add(key[:2])
        elif isinstance(change, ch.CreateTable):
            self.tables[key] = created(change)
        elif isinstance(change, ch.DropTable):
            del self.tables[key]
        else:
            self.tables[key] = simulate(self.tables[key], change, self._capabilities)

    def begin_rehearsal(self, catalog: str) -> QualifiedName:
        """Make a schema of its own for a rehearsal."""
        place = QualifiedName(catalog, f"deltaplane_rehearsal_{uuid.uuid4().hex[:8]}", "*")
        self.schemas.add(self._key(place)[:2])
        return place

    def clone(self, name: QualifiedName, stage: QualifiedName) -> None:
        """Copy a table."""
        self.tables[self._key(stage)] = self.tables[self._key(name)]

    def end_rehearsal(self, schema: QualifiedName) -> None:
        """Remove the schema of a rehearsal and everything in it."""
        place = self._key(schema)[:2]
        self.schemas.discard(place)
        self.tables = {key: state for key, state in self.tables.items() if key[:2] != place}

    def restore_command(self, name: QualifiedName, version: int) -> str:
        """Return the command that brings a table back to a version."""
        return f"RESTORE TABLE {name} TO VERSION AS OF {version}"

    def _place(self, catalog: str, schema: str) -> tuple[str, str]:
        return (self.catalog_of(catalog).casefold(), schema.casefold())

    def _key(self, name: QualifiedName) -> Key:
        return (*self._place(name.catalog, name.schema), name.name.casefold())

    def _refusal(self, change: ch.Change) -> str | None:
        key = self._key(change.table)
        if isinstance(change, ch.CreateSchema):
            return None
        if isinstance(change, ch.CreateTable):
            if key[:2] not in self.schemas:
                return f"the schema {change.table.schema} does not exist. [SCHEMA_NOT_FOUND]"
            return "the table exists already. [TABLE_OR_VIEW_ALREADY_EXISTS]" if key in self.tables else None
        if key not in self.tables:
            return "the table does not exist. [TABLE_OR_VIEW_NOT_FOUND]"
        return _alter_refusal(change, self.tables[key], self._capabilities)


def _alter_refusal(change: ch.Change, state: ObservedTable, caps: Capabilities) -> str | None:
    if isinstance(change, ch.RenameColumn | ch.DropColumn) and not state.is_mapped:
        return "column mapping is off. [DELTA_UNSUPPORTED_RENAME_COLUMN]"
    if isinstance(change, ch.RenameColumn | ch.DropColumn | ch.ChangeType):
        for check in state.table.checks:
            if uses(check.expression, change.path):
                return f"check {check.name} uses the column. [DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE]"
        if change.path[0].casefold() in state.not_null_checks and len(change.path) == 1:
            return "a check uses the column. [DELTA_CONSTRAINT_DEPENDENT_COLUMN_CHANGE]"
        for column in state.table.columns:
            if column.generated is not None and uses(column.generated, change.path):
                return f"generated column {column.name} uses it. [DELTA_GENERATED_COLUMNS_DEPENDENT]"
    if isinstance(change, ch.DropColumn):
        layout = {c.casefold() for c in (*state.table.partitioned_by, *state.table.clustered_by)}
        if join_path(change.path).casefold() in layout:
            return "it is part of the layout. [DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN]"
    if isinstance(change, ch.ChangeType):
        kind = widening(change.old, change.new)
        enabled = state.table.properties.get("delta.enableTypeWidening", "").casefold() == "true"
        nested_text = len(change.path) > 1 and isinstance(change.old, Char | Varchar)
        if kind == "none" or nested_text or (kind == "feature" and not enabled):
            return f"{change.old} cannot become {change.new}. [DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP]"
    if isinstance(change, ch.ChangeGeneration):
        return "a generated column cannot be changed. [DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP]"
    if isinstance(change, ch.HoldNotNull) and len(change.path) > 1:
        return "NOT NULL cannot be set on a nested field. [DELTA_ALTER_TABLE_CHANGE_COL_NOT_SUPPORTED]"
    if isinstance(change, ch.Repartition) and change.after and "clustering" in state.protocol.features:
        return "the table has been clustered. [DELTA_CLUSTERING_REPLACE_TABLE_WITH_PARTITIONED_TABLE]"
    if isinstance(change, ch.SetClustering) and change.after and state.table.partitioned_by:
        return "the table is partitioned. [DELTA_ALTER_TABLE_CLUSTER_BY_ON_PARTITIONED_TABLE_NOT_ALLOWED]"
    return None
