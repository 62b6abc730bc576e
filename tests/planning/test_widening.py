"""The matrix of type widening: as a pure table, and against Delta itself."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from deltaplane.planning.widening import widening
from deltaplane.schema import DataType, parse_type
from deltaplane.sqltext import quote_identifier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = [
    parse_type(text)
    for text in [
        "boolean",
        "tinyint",
        "smallint",
        "int",
        "bigint",
        "float",
        "double",
        "decimal(10,0)",
        "decimal(10,2)",
        "decimal(12,2)",
        "decimal(14,3)",
        "decimal(20,0)",
        "string",
        "varchar(5)",
        "varchar(9)",
        "char(5)",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
    ]
]
PAIRS = list(itertools.permutations(TYPES, 2))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("tinyint", "smallint", "feature"),
        ("tinyint", "decimal(10,0)", "feature"),
        ("smallint", "double", "feature"),
        ("int", "bigint", "feature"),
        ("int", "decimal(10,0)", "feature"),
        ("int", "decimal(10,2)", "none"),
        ("bigint", "decimal(20,0)", "feature"),
        ("bigint", "double", "none"),
        ("float", "double", "feature"),
        ("double", "float", "none"),
        ("decimal(10,2)", "decimal(14,3)", "feature"),
        ("decimal(10,2)", "decimal(10,3)", "none"),
        ("date", "timestamp_ntz", "feature"),
        ("date", "timestamp", "none"),
        ("varchar(5)", "varchar(9)", "free"),
        ("varchar(9)", "varchar(5)", "none"),
        ("char(5)", "varchar(9)", "free"),
        ("char(5)", "string", "free"),
        ("string", "varchar(9)", "none"),
    ],
)
def test_what_may_become_what(old: str, new: str, expected: str) -> None:
    """The rows of the matrix that people ask about."""
    assert widening(parse_type(old), parse_type(new)) == expected


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.exhaustive
def test_delta_agrees_with_the_matrix_on_every_pair(spark: SparkSession, schema: str) -> None:
    """Every ordered pair of twenty types, tried on a table that allows widening."""
    columns = ", ".join(f"c{number} {old}" for number, (old, _) in enumerate(PAIRS))
    spark.sql(f"CREATE SCHEMA {schema}")
    properties = "'delta.enableTypeWidening' = 'true', 'delta.feature.timestampNtz' = 'supported'"
    spark.sql(f"CREATE TABLE {schema}.t ({columns}) USING DELTA TBLPROPERTIES ({properties})")
    disagreements = []
    for number, (old, new) in enumerate(PAIRS):
        accepted = _accepts(spark, f"{schema}.t", quote_identifier(f"c{number}"), new)
        if accepted != (widening(old, new) != "none"):
            disagreements.append((str(old), str(new), accepted))
    assert len(PAIRS) == 380
    assert disagreements == []


def _accepts(spark: SparkSession, table: str, column: str, new: DataType) -> bool:
    from deltaplane.spark.failures import ENGINE_ERRORS

    try:
        spark.sql(f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {new}")
    except ENGINE_ERRORS:
        return False
    return True
