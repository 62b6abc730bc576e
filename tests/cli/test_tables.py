"""plan, apply, drift and pull on real Spark: exit codes, output, saved plans, rehearsal, waivers."""

from __future__ import annotations

import ast
import json
import re
import sys
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import deltaplane as dp
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
from deltaplane.schema.expressions import canonical
from deltaplane.sync import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cli.conftest import Run

pytestmark = pytest.mark.spark

Declare = Callable[..., str]
NASTY = "it's \"quoted\" `ticked` ${user} 😀 \\ {brace} '); DROP TABLE x; --"


@pytest.fixture(autouse=True)
def shared_session(spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command find the session of the suite."""
    monkeypatch.setenv("DELTAPLANE_SPARK_MASTER", "local[2]")
    monkeypatch.setenv("DELTAPLANE_SPARK_WAREHOUSE", str(warehouse))


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch, project: Path) -> Declare:
    """Make a module with a registry of these tables, and return its MODULE:ATTRIBUTE."""

    def make(*tables: DeltaTable, **settings: Any) -> str:
        module = ModuleType(f"declared_{uuid.uuid4().hex[:10]}")
        module.registry = dp.Registry(*tables, **settings)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        return f"{module.__name__}:registry"

    return make


def table(schema: str, *columns: Column, name: str = "t", **fields: Any) -> DeltaTable:
    return DeltaTable("dev", schema, name, columns or (Column("id", Long()),), **fields)


def small(schema: str, **fields: Any) -> DeltaTable:
    return table(schema, Column("id", Long()), Column("note", String()), **fields)


def tables_of(spark: SparkSession, schema: str) -> list[str]:
    return sorted(row["tableName"] for row in spark.sql(f"SHOW TABLES IN {schema}").collect())


def schemas_of(spark: SparkSession) -> list[str]:
    return sorted(row[0] for row in spark.sql("SHOW SCHEMAS").collect())


def version_of(spark: SparkSession, name: str) -> int:
    return int(spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()[0]["version"])


def test_plan_is_pending_then_applied_then_clean_in_the_words_of_people(
    run: Run, declare: Declare, schema: str
) -> None:
    target = declare(small(schema))
    before = run("plan", target)
    assert before.code == 3
    assert before.out == (
        f"dev.{schema}\n"
        f"  + [metadata]    create schema dev.{schema}\n\n"
        f"dev.{schema}.t  (new, protocol 1/2)\n"
        "  + [metadata]    create table with 2 columns\n\n"
        "1 table, 2 changes. Nothing applied.\n"
    )
    applied = run("apply", target)
    assert applied.code == 0
    assert re.fullmatch(
        rf"dev\.{schema}\.t: applied\n  done: create table with 2 columns\n\n"
        r"1 table: 1 applied\. Plan \w+\.\n",
        applied.out,
    )
    after = run("plan", target)
    assert (after.code, after.out) == (0, "1 table, 0 changes. Everything is as declared.\n")
    drift = run("drift", target)
    assert (drift.code, drift.out) == (0, "No drift: 1 table is as declared.\n")


def test_every_command_writes_one_json_object_and_nothing_else(
    run: Run, declare: Declare, schema: str
) -> None:
    target = declare(small(schema))
    plan, apply, drift, pull = (
        run(*arguments, "--output", "json")
        for arguments in (("plan", target), ("apply", target), ("drift", target), ("pull", schema))
    )
    assert [ran.err for ran in (plan, apply, drift, pull)] == [""] * 4
    assert [ran.code for ran in (plan, apply, drift, pull)] == [3, 0, 0, 0]
    assert (plan.json["is_empty"], plan.json["tables"][0]["status"]) == (False, "pending")
    assert (apply.json["ok"], apply.json["plan_id"]) == (True, plan.json["plan_id"])
    assert (drift.json["is_empty"], drift.json["drifted"]) == (True, [])
    assert (pull.json["tables"], pull.json["left_out"]) == ([f"spark_catalog.{schema}.t"], {})


def test_drift_leaves_with_3_when_somebody_changed_a_table(
    run: Run, declare: Declare, spark: SparkSession, schema: str
) -> None:
    target = declare(small(schema), table(schema, name="other"))
    run("apply", target)
    spark.sql(f"COMMENT ON TABLE {schema}.t IS 'by hand'")
    text, machine = run("drift", target), run("drift", target, "--output", "json")
    assert (text.code, machine.code) == (3, 3)
    assert text.out.endswith("1 of 2 tables differs from its declaration.\n")
    assert machine.json["drifted"] == [f"dev.{schema}.t"]


def test_a_dangerous_change_leaves_with_4_and_runs_no_statement(
    run: Run, declare: Declare, engine: Engine, spark: SparkSession, schema: str
) -> None:
    engine.sync(dp.Registry(small(schema)))
    target = declare(table(schema), table(schema, name="fine"))
    assert [run(command, target).code for command in ("plan", "drift")] == [4, 4]
    applied = run("apply", target)
    assert applied.code == 4
    assert "DS102 error: column note (string) would be dropped." in applied.out
    assert (spark.table(f"{schema}.t").columns, version_of(spark, f"{schema}.t")) == (["id", "note"], 0)
    assert tables_of(spark, schema) == ["fine", "t"]


def test_a_waiver_on_the_command_line_lets_it_through_and_its_reason_is_shown(
    run: Run, declare: Declare, engine: Engine, spark: SparkSession, schema: str
) -> None:
    mapped = {"delta.columnMapping.mode": "name"}
    engine.sync(dp.Registry(small(schema, properties=mapped)))
    target = declare(table(schema, properties=mapped))
    waiver = f"ds102:{schema}.t#note:nobody reads it: see #12"
    planned = run("plan", target, "--waive", waiver)
    assert planned.code == 3
    assert "DS102 error, waived (nobody reads it: see #12): column note" in planned.out
    assert run("plan", target, "--waive", f"DS102:{schema}.other:not this table").code == 4
    applied = run("apply", target, "--waive", waiver, "--output", "json")
    assert applied.code == 0
    assert [f["waived"] for f in applied.json["tables"][0]["findings"] if f["code"] == "DS102"] == [
        "nobody reads it: see #12"
    ]
    assert spark.table(f"{schema}.t").columns == ["id"]


BAD_WAIVERS = {
    "no reason": ("DS102:silver.t", "write CODE:TABLE:REASON, or CODE:TABLE#COLUMN:REASON."),
    "empty reason": ("DS102:silver.t: ", "write CODE:TABLE:REASON, or CODE:TABLE#COLUMN:REASON."),
    "no table": ("DS102::because", "write CODE:TABLE:REASON, or CODE:TABLE#COLUMN:REASON."),
    "not a code": ("drop:silver.t:because", "a rule code looks like DS102."),
    "no such rule": ("ZZ999:silver.t:because", "there is no rule ZZ999 (on silver.t). Rules: CK101, "),
}


@pytest.mark.parametrize(("waiver", "said"), BAD_WAIVERS.values(), ids=BAD_WAIVERS.keys())
def test_a_waiver_that_could_have_no_effect_is_refused(
    run: Run, declare: Declare, waiver: str, said: str
) -> None:
    ran = run("plan", declare(), "--waive", waiver)
    assert (ran.code, ran.out) == (1, "")
    assert "--waive" in ran.err
    assert said in ran.err


def test_a_configured_waiver_of_no_rule_is_refused_by_the_file(run: Run, declare: Declare) -> None:
    Path("deltaplane.toml").write_text("[[waivers]]\ncode='ZZ999'\ntable='t'\nreason='r'\n")
    ran = run("plan", declare())
    assert ran.code == 1
    assert ran.err.startswith("error: deltaplane.toml: waivers: there is no rule ZZ999 (on t). Rules: CK101")


def test_a_table_that_cannot_be_read_leaves_with_1_and_the_others_are_applied(
    run: Run, declare: Declare, spark: SparkSession, schema: str
) -> None:
    spark.sql(f"CREATE SCHEMA {schema}")
    spark.sql(f"CREATE TABLE {schema}.t (id BIGINT) USING parquet")
    target = declare(table(schema), table(schema, name="fine"))
    codes = [run(command, target).code for command in ("plan", "drift")]
    applied = run("apply", target, "--output", "json")
    assert (*codes, applied.code) == (1, 1, 1)
    statuses = {entry["table"]: entry["status"] for entry in applied.json["tables"]}
    assert statuses == {f"dev.{schema}.fine": "applied", f"dev.{schema}.t": "read_failed"}


def test_a_statement_that_spark_refuses_leaves_with_1_and_is_shown(
    run: Run, declare: Declare, spark: SparkSession, schema: str
) -> None:
    bad = table(schema, name="bad", properties={"delta.checkpointInterval": "abc"})
    ran = run("apply", declare(bad, table(schema, name="fine")))
    assert ran.code == 1
    assert "  ! delta.checkpointInterval needs to be a positive integer" in ran.out
    assert f"    statement: CREATE TABLE `spark_catalog`.`{schema}`.`bad`" in ran.out
    assert ran.out.splitlines()[-1].startswith("2 tables: 1 applied, 1 failed. Plan ")
    assert "Traceback" not in ran.out + ran.err
    assert tables_of(spark, schema) == ["fine"]


def test_declarations_that_contradict_each_other_are_one_message(
    run: Run, declare: Declare, schema: str
) -> None:
    lost = table(schema, foreign_keys=[ForeignKey("id", "nowhere")])
    ran = run("plan", declare(lost), "--output", "json")
    assert (ran.code, ran.json["error"]) == (1, "RegistryError")
    assert f"points to dev.{schema}.nowhere, which is not registered" in ran.json["message"]


def test_a_saved_plan_is_applied_once_and_refused_when_stale(
    run: Run, declare: Declare, spark: SparkSession, schema: str
) -> None:
    saved = run("plan", declare(small(schema)), "--save", "plan.json")
    assert saved.code == 3
    assert saved.out.endswith("Saved. Apply with: deltaplane apply plan.json\n")
    assert run("apply", "plan.json").code == 0
    assert tables_of(spark, schema) == ["t"]
    stale = run("apply", "plan.json")
    assert (stale.code, stale.out) == (1, "")
    plan_id = json.loads(Path("plan.json").read_text())["plan_id"]
    assert stale.err.endswith(
        f"error: PL101: dev.{schema}.t changed since the plan {plan_id} was made. Nothing was applied. "
        "Make the plan again and look at it: deltaplane plan\n"
    )
    assert version_of(spark, f"{schema}.t") == 0


def test_a_saved_plan_needs_no_particular_name(run: Run, declare: Declare, schema: str) -> None:
    run("plan", declare(small(schema)), "--save", "tonight.plan")
    assert run("apply", "tonight.plan").code == 0


def test_a_stale_plan_goes_through_when_that_is_waived(
    run: Run, declare: Declare, engine: Engine, spark: SparkSession, schema: str
) -> None:
    engine.sync(dp.Registry(small(schema)))
    run("plan", declare(small(schema, comment="declared")), "--save", "plan.json")
    spark.sql(f"ALTER TABLE {schema}.t SET TBLPROPERTIES ('by' = 'hand')")
    assert run("apply", "plan.json").code == 1
    assert run("apply", "plan.json", "--waive", f"PL101:{schema}.t:seen and fine").code == 0
    assert spark.sql(f"DESCRIBE DETAIL {schema}.t").collect()[0]["description"] == "declared"


def test_other_waivers_come_too_late_for_a_saved_plan(run: Run, declare: Declare, schema: str) -> None:
    run("plan", declare(small(schema)), "--save", "plan.json")
    ran = run("apply", "plan.json", "--waive", f"DS102:{schema}.t:because")
    assert ran.code == 1
    assert "--waive DS102: a saved plan carries its waivers. Nothing was applied." in ran.err


def edit_a_change(plan: dict[str, Any]) -> None:
    text = json.dumps(plan["tables"][0]["changes"][0]["value"]).replace('"note"', '"evil"')
    plan["tables"][0]["changes"][0]["value"] = json.loads(text)


def edit_the_fingerprint(plan: dict[str, Any]) -> None:
    plan["tables"][0]["fingerprint"] = "0" * 16


def add_a_table(plan: dict[str, Any]) -> None:
    plan["tables"].append({**plan["tables"][0], "name": ["dev", "x", "y"]})


@pytest.mark.parametrize("edit", [edit_a_change, edit_the_fingerprint, add_a_table])
def test_an_edited_plan_is_refused(
    run: Run, declare: Declare, schema: str, edit: Callable[[dict[str, Any]], None]
) -> None:
    run("plan", declare(small(schema)), "--save", "plan.json")
    plan = json.loads(Path("plan.json").read_text())
    edit(plan)
    Path("plan.json").write_text(json.dumps(plan))
    ran = run("apply", "plan.json")
    assert (ran.code, ran.out) == (1, "")
    assert "plan.json was changed after it was made" in ran.err
    assert "Nothing was applied." in ran.err


def test_a_plan_whose_findings_were_edited_away_is_refused(
    run: Run, declare: Declare, engine: Engine, spark: SparkSession, schema: str
) -> None:
    """What a rule blocked must not go through because somebody deleted the finding from the file."""
    mapped = {"delta.columnMapping.mode": "name"}
    engine.sync(dp.Registry(small(schema, properties=mapped)))
    assert run("plan", declare(table(schema, properties=mapped)), "--save", "plan.json").code == 4
    plan = json.loads(Path("plan.json").read_text())
    plan["tables"][0]["findings"] = []
    Path("plan.json").write_text(json.dumps(plan))
    ran = run("apply", "plan.json")
    assert spark.table(f"{schema}.t").columns == ["id", "note"]
    assert ran.code == 1
    assert "plan.json was changed after it was made" in ran.err


NOT_A_PLAN = {
    "empty": "",
    "text": "hello",
    "a list": "[]",
    "another object": '{"a": 1}',
    "a number": "3",
    "half": '{"format": 1, "plan_id": "x", "engine": "e", "schemas": [], "tables": [{}]}',
}


@pytest.mark.parametrize("content", NOT_A_PLAN.values(), ids=NOT_A_PLAN.keys())
def test_a_file_that_is_not_a_plan_is_refused(run: Run, content: str) -> None:
    Path("plan.json").write_text(content)
    ran = run("apply", "plan.json")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: plan.json is not a plan of deltaplane")
    assert "Traceback" not in ran.err


def test_a_plan_can_name_no_class_but_our_own(run: Run) -> None:
    value = {"__class__": "Popen", "args": ["touch", "evil"]}
    plan = {"format": 1, "plan_id": "x", "engine": "e", "tables": [], "schemas": [{"value": value}]}
    Path("plan.json").write_text(json.dumps(plan))
    ran = run("apply", "plan.json")
    assert (ran.code, ran.out) == (1, "")
    assert "plan.json cannot be used: The saved plan contains 'Popen', which this version does not" in ran.err
    assert not Path("evil").exists()


def test_a_plan_of_another_format_a_missing_and_an_unreadable_one_are_refused(run: Run) -> None:
    Path("new.json").write_text('{"format": 99}')
    Path("bytes.json").write_bytes(b"\xff\xfe")
    Path("dir.json").mkdir()
    new, missing, raw, folder = (run("apply", f"{name}.json") for name in ("new", "no", "bytes", "dir"))
    assert [ran.code for ran in (new, missing, raw, folder)] == [1] * 4
    assert "new.json has format 99, and this version reads 1." in new.err
    assert missing.err == (
        "error: no.json cannot be read: No such file or directory. "
        "Make one with: deltaplane plan --save no.json\n"
    )
    assert "bytes.json is not a plan of deltaplane: it is not text." in raw.err
    assert "dir.json cannot be read: Is a directory." in folder.err


def test_a_plan_that_cannot_be_saved_says_so(run: Run, declare: Declare, schema: str) -> None:
    ran = run("plan", declare(small(schema)), "--save", "no/such/plan.json")
    assert (ran.code, ran.out) == (1, "")
    assert "The plan could not be saved to no/such/plan.json: No such file or directory." in ran.err


def test_sql_and_markdown_show_the_same_plan_and_change_nothing(
    run: Run, declare: Declare, spark: SparkSession, schema: str
) -> None:
    target = declare(small(schema, comment="it's"))
    create = (
        f"CREATE TABLE `spark_catalog`.`{schema}`.`t` (`id` BIGINT, `note` STRING) USING DELTA "
        "COMMENT 'it\\'s' TBLPROPERTIES ('deltaplane.owner' = 'deltaplane')"
    )
    text = run("plan", target, "--sql")
    assert text.code == 3
    assert text.out.endswith(
        f"Statements:\n-- dev.{schema}.`*`\nCREATE SCHEMA IF NOT EXISTS `spark_catalog`.`{schema}`;\n"
        f"-- dev.{schema}.t\n{create};\n"
    )
    markdown = run("plan", target, "--markdown")
    assert markdown.out.startswith("## Table plan\n\n1 table, 2 changes. Nothing applied.\n")
    assert "| create table with 2 columns | metadata |" in markdown.out
    both = run("plan", target, "--sql", "--markdown", "--output", "json").json
    assert both["statements"][f"dev.{schema}.t"] == [create]
    assert both["markdown"] == markdown.out
    assert schema not in schemas_of(spark)


def test_a_rehearsal_changes_nothing_and_leaves_nothing_behind(
    run: Run, declare: Declare, engine: Engine, spark: SparkSession, schema: str
) -> None:
    engine.sync(dp.Registry(small(schema)))
    spark.sql(f"INSERT INTO {schema}.t VALUES (1, 'a')")
    before = (schemas_of(spark), tables_of(spark, schema), version_of(spark, f"{schema}.t"))
    changed = small(schema, comment="new")
    ran = run("plan", declare(changed, table(schema, name="fresh")), "--rehearse")
    assert ran.code == 3
    rehearsal = ran.out.partition("Rehearsal on shallow clones (now removed):\n")[2]
    assert f"dev.{schema}.t: applied" in rehearsal
    assert "2 tables: 2 would be applied." in rehearsal
    assert (schemas_of(spark), tables_of(spark, schema), version_of(spark, f"{schema}.t")) == before
    assert [tuple(row) for row in spark.table(f"{schema}.t").collect()] == [(1, "a")]


def test_a_rehearsal_that_fails_leaves_with_1_and_nothing_behind(
    run: Run, declare: Declare, engine: Engine, spark: SparkSession, schema: str
) -> None:
    engine.sync(dp.Registry(small(schema)))
    before = (schemas_of(spark), version_of(spark, f"{schema}.t"))
    bad = small(schema, properties={"delta.checkpointInterval": "abc"})
    ran = run("plan", declare(bad), "--rehearse", "--output", "json")
    assert ran.code == 1
    (entry,) = ran.json["rehearsal"]["tables"]
    assert entry["status"] == "failed"
    assert entry["error"].startswith("the rehearsal failed, and the table itself was not touched: ")
    assert (schemas_of(spark), version_of(spark, f"{schema}.t")) == before


def test_every_commit_carries_the_plan_and_the_author(
    run: Run, declare: Declare, spark: SparkSession, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DELTAPLANE_AUTHOR", "Zoë's 'deploy' job")
    first = run("apply", declare(small(schema)), "--output", "json").json
    second = run("apply", declare(small(schema, comment="c", tags={"a": "b"})), "--output", "json").json
    assert first["author"] == "Zoë's 'deploy' job"
    history = spark.sql(f"DESCRIBE HISTORY {schema}.t").orderBy("version").collect()
    notes = [json.loads(row["userMetadata"])["deltaplane"] for row in history]
    assert notes[0] == {"plan": first["plan_id"], "author": "Zoë's 'deploy' job"}
    assert notes[1:]
    assert all(note == {"plan": second["plan_id"], "author": "Zoë's 'deploy' job"} for note in notes[1:])


EVERY_TYPE = [
    Boolean(),
    Byte(),
    Short(),
    Integer(),
    Long(),
    Float(),
    Double(),
    Decimal(38, 18),
    String(),
    Varchar(20),
    Char(3),
    Binary(),
    Date(),
    Timestamp(),
    TimestampNtz(),
    Variant(),
    Array(Map(String(), Array(Integer()))),
    Map(Integer(), Struct([Field("x", Varchar(5)), Field("y", Array(Struct([Field("z", Date())])))])),
    Struct([Field("a", Long(), nullable=False, comment=NASTY), Field("b.c", String())]),
]


def rich_tables(schema: str) -> list[DeltaTable]:
    """Tables that together use everything that can be declared."""
    customers = DeltaTable(
        "dev",
        schema,
        "customers",
        [
            Column("id", Long(), nullable=False, identity=Identity(start=10, step=5, always=False)),
            Column("email", String(), tags={"pii": NASTY}),
            Column("region", String(), default="'eu'"),
            Column("day", Date(), generated="CAST(at AS DATE)"),
            Column("at", Timestamp(), default="current_timestamp()"),
        ],
        primary_key="id",
        unique=[Unique("email"), Unique(("email", "region"), name="mail_per_region")],
        partitioned_by=("region", "day"),
        comment=NASTY,
        tags={"team": NASTY, "with'quote": "x"},
    )
    orders = DeltaTable(
        "dev",
        schema,
        "class",
        [
            Column("id", Long(), nullable=False, identity=True),
            Column("customer_id", Long(), nullable=False, comment=NASTY),
            Column("amount", Decimal(12, 2), nullable=False, default="0.00"),
            Column("`odd` 'name' ${x}. 😀", String(), comment=NASTY, tags={"a": "b"}),
        ],
        primary_key=("id", "customer_id"),
        foreign_keys=[ForeignKey("customer_id", customers)],
        checks=[Check("amount>=0"), Check("amount < 1000 OR customer_id <> 0", name="Limit")],
        clustered_by=("customer_id", "amount"),
        properties={
            "delta.columnMapping.mode": "name",
            "delta.logRetentionDuration": "interval 60 days",
            "own.note": NASTY,
        },
    )
    types = DeltaTable(
        "dev",
        schema,
        "types",
        [Column(f"c{n}", kind) for n, kind in enumerate(EVERY_TYPE)],
        properties={"delta.columnMapping.mode": "name"},
        features=["deletionVectors"],
    )
    return [customers, orders, types]


def bare_default(column: Column) -> Column:
    """Spark keeps the parentheses around a default that is more than one word."""
    return column if column.default is None else replace(column, default=canonical(column.default))


def test_pulled_declarations_are_python_that_plans_to_no_changes(
    run: Run, declare: Declare, schema: str
) -> None:
    tables = rich_tables(schema)
    applied = run("apply", declare(*tables), "--waive", f"PR101:{schema}.types:new readers only")
    assert applied.code == 0, applied.out
    module = f"pulled_{uuid.uuid4().hex[:10]}"
    pulled = run("pull", schema, "--catalog", "dev", "--to", f"{module}.py")
    assert (pulled.code, pulled.out) == (
        0,
        f"{module}.py: 3 tables. Look at it, then: deltaplane plan {module}:registry\n",
    )
    source = Path(f"{module}.py").read_text(encoding="utf-8")
    assert ast.parse(source)
    planned = run("plan", f"{module}:registry")
    assert (planned.code, planned.out) == (0, "3 tables, 0 changes. Everything is as declared.\n")
    registry = sys.modules[module].registry
    assert [t.qualified_name for t in registry] == [t.qualified_name for t in dp.Registry(*tables)]
    for ours in tables:
        theirs = registry.get(ours.qualified_name)
        assert [bare_default(c) for c in theirs.columns] == [bare_default(c) for c in ours.columns]
        assert (theirs.comment, theirs.tags) == (ours.comment, ours.tags)
        assert (theirs.partitioned_by, theirs.clustered_by) == (ours.partitioned_by, ours.clustered_by)
        assert (theirs.primary_key, set(theirs.unique)) == (ours.primary_key, set(ours.unique))
    printed = run("pull", schema, schema, "--catalog", "dev")
    assert printed.out == source + "\n"


def test_pull_into_another_catalog_plans_to_no_changes_either(
    run: Run, declare: Declare, schema: str
) -> None:
    run("apply", declare(small(schema)))
    module = f"pulled_{uuid.uuid4().hex[:10]}"
    run("pull", schema, "--catalog", "prod", "--to", f"{module}.py")
    planned = run("plan", f"{module}:registry", "--output", "json")
    assert (planned.code, planned.json["tables"][0]["table"]) == (0, f"prod.{schema}.t")


def test_pull_refuses_to_overwrite_unless_told(run: Run, declare: Declare, schema: str) -> None:
    run("apply", declare(small(schema)))
    Path("mine.py").write_text("mine")
    refused = run("pull", schema, "--to", "mine.py")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        "error: mine.py exists and was not touched. Choose another file, or say --force to write over it.\n"
    )
    assert Path("mine.py").read_text() == "mine"
    assert run("pull", schema, "--to", "mine.py", "--force").code == 0
    assert "registry = dp.Registry(t)" in Path("mine.py").read_text()


def test_pull_says_what_it_left_out_and_why(
    run: Run, declare: Declare, spark: SparkSession, schema: str
) -> None:
    run("apply", declare(small(schema)))
    spark.sql(f"CREATE TABLE {schema}.old (a INT) USING parquet")
    spark.sql(f"CREATE VIEW {schema}.seen AS SELECT 1 AS a")
    text, machine = run("pull", schema), run("pull", schema, "--output", "json")
    assert "registry = dp.Registry(t)" in text.out
    assert f"left out spark_catalog.{schema}.old: " in text.err
    assert sorted(machine.json["left_out"]) == [f"spark_catalog.{schema}.old", f"spark_catalog.{schema}.seen"]
    assert (text.code, machine.code, machine.err) == (0, 0, "")


def test_pull_from_nowhere_or_to_nowhere_is_one_message(run: Run, declare: Declare, schema: str) -> None:
    nowhere = run("pull", "no_such_schema_at_all")
    assert (nowhere.code, nowhere.out) == (1, "")
    assert "no_such_schema_at_all" in nowhere.err.splitlines()[-1]
    assert "Traceback" not in nowhere.err
    run("apply", declare(small(schema)))
    unwritable = run("pull", schema, "--to", "no/such/tables.py")
    assert (unwritable.code, unwritable.out) == (1, "")
    assert unwritable.err.endswith(
        "error: no/such/tables.py could not be written: No such file or directory. Choose another file.\n"
    )
