"""demo: the main job on local Spark, in a minute."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from deltaplane.cli.output import Output, OutputFormat
from deltaplane.engines import build_spark_engine, spark_session
from deltaplane.errors import SyncFailedError
from deltaplane.planning.render import to_text
from deltaplane.planning.saved import to_json
from deltaplane.schema import Column, Decimal, DeltaTable, ForeignKey, Long, Registry, String
from deltaplane.sync import Engine

__all__ = ["EXAMPLE", "demo"]

EXAMPLE = "Example: deltaplane demo"
STATE = Path(".deltaplane/demo")

CUSTOMERS = DeltaTable(
    "dev",
    "silver",
    "customers",
    [
        Column("id", Long(), nullable=False),
        Column("name", String(), comment="as on the invoice"),
        Column("email", String()),
    ],
    primary_key="id",
)
ORDERS = DeltaTable(
    "dev",
    "silver",
    "orders",
    [Column("id", Long(), nullable=False), Column("customer_id", Long()), Column("amount", Decimal(12, 2))],
    primary_key="id",
    foreign_keys=[ForeignKey("customer_id", CUSTOMERS)],
    checks=["amount IS NULL OR amount >= 0"],
)


def demo(
    output: Annotated[
        OutputFormat, typer.Option("--output", help="For people or for machines.")
    ] = OutputFormat.text,
) -> None:
    """Plan, apply, plan again and see a dangerous change refused, on local Spark under .deltaplane/demo."""
    out = Output(output)
    shutil.rmtree(STATE, ignore_errors=True)
    with out.working():
        out.progress("starting Spark")
        spark = spark_session(warehouse=str(STATE / "warehouse"))
        engine = build_spark_engine(spark, progress=out.progress)
        steps = _run(engine, out)
    out.json({"steps": steps})


def _run(engine: Engine, out: Output) -> list[dict[str, Any]]:
    registry = Registry(CUSTOMERS, ORDERS)
    steps: list[dict[str, Any]] = []

    def show_plan(title: str, declared: Registry) -> None:
        found = engine.plan(declared)
        steps.append({"title": title, "plan": to_json(found)})
        out.text(f"\n== {title}\n{to_text(found)}")

    show_plan("1. Two tables are declared; nothing exists yet. The plan:", registry)
    report = engine.sync(registry)
    steps.append({"title": "apply", "report": report.to_json()})
    out.text(f"\n== 2. Apply it:\n{report.to_text()}")
    show_plan("3. Plan again: nothing is left to do.", registry)
    dangerous = Registry(replace(CUSTOMERS, columns=CUSTOMERS.columns[:2]), ORDERS)
    show_plan("4. Somebody removes the column email from the declaration. The plan is blocked:", dangerous)
    try:
        engine.sync(dangerous)
    except SyncFailedError as refusal:
        steps.append({"title": "refused", "report": refusal.report.to_json()})
        out.text(
            f"\n== 5. Applying it all the same is refused, and no statement is "
            f"run:\n{refusal.report.to_text()}"
        )
    show_plan("6. The tables are as they were:", registry)
    out.text(f"\nThe tables are under {STATE / 'warehouse'}. Start your own with: deltaplane init")
    return steps
