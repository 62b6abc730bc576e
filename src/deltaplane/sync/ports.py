"""The port between the engine and a catalog. An adapter implements it; `deltaplane.testing` has a suite for
it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from deltaplane.planning import Capabilities, Change, ObservedTable
from deltaplane.planning.rules import Violations
from deltaplane.schema import QualifiedName

__all__ = ["CommitNote", "TableCatalog"]


@dataclass(frozen=True)
class CommitNote:
    """What every commit of a run says about itself, in Delta's user metadata."""

    plan_id: str
    author: str

    def to_text(self) -> str:
        """The note as it is stored."""
        return json.dumps({"deltaplane": {"plan": self.plan_id, "author": self.author}}, sort_keys=True)


class TableCatalog(Protocol):
    """Reads and changes tables. Names are those of the declarations; an adapter maps them to the engine's
    own.

    Every method raises a `CatalogError` when the engine refuses.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What the engine can do."""

    def catalog_of(self, declared: str) -> str:
        """Return the engine's catalog for a declared one."""

    def missing_schemas(self, schemas: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return those (catalog, schema) pairs that do not exist."""

    def list_schemas(self, catalog: str) -> list[str]:
        """Return the names of the schemas in a catalog."""

    def list_tables(self, catalog: str, schema: str) -> list[QualifiedName]:
        """Return the names of the Delta tables in a schema."""

    def read(self, name: QualifiedName) -> ObservedTable | None:
        """Return the table as it is, or None when there is none. Costs a constant number of calls."""

    def count_violations(
        self,
        name: QualifiedName,
        columns: Mapping[str, str],
        checks: Mapping[str, str],
        keys: tuple[str, ...],
    ) -> Mapping[str, Violations]:
        """Count the rows that will violate each check, with samples of the key columns.

        Args:
            name: The table.
            columns: The columns as they will be, each as an expression over those that are there now.
            checks: Expressions over those columns, by the name of the check.
            keys: Columns to show of a violating row.
        """

    def statements(self, change: Change) -> tuple[str, ...]:
        """Return the SQL a change stands for, for people to read."""

    def execute(self, change: Change, note: CommitNote) -> None:
        """Carry a change out."""

    def begin_rehearsal(self, catalog: str) -> QualifiedName:
        """Make a schema of its own for a rehearsal; the name's last part is `*`."""

    def clone(self, name: QualifiedName, stage: QualifiedName) -> None:
        """Make a shallow copy of a table under the name `stage`."""

    def end_rehearsal(self, schema: QualifiedName) -> None:
        """Remove the schema of a rehearsal and everything in it."""

    def restore_command(self, name: QualifiedName, version: int) -> str:
        """Return the SQL that brings a table back to a version."""
