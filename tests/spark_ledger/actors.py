"""Threads that do one thing at a time, when they are told: with them a test writes its interleaving down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

from pyspark.sql import SparkSession

import deltaplane as dp
from deltaplane.spark.transacting import SparkTransaction
from spark_ledger.conftest import Lake

__all__ = ["Actor", "setting"]

Result = TypeVar("Result")
# Long enough for every machine; a test that waits so long has found a deadlock.
_PATIENCE = 120.0


class Actor:
    """A thread of its own, in a transaction or in none, which waits between its steps."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.transaction: SparkTransaction | None = None
        self._threads = ThreadPoolExecutor(1)
        self._block: AbstractContextManager[SparkTransaction] | None = None

    def __enter__(self) -> Actor:
        return self

    def __exit__(self, *ignored: object) -> None:
        if self.transaction is not None and "open" in repr(self.transaction):
            self.rollback()
        self._threads.shutdown()

    def does(self, work: Callable[[], Result]) -> Result:
        """Let the thread do something, and wait until it has."""
        return self._threads.submit(work).result(_PATIENCE)

    def begins(self, **options: Any) -> Actor:
        """Begin a transaction in the thread."""
        self._block = dp.transaction(self.lake.spark, **options)
        self.transaction = self.does(self._block.__enter__)
        return self

    def sql(self, *statements: str) -> None:
        for statement in statements:
            self.does(lambda text=statement: self.lake.sql(text))

    def value(self, statement: str) -> Any:
        return self.does(lambda: self.lake.value(statement))

    def column(self, statement: str) -> list[Any]:
        return self.does(lambda: [row[0] for row in self.lake.rows(statement)])

    def commits(self) -> dict[str, int]:
        """End the transaction; the versions that it made, by the names of the tables."""
        self._leave()
        assert self.transaction is not None
        assert self.transaction.result is not None
        return {path.rpartition("/")[2]: found for path, found in self.transaction.result.versions.items()}

    def rollback(self) -> None:
        assert self.transaction is not None
        self.does(self.transaction.rollback)
        self._leave()

    def _leave(self) -> None:
        block = self._block
        assert block is not None
        self.does(lambda: block.__exit__(None, None, None))


@contextmanager
def setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    """Change a setting of the session for a while."""
    before = spark.conf.get(key, None)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, before)
