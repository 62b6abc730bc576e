"""The names by which Spark finds tables of the ledger.

The ledger remembers the name under which a table was adopted or created, so that every session on it finds
the table by that name, without a metastore's server.
"""

from __future__ import annotations

import re

from deltaplane import telemetry
from deltaplane.errors import ConfigError, LedgerUnavailable, StatementRefused, TableAlreadyManaged
from deltaplane.ledger.configure import check_name, configure_table, spellings, take_name
from deltaplane.ledger.context import Context
from deltaplane.ledger.model import ManagedTable

__all__ = ["TableNames"]

# As Spark's session catalog has it.
_PART = re.compile(r"\w+", re.ASCII)


class TableNames:
    """Names of namespace and table, as Spark has them.

    Args:
        ctx: The ledger.

    Attributes:
        kept: Whether tables get their names in the ledger; in a session with a metastore that is its affair.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.kept = False
        self._wished: dict[str, str] = {}
        self._found: dict[tuple[str, str], str] = {}

    def wish(self, namespace: str, table: str, root: str) -> None:
        """Note the name of a table that is about to be made: when Delta makes it, nothing tells its name."""
        if self.kept and _PART.fullmatch(namespace) and _PART.fullmatch(table):
            self._wished[root] = f"{namespace}.{table}"

    def of_new(self, root: str) -> str | None:
        """The name that a new table gets in the ledger; None where it was made without one."""
        name = self._wished.get(root)
        try:
            check_name(self._ctx, name, root)
        except ConfigError:
            return None
        return name

    def location(self, namespace: str, table: str) -> str | None:
        """Where the table of a name lies. While the database is away, as far as it was seen before."""
        key = (namespace.lower(), table.lower())
        try:
            found = self._table(namespace, table)
        except LedgerUnavailable as error:
            telemetry.LOGGER.warning("%s.%s: looked up without the ledger, because of: %s", *key, error)
            return self._found.get(key)
        if found is None:
            self._found.pop(key, None)
            return None
        self._found[key] = found.location
        return found.location

    def all(self) -> list[str]:
        """All names that Spark could look up, as namespace.table."""
        try:
            with self._ctx.store.glance() as session:
                rows = session.rows("table_names")
        except LedgerUnavailable as error:
            telemetry.LOGGER.warning("names are listed without the ledger, because of: %s", error)
            return sorted(f"{namespace}.{table}" for namespace, table in self._found)
        return sorted({name for row in rows if (name := _in_spark(row[0])) is not None})

    def drop(self, table: ManagedTable, namespace: str, name: str) -> None:
        """A name is gone from Spark, and the table is still there."""
        if table.name is not None and _in_spark(table.name) == f"{namespace}.{name}".lower():
            take_name(self._ctx, table, f"{namespace}.{name} dropped by Spark")

    def give(self, table: ManagedTable, namespace: str, name: str) -> None:
        """A table that had no name has one in Spark; the ledger keeps it, where nobody else has it there."""
        if not self.kept or not (_PART.fullmatch(namespace) and _PART.fullmatch(name)):
            return
        try:
            configure_table(self._ctx, table, f"{namespace}.{name}", None, None)
        except (ConfigError, TableAlreadyManaged) as error:
            telemetry.LOGGER.warning("%s keeps no name: %s", table.location, error)

    def forget(self, root: str) -> None:
        """Nothing is about to be made at a place any more."""
        self._wished.pop(root, None)

    def rename(self, table: ManagedTable, namespace: str, name: str, other: str) -> None:
        """A table has another name in Spark.

        Raises:
            StatementRefused: The name cannot be kept.
        """
        if table.name is None or _in_spark(table.name) != f"{namespace}.{name}".lower():
            return
        try:
            configure_table(self._ctx, table, f"{namespace}.{other}", None, None)
        except (ConfigError, TableAlreadyManaged) as error:
            raise StatementRefused(str(error)) from error

    def _table(self, namespace: str, name: str) -> ManagedTable | None:
        with self._ctx.store.glance() as session:
            row = session.row("tables_of_name", **spellings(f"{namespace}.{name}"))
        return None if row is None else ManagedTable.from_row(row)


def _in_spark(name: str) -> str | None:
    """A name of the ledger as Spark's session catalog has it; None where it cannot have it."""
    qualified = spellings(name)["qualified"]
    parts = qualified.split(".")
    return qualified if len(parts) == 2 and all(map(_PART.fullmatch, parts)) else None
