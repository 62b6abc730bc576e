"""One Spark session for the whole run, in a warehouse of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

import deltaplane as dp
from deltaplane.sync import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The same examples in every run: what fails here fails for everybody.
settings.register_profile("suite", derandomize=True, deadline=None)
settings.load_profile("suite")


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lake") / "warehouse"


@pytest.fixture(scope="session")
def spark(warehouse: Path) -> Iterator[SparkSession]:
    """Started once, because a start takes longer than most tests."""
    session = dp.spark_session(
        master="local[2]", warehouse=str(warehouse), conf={"spark.sql.shuffle.partitions": "2"}
    )
    yield session
    session.stop()


@pytest.fixture
def engine(spark: SparkSession) -> Engine:
    return dp.build_spark_engine(spark, author="the suite")


@pytest.fixture
def schema() -> str:
    """A schema name nobody else uses."""
    return f"s{uuid.uuid4().hex[:10]}"
