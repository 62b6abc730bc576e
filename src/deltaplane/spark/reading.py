"""Reading every managed table at one moment, with ordinary SQL and DataFrames."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deltaplane import telemetry
from deltaplane.errors import ConfigError, DeltaplaneError
from deltaplane.ledger.read_point import ReadPoint, pinned_tables
from deltaplane.spark.attaching import Attachment, attachment_of
from deltaplane.spark.pinning import QUERY, enter, leave
from deltaplane.spark.pins import replaced
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
        ReadPointExpired: A table that is read is not there any more, also not at the end of the block, or its
            log no longer holds the version.
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
        if isinstance(error, Exception):
            _check_tables(attachment, given, view, error)
        raise
    else:
        _check_tables(attachment, given, view, None)
    finally:
        leave(spark, attachment, view)


def _check_tables(attachment: Attachment, point: ReadPoint, view: View, error: Exception | None) -> None:
    """See that the tables which were read are still those of the point; `error` may come of it."""
    if not view.used:
        return
    try:
        _, lost = pinned_tables(attachment.ledger.context, point)
    except DeltaplaneError as unknown:
        telemetry.LOGGER.warning(
            "nobody knows whether the tables of the read point are the same: %s", unknown
        )
        return
    gone = sorted(view.used & lost.keys())
    if gone:
        raise replaced(gone[0]) from error
