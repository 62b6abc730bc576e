"""Which view a thread of Spark is in: a local property, which Spark hands on to the threads it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltaplane.errors import LedgerError, SparkStartError
from deltaplane.spark.attaching import Attachment, serves_files
from deltaplane.spark.views import BEHIND, TransactionView, View

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["QUERY", "VIEW", "current_view", "enter", "is_running", "leave", "stay_behind"]

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
        found = attachment.port.views.get(current)
        # A view that has ended and whose block goes on is not found: only transactions leave such.
        reads = found is not None and not isinstance(found, TransactionView)
        raise LedgerError(
            f"This thread is {'at a read point' if reads else 'in a transaction'} already, and blocks of "
            f"that kind cannot be nested. Nothing was changed. End that one first, or begin in a thread of "
            f"its own."
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
    # Whoever ends the view may be another thread.
    attachment.threads[view.view_id] = spark.sparkContext._jsc.sc().getLocalProperties()


def leave(spark: SparkSession, attachment: Attachment, view: View) -> None:
    """End a view: from here on the thread sees what everybody sees."""
    _end(attachment, view)
    attachment.port.failures.pop(view.view_id, None)
    properties = attachment.threads.pop(view.view_id, None)
    if is_running(spark):
        if properties is not None:
            properties.remove(VIEW)
        _forget(spark, attachment, view.view_id)
        _forget(spark, attachment, view.view_id + BEHIND)


def stay_behind(spark: SparkSession, attachment: Attachment, view: View) -> None:
    """End a view whose thread stays in its block: it sees what everybody sees, and writes nothing."""
    _end(attachment, view)
    if is_running(spark):
        # Another id: what still runs under the view's own, such as an update in a pool, must not go on.
        attachment.threads[view.view_id].setProperty(VIEW, view.view_id + BEHIND)
        _forget(spark, attachment, view.view_id)


def _end(attachment: Attachment, view: View) -> None:
    view.ended = True
    attachment.port.views.pop(view.view_id, None)


def _forget(spark: SparkSession, attachment: Attachment, view_id: str) -> None:
    """Forget what Delta knows of the tables in a view."""
    jvm: Any = spark._jvm
    attachment.cache.drop(view_id)
    jvm.deltaplane.LedgerLogStore.forget(view_id)


def is_running(spark: SparkSession) -> bool:
    """Whether the session can still be asked."""
    return spark.sparkContext._jsc is not None
