"""demo: the main job on local Spark, in a minute."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltaplane.cli.output import Output, OutputFormat
from deltaplane.engines import build_spark_engine, spark_session
from deltaplane.errors import SyncFailedError
from deltaplane.ledger import Ledger, connect
from deltaplane.planning.render import to_text
from deltaplane.planning.saved import to_json
from deltaplane.schema import Column, Decimal, DeltaTable, ForeignKey, Long, Registry, String
from deltaplane.spark.transacting import transaction
from deltaplane.sync import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    """Plan, apply, see a dangerous change refused, and change two tables at once, under .deltaplane/demo."""
    out = Output(output)
    shutil.rmtree(STATE, ignore_errors=True)
    with out.working():
        out.progress("starting Spark")
        ledger = connect(f"deltasql://sqlite/{STATE / 'ledger.db'}")
        spark = spark_session(warehouse=str(STATE / "warehouse"), ledger=ledger)
        engine = build_spark_engine(spark, progress=out.progress)
        steps = _run(engine, out)
        steps += _transact(spark, ledger, out)
        out.text(f"\nThe tables are under {STATE / 'warehouse'}. Start your own with: deltaplane init")
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
    return steps


_CUSTOMER = "INSERT INTO silver.customers VALUES (1, 'Ada', 'ada@example.org')"
_ORDER = "INSERT INTO silver.orders VALUES (10, 1, 5)"


def _transact(spark: SparkSession, ledger: Ledger, out: Output) -> list[dict[str, Any]]:
    """A customer and an order come together, or neither does."""
    steps: list[dict[str, Any]] = []
    places = {
        name: str(spark.sql(f"DESCRIBE DETAIL silver.{name}").collect()[0]["location"])
        for name in ("customers", "orders")
    }

    def show(title: str, said: str) -> None:
        rows = {
            name: ledger.to_deltalake(place).to_pyarrow_table().num_rows for name, place in places.items()
        }
        steps.append({"title": title, "rows": rows, "said": said})
        told = ", ".join(f"{name} {count}" for name, count in rows.items())
        out.text(f"\n== {title}\n{said}\nRows that deltalake reads from the files: {told}.")

    out.progress("a transaction over two tables")
    try:
        with transaction(spark, message="the first order"):
            spark.sql(_CUSTOMER)
            spark.sql(_ORDER)
            inside = spark.table("silver.orders").count()
            raise ValueError("the customer changed her mind")
    except ValueError as error:
        said = f"Inside there was {inside} order. Then: {error}."
        show("7. A transaction adds a customer and an order, and is rolled back:", said)
    with transaction(spark, author="the demo", message="the first order") as landed:
        spark.sql(_CUSTOMER)
        spark.sql(_ORDER)
    assert landed.result is not None
    versions = landed.result.versions.items()
    said = ", ".join(f"{path.rpartition('/')[2]} at version {version}" for path, version in versions)
    show("8. The same once more, both tables in one commit:", f"Committed {said}.")
    return steps
