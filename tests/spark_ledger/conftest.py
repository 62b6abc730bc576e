"""A lake: one Spark session, with a ledger of its own for every test."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import deltaplane as dp
from deltaplane.ledger import Ledger
from deltaplane.spark.attaching import attach, detach
from postgres_server import PostgresServer

ENGINES = ("sqlite", "postgres")
Result = TypeVar("Result")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.stop()


@dataclass
class Lake:
    """A folder in which new tables are managed. In statements {name} stands for the table of that name."""

    spark: SparkSession
    ledger: Ledger
    folder: Path

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def sql(self, statement: str) -> DataFrame:
        return self.spark.sql(statement.format_map(_Tables(self.folder)))

    def rows(self, statement: str) -> list[Row]:
        return self.sql(statement).collect()

    def value(self, statement: str) -> Any:
        return self.rows(statement)[0][0]

    def table(
        self, name: str, columns: str = "id bigint, state string", properties: str = "", rows: int = 0
    ) -> str:
        """Create a table; the first columns of its rows count from 0, the second are 'new'."""
        extra = f" TBLPROPERTIES ({properties})" if properties else ""
        self.sql(f"CREATE TABLE {{{name}}} ({columns}) USING delta{extra}")
        if rows:
            self.sql(f"INSERT INTO {{{name}}} SELECT id, 'new' FROM range({rows})")
        return self.path(name)

    def version(self, name: str) -> int:
        return self.ledger.latest_version(self.path(name))

    def log(self, name: str) -> list[str]:
        """What every outside reader sees in the log, without Hadoop's own checksums."""
        listed = (self.folder / name / "_delta_log").iterdir()
        return sorted(file.name for file in listed if file.is_file() and not file.name.startswith("."))


class _Tables(dict[str, str]):
    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def __missing__(self, name: str) -> str:
        return f"delta.`{self._folder / name}`"


@pytest.fixture(params=ENGINES)
def ledger_uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        server = request.getfixturevalue("postgres")
        return str(server.uri(server.new_database()))
    return f"deltasql://sqlite/{tmp_path}/ledger.db"


@pytest.fixture
def lake(spark: SparkSession, ledger_uri: str, tmp_path: Path) -> Iterator[Lake]:
    """After every test the ledger and the published log of all its tables agree."""
    folder = tmp_path / f"lake{uuid.uuid4().hex[:6]}"
    ledger = attach(spark, dp.connect(ledger_uri), manage=[str(folder)])
    yield Lake(spark, ledger, folder)
    detach(spark)
    ledger.publish()
    for table in ledger.tables():
        assert ledger.verify(table.location, every=True).differences == ()
    ledger.close()


def elsewhere(work: Callable[[], Result]) -> Result:
    """Do something in another thread, outside of the caller's transaction, and wait for it."""
    outcome: list[Result] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(work())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]
