"""The first example people meet, in two processes one after the other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EXAMPLE = """
import deltaplane as dp
from deltaplane import Registry, build_databricks_engine
from deltaplane.schema import Column, DeltaTable, Integer, String

spark = dp.spark_session()
engine = build_databricks_engine(spark)
registry = Registry()

customers = DeltaTable(
    catalog="dev",
    schema="silver",
    name="customers",
    columns=[
        Column("id", Integer()),
        Column("name", String()),
    ],
)

registry.register(customers)
print(engine.plan(registry).is_empty)
engine.sync(registry)
print(spark.table("silver.customers").columns)
"""


def run(folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", EXAMPLE], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_second_process_finds_nothing_to_do(tmp_path: Path) -> None:
    """The name survives the process: the same program, run again, has an empty plan."""
    assert run(tmp_path) == ["False", "['id', 'name']"]
    assert run(tmp_path) == ["True", "['id', 'name']"]
    assert (tmp_path / ".deltaplane" / "warehouse" / "silver.db" / "customers" / "_delta_log").is_dir()
