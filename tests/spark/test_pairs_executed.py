"""Random pairs of declarations, applied on real Spark and read back."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import pytest

import deltaplane as dp
from deltaplane.planning.render import to_text
from deltaplane.schema import DeltaTable
from deltaplane.sync import Engine
from pairs import CODES_TO_WAIVE, make_pair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAIRS = 117
BATCH = 13


def consenting(*tables: DeltaTable) -> dp.Registry:
    registry = dp.Registry(*tables)
    for table in tables:
        for code in CODES_TO_WAIVE:
            registry.waive(code, str(table.qualified_name), reason="the test agrees")
    return registry


def fill(spark: SparkSession, table: DeltaTable) -> None:
    """Put one row in, so that defaults, checks and rewrites meet data."""
    columns = ", ".join("`" + c.name.replace("`", "``") + "`" for c in table.columns)
    values = ", ".join(
        f"CAST({'1' if c.type.text not in ('date', 'timestamp', 'timestamp_ntz') else 'current_date()'} "
        f"AS {c.type})"
        for c in table.columns
    )
    name = f"{table.schema}.{table.name}"
    spark.sql(f"INSERT INTO {name} ({columns}) SELECT {values}")


def can_be_filled(table: DeltaTable) -> bool:
    simple = (
        "int",
        "bigint",
        "smallint",
        "tinyint",
        "double",
        "float",
        "string",
        "boolean",
        "date",
        "timestamp",
    )
    return all(c.type.text in simple or c.type.text.startswith("decimal") for c in table.columns)


@pytest.mark.parametrize("first_seed", range(10_000, 10_000 + PAIRS, BATCH))
def test_random_edits_arrive_on_spark_or_are_blocked_by_a_rule(
    spark: SparkSession, engine: Engine, schema: str, first_seed: int
) -> None:
    """Applying plan(A->B) to A and reading back gives B; at most half of the pairs are blocked."""
    pairs = [make_pair(Random(seed), f"t{seed}") for seed in range(first_seed, first_seed + BATCH)]
    pairs = [(replace(a, schema=schema), replace(b, schema=schema)) for a, b in pairs]
    before = consenting(*(a for a, _ in pairs))
    engine.sync(before)
    assert engine.plan(before).is_empty, to_text(engine.plan(before))
    for table, _ in pairs:
        if can_be_filled(table):
            fill(spark, table)
    plan = engine.plan(consenting(*(b for _, b in pairs)))
    blocked = [entry for entry in plan.tables if entry.status == "blocked"]
    assert len(blocked) <= BATCH // 2, to_text(plan)
    assert not plan.counts()["read_failed"], to_text(plan)
    allowed = [b for _, b in pairs if plan.get(b.qualified_name).status != "blocked"]
    engine.sync(consenting(*allowed))
    again = engine.plan(consenting(*allowed))
    assert again.changes == (), to_text(again)
