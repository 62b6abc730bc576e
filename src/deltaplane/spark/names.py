"""Table names that survive the process, without a metastore.

Spark's default catalog lives in memory: a table created by one process has no name in the next.
`attach_names` makes the running session look names up in the warehouse folder instead, one at a time and
when they are asked for, so that opening a session costs the same with ten tables and with ten thousand,
and several processes share the names.

What is shared: schemas, and Delta tables, wherever their files are. A location outside the warehouse, a
schema's comment and its properties are kept in small JSON files in the folder `<warehouse>.names`,
beside the warehouse. What stays in memory, as Spark has it: views, functions, and tables of other
formats. A folder of the warehouse that some other tool wrote as a Delta table is a table of that name,
too.

The catalog itself is `java/WarehouseCatalog.java`. It is compiled in the driver by Janino, which Spark
ships, so no JDK is needed and it always matches the running Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltaplane.errors import SparkStartError
from deltaplane.spark.compiling import compiled, java_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["attach_names"]

TESTED_SPARK = "4.2"
CATALOG_CLASS = "deltaplane.WarehouseCatalog"
LEDGER_NAMES_CLASS = "deltaplane.LedgerNames"


def attach_names(spark: SparkSession, warehouse: str) -> None:
    """Makes a session resolve schemas and Delta tables from its warehouse folder.

    Calling it again on the same session changes nothing. Names that the session already has are kept.

    Args:
        spark: A running session that uses Spark's in-memory catalog.
        warehouse: The session's warehouse, as a path or URI.

    Raises:
        SparkStartError: The session uses another catalog or warehouse, or its Spark is not known to work.
    """
    jvm: Any = spark._jvm
    own = _qualified(spark, str(spark.conf.get("spark.sql.warehouse.dir")))
    if _qualified(spark, warehouse) != own:
        raise SparkStartError(
            f"Names cannot be kept in {warehouse}: the session's warehouse is {own}. Nothing was changed. "
            "Pass that folder, or stop the session and start one with the warehouse you want."
        )
    holder = _external_catalog(spark)
    current = _kept_by(holder)
    if current == CATALOG_CLASS:
        return
    if current != "org.apache.spark.sql.catalyst.catalog.InMemoryCatalog":
        raise SparkStartError(
            f"Names cannot be kept in {warehouse}: the session has a catalog of its own ({current}), which "
            "already keeps them. Nothing was changed. Use the session as it is."
        )
    try:
        methods = _compiled(jvm).getMethods()
        install = next(method for method in methods if method.getName() == "install")
        arguments = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 4)  # type: ignore[union-attr]
        arguments[0] = holder
        arguments[1] = spark.sparkContext._jsc.sc().conf()
        arguments[2] = spark.sparkContext._jsc.hadoopConfiguration()
        arguments[3] = own
        install.invoke(None, arguments)
    except Exception as error:
        raise _unknown_spark(spark, error) from None


def _external_catalog(spark: SparkSession) -> Any:
    try:
        holder = spark._jsparkSession.sharedState().externalCatalog()
        holder.unwrapped()
    except Exception as error:
        raise _unknown_spark(spark, error) from None
    return holder


def _kept_by(holder: Any) -> str:
    """The class that keeps the session's names; those of a ledger stand in front of it."""
    catalog = holder.unwrapped()
    if catalog.getClass().getName() == LEDGER_NAMES_CLASS:
        catalog = catalog.unwrapped()
    return str(catalog.getClass().getName())


def _compiled(jvm: Any) -> Any:
    """Compiles the catalog in the driver and returns its class."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    for name in ("CatalogEntries", "WarehouseCatalog"):
        loader = compiled(jvm, java_source(name), loader).getClassLoader()
    return loader.loadClass(CATALOG_CLASS)


def _qualified(spark: SparkSession, path: str) -> str:
    """The path with its scheme, so that two spellings of one folder compare equal."""
    jvm: Any = spark._jvm
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop_path = jvm.org.apache.hadoop.fs.Path(path)
    return str(hadoop_path.getFileSystem(conf).makeQualified(hadoop_path).toString())


def _unknown_spark(spark: SparkSession, error: Exception) -> SparkStartError:
    java_error = getattr(error, "java_exception", None)
    while java_error is not None and java_error.getCause() is not None:
        java_error = java_error.getCause()
    cause = str(java_error.toString() if java_error is not None else error).splitlines()[0]
    return SparkStartError(
        f"Names cannot be kept in the warehouse with Spark {spark.version}: {cause}. Nothing was changed. "
        f"Tested with Spark {TESTED_SPARK}; install that, or configure a metastore."
    )
