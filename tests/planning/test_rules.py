"""Every rule: a case that triggers it, and the same case waived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

import deltaplane as dp
from deltaplane.errors import PlanStale
from deltaplane.planning import RULES, Plan
from deltaplane.planning.rules import Violations
from deltaplane.schema import (
    Array,
    Boolean,
    Check,
    Column,
    DeltaTable,
    Field,
    ForeignKey,
    Integer,
    Long,
    String,
    Struct,
)
from deltaplane.sync import Engine
from deltaplane.testing import InMemoryCatalog

MAPPED = {"delta.columnMapping.mode": "name"}
WIDENING = {"delta.enableTypeWidening": "true"}
ID = Column("id", Long(), nullable=False)
NOTE = Column("note", String())


def table(*columns: Column, name: str = "t", **values: object) -> DeltaTable:
    return DeltaTable("dev", "silver", name, columns or (ID, NOTE), **values)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Case:
    """A table as it is and as it should be, and the rule that has something to say about it."""

    code: str
    before: DeltaTable | None
    after: DeltaTable | None
    others: tuple[DeltaTable, ...] = ()
    also: tuple[str, ...] = ()
    arrange: Callable[[InMemoryCatalog], None] = lambda catalog: None


def _with_rows(catalog: InMemoryCatalog) -> None:
    for key, state in catalog.tables.items():
        catalog.tables[key] = replace(state, num_files=3, size_bytes=40_000_000)


def _violated(catalog: InMemoryCatalog) -> None:
    _with_rows(catalog)
    catalog.violating["positive"] = Violations(2, ("id = 7", "id = 9"))


WIDE = [Column(f"c{n}", Integer()) for n in range(40)]
CASES = [
    Case("DS101", table(name="gone"), None, (table(name="kept"),)),
    Case("DS102", table(ID, NOTE, properties=MAPPED), table(ID, properties=MAPPED)),
    Case(
        "DS103",
        table(ID, NOTE, properties=MAPPED),
        table(ID, Column("text", String()), properties=MAPPED),
        also=("DS102",),
    ),
    Case("DS104", table(), table(ID, Column("text", String(), renamed_from="note")), also=("PR101",)),
    Case(
        "DP101", table(properties=MAPPED, clustered_by="note"), table(ID, properties=MAPPED), also=("DS102",)
    ),
    Case(
        "DP102",
        table(ID, Column("n", Integer()), checks=["n IS NULL OR n > 0"], properties=WIDENING),
        table(ID, Column("n", Long()), checks=["n IS NULL OR n > 0"], properties=WIDENING),
    ),
    Case(
        "DP103",
        table(NOTE, properties=MAPPED),
        table(Column("n", Long()), properties=MAPPED),
        also=("DS102",),
    ),
    Case("TY101", table(), table(ID, Column("note", Integer()))),
    Case("TY102", table(ID, Column("n", Integer())), table(ID, Column("n", Long())), also=("PR101",)),
    Case(
        "TY103",
        table(Column("n", Integer()), properties=WIDENING),
        table(Column("n", "double"), properties=WIDENING),
    ),
    Case(
        "TY104",
        table(
            Column("n", Integer()), properties={**WIDENING, "delta.universalFormat.enabledFormats": "iceberg"}
        ),
        table(
            Column("n", Long()), properties={**WIDENING, "delta.universalFormat.enabledFormats": "iceberg"}
        ),
    ),
    Case("NL101", table(), table(ID, NOTE, Column("n", Integer(), nullable=False))),
    Case("NL102", table(), table(ID, replace(NOTE, nullable=False))),
    Case("CK101", table(), table(checks=[Check("id > 0", name="positive")]), arrange=_violated),
    Case("CK102", table(), table(checks=["id > rand()"])),
    Case("CK103", table(), table(checks=["note <> ''"])),
    Case("DF101", table(), table(ID, NOTE, Column("n", Integer(), default="0"))),
    Case("GN101", table(), table(ID, replace(NOTE, generated="cast(id AS STRING)"))),
    Case("PR101", table(), table(properties={"delta.enableDeletionVectors": "true"})),
    Case("PR102", table(), table(properties={"delta.enableChangeDataFeed": "true"})),
    Case("PR103", table(properties=MAPPED), table(properties={"delta.columnMapping.mode": "none"})),
    Case("LY101", table(), table(partitioned_by="note")),
    Case("LY102", table(*WIDE), table(*WIDE, clustered_by="c39")),
    Case("LY103", table(), table(clustered_by="id"), arrange=_with_rows),
    Case("LC101", table(location="/lake/a"), table(location="/lake/b")),
    Case("PP101", table(), table(properties={"delta.targetFileSize": "1mb"})),
    Case("PP102", table(), table(properties={"delta.logRetentionDuration": "interval 7 days"})),
    Case(
        "FK101",
        table(primary_key="id", unique=[("note",)]),
        table(primary_key="note"),
        (table(Column("ref", Long()), name="child", foreign_keys=[ForeignKey("ref", "t", "id")]),),
    ),
    Case("NM101", table(ID, Column("Note", String()), properties=MAPPED), table(properties=MAPPED)),
]


def prepare(case: Case, *waived: str) -> tuple[Engine, dp.Registry]:
    catalog = InMemoryCatalog()
    engine = Engine(catalog)
    existing = [t for t in (case.before, *case.others) if t is not None]
    engine.sync(dp.Registry(*existing, owner="us"))
    case.arrange(catalog)
    registry = dp.Registry(*(t for t in (case.after, *case.others) if t is not None), owner="us")
    name = (case.before or case.after).name  # type: ignore[union-attr]
    for code in waived:
        registry.waive(code, f"silver.{name}", reason="agreed on Monday")
    return engine, registry


def codes(plan: Plan) -> set[str]:
    return {finding.code for finding in plan.findings}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_the_rule_is_triggered_with_a_remedy(case: Case) -> None:
    """An error blocks the table and runs nothing; a warning or note does not."""
    engine, registry = prepare(case, *case.also)
    plan = engine.plan(registry)
    found = [finding for finding in plan.findings if finding.code == case.code]
    assert found, f"{case.code} was not triggered, but {codes(plan)}"
    assert all(finding.severity == RULES[case.code].severity for finding in found)
    assert all(finding.remedy and finding.text and finding.waived is None for finding in found)
    assert plan.is_blocked == (RULES[case.code].severity == "error")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_the_waived_rule_no_longer_blocks_and_its_reason_is_reported(case: Case) -> None:
    """The change runs, or the table stays as it is, as the rule says; then nothing is left to do."""
    engine, registry = prepare(case, case.code, *case.also)
    plan = engine.plan(registry)
    found = [finding for finding in plan.findings if finding.code == case.code]
    assert {finding.waived for finding in found} == {"agreed on Monday"}
    assert not plan.is_blocked, [str(f) for f in plan.findings if f.blocks]
    report = engine.sync(registry)
    assert report.ok
    again = engine.plan(registry)
    assert again.changes == ()


def test_every_rule_has_a_case() -> None:
    """PL101 is about saved plans, and has its own test below."""
    assert {case.code for case in CASES} | {"PL101"} == set(RULES)


def test_a_waiver_for_one_column_leaves_the_others_blocked() -> None:
    """A waiver reaches no further than it says."""
    engine = Engine(InMemoryCatalog())
    engine.sync(dp.Registry(table(ID, NOTE, Column("more", Integer()), properties=MAPPED)))
    registry = dp.Registry(table(ID, properties=MAPPED))
    registry.waive("DS102", "silver.t", column="note", reason="unused")
    findings = [f for f in engine.plan(registry).findings if f.code == "DS102"]
    assert {(f.column, f.waived) for f in findings} == {("note", "unused"), ("more", None)}
    assert engine.plan(registry).is_blocked


def test_pl101_refuses_a_stale_plan_until_it_is_waived() -> None:
    """A plan made from another state is not applied, unless somebody says so with a reason."""
    catalog = InMemoryCatalog()
    engine = Engine(catalog)
    engine.sync(dp.Registry(table()))
    plan = engine.plan(dp.Registry(table(properties={"team": "red"})))
    engine.sync(dp.Registry(table(comment="changed")))
    with pytest.raises(PlanStale, match=r"PL101: dev.silver.t changed since the plan .* Nothing was applied"):
        engine.apply(plan)
    consenting = Engine(
        catalog, waivers=[dp.Waiver("PL101", "silver.t", None, "the comment does not matter")]
    )
    assert consenting.apply(plan).ok


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        pytest.param(
            table(), table(Column("a b", Long()), NOTE), "NM101", id="special characters without mapping"
        ),
        pytest.param(
            None,
            table(Column("_change_type", String()), properties={"delta.enableChangeDataFeed": "true"}),
            "NM101",
            id="a name of the change feed",
        ),
        pytest.param(
            None, DeltaTable("dev", "silver", "my table", [ID]), "NM101", id="a table name with a space"
        ),
        pytest.param(
            None, table(*WIDE[:5], clustered_by=("c0", "c1", "c2", "c3", "c4")), "LY102", id="five keys"
        ),
        pytest.param(
            table(clustered_by="id"), table(partitioned_by="note"), "LY102", id="clustered to partitioned"
        ),
        pytest.param(
            table(Column("n", Integer()), Column("g", Integer(), generated="n + 1")),
            table(Column("m", Integer(), renamed_from="n"), Column("g", Integer(), generated="m + 1")),
            "DP102",
            id="a generated column uses a renamed one",
        ),
        pytest.param(
            table(), table(ID, NOTE, Column("n", Long(), identity=True)), "GN101", id="identity added"
        ),
        pytest.param(
            table(Column("s", Struct([Field("a", Integer())]))),
            table(Column("s", Struct([Field("a", Integer()), Field("b", Integer(), nullable=False)]))),
            "NL101",
            id="a nested NOT NULL is added",
        ),
        pytest.param(
            None,
            table(Column("l", Array(Struct([Field("a", Integer(), nullable=False)])))),
            "NL101",
            id="NOT NULL inside an array",
        ),
        pytest.param(table(), table(checks=["id IN (SELECT 1)"]), "CK102", id="a subquery in a check"),
        pytest.param(
            table(),
            table(ID, NOTE, Column("s", Struct([Field("a", Integer(), nullable=False)]))),
            "NL101",
            id="an added struct with NOT NULL inside",
        ),
        pytest.param(
            table(),
            table(properties={"delta.columnMapping.mode": "id"}),
            "PP101",
            id="column mapping none to id",
        ),
        pytest.param(
            table(properties={"delta.appendOnly": "true"}),
            table(properties={"delta.appendOnly": "true"}, partitioned_by="note"),
            "LY101",
            id="a rewrite of an append-only table",
        ),
        pytest.param(None, table(features=("noSuchFeature",)), "PP101", id="an unknown feature"),
        pytest.param(
            table(NOTE, Column("b", String()), properties=MAPPED),
            table(Column("note", String(), renamed_from="b"), properties=MAPPED),
            "DS103",
            id="a rename onto a name that exists",
        ),
        pytest.param(
            table(properties={"delta.appendOnly": "true"}),
            table(ID, NOTE, Column("n", Integer(), default="1"), properties={"delta.appendOnly": "true"}),
            "DF101",
            id="a default on an append-only table",
        ),
        pytest.param(
            None, table(properties={"delta.noSuchThing": "1"}), "PP101", id="an unknown property at creation"
        ),
        pytest.param(
            table(Column("b", Boolean()), Column("s", Struct([Field("v", "varchar(3)")]))),
            table(Column("b", Boolean()), Column("s", Struct([Field("v", "varchar(9)")]))),
            "TY101",
            id="a nested varchar",
        ),
    ],
)
def test_other_cases_that_delta_refuses_are_blocked(
    before: DeltaTable | None, after: DeltaTable, code: str
) -> None:
    """Each of these fails on Spark; the rule says so before any statement runs."""
    engine, registry = prepare(Case(code, before, after))
    plan = engine.plan(registry)
    blocking = {finding.code for finding in plan.findings if finding.blocks}
    assert code in blocking
