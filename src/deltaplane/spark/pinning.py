"""Which view a thread of Spark is in: a local property, which Spark hands on to the threads it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltaplane.errors import LedgerError, SparkStartError
from deltaplane.spark.attaching import Attachment, serves_files
from deltaplane.spark.views import View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["QUERY", "VIEW", "current_view", "enter", "leave"]

VIEW = "deltaplane.view"
QUERY = "sql.streaming.queryId"


def current_view(spark: SparkSession) -> str | None:
    """The id of the view that the calling thread is in."""
    found = spark.sparkContext.getLocalProperty(VIEW)
    return None if found is None else str(found)


def enter(spark: SparkSession, attachment: Attachment, view: View) -> None:
    """Let the calling thread see the tables as the view does.

    Raises:
        LedgerError: It is in one already.
    """
    current = current_view(spark)
    if current is not None:
        raise LedgerError(
            f"This thread is in the transaction or at the read point {current} already, and neither can be "
            f"nested. Nothing was changed. End that one first, or begin in a thread of its own."
        )
    if not serves_files(spark, attachment):
        raise SparkStartError(
            "Hadoop's file systems were closed (FileSystem.closeAll), and with them the ledger's. Nothing "
            "was changed. Stop the session and open it anew."
        )
    jvm: Any = spark._jvm
    # A session that shares the SparkContext may be newer than the attachment.
    jvm.deltaplane.StatementGate.install(spark._jsparkSession)
    attachment.port.views[view.view_id] = view
    spark.sparkContext.setLocalProperty(VIEW, view.view_id)


def leave(spark: SparkSession, attachment: Attachment, view: View) -> None:
    """End a view: from here on the thread sees what everybody sees."""
    view.ended = True
    attachment.port.views.pop(view.view_id, None)
    attachment.port.failures.pop(view.view_id, None)
    spark.sparkContext.setLocalProperty(VIEW, None)  # type: ignore[arg-type]
    jvm: Any = spark._jvm
    attachment.cache.drop(view.view_id)
    jvm.deltaplane.LedgerLogStore.forget(view.view_id)
