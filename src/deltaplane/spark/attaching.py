"""Attaches a ledger to a Spark session: from then on Delta's commits to managed tables go through it."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deltaplane.errors import SparkStartError
from deltaplane.ledger import Ledger, connect
from deltaplane.spark.compiling import compile_classes, file_system_class
from deltaplane.spark.names import CATALOG_CLASS, LEDGER_NAMES_CLASS
from deltaplane.spark.port import LedgerPort, root_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Attachment", "attach", "attachment_of", "detach", "serves_files"]

TESTED_DELTA = ("4.4.0",)
_DEFAULT_STORES = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "io.delta.storage.S3SingleDriverLogStore"),
    **dict.fromkeys(("abfs", "abfss", "adl", "wasb", "wasbs"), "io.delta.storage.AzureLogStore"),
    "gs": "io.delta.storage.GCSLogStore",
    **dict.fromkeys(("file", "hdfs", "viewfs"), "io.delta.storage.HDFSLogStore"),
}
_LOG_STORE = "deltaplane.LedgerLogStore"
# A metastore's server shares names by itself, and Spark expects to find its own class in front of it.
_CATALOGS_WITHOUT_SERVER = (
    "org.apache.spark.sql.catalyst.catalog.InMemoryCatalog",
    CATALOG_CLASS,
    LEDGER_NAMES_CLASS,
)
# As Delta's own cache has them.
_MOST_LOGS = 10_000
_MINUTES = 60


@dataclass
class Attachment:
    """A session's ledger.

    Attributes:
        ledger: The ledger.
        port: What answers Delta.
        cache: Delta's logs, by view.
        names: The names that transactions gave to tables.
        schemes: The file systems that are wrapped.
        threads: The local properties of the threads that are in a view, by the view's id.
    """

    ledger: Ledger
    port: LedgerPort
    cache: Any
    names: Any
    schemes: tuple[str, ...]
    threads: dict[str, Any] = field(default_factory=dict)


_ATTACHED: dict[str, Attachment] = {}


def attachment_of(spark: SparkSession) -> Attachment:
    """The session's ledger.

    Raises:
        SparkStartError: It has none.
    """
    found = _ATTACHED.get(_application(spark))
    if found is None:
        raise SparkStartError(
            "This Spark session has no ledger. Nothing was changed. Open it with "
            "deltaplane.spark_session(ledger=…), or give a running one its ledger with "
            "deltaplane.attach(spark, …)."
        )
    return found


def attach(spark: SparkSession, ledger: Ledger | str, *, manage: Sequence[str] | None = None) -> Ledger:
    """Let a session's Delta commits to managed tables go through a ledger.

    Tables that the ledger does not manage behave as before. Sessions that share the SparkContext share the
    ledger.

    Args:
        spark: A running session with Delta.
        ledger: The ledger, or its address.
        manage: Folders and namespaces in which new tables are managed from their first version; left out, the
            warehouse. What has a slash or a colon is a folder. Tables of a namespace are those that are
            created under a name in it.

    Returns:
        The ledger.

    Raises:
        SparkStartError: The session cannot be attached. Names the cause and the remedy.
    """
    _require_driver(spark)
    opened = connect(ledger) if isinstance(ledger, str) else ledger
    earlier = _ATTACHED.get(_application(spark))
    if earlier is not None:
        if earlier.ledger.context.uri != opened.context.uri:
            raise SparkStartError(
                f"This Spark session has the ledger {earlier.ledger.context.uri} already, and "
                f"{opened.context.uri} was asked for. Nothing was changed. Stop the session first."
            )
        return earlier.ledger
    port = LedgerPort(opened.context, *_managed(spark, manage))
    _ATTACHED[_application(spark)] = _installed(spark, opened, port)
    return opened


def _managed(spark: SparkSession, manage: Sequence[str] | None) -> tuple[list[str], list[str]]:
    """The folders and the namespaces in which new tables are to be managed."""
    if isinstance(manage, str):
        raise SparkStartError(
            f"manage= takes a list of folders and namespaces, and {manage!r} was given. Nothing was changed. "
            f"Give manage=[{manage!r}]."
        )
    wished = [str(spark.conf.get("spark.sql.warehouse.dir"))] if manage is None else list(manage)
    folders: list[str] = []
    namespaces: list[str] = []
    for one in map(str, wished):
        if "/" not in one and ":" not in one:
            namespaces.append(one.removeprefix("spark_catalog."))
            continue
        root = root_of(one)
        if root is None:
            raise SparkStartError(
                f"manage= names {one}, which no ledger can hold tables of. Nothing was changed. Give local "
                f"folders, or folders of an object store that the ledger serves."
            )
        folders.append(root)
    return folders, namespaces


def detach(spark: SparkSession) -> None:
    """Let a session work without its ledger again. Managed tables stay managed: commits are foreign then.

    Raises:
        SparkStartError: It has no ledger, or a transaction is open.
    """
    attachment = attachment_of(spark)
    if attachment.port.views:
        raise SparkStartError(
            f"{len(attachment.port.views)} transactions or read points are open in this session. Nothing was "
            f"changed. End them first."
        )
    jvm: Any = spark._jvm
    jvm.deltaplane.LedgerLogStore.install(None, spark.sparkContext._jsc.sc())
    attachment.cache.invalidateAll()
    del _ATTACHED[_application(spark)]


def _application(spark: SparkSession) -> str:
    return str(spark.sparkContext.applicationId)


def _require_driver(spark: SparkSession) -> None:
    advice = (
        "Commit without Spark through deltaplane.connect(…).transaction(), or run PySpark in the driver's "
        "process."
    )
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        raise SparkStartError(
            "A ledger cannot be attached over Spark Connect: commits are made in the server's process, where "
            f"this program cannot put a log store. Nothing was changed. {advice}"
        )
    if "DATABRICKS_RUNTIME_VERSION" in os.environ:
        raise SparkStartError(
            "A ledger cannot be attached on Databricks: its Delta takes no log store of others. Nothing was "
            f"changed. Use Unity Catalog's tables there as they are. {advice}"
        )
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() == "false":
        raise SparkStartError(
            "A ledger cannot be attached while PYSPARK_PIN_THREAD is false: threads of Python would share "
            "threads of Java, and with them transactions. Nothing was changed. Unset it and start anew."
        )
    delta = importlib.metadata.version("delta-spark")
    if delta not in TESTED_DELTA:
        raise SparkStartError(
            f"The ledger has been tested with Delta {', '.join(TESTED_DELTA)}, and {delta} is installed. "
            f"Nothing was changed. Install delta-spark=={TESTED_DELTA[-1]}."
        )


def _installed(spark: SparkSession, ledger: Ledger, port: LedgerPort) -> Attachment:
    from pyspark.java_gateway import ensure_callback_server_started

    jvm: Any = spark._jvm
    context = spark.sparkContext._jsc.sc()
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    settings = context.conf()
    if settings.contains("spark.delta.logStore.class"):
        raise SparkStartError(
            "spark.delta.logStore.class is set, and serves all schemes. Nothing was changed. Set "
            "spark.delta.logStore.<scheme>.impl for its scheme instead: the ledger wraps that."
        )
    file_systems = _file_systems(spark)
    compile_classes(spark, file_systems)
    ensure_callback_server_started(  # type: ignore[no-untyped-call]
        spark.sparkContext._gateway
    )
    for scheme, default in _DEFAULT_STORES.items():
        key = f"spark.delta.logStore.{scheme}.impl"
        own = settings.get(key, settings.get(key.removeprefix("spark."), default))
        if own != _LOG_STORE:
            hadoop.set(f"deltaplane.logStore.{scheme}", own)
            settings.remove(key.removeprefix("spark."))
            settings.set(key, _LOG_STORE)
    for scheme in file_systems:
        _wrap_file_system(spark, scheme)
    jvm.deltaplane.LedgerLogStore.install(port, context)
    cache = jvm.deltaplane.ViewCache.install(_MOST_LOGS, _MINUTES)
    jvm.deltaplane.LedgerCacheManager.install(spark._jsparkSession.sharedState())
    jvm.deltaplane.StatementGate.install(spark._jsparkSession)
    catalog = spark._jsparkSession.sharedState().externalCatalog()
    if str(catalog.unwrapped().getClass().getName()) in _CATALOGS_WITHOUT_SERVER:
        warehouse = str(spark.conf.get("spark.sql.warehouse.dir"))
        jvm.deltaplane.LedgerNames.install(catalog, hadoop, warehouse)
        port.names_of_tables.kept = True
    names = jvm.deltaplane.NameWatch.install(catalog)
    return Attachment(ledger, port, cache, names, tuple(file_systems))


def _file_systems(spark: SparkSession) -> dict[str, str]:
    """The class that serves each scheme, where one does and is not ours already."""
    jvm: Any = spark._jvm
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    found: dict[str, str] = {}
    for scheme in _DEFAULT_STORES:
        try:
            name = str(jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, hadoop).getName())
        except Exception:  # noqa: S112 - the jar of that store is not there, so nobody can use it
            continue
        if name != f"deltaplane.{file_system_class(scheme)}":
            found[scheme] = name
    return found


def _wrap_file_system(spark: SparkSession, scheme: str) -> None:
    """Let a scheme be served by our class, also where the earlier one is in use already."""
    jvm: Any = spark._jvm
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    jvm.deltaplane.FileSystems.replace(scheme, f"deltaplane.{file_system_class(scheme)}", hadoop)


def serves_files(spark: SparkSession, attachment: Attachment) -> bool:
    """Whether our file systems are still those that Hadoop uses."""
    jvm: Any = spark._jvm
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    served = str(jvm.deltaplane.FileSystems.serving("file:///", hadoop))
    return "file" not in attachment.schemes or served == f"deltaplane.{file_system_class('file')}"
