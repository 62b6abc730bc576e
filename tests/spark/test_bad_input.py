"""Bad and hostile input ends in a clear error or in the right result, and never in somebody else's SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

import deltaplane as dp
from deltaplane.errors import CatalogError, DeclarationError, SyncFailedError, TypeTextError
from deltaplane.schema import Check, Column, DeltaTable, Field, Integer, Long, String, Struct, Unique
from deltaplane.sync import Engine, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltaplane.planning import Change, ObservedTable
    from deltaplane.planning.rules import Violations
    from deltaplane.schema import QualifiedName
    from deltaplane.sync.ports import CommitNote

pytestmark = pytest.mark.spark

MAPPED = {"delta.columnMapping.mode": "name"}
NASTY = "it's \"quoted\" `ticked` ${user.name} 😀 \\ \\n \n\t {table} '); DROP TABLE victim; -- /* */ \\"


def table(schema: str, name: str, *columns: Column, **fields: Any) -> DeltaTable:
    return DeltaTable("dev", schema, name, columns or (Column("a", Integer()),), **fields)


def failed_report(engine: Engine, registry: dp.Registry) -> Report:
    with pytest.raises(SyncFailedError) as caught:
        engine.sync(registry)
    return caught.value.report


def statuses(report: Report) -> dict[str, str]:
    return {entry.table.name: entry.status for entry in report.tables}


def error_of(report: Report, name: str) -> str:
    (entry,) = (entry for entry in report.tables if entry.table.name == name)
    assert entry.error is not None
    return entry.error


def consenting(*tables: DeltaTable, codes: tuple[str, ...]) -> dp.Registry:
    registry = dp.Registry(*tables)
    for declared in tables:
        for code in codes:
            registry.waive(code, str(declared.qualified_name), reason="the test agrees")
    return registry


def columns_of_schema(spark: SparkSession, schema: str) -> dict[str, list[str]]:
    """Every table of a schema with its columns: what an injection would change."""
    names = [row["tableName"] for row in spark.sql(f"SHOW TABLES IN {schema}").collect()]
    return {name: spark.table(f"{schema}.{name}").columns for name in names}


NOT_A_TYPE = [
    "",
    "strng",
    "int evil",
    "int, evil int",
    "int) , (evil int",
    "int; DROP TABLE victim",
    "int COMMENT 'x'",
    "int NOT NULL",
    "int -- c",
    "decimal(10,2",
    "decimal(a,b)",
    "array<int",
    "array<>",
    "map<int>",
    "struct<>",
    "struct<a>",
    "struct<a:int>>",
    "varchar",
    "varchar(-1)",
    "interval day",
    "`int`",
    "'int'",
    "in't",
]


@pytest.mark.parametrize("text", NOT_A_TYPE)
def test_unknown_type_text_is_refused_when_it_is_declared(text: str) -> None:
    with pytest.raises(TypeTextError) as caught:
        Column("a", text)
    assert repr(text) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["decimal(39,2)", "decimal(5,6)", "varchar(0)", "char(0)"])
def test_a_type_with_impossible_numbers_is_refused_when_it_is_declared(text: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        Column("a", text)
    assert text in str(caught.value)


def test_tables_that_are_not_delta_fail_alone_and_are_not_touched(
    spark: SparkSession, engine: Engine, schema: str
) -> None:
    spark.sql(f"CREATE SCHEMA {schema}")
    spark.sql(f"CREATE TABLE {schema}.old USING parquet AS SELECT 1 AS a")
    spark.sql(f"CREATE VIEW {schema}.seen AS SELECT 2 AS a")
    registry = dp.Registry(*(table(schema, name) for name in ("old", "seen", "fine")))
    report = failed_report(engine, registry)
    assert statuses(report) == {"fine": "applied", "old": "read_failed", "seen": "read_failed"}
    assert error_of(report, "old") == (
        f"dev.{schema}.old exists and is not a Delta table (format parquet). It was not touched. "
        "Convert it with CONVERT TO DELTA, or declare another name."
    )
    assert "is a view" in error_of(report, "seen")
    assert [spark.table(f"{schema}.{name}").collect()[0]["a"] for name in ("old", "seen")] == [1, 2]


@dataclass
class Guarded:
    """A catalog that refuses some calls, as one does to a user who lacks a right."""

    inner: Any
    denied: set[str]
    tables: set[str]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def _guard(self, call: str, name: str) -> None:
        if call in self.denied and name in self.tables:
            raise CatalogError(f"PERMISSION_DENIED: user lacks {call} on {name}.")

    def missing_schemas(self, schemas: Any) -> Any:
        self._guard("missing_schemas", "*")
        return self.inner.missing_schemas(schemas)

    def read(self, name: QualifiedName) -> ObservedTable | None:
        self._guard("read", name.name)
        return self.inner.read(name)  # type: ignore[no-any-return]

    def count_violations(self, name: QualifiedName, *details: Any) -> Mapping[str, Violations]:
        self._guard("count_violations", name.name)
        return self.inner.count_violations(name, *details)  # type: ignore[no-any-return]

    def execute(self, change: Change, note: CommitNote) -> None:
        self._guard("execute", change.table.name)
        self.inner.execute(change, note)


def test_a_table_without_permission_fails_alone(spark: SparkSession, engine: Engine, schema: str) -> None:
    engine.sync(dp.Registry(table(schema, "full")))
    spark.sql(f"INSERT INTO {schema}.full VALUES (1)")
    guarded = Engine(Guarded(engine.catalog, {"read"}, {"secret"}))
    report = failed_report(guarded, dp.Registry(table(schema, "secret"), table(schema, "one")))
    assert statuses(report) == {"one": "applied", "secret": "read_failed"}
    assert error_of(report, "secret") == "PERMISSION_DENIED: user lacks read on secret."

    guarded = Engine(Guarded(engine.catalog, {"execute"}, {"locked"}))
    report = failed_report(guarded, dp.Registry(table(schema, "locked"), table(schema, "two")))
    assert statuses(report) == {"locked": "failed", "two": "applied"}
    assert error_of(report, "locked") == "PERMISSION_DENIED: user lacks execute on locked."

    guarded = Engine(Guarded(engine.catalog, {"count_violations"}, {"full"}))
    checked = table(schema, "full", checks=["a IS NULL OR a > 0"])
    report = failed_report(guarded, dp.Registry(checked, table(schema, "three")))
    assert statuses(report) == {"full": "read_failed", "three": "applied"}
    assert columns_of_schema(spark, schema) == {name: ["a"] for name in ("full", "one", "two", "three")}


def test_a_schema_without_permission_fails_its_tables_and_no_others(
    spark: SparkSession, engine: Engine, schema: str
) -> None:
    engine.sync(dp.Registry(table(schema, "there")))
    # The change that creates a schema carries * as the name of its table.
    guarded = Engine(Guarded(engine.catalog, {"execute"}, {"*"}))
    report = failed_report(guarded, dp.Registry(table(f"{schema}_new", "lost"), table(schema, "fine")))
    assert statuses(report) == {"fine": "applied", "lost": "failed"}
    assert error_of(report, "lost") == (
        "its schema could not be created: PERMISSION_DENIED: user lacks execute on *."
    )


def test_a_catalog_without_permission_is_one_error_and_nothing_runs(engine: Engine, schema: str) -> None:
    guarded = Engine(Guarded(engine.catalog, {"missing_schemas"}, {"*"}))
    with pytest.raises(CatalogError, match=r"^PERMISSION_DENIED: user lacks missing_schemas on \*\.$"):
        guarded.sync(dp.Registry(table(schema, "t")))
    assert engine.catalog.missing_schemas([("dev", schema)]) == [("dev", schema)]


def test_a_property_delta_refuses_is_one_clear_line(spark: SparkSession, engine: Engine, schema: str) -> None:
    engine.sync(dp.Registry(table(schema, "old")))
    bad = {"delta.checkpointInterval": "abc"}
    registry = dp.Registry(
        table(schema, "old", properties=bad), table(schema, "new", properties=bad), table(schema, "fine")
    )
    report = failed_report(engine, registry)
    assert statuses(report) == {"fine": "applied", "new": "failed", "old": "failed"}
    for name in ("old", "new"):
        assert "delta.checkpointInterval needs to be a positive integer" in error_of(report, name)
        assert "\n" not in error_of(report, name)
    assert columns_of_schema(spark, schema) == {"old": ["a"], "fine": ["a"]}


def test_a_property_delta_does_not_know_is_blocked_by_a_rule(engine: Engine, schema: str) -> None:
    report = failed_report(engine, dp.Registry(table(schema, "t", properties={"delta.noSuchThing": "1"})))
    assert statuses(report) == {"t": "blocked"}
    assert [finding.code for finding in report.tables[0].findings] == ["PP101"]
    assert engine.catalog.missing_schemas([("dev", schema)]) == [("dev", schema)]


def test_ten_thousand_columns_are_created_and_then_as_declared(
    spark: SparkSession, engine: Engine, schema: str
) -> None:
    wide = table(schema, "wide", *(Column(f"c{n}", Integer(), comment=f"no. {n}") for n in range(10_000)))
    assert statuses(engine.sync(dp.Registry(wide))) == {"wide": "applied"}
    assert engine.plan(dp.Registry(wide)).is_empty
    assert spark.table(f"{schema}.wide").columns == [column.name for column in wide.columns]


ODD_NAMES = ["tick`y``", "do.t q'u\"ote", "emo😀ji ${user.name}", "new\nline\ttab", "'); DROP TABLE x; --"]


def test_odd_column_names_live_through_every_kind_of_change(
    spark: SparkSession, engine: Engine, schema: str
) -> None:
    inner = Struct([Field("x.`y` ${z}", Integer()), Field("k", String())])
    first = table(
        schema,
        "odd",
        Column("id", Long()),
        *(Column(name, String(), comment=name) for name in ODD_NAMES),
        Column("s.`t`", inner),
        properties=MAPPED,
        checks=[Check("`tick``y````` IS NULL OR `do.t q'u\"ote` <> ''", name="odd `check` ${x}")],
        unique=[Unique(ODD_NAMES)],
        clustered_by=["`do.t q'u\"ote`", "`emo😀ji ${user.name}`"],
    )
    codes = ("DS102", "DS103", "DP102", "PR101", "NM101", "DP101")
    engine.sync(consenting(first, codes=codes))
    assert spark.table(f"{schema}.odd").columns == ["id", *ODD_NAMES, "s.`t`"]
    assert engine.plan(consenting(first, codes=codes)).is_empty

    changed = table(
        schema,
        "odd",
        Column("id", Long()),
        *(Column(f"new {name}", String(), comment=f"new {name}", renamed_from=name) for name in ODD_NAMES),
        Column("s.`t`", Struct([*inner.fields, Field("more.${x}'", Integer(), comment=NASTY)])),
        Column("added `'${x}.\n", Integer(), comment=NASTY, default="1"),
        properties=MAPPED,
    )
    engine.sync(consenting(changed, codes=codes))
    read = spark.table(f"{schema}.odd").schema
    assert read.names == [column.name for column in changed.columns]
    assert [field.metadata.get("comment") for field in read][1:6] == [f"new {name}" for name in ODD_NAMES]
    assert read["s.`t`"].dataType.names == ["x.`y` ${z}", "k", "more.${x}'"]
    assert engine.plan(consenting(changed, codes=codes)).is_empty

    emptied = table(schema, "odd", Column("id", Long()), properties=MAPPED)
    engine.sync(consenting(emptied, codes=codes))
    assert columns_of_schema(spark, schema) == {"odd": ["id"]}


ODD_TABLE_NAMES = [
    "a`b",
    "a.b",
    "a b",
    "a'b",
    'a"b',
    "a-b",
    "a/b",
    "..",
    "*",
    "${x}",
    "tää",
    "😀",
    "a;b",
    "a\nb",
]


@pytest.mark.parametrize("name", ODD_TABLE_NAMES)
def test_odd_names_of_tables_and_schemas_are_blocked_by_a_rule(
    engine: Engine, schema: str, name: str
) -> None:
    plan = engine.plan(dp.Registry(table(schema, name), table(name, "t")))
    assert [(entry.status, [f.code for f in entry.findings]) for entry in plan.tables] == [
        ("blocked", ["NM101"]),
        ("blocked", ["NM101"]),
    ]
    assert all(finding.text.endswith("letters, digits and underscores there.") for finding in plan.findings)


@pytest.mark.parametrize("name", ["", "  ", "a\0b", None, 3])
def test_what_is_no_name_at_all_is_refused_when_it_is_declared(name: Any) -> None:
    with pytest.raises(DeclarationError):
        Column(name, Integer())
    with pytest.raises(DeclarationError):
        table("s", name)
    with pytest.raises(DeclarationError):
        table(name, "t")


def literal_tables(schema: str) -> list[DeltaTable]:
    nasty = table(
        schema,
        "literal",
        Column("a", String(), comment=NASTY, tags={NASTY: NASTY}),
        Column("d", String(), default="'${user.name} it\\'s \\\\ ; -- /* {x} DROP TABLE victim'"),
        Column("s", Struct([Field("f", Integer(), comment=NASTY)])),
        comment=NASTY,
        tags={NASTY: NASTY},
        properties={"own.${user.name}'": NASTY},
        checks=["a <> '${user.name} it\\'s; -- {x}'"],
    )
    return [nasty, table(schema, "victim")]


def test_hostile_text_arrives_as_text(spark: SparkSession, engine: Engine, schema: str) -> None:
    tables = literal_tables(schema)
    engine.sync(dp.Registry(*tables))
    assert engine.plan(dp.Registry(*tables)).is_empty
    read = spark.table(f"{schema}.literal").schema
    detail = spark.sql(f"DESCRIBE DETAIL {schema}.literal").collect()[0]
    assert (read["a"].metadata["comment"], detail["description"]) == (NASTY, NASTY)
    assert read["s"].dataType["f"].metadata["comment"] == NASTY
    assert detail["properties"]["own.${user.name}'"] == NASTY
    observed = engine.catalog.read(tables[0].qualified_name)
    assert observed is not None
    assert (observed.table.tags, observed.table.columns[0].tags) == ({NASTY: NASTY}, {NASTY: NASTY})
    spark.sql(f"INSERT INTO {schema}.literal (a) VALUES ('x')")
    assert spark.table(f"{schema}.literal").collect()[0]["d"] == (
        "${user.name} it's \\ ; -- /* {x} DROP TABLE victim"
    )
    assert sorted(columns_of_schema(spark, schema)) == ["literal", "victim"]


def test_hostile_text_arrives_as_text_when_a_table_is_changed(
    spark: SparkSession, engine: Engine, schema: str
) -> None:
    tables = literal_tables(schema)
    plain = table(schema, "literal", Column("a", String()), Column("d", String()), tables[0].columns[2])
    engine.sync(dp.Registry(plain, tables[1]))
    engine.sync(dp.Registry(*tables))
    assert engine.plan(dp.Registry(*tables)).is_empty
    detail = spark.sql(f"DESCRIBE DETAIL {schema}.literal").collect()[0]
    assert (detail["description"], detail["properties"]["own.${user.name}'"]) == (NASTY, NASTY)
    assert spark.table(f"{schema}.literal").schema["a"].metadata["comment"] == NASTY


INJECTIONS = {
    "second column": "0, evil INT",
    "second column with default": "0, evil INT DEFAULT 1",
    "comment clause": "0 COMMENT 'x'",
    "not null clause": "0 NOT NULL",
    "second statement": "0; DROP TABLE victim",
    "closed parenthesis": "0) , (1",
    "closed parenthesis and column": "0), evil INT DEFAULT (1",
    "closed bracket": "x[0) , evil INT DEFAULT (1]",
    "closed list and clause": "0)) USING parquet --",
    "line comment": "1 -- c",
    "block comment": "1 /* c */",
    "hint": "1 /*+ x */",
    "unclosed quote": "'x",
    "unclosed double quote": '"x',
    "unclosed backtick": "`x",
    "escaped quote": "'x\\'",
    "quote after a quote": "'x'' , evil INT",
    "variable": "${env:HOME}",
    "dollar quotes": "$$'$$) , evil INT DEFAULT ($$'$$",
    "subquery": "(SELECT max(a) FROM victim)",
    "placeholder": "{table}",
    "newline": "0\n, evil INT",
    "unicode quote": "0ʼ, evil INT",
    "carriage return": "0 \r COMMENT 'x'",
}
RAW_INJECTIONS = {
    "raw string": "r'\\') , evil STRING DEFAULT ('\\''",
    "raw double-quoted string": 'R"\\") , evil STRING DEFAULT ("\\""',
}
PLACES: dict[str, Callable[[str], dict[str, Any]]] = {
    "default": lambda text: {"columns": [Column("a", String()), Column("b", String(), default=text)]},
    "generated": lambda text: {"columns": [Column("a", String()), Column("b", String(), generated=text)]},
    "check": lambda text: {"columns": [Column("a", String()), Column("b", String())], "checks": [text]},
}


def declared_or_none(schema: str, name: str, place: str, text: str) -> DeltaTable | None:
    try:
        return DeltaTable("dev", schema, name, **PLACES[place](text))
    except DeclarationError:
        return None


def attempt(engine: Engine, *tables: DeltaTable | None) -> str:
    """Apply what could be declared, and return the errors. Failing is fine; doing harm is not."""
    try:
        engine.sync(dp.Registry(*(declared for declared in tables if declared is not None)))
    except SyncFailedError as failure:
        return " ".join(entry.error or "" for entry in failure.report.tables)
    return ""


@pytest.mark.parametrize("place", ["default", "generated"])
def test_no_sql_can_be_injected_when_a_table_is_created(
    spark: SparkSession, engine: Engine, schema: str, place: str
) -> None:
    attempts = {
        f"t{number}": declared_or_none(schema, f"t{number}", place, text)
        for number, text in enumerate(INJECTIONS.values())
    }
    assert "\n" not in attempt(engine, table(schema, "victim"), *attempts.values())
    found = columns_of_schema(spark, schema)
    assert found.pop("victim") == ["a"]
    assert found == {name: ["a", "b"] for name in found}
    assert set(found) <= {name for name, declared in attempts.items() if declared is not None}


@pytest.mark.parametrize("place", ["default", "check"])
def test_no_sql_can_be_injected_when_a_table_is_changed(
    spark: SparkSession, engine: Engine, schema: str, place: str
) -> None:
    plain = table(schema, "t", Column("a", String()), Column("b", String()))
    engine.sync(dp.Registry(table(schema, "victim"), plain))
    attempts = [declared_or_none(schema, "t", place, text) for text in INJECTIONS.values()]
    assert 0 < attempts.count(None) < len(attempts)
    for declared in attempts:
        if declared is not None:
            attempt(engine, declared)
    assert columns_of_schema(spark, schema) == {"t": ["a", "b"], "victim": ["a"]}


@pytest.mark.parametrize("text", RAW_INJECTIONS.values(), ids=RAW_INJECTIONS.keys())
def test_no_sql_can_be_injected_behind_a_raw_string(
    spark: SparkSession, engine: Engine, schema: str, text: str
) -> None:
    refused = [declared_or_none(schema, "t", place, text) is None for place in PLACES]
    attempt(engine, table(schema, "victim"), declared_or_none(schema, "t", "default", text))
    assert columns_of_schema(spark, schema) == {"victim": ["a"]}
    assert refused == [True] * len(PLACES)


def test_a_raw_string_by_itself_is_an_expression(engine: Engine, schema: str) -> None:
    declared = table(schema, "t", Column("a", String(), default="r'\\d'"))
    engine.sync(dp.Registry(declared))
    assert engine.plan(dp.Registry(declared)).is_empty


DECLARED_REFUSALS = {
    "0, evil INT": "it contains a comma outside parentheses",
    "0; DROP TABLE victim": "it contains a semicolon",
    "0) , (1": "a parenthesis is closed that was never opened",
    "(0": "a parenthesis is never closed",
    "1 -- c": "it contains a comment",
    "1 /* c */": "it contains a comment",
    "'x": "a ' is never closed",
    '"x': 'a " is never closed',
    "`x": "a ` is never closed",
}


@pytest.mark.parametrize(("text", "said"), DECLARED_REFUSALS.items())
def test_more_than_one_expression_is_refused_when_it_is_declared(text: str, said: str) -> None:
    for declare in (
        lambda: Column("b", String(), default=text),
        lambda: Column("b", String(), generated=text),
        lambda: Check(text),
    ):
        with pytest.raises(DeclarationError) as caught:
            declare()
        assert f"is not one SQL expression: {said}. Correct it." in str(caught.value)
        assert text in str(caught.value)


def test_names_of_checks_keys_features_and_the_author_inject_nothing(
    spark: SparkSession, engine: Engine, schema: str
) -> None:
    hostile = "x` CHECK (true); DROP TABLE victim; -- ' ${y}"
    declared = table(
        schema,
        "t",
        checks=[Check("a IS NULL OR a > 0", name=hostile)],
        unique=[Unique("a", name=hostile + "2")],
    )
    hostile_engine = Engine(engine.catalog, author=hostile)
    hostile_engine.sync(dp.Registry(table(schema, "victim"), declared))
    assert engine.plan(dp.Registry(declared)).is_empty
    bad = table(schema, "bad", features=["x' = 'y'); DROP TABLE victim; --"])
    assert statuses(failed_report(engine, dp.Registry(bad)))["bad"] in ("failed", "blocked")
    assert columns_of_schema(spark, schema) == {"t": ["a"], "victim": ["a"]}
