"""The one place that chooses among the adapters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deltaplane.schema import Waiver
from deltaplane.sync import Engine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from deltaplane.ledger import Ledger

__all__ = ["build_databricks_engine", "build_spark_engine", "spark_session"]


def build_spark_engine(
    spark: SparkSession,
    *,
    catalogs: Mapping[str, str] | None = None,
    author: str | None = None,
    waivers: Iterable[Waiver] = (),
    progress: Callable[[str], None] | None = None,
) -> Engine:
    """Return an engine on a Spark session.

    Args:
        spark: A session with Delta, from `spark_session()` or your own.
        catalogs: The engine's catalog for declared ones, such as `{"dev": "spark_catalog"}`. A declared
            catalog that
            Spark does not know becomes the session's catalog by itself.
        author: Who is said to have made the changes.
        waivers: Rules set aside, beside those of the registry.
        progress: Called with a sentence before each longer piece of work.
    """
    from deltaplane.spark.catalog import SparkCatalog

    return Engine(SparkCatalog(spark, catalogs), author=author, waivers=waivers, progress=progress)


def build_databricks_engine(
    spark: SparkSession,
    *,
    catalogs: Mapping[str, str] | None = None,
    author: str | None = None,
    waivers: Iterable[Waiver] = (),
    progress: Callable[[str], None] | None = None,
) -> Engine:
    """Return an engine on Databricks: keys, tags and NOT NULL as SQL, catalogs by their own names.

    On a session that is not Databricks it is the same as `build_spark_engine`, so that one program runs in
    both places.
    """
    from deltaplane.databricks.catalog import DatabricksCatalog, is_databricks

    if not is_databricks(spark):
        return build_spark_engine(spark, catalogs=catalogs, author=author, waivers=waivers, progress=progress)
    return Engine(DatabricksCatalog(spark, catalogs), author=author, waivers=waivers, progress=progress)


def spark_session(
    *,
    app_name: str = "deltaplane",
    master: str | None = None,
    warehouse: str | None = None,
    conf: Mapping[str, Any] | None = None,
    ledger: Ledger | str | None = None,
    manage: Sequence[str] | None = None,
) -> SparkSession:
    """Open a Spark session with Delta, or return the one that runs.

    Without arguments it runs on this machine, and table names survive the process: they are resolved from the
    warehouse folder. Settings of deltaplane.toml and of the environment count where an argument is left out.

    Args:
        app_name: Shown by Spark.
        master: Where to run; left out, all cores of this machine.
        warehouse: The folder of managed tables; left out, .deltaplane/warehouse.
        conf: Any Spark settings; they win over everything else.
        ledger: The ledger that commits to managed tables go through, or its address; see `attach`.
        manage: With a ledger: folders and namespaces in which new tables are managed from their first
            version; left out, the warehouse.

    Raises:
        SparkStartError: Spark cannot be started. The message names the cause and the remedy.
    """
    from deltaplane.config import load_config
    from deltaplane.spark.session import open_session

    settings = load_config().spark
    spark = open_session(
        app_name=app_name,
        master=master or settings.master,
        warehouse=warehouse or settings.warehouse,
        conf={**settings.conf, **{key: str(value) for key, value in (conf or {}).items()}},
    )
    if ledger is not None:
        from deltaplane.spark.attaching import attach

        attach(spark, ledger, manage=manage)
    return spark
