"""The engine: read, plan, validate, execute, report."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace

from deltaplane.errors import CatalogError, DeltaplaneError, PlanStale, SyncFailedError
from deltaplane.planning import ObservedTable, Plan, TablePlan, plan_drop, plan_table
from deltaplane.planning.changes import AddCheck, Change, CreateSchema, HoldNotNull
from deltaplane.planning.compare import DEFAULT_OWNER, compare
from deltaplane.planning.observed import not_null_constraint, table_keys
from deltaplane.planning.rules import Finding, Violations, finding
from deltaplane.schema import DeltaTable, QualifiedName, Registry, Waiver
from deltaplane.schema.expressions import references
from deltaplane.sqltext import quote_identifier
from deltaplane.sync.after import columns_after
from deltaplane.sync.execute import Execution, execute_plan
from deltaplane.sync.ports import CommitNote, TableCatalog
from deltaplane.sync.rehearse import rehearse_plan
from deltaplane.sync.report import Report

__all__ = ["Engine", "Progress"]

READERS = 8
Progress = Callable[[str], None]
Key = tuple[str, str, str]


@dataclass(frozen=True)
class _Unreadable:
    """A table that could not be read, and why."""

    reason: str


Observation = ObservedTable | _Unreadable | None


class Engine:
    """Brings the tables of a catalog to their declarations.

    Args:
        catalog: The adapter to work through.
        author: Who is said to have made the changes; left out, DELTAPLANE_AUTHOR or the user's name.
        waivers: Rules set aside by configuration, beside those of the registry.
        progress: Called with a sentence before each longer piece of work.
    """

    def __init__(
        self,
        catalog: TableCatalog,
        *,
        author: str | None = None,
        waivers: Iterable[Waiver] = (),
        progress: Progress | None = None,
    ) -> None:
        self.catalog = catalog
        self.author = author or os.environ.get("DELTAPLANE_AUTHOR") or _user()
        self.waivers = tuple(waivers)
        self._progress = progress or (lambda text: None)

    def plan(self, registry: Registry) -> Plan:
        """Say what would change, without changing anything.

        Raises:
            RegistryError: The declarations contradict each other.
        """
        depends = registry.dependencies()
        registry.merged_names({t.catalog: self.catalog.catalog_of(t.catalog) for t in registry})
        tables = registry.tables
        schemas = self._missing_schemas(tables)
        self._progress(f"reading {len(tables)} tables")
        absent = {(c.casefold(), s.casefold()) for c, s in schemas}
        present = [t for t in tables if (t.catalog.casefold(), t.schema.casefold()) not in absent]
        observed = dict.fromkeys((t.qualified_name.key for t in tables), None) | self._observe(
            [t.qualified_name for t in present]
        )
        self._progress("comparing")
        waivers = (*self.waivers, *registry.waivers)
        owner = registry.owner or DEFAULT_OWNER
        entries = [
            self._plan_one(table, observed[table.qualified_name.key], owner, waivers, registry, depends)
            for table in tables
        ]
        if registry.owner is not None:
            entries += self._plan_orphans(registry, present, waivers)
        entries.sort(key=lambda entry: entry.table.key)
        creations = tuple(CreateSchema(QualifiedName(c, s, "*")) for c, s in sorted(schemas))
        return Plan(tuple(entries), creations, self.catalog.capabilities.engine)

    def rehearse(self, plan: Plan) -> Report:
        """Carry a plan out on shallow clones, and throw them away. The tables themselves are not touched."""
        self._progress("rehearsing on shallow clones")
        return rehearse_plan(plan, self.catalog, self._note(plan), self._progress)

    def apply(self, plan: Plan) -> Report:
        """Carry out a plan that was made earlier.

        Raises:
            PlanStale: A table is no longer as it was (PL101). Nothing was applied.
            SyncFailedError: A table failed or was blocked; its `.report` says everything.
        """
        changing = [entry for entry in plan.tables if entry.changes]
        now = self._observe([entry.table for entry in changing])
        stale = [entry for entry in changing if not self._is_fresh(entry, now[entry.table.key])]
        unwaived = [f for f in (self._stale_finding(entry) for entry in stale) if f.blocks]
        if unwaived:
            names = ", ".join(str(f.table) for f in unwaived)
            raise PlanStale(
                f"PL101: {names} changed since the plan {plan.plan_id} was made. Nothing was applied. "
                "Make the plan again and look at it: deltaplane plan"
            )
        return self._execute(plan, {entry.table.key for entry in stale})

    def sync(self, registry: Registry) -> Report:
        """Read, plan, validate, execute and report, in one go.

        Raises:
            SyncFailedError: At least one table could not be read, was blocked, failed or was skipped.
        """
        return self._execute(self.plan(registry), set())

    def pull(self, catalog: str, *schemas: str) -> tuple[list[DeltaTable], dict[str, str]]:
        """Return the declarations of existing tables, and why others could not be read.

        Args:
            catalog: The catalog to declare them in.
            *schemas: The schemas to read; left out, all of the catalog.
        """
        places = schemas or self.catalog.list_schemas(catalog)
        names = [name for schema in places for name in self.catalog.list_tables(catalog, schema)]
        self._progress(f"reading {len(names)} tables")
        observed = self._observe(names)
        tables, failures = [], {}
        for name in names:
            state = observed[name.key]
            if isinstance(state, ObservedTable):
                # Where a managed table lives is the catalog's business, and differs from machine to machine.
                tables.append(state.table if state.external else replace(state.table, location=None))
            elif isinstance(state, _Unreadable):
                failures[str(name)] = state.reason
        pulled = {table.qualified_name.key for table in tables}
        for table in tables:
            for key in table_keys(table):
                target = QualifiedName.parse(key.references) if key.references else table.qualified_name
                if target.key not in pulled:
                    pointing = f"{table.qualified_name} points to it with a foreign key"
                    reason = f"{pointing}: pull {target.schema} too."
                    failures[str(target)] = reason
        return tables, failures

    def _execute(self, plan: Plan, accepted_stale: set[Key]) -> Report:
        execution = Execution(self.catalog, self._note(plan), self._progress, accepted_stale)
        report = execute_plan(plan, execution)
        if not report.ok:
            raise SyncFailedError(report)
        return report

    def _note(self, plan: Plan) -> CommitNote:
        return CommitNote(plan.plan_id, self.author)

    def _missing_schemas(self, tables: Sequence[DeltaTable]) -> list[tuple[str, str]]:
        places: dict[tuple[str, str], tuple[str, str]] = {}
        for table in tables:
            places.setdefault(
                (table.catalog.casefold(), table.schema.casefold()), (table.catalog, table.schema)
            )
        return self.catalog.missing_schemas(sorted(places.values()))

    def _observe(self, names: Sequence[QualifiedName]) -> dict[Key, Observation]:
        """Read tables in parallel. One that cannot be read fails alone."""

        def read(name: QualifiedName) -> Observation:
            try:
                return self.catalog.read(name)
            except DeltaplaneError as error:
                return _Unreadable(str(error))

        if not names:
            return {}
        with ThreadPoolExecutor(max_workers=min(READERS, len(names))) as pool:
            return dict(zip((name.key for name in names), pool.map(read, names), strict=True))

    def _plan_one(
        self,
        table: DeltaTable,
        observed: Observation,
        owner: str,
        waivers: tuple[Waiver, ...],
        registry: Registry,
        depends: dict[Key, frozenset[Key]],
    ) -> TablePlan:
        name = table.qualified_name
        targets = _names(registry, depends[name.key] - {name.key})
        if isinstance(observed, _Unreadable):
            return TablePlan(name, depends_on=targets, error=observed.reason)
        inbound = _names(registry, {key for key, to in depends.items() if name.key in to and key != name.key})
        try:
            violations = self._violations(table, observed)
        except CatalogError as error:
            return TablePlan(name, depends_on=targets, error=str(error))
        return plan_table(
            table,
            observed,
            self.catalog.capabilities,
            owner=owner,
            waivers=waivers,
            violations=violations,
            inbound=inbound,
            depends_on=targets,
        )

    def _violations(self, table: DeltaTable, observed: ObservedTable | None) -> dict[str, Violations]:
        """Ask for violating rows only where a new CHECK meets rows that exist."""
        if observed is None or observed.num_files == 0:
            return {}
        checks = _new_checks(compare(table, observed, self.catalog.capabilities))
        columns = columns_after(table, observed)
        askable = {name: text for name, text in checks.items() if _only_uses(text, columns)}
        if not askable:
            return {}
        self._progress(f"looking for rows of {table.qualified_name} that violate new checks")
        keys = tuple(c.name for c in table.columns if c.name in table.primary_key and c.name in columns)
        used = {path[0] for text in askable.values() for path in references(text)}
        needed = {c: text for c, text in columns.items() if c in keys or c.casefold() in used}
        return dict(self.catalog.count_violations(table.qualified_name, needed, askable, keys))

    def _plan_orphans(
        self, registry: Registry, present: Sequence[DeltaTable], waivers: tuple[Waiver, ...]
    ) -> list[TablePlan]:
        """Plan the end of tables that carry the registry's mark and are no longer declared."""
        places = sorted({(table.catalog, table.schema) for table in present})
        names = [
            name for place in places for name in self.catalog.list_tables(*place) if name not in registry
        ]
        entries = []
        for state in self._observe(names).values():
            if isinstance(state, ObservedTable) and state.owner == registry.owner:
                entries.append(plan_drop(state, self.catalog.capabilities, waivers))
        return entries

    def _is_fresh(self, entry: TablePlan, now: Observation) -> bool:
        if isinstance(now, _Unreadable):
            return False
        return (now.fingerprint if now is not None else "") == entry.fingerprint

    def _stale_finding(self, entry: TablePlan) -> Finding:
        return finding("PL101", entry.table, None, "it changed since the plan was made.").waived_by(
            self.waivers
        )


def _new_checks(changes: Iterable[Change]) -> dict[str, str]:
    found: dict[str, str] = {}
    for change in changes:
        if isinstance(change, AddCheck) and not change.restored:
            found[change.check.name or ""] = change.check.expression
        if isinstance(change, HoldNotNull) and not change.resumed and len(change.path) == 1:
            found[not_null_constraint(change.path[0])] = f"{quote_identifier(change.path[0])} IS NOT NULL"
    return found


def _only_uses(expression: str, columns: Mapping[str, str]) -> bool:
    known = {column.casefold() for column in columns}
    return all(path[0] in known for path in references(expression))


def _names(registry: Registry, keys: Iterable[Key]) -> tuple[QualifiedName, ...]:
    by_key = {table.qualified_name.key: table.qualified_name for table in registry}
    return tuple(by_key[key] for key in sorted(keys))


def _user() -> str:
    with suppress(KeyError, OSError):
        return getpass.getuser()
    return "unknown"
