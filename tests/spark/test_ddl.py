"""What open-source Spark accepts, statement by statement: each kind of change, run and read back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

import deltaplane as dp
from deltaplane.planning import Plan
from deltaplane.planning.render import to_text
from deltaplane.schema import (
    Array,
    Binary,
    Boolean,
    Byte,
    Char,
    Check,
    Column,
    Date,
    Decimal,
    DeltaTable,
    Double,
    Field,
    Float,
    ForeignKey,
    Identity,
    Integer,
    Long,
    Map,
    Short,
    String,
    Struct,
    Timestamp,
    TimestampNtz,
    Unique,
    Varchar,
    Variant,
)
from deltaplane.sync import Engine, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "ddl_cases"
MAPPED = {"delta.columnMapping.mode": "name"}
WIDENING = {"delta.enableTypeWidening": "true"}
CONSENT = ("DS102", "DS103", "DP101", "DP102", "TY102", "NL101", "NL102", "PR101", "PR103", "LY101", "NM101")
A = Column("a", Integer())
B = Column("b", String())


def table(*columns: Column, **values: Any) -> DeltaTable:
    return DeltaTable("dev", SCHEMA, "t", columns or (A, B), **values)


def struct(*fields: Field) -> Struct:
    return Struct(fields)


@dataclass(frozen=True)
class Case:
    """A table, an edit, and the kinds of change the edit must take."""

    before: DeltaTable
    after: DeltaTable
    kinds: tuple[str, ...] = ()
    rows: str | None = None


ALL_TYPES = [
    Column("c1", Boolean()),
    Column("c2", Byte()),
    Column("c3", Short()),
    Column("c4", Integer()),
    Column("c5", Long()),
    Column("c6", Float()),
    Column("c7", Double()),
    Column("c8", Decimal(38, 18)),
    Column("c9", String()),
    Column("c10", Varchar(10)),
    Column("c11", Char(4)),
    Column("c12", Binary()),
    Column("c13", Date()),
    Column("c14", Timestamp()),
    Column("c15", TimestampNtz()),
    Column("c16", Variant()),
    Column(
        "c17", Array(Map(String(), struct(Field("x", Array(Varchar(3)), comment="deep"), Field("y", Date()))))
    ),
    Column("c18", struct(Field("p", Integer(), nullable=False), Field("q", struct(Field("r", Char(2)))))),
]
NESTED = (
    Column("s", struct(Field("x", Integer()), Field("y", String()))),
    Column("arr", Array(struct(Field("x", Integer())))),
    Column("m", Map(String(), struct(Field("x", Integer())))),
)
NESTED_MORE = (
    Column("s", struct(Field("n", Integer(), comment="new"), Field("x", Integer()), Field("y", String()))),
    Column("arr", Array(struct(Field("x", Integer()), Field("y", Integer())))),
    Column("m", Map(String(), struct(Field("y", String()), Field("x", Integer())))),
)
RICH = table(
    Column("id", Long(), nullable=False),
    Column("p", String(), comment="the day"),
    Column("n", Integer(), nullable=False, default="3"),
    checks=[Check("n > 0", name="positive")],
    properties={**MAPPED, "team": "red"},
    comment="rich",
    primary_key="id",
    tags={"tier": "gold"},
)

CASES: dict[str, Case] = {
    "create with every type": Case(table(*ALL_TYPES), table(*ALL_TYPES)),
    "create partitioned with comment and properties": Case(
        table(partitioned_by="b", comment="it's", properties={"k": "v"}),
        table(partitioned_by="b", comment="it's", properties={"k": "v"}),
    ),
    "create clustered": Case(table(clustered_by=("a", "b")), table(clustered_by=("a", "b"))),
    "create clustered by a nested field": Case(
        table(NESTED[0], clustered_by="s.x"), table(NESTED[0], clustered_by="s.x")
    ),
    "create generated and identity": Case(
        table(
            A,
            Column("g", Integer(), generated="a+1"),
            Column("i", Long(), identity=Identity(5, 2, always=False)),
        ),
        table(
            A,
            Column("g", Integer(), generated="a + 1"),
            Column("i", Long(), identity=Identity(5, 2, always=False)),
        ),
    ),
    "create with NOT NULL, default and checks": Case(
        table(replace(A, nullable=False, default="1"), B, checks=["a>0", "b IS NULL OR length(b)<9"]),
        table(replace(A, nullable=False, default="1"), B, checks=["a > 0", "b is null or length(b) < 9"]),
    ),
    "add column at the end, first and after": Case(
        table(),
        table(Column("f", Date()), A, Column("m", Double(), comment="x"), B, Column("z", Long())),
        ("add_column",),
    ),
    "add nested fields": Case(table(*NESTED), table(*NESTED_MORE), ("add_column",)),
    "add timestamp_ntz and variant": Case(
        table(),
        table(A, B, Column("t", TimestampNtz()), Column("v", Variant())),
        ("enable_feature", "add_column"),
    ),
    "add a column with a default": Case(
        table(),
        table(A, B, Column("d", Integer(), default="7")),
        ("enable_feature", "add_column"),
        "(1, 'x'), (2, 'y')",
    ),
    "add a NOT NULL column with a default": Case(
        table(),
        table(A, B, Column("d", String(), nullable=False, default="'n/a'")),
        ("add_column",),
        "(1, 'x')",
    ),
    "drop a column": Case(
        table(properties=MAPPED), table(A, properties=MAPPED), ("drop_column",), "(1, 'x')"
    ),
    "drop nested fields": Case(
        table(*NESTED_MORE, properties=MAPPED), table(*NESTED, properties=MAPPED), ("drop_column",)
    ),
    "rename a column": Case(
        table(properties=MAPPED),
        table(A, replace(B, name="bb", renamed_from="b"), properties=MAPPED),
        ("rename_column",),
    ),
    "rename nested fields": Case(
        table(*NESTED, properties=MAPPED),
        table(
            Column("s", struct(Field("z", Integer(), renamed_from="x"), Field("y", String()))),
            Column("arr2", Array(struct(Field("z", Integer(), renamed_from="x"))), renamed_from="arr"),
            Column("m", Map(String(), struct(Field("z", Integer(), renamed_from="x")))),
            properties=MAPPED,
        ),
        ("rename_column",),
    ),
    "rename a partition column": Case(
        table(partitioned_by="b", properties=MAPPED),
        table(A, replace(B, name="bb", renamed_from="b"), partitioned_by="bb", properties=MAPPED),
        ("rename_column",),
        "(1, 'x')",
    ),
    "rename a clustering column": Case(
        table(clustered_by="a", properties=MAPPED),
        table(replace(A, name="aa", renamed_from="a"), B, clustered_by="aa", properties=MAPPED),
        ("rename_column",),
        "(1, 'x')",
    ),
    "rename that changes only the case": Case(
        table(properties=MAPPED), table(replace(A, name="A"), B, properties=MAPPED), ("rename_column",)
    ),
    "rename a column and use its name again": Case(
        table(properties=MAPPED),
        table(replace(A, name="old_a", renamed_from="a"), B, Column("a", Date()), properties=MAPPED),
        ("rename_column", "add_column"),
        "(1, 'x')",
    ),
    "rename a column that a check uses": Case(
        table(checks=["a IS NULL OR a > 0"], properties=MAPPED),
        table(replace(A, name="z", renamed_from="a"), B, checks=["z IS NULL OR z > 0"], properties=MAPPED),
        ("drop_check", "rename_column", "add_check"),
        "(1, 'x')",
    ),
    "column mapping alone": Case(table(), table(properties=MAPPED), ("set_properties",), "(1, 'x')"),
    "column mapping off again": Case(
        table(properties=MAPPED),
        table(properties={"delta.columnMapping.mode": "none"}),
        ("set_properties",),
        "(1, 'x')",
    ),
    "widen": Case(
        table(properties=WIDENING),
        table(replace(A, type=Long()), B, properties=WIDENING),
        ("change_type",),
        "(1, 'x')",
    ),
    "widen nested, element, key and value": Case(
        table(
            NESTED[0],
            Column("e", Array(Integer())),
            Column("k", Map(Integer(), Float())),
            properties=WIDENING,
        ),
        table(
            Column("s", struct(Field("x", Long()), Field("y", String()))),
            Column("e", Array(Long())),
            Column("k", Map(Long(), Double())),
            properties=WIDENING,
        ),
        ("change_type",),
    ),
    "widen under a check": Case(
        table(checks=["a > 0 OR a IS NULL"], properties=WIDENING),
        table(replace(A, type=Long()), B, checks=["a > 0 OR a IS NULL"], properties=WIDENING),
        ("drop_check", "change_type", "add_check"),
        "(1, 'x')",
    ),
    "reorder columns and fields": Case(
        table(A, NESTED[0], B),
        table(B, A, Column("s", struct(Field("y", String()), Field("x", Integer())))),
        ("reorder",),
    ),
    "drop NOT NULL, also nested": Case(
        table(replace(A, nullable=False), Column("s", struct(Field("x", Integer(), nullable=False)))),
        table(A, Column("s", struct(Field("x", Integer())))),
        ("drop_not_null",),
    ),
    "NOT NULL through a check": Case(
        table(), table(replace(A, nullable=False), B), ("hold_not_null",), "(1, 'x')"
    ),
    "set and drop a default": Case(
        table(replace(A, default="1"), B),
        table(A, replace(B, default="'x'")),
        ("drop_default", "set_default"),
    ),
    "comments in one statement": Case(
        table(A, NESTED[0], Column("c", String(), comment="gone")),
        table(
            replace(A, comment="it's"),
            Column("s", struct(Field("x", Integer(), comment="in"), Field("y", String()))),
            Column("c", String()),
            comment="t",
        ),
        ("set_column_comments", "set_table_comment"),
    ),
    "add and drop checks": Case(
        table(checks=[Check("a<9", name="Upper")]),
        table(checks=[Check("a > 0", name="lower")]),
        ("drop_check", "add_check"),
        "(1, 'x')",
    ),
    "keys and tags": Case(
        table(primary_key="a", tags={"x": "1"}),
        table(
            replace(A, tags={"pii": "no"}),
            B,
            unique=[Unique("b"), Unique(("a", "b"))],
            tags={"x": "2", "y": ""},
        ),
        ("drop_key", "add_key", "set_tags"),
    ),
    "a foreign key to itself": Case(
        table(A, Column("up", Integer()), primary_key="a"),
        table(A, Column("up", Integer()), primary_key="a", foreign_keys=[ForeignKey("up", "t_self")]),
        ("add_key",),
    ),
    "clustering on, changed and off": Case(
        table(clustered_by="a"), table(clustered_by="b"), ("set_clustering",)
    ),
    "clustering off": Case(table(clustered_by="a"), table(), ("set_clustering",)),
    "clustering on an old table": Case(table(), table(clustered_by="a"), ("set_clustering",), "(1, 'x')"),
    "partition": Case(
        RICH, replace(RICH, partitioned_by=("p",)), ("repartition",), "(1, 'x', 2), (2, 'y', 3)"
    ),
    "partition by something else": Case(
        table(partitioned_by="a"), table(partitioned_by="b"), ("repartition",), "(1, 'x'), (2, 'y')"
    ),
    "no partitions any more, clustered instead": Case(
        table(partitioned_by="a"), table(clustered_by="b"), ("repartition", "set_clustering"), "(1, 'x')"
    ),
    "set and unset properties": Case(
        table(properties={"k": "v", "delta.appendOnly": "true"}),
        table(properties={"other": "${x}'", "delta.logRetentionDuration": "interval 40 days"}),
        ("set_properties", "unset_properties"),
    ),
    "features": Case(table(), table(features=("deletionVectors", "v2Checkpoint")), ("enable_feature",)),
}


@dataclass(frozen=True)
class Outcome:
    """Everything the cases left behind, made once for all of them."""

    plan: Plan
    report: Report
    again: Plan
    tables: dict[str, DeltaTable]


def names() -> dict[str, str]:
    return {case: f"t_{number}" for number, case in enumerate(CASES)}


@pytest.fixture(scope="module")
def outcome(spark: SparkSession) -> Iterator[Outcome]:
    """All cases at once: one sync to make the tables, one to change them."""
    engine = dp.build_spark_engine(spark, author="ada")
    before, after = dp.Registry(), dp.Registry()
    tables = {}
    for case, name in names().items():
        spec = CASES[case]
        keys = [ForeignKey(k.columns, name, k.referenced_columns) for k in spec.after.foreign_keys]
        before.register(replace(spec.before, name=name, checks=_unnamed(spec.before)))
        tables[case] = replace(spec.after, name=name, foreign_keys=keys, checks=_unnamed(spec.after))
        after.register(tables[case])
        for code in CONSENT:
            after.waive(code, f"{SCHEMA}.{name}", reason="the case wants it")
    engine.sync(before)
    assert engine.plan(before).is_empty, to_text(engine.plan(before))
    for case, name in names().items():
        if CASES[case].rows:
            spark.sql(f"INSERT INTO {SCHEMA}.{name} VALUES {CASES[case].rows}")
    plan = engine.plan(after)
    report = engine.sync(after)
    yield Outcome(plan, report, engine.plan(after), tables)
    spark.sql(f"DROP SCHEMA {SCHEMA} CASCADE")


def _unnamed(declared: DeltaTable) -> list[Check]:
    """Derived names contain the table's name, which differs from case to case."""
    return [c if not (c.name or "").startswith("ck_") else Check(c.expression) for c in declared.checks]


@pytest.mark.parametrize("case", CASES)
def test_the_change_is_applied_and_read_back(outcome: Outcome, case: str) -> None:
    """The plan has the kinds of change it should, it is applied, and then nothing is left to do."""
    name = outcome.tables[case].qualified_name
    entry = outcome.plan.get(name)
    assert entry is not None
    kinds = {change.kind for change in entry.changes}
    assert set(CASES[case].kinds) <= kinds or not CASES[case].kinds
    assert bool(kinds) == bool(CASES[case].kinds)
    report = outcome.report.get(str(name))
    assert report is not None
    assert report.status == ("applied" if kinds else "unchanged")
    again = outcome.again.get(name)
    assert again is not None
    assert again.changes == ()


@pytest.mark.parametrize("case", CASES)
def test_the_protocol_after_is_the_one_that_was_announced(outcome: Outcome, case: str) -> None:
    """What the plan says about readers and writers is what happens."""
    name = outcome.tables[case].qualified_name
    planned, now = outcome.plan.get(name), outcome.again.get(name)
    assert planned is not None
    assert now is not None
    assert now.before == planned.after


def rows(spark: SparkSession, case: str, columns: str = "*") -> list[tuple[Any, ...]]:
    return [
        tuple(row)
        for row in spark.sql(f"SELECT {columns} FROM {SCHEMA}.{names()[case]} ORDER BY 1").collect()
    ]


def test_existing_rows_get_the_default_of_an_added_column(spark: SparkSession, outcome: Outcome) -> None:
    """And rows to come as well."""
    name = names()["add a column with a default"]
    spark.sql(f"INSERT INTO {SCHEMA}.{name} (a) VALUES (3)")
    assert rows(spark, "add a column with a default", "a, d") == [(1, 7), (2, 7), (3, 7)]


def test_a_not_null_held_by_a_check_refuses_null(spark: SparkSession, outcome: Outcome) -> None:
    """The column is as good as NOT NULL."""
    name = names()["add a NOT NULL column with a default"]
    with pytest.raises(Exception, match="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"):
        spark.sql(f"INSERT INTO {SCHEMA}.{name} VALUES (2, 'y', NULL)")
    assert rows(spark, "add a NOT NULL column with a default") == [(1, "x", "n/a")]


def test_a_rewrite_keeps_rows_and_restores_everything(spark: SparkSession, outcome: Outcome) -> None:
    """NOT NULL, checks, comments, defaults, properties, keys and tags survive a new partitioning."""
    assert rows(spark, "partition") == [(1, "x", 2), (2, "y", 3)]
    detail = spark.sql(f"DESCRIBE DETAIL {SCHEMA}.{names()['partition']}").collect()[0]
    assert detail["partitionColumns"] == ["p"]
    assert detail["description"] == "rich"
    for bad in ("(NULL, 'z', 1)", "(3, 'z', -1)", "(3, 'z', NULL)"):
        with pytest.raises(Exception, match="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"):
            spark.sql(f"INSERT INTO {SCHEMA}.{names()['partition']} VALUES {bad}")


def test_renamed_and_dropped_columns_keep_the_other_values(spark: SparkSession, outcome: Outcome) -> None:
    """Column mapping moves names, not data."""
    assert rows(spark, "rename a column and use its name again") == [(1, "x", None)]
    assert rows(spark, "drop a column") == [(1,)]
    assert rows(spark, "rename a partition column") == [(1, "x")]


def test_comments_of_many_columns_take_one_commit(spark: SparkSession, outcome: Outcome) -> None:
    """One ALTER for three columns, one for the table: creation and two commits in all."""
    history = spark.sql(f"DESCRIBE HISTORY {SCHEMA}.{names()['comments in one statement']}").collect()
    assert [row["operation"] for row in history[:-1]] == ["SET TBLPROPERTIES", "CHANGE COLUMNS"]


def test_every_commit_carries_the_plan_and_the_author(spark: SparkSession, outcome: Outcome) -> None:
    """DESCRIBE HISTORY says who did what under which plan."""
    history = spark.sql(f"DESCRIBE HISTORY {SCHEMA}.{names()['widen']} LIMIT 1").collect()[0]
    expected = f'{{"deltaplane": {{"author": "ada", "plan": "{outcome.report.plan_id}"}}}}'
    assert history["userMetadata"] == expected


def test_restore_undoes_a_change_but_not_the_protocol(spark: SparkSession, outcome: Outcome) -> None:
    """The printed command works, and the report says what it cannot undo."""
    report = outcome.report.get(f"dev.{SCHEMA}.{names()['add timestamp_ntz and variant']}")
    assert report is not None
    assert report.restore is not None
    assert "timestampNtz" in (report.protocol_stays or "")
    spark.sql(report.restore)
    restored = spark.table(f"{SCHEMA}.{names()['add timestamp_ntz and variant']}")
    assert restored.columns == ["a", "b"]


def test_statements_beside_ours_leave_nothing_to_plan(
    spark: SparkSession, engine: Engine, schema: str
) -> None:
    """SYNC IDENTITY, OPTIMIZE FULL and DROP FEATURE do not show as drift."""
    identity = table(
        A,
        Column("i", Long(), identity=Identity(always=False)),
        clustered_by="a",
        features=("deletionVectors",),
    )
    registry = dp.Registry(replace(identity, schema=schema))
    engine.sync(registry)
    spark.sql(f"INSERT INTO {schema}.t (a, i) VALUES (1, 40)")
    spark.sql(f"ALTER TABLE {schema}.t ALTER COLUMN i SYNC IDENTITY")
    spark.sql(f"OPTIMIZE {schema}.t FULL")
    assert engine.plan(registry).changes == ()


def test_a_location_is_kept_and_recorded(
    spark: SparkSession, engine: Engine, schema: str, tmp_path: Any
) -> None:
    """A table somewhere else is created there and read back from there."""
    declared = replace(table(location=str(tmp_path / "elsewhere")), schema=schema)
    engine.sync(dp.Registry(declared))
    assert (tmp_path / "elsewhere" / "_delta_log").is_dir()
    assert engine.plan(dp.Registry(declared)).is_empty
