"""Reading every managed table at one moment, with ordinary SQL and DataFrames."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deltaplane.errors import ConfigError
from deltaplane.ledger.read_point import ReadPoint, pinned_tables
from deltaplane.spark.attaching import attachment_of
from deltaplane.spark.pinning import QUERY, enter, leave
from deltaplane.spark.views import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["reading_at"]


@contextmanager
def reading_at(spark: SparkSession, point: ReadPoint | str) -> Iterator[ReadPoint]:
    """Read every managed table at one moment, whatever others commit meanwhile. Nothing can be written.

    Args:
        spark: A session with the ledger that the point is of.
        point: The point, or its text.

    Raises:
        ConfigError: It is not a read point.
        ReadPointExpired: A table that is read is not there any more, or its log no longer holds the version.
    """
    given = ReadPoint.from_json(point) if isinstance(point, str) else point
    if not isinstance(given, ReadPoint):
        raise ConfigError(
            f"reading_at takes a read point, and {type(given).__name__} was given. Nothing was read. Take "
            f"one with ledger.read_point()."
        )
    attachment = attachment_of(spark)
    query = spark.sparkContext.getLocalProperty(QUERY)
    pins, lost = pinned_tables(attachment.ledger.context, given)
    view = View(str(uuid.uuid4()), pins, query, lost=lost)
    enter(spark, attachment, view)
    try:
        yield given
    except BaseException as error:
        cause = attachment.port.failures.get(view.view_id)
        if cause is not None and str(cause) in str(error):
            # Spark wraps what the ledger said; whoever catches errors of the ledger must find it.
            raise cause from error
        raise
    finally:
        leave(spark, attachment, view)
