"""The engine over a catalog in memory: order, isolation of failures, reports, number of calls."""

from __future__ import annotations

from dataclasses import replace

import pytest

import deltaplane as dp
from deltaplane.errors import SyncFailedError
from deltaplane.planning.changes import CreateTable
from deltaplane.schema import Column, DeltaTable, ForeignKey, Long, String
from deltaplane.sync import Engine
from deltaplane.testing import InMemoryCatalog


def table(name: str, **values: object) -> DeltaTable:
    columns = [Column("id", Long()), Column("ref", Long())]
    return DeltaTable("dev", "silver", name, columns, **{"primary_key": "id", **values})  # type: ignore[arg-type]


def failing(engine: Engine, registry: dp.Registry) -> dict[str, str]:
    with pytest.raises(SyncFailedError) as failure:
        engine.sync(registry)
    return {entry.table.name: entry.status for entry in failure.value.report.tables}


def test_one_failure_stops_neither_the_others_nor_the_report() -> None:
    """Applied, failed, skipped, unchanged and read_failed stand side by side."""
    catalog = InMemoryCatalog()
    engine = Engine(catalog)
    engine.sync(dp.Registry(table("a_same"), table("e_unreadable")))
    catalog.unreadable["dev.silver.e_unreadable"] = "no permission"
    catalog.fail = lambda change: "disk full" if change.table.name == "c_broken" else None
    registry = dp.Registry(
        table("a_same"),
        table("b_new"),
        table("c_broken"),
        table("d_child", foreign_keys=[ForeignKey("ref", "c_broken")]),
        table("e_unreadable"),
        table("f_grandchild", foreign_keys=[ForeignKey("ref", "d_child")]),
    )
    assert failing(engine, registry) == {
        "a_same": "unchanged",
        "b_new": "applied",
        "c_broken": "failed",
        "d_child": "skipped",
        "e_unreadable": "read_failed",
        "f_grandchild": "skipped",
    }


def test_the_message_of_a_failed_run_shows_cause_statement_and_dependants() -> None:
    """All failures come together, with what to do."""
    catalog = InMemoryCatalog()
    catalog.fail = lambda change: "disk full" if change.table.name == "a" else None
    registry = dp.Registry(table("a"), table("b", foreign_keys=[ForeignKey("ref", "a")]), table("c"))
    with pytest.raises(SyncFailedError) as failure:
        Engine(catalog).sync(registry)
    assert str(failure.value) == (
        "2 of 3 tables could not be brought to their declaration.\n"
        "dev.silver.a: failed\n"
        "  not done: create table with 2 columns\n"
        "  ! disk full\n"
        "    statement: create table with 2 columns\n"
        "\n"
        "dev.silver.b: skipped\n"
        "  not done: create table with 2 columns\n"
        "  ! it depends on dev.silver.a (failed); no statement was run on this table.\n"
        "\n"
        "The other 1 is as declared.\n"
        "Mend the declaration or the table, then run it again: it does only what is missing."
    )


def test_tables_that_others_point_to_are_made_first() -> None:
    """Whatever the alphabet says."""
    catalog = InMemoryCatalog()
    registry = dp.Registry(table("a", foreign_keys=[ForeignKey("ref", "z")]), table("z"), table("m"))
    Engine(catalog).sync(registry)
    made = [change.table.name for change, _ in catalog.executed if isinstance(change, CreateTable)]
    assert made.index("z") < made.index("a")


def test_planning_reads_each_table_once() -> None:
    """A constant number of calls per table, however many tables there are."""
    catalog = InMemoryCatalog()
    engine = Engine(catalog)
    registry = dp.Registry(*(table(f"t{n}") for n in range(40)))
    engine.sync(registry)
    catalog.calls.clear()
    engine.plan(registry)
    assert set(catalog.calls.values()) == {1}
    assert len(catalog.calls) == 40


def test_changes_come_as_creations_adds_changes_and_drops() -> None:
    """Over all tables, alphabetical inside."""
    mapped = {"delta.columnMapping.mode": "name"}
    engine = Engine(InMemoryCatalog())
    engine.sync(dp.Registry(table("a", properties=mapped), table("b", properties=mapped)))
    edited = [
        replace(t, columns=(t.columns[0], Column("z", String()), Column("y", String())), comment="new")
        for t in (table("a", properties=mapped), table("b", properties=mapped))
    ]
    plan = engine.plan(dp.Registry(*edited, table("c")))
    assert [(change.kind, change.table.name, change.subject) for change in plan.changes] == [
        ("create_table", "c", ""),
        ("add_column", "a", "z"),
        ("add_column", "a", "y"),
        ("add_column", "b", "z"),
        ("add_column", "b", "y"),
        ("set_table_comment", "a", ""),
        ("set_table_comment", "b", ""),
        ("drop_column", "a", "ref"),
        ("drop_column", "b", "ref"),
    ]


def test_a_failure_halfway_says_what_was_done_and_how_to_undo_it() -> None:
    """Done, not done, and the RESTORE command."""
    catalog = InMemoryCatalog()
    engine = Engine(catalog)
    engine.sync(dp.Registry(table("a")))
    catalog.fail = lambda change: "too late" if change.kind == "set_properties" else None
    edited = replace(table("a", properties={"k": "v"}), columns=(*table("a").columns, Column("n", Long())))
    with pytest.raises(SyncFailedError) as failure:
        engine.sync(dp.Registry(edited))
    entry = failure.value.report.tables[0]
    assert entry.applied == ("add column n bigint",)
    assert entry.not_applied == ("set k = v",)
    assert entry.restore == "RESTORE TABLE dev.silver.a TO VERSION AS OF 0"


def test_the_author_comes_from_the_argument_the_environment_or_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In this order."""
    monkeypatch.setenv("DELTAPLANE_AUTHOR", "env")
    assert Engine(InMemoryCatalog(), author="me").author == "me"
    assert Engine(InMemoryCatalog()).author == "env"
    monkeypatch.delenv("DELTAPLANE_AUTHOR")
    assert Engine(InMemoryCatalog()).author
