"""What every catalog must do. Subclass `CatalogBehaviours` and give it two fixtures.

    class TestMyCatalog(CatalogBehaviours):
        @pytest.fixture
        def engine(self) -> Engine: ...      # an engine on an empty or shared catalog

        @pytest.fixture
        def schema(self) -> str: ...         # a schema name nobody else uses

Every method is a test of pytest; each states one behaviour.
"""

from __future__ import annotations

from dataclasses import replace

from deltaplane.errors import PlanStale, SyncFailedError
from deltaplane.planning.changes import AddColumn, CreateTable
from deltaplane.schema import (
    Array,
    Check,
    Column,
    Decimal,
    DeltaTable,
    Field,
    ForeignKey,
    Integer,
    Long,
    Registry,
    String,
    Struct,
)
from deltaplane.sync import Engine

__all__ = ["CatalogBehaviours"]

MAPPED = {"delta.columnMapping.mode": "name"}


def _customers(schema: str) -> DeltaTable:
    columns = [Column("id", Long(), nullable=False), Column("name", String(), comment="it's ${raw}")]
    return DeltaTable("dev", schema, "customers", columns, primary_key="id", properties=MAPPED)


def _orders(schema: str) -> DeltaTable:
    columns = [Column("id", Long(), nullable=False), Column("customer_id", Long())]
    keys = [ForeignKey("customer_id", "customers")]
    return DeltaTable("dev", schema, "orders", columns, primary_key="id", foreign_keys=keys)


class CatalogBehaviours:
    """The behaviours. Nothing here knows which engine it talks to."""

    def test_a_missing_schema_is_a_planned_change(self, engine: Engine, schema: str) -> None:
        """The schema comes first, then its tables."""
        plan = engine.plan(Registry(_customers(schema)))
        assert [change.kind for change in plan.changes] == ["create_schema", "create_table"]

    def test_planning_changes_nothing(self, engine: Engine, schema: str) -> None:
        """Two plans in a row are the same."""
        registry = Registry(_customers(schema))
        assert engine.plan(registry) == engine.plan(registry)

    def test_after_a_sync_there_is_nothing_left_to_do(self, engine: Engine, schema: str) -> None:
        """Everything that was declared is read back as declared."""
        registry = Registry(_customers(schema), _orders(schema))
        report = engine.sync(registry)
        assert {entry.status for entry in report.tables} == {"applied"}
        assert engine.plan(registry).is_empty
        assert {entry.status for entry in engine.sync(registry).tables} == {"unchanged"}

    def test_an_edit_is_applied_and_read_back(self, engine: Engine, schema: str) -> None:
        """Add, rename, reorder, comment, check, tag and property in one go."""
        before = _customers(schema)
        engine.sync(Registry(before))
        after = replace(
            before,
            columns=(
                Column("email", String(), comment="new"),
                Column("id", Long(), nullable=False),
                Column("full_name", String(), renamed_from="name"),
                Column("lines", Array(Struct([Field("price", Decimal(10, 2)), Field("n", Integer())]))),
            ),
            checks=(Check("id > 0", name="positive"),),
            properties={**MAPPED, "team": "blue"},
            tags={"tier": "gold"},
            comment="who buys",
        )
        registry = Registry(after)
        engine.sync(registry)
        again = engine.plan(registry)
        assert again.changes == ()

    def test_a_not_null_column_with_a_default_is_read_back_as_not_null(
        self, engine: Engine, schema: str
    ) -> None:
        """However the engine holds it."""
        before = _customers(schema)
        engine.sync(Registry(before))
        added = Column("state", String(), nullable=False, default="'new'")
        registry = Registry(replace(before, columns=(*before.columns, added)))
        plan = engine.plan(registry)
        assert any(isinstance(change, AddColumn) for change in plan.changes)
        engine.sync(registry)
        assert engine.plan(registry).is_empty

    def test_a_blocked_table_runs_nothing_and_the_others_go_on(self, engine: Engine, schema: str) -> None:
        """A dropped column is refused, a new table is created all the same."""
        before = _customers(schema)
        engine.sync(Registry(before))
        smaller = replace(before, columns=before.columns[:1])
        other = DeltaTable("dev", schema, "other", [Column("a", Integer())])
        try:
            engine.sync(Registry(smaller, other))
        except SyncFailedError as failure:
            statuses = {entry.table.name: entry.status for entry in failure.report.tables}
        else:
            raise AssertionError("the drop was not refused")
        assert statuses == {"customers": "blocked", "other": "applied"}
        assert engine.plan(Registry(before, other)).is_empty

    def test_a_waiver_lets_the_change_run_and_is_reported(self, engine: Engine, schema: str) -> None:
        """The reason stands in the report."""
        before = _customers(schema)
        engine.sync(Registry(before))
        registry = Registry(replace(before, columns=before.columns[:1]))
        registry.waive("DS102", f"{schema}.customers", column="name", reason="moved to profiles")
        report = engine.sync(registry)
        assert report.tables[0].status == "applied"
        assert [f.waived for f in report.tables[0].findings if f.code == "DS102"] == ["moved to profiles"]
        assert engine.plan(registry).is_empty

    def test_a_stale_plan_is_refused(self, engine: Engine, schema: str) -> None:
        """A plan made before somebody else's change is not applied after it."""
        before = _customers(schema)
        engine.sync(Registry(before))
        old_plan = engine.plan(Registry(replace(before, comment="one")))
        engine.sync(Registry(replace(before, comment="two")))
        refusal = None
        try:
            engine.apply(old_plan)
        except PlanStale as stale:
            refusal = str(stale)
        assert refusal is not None, "the stale plan was applied"
        assert "PL101" in refusal
        assert engine.plan(Registry(replace(before, comment="two"))).is_empty

    def test_a_rehearsal_leaves_no_trace(self, engine: Engine, schema: str) -> None:
        """The same statements run on a copy, and the table stays as it is."""
        before = _customers(schema)
        engine.sync(Registry(before))
        new = DeltaTable("dev", schema, "fresh", [Column("a", Integer())])
        registry = Registry(replace(before, comment="rehearsed"), new)
        plan = engine.plan(registry)
        report = engine.rehearse(plan)
        assert {entry.status for entry in report.tables} == {"applied"}
        assert engine.plan(registry) == plan

    def test_a_table_that_is_no_longer_declared_is_dropped_only_with_consent(
        self, engine: Engine, schema: str
    ) -> None:
        """And only when it carries the registry's own mark."""
        ours = DeltaTable("dev", schema, "ours", [Column("a", Integer())])
        kept = DeltaTable("dev", schema, "kept", [Column("a", Integer())])
        foreign = DeltaTable("dev", schema, "foreign", [Column("a", Integer())])
        engine.sync(Registry(foreign, owner="somebody else"))
        engine.sync(Registry(ours, kept, owner="team a"))
        assert engine.plan(Registry(kept)).is_empty
        registry = Registry(kept, owner="team a")
        blocked = engine.plan(registry)
        assert [finding.code for finding in blocked.findings] == ["DS101"]
        assert blocked.is_blocked
        registry.waive("DS101", f"{schema}.ours", reason="empty since May")
        engine.sync(registry)
        left = {name.name for name in engine.catalog.list_tables("dev", schema)}
        assert left == {"kept", "foreign"}

    def test_pulled_declarations_plan_to_nothing(self, engine: Engine, schema: str) -> None:
        """What is read back is a declaration of what is there."""
        engine.sync(Registry(_customers(schema), _orders(schema)))
        tables, unreadable = engine.pull("dev", schema)
        assert unreadable == {}
        assert engine.plan(Registry(*tables)).is_empty

    def test_dependants_of_a_blocked_table_are_skipped(self, engine: Engine, schema: str) -> None:
        """A table whose foreign key points to a table that could not be made is not made either."""
        wrong = replace(_customers(schema), properties={"delta.noSuchProperty": "1"})
        try:
            engine.sync(Registry(wrong, _orders(schema)))
        except SyncFailedError as failure:
            statuses = {entry.table.name: entry.status for entry in failure.report.tables}
        else:
            raise AssertionError("nothing was refused")
        assert statuses["customers"] in ("blocked", "failed")
        assert statuses["orders"] == "skipped"
        plan = engine.plan(Registry(_customers(schema), _orders(schema)))
        assert {type(change) for change in plan.changes if change.table.name != "*"} == {CreateTable}
