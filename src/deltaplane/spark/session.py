"""Opens a Spark session with Delta wired in, quietly, or says in one message why it cannot."""

from __future__ import annotations

import importlib.metadata
import logging
import os
from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from deltaplane.errors import SparkStartError
from deltaplane.spark.launcher import JavaOutput, ensure_jvm, launch_failure
from deltaplane.spark.names import attach_names
from deltaplane.spark.settings import (
    DELTA_EXTENSION,
    EXTENSIONS,
    PACKAGES,
    SESSION_CATALOG,
    WAREHOUSE,
    SessionPlan,
    comparable,
    entries,
    plan_session,
    require_writable,
    settings_asked_for,
    submitted_settings,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["open_session"]

INSTALL = "Install both with: pip install 'deltaplane[spark]'"
# Lists that are added to, where other settings are replaced.
LISTS = (EXTENSIONS, PACKAGES)


def open_session(
    *,
    app_name: str = "deltaplane",
    master: str | None = None,
    warehouse: str | None = None,
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """Opens a Spark session on Delta tables, or returns the one that is running in this process.

    Without arguments it runs on all cores of this machine, listens on the loopback interface only, keeps its
    tables in `.deltaplane/warehouse`, and finds them by name in the next process as well (see
    `deltaplane.spark.names`). A metastore that `conf` names is used as it is. A session that is already
    running is returned as it is, too.

    Args:
        app_name: Name of the application, as Spark's own tools show it.
        master: Spark's master URL; `local[*]` by default.
        warehouse: Folder or URI of the warehouse. With a master that is not local, names are kept only where
            it is given.
        conf: Spark settings. Each of them wins over what would be set here; lists of extensions and packages
            are joined.

    Raises:
        SparkStartError: Spark cannot be started, or one is running whose settings contradict those asked for.
    """
    _require_packages()
    asked = settings_asked_for(master, warehouse, conf or {})
    running = _running_session()
    if running is not None:
        return _reuse(running, asked)
    plan = plan_session(app_name, {**submitted_settings(), **asked})
    require_writable(plan.warehouse)
    gateway = ensure_jvm(plan, asked)
    with JavaOutput.running.held(gateway) if JavaOutput.running is not None else nullcontext():
        spark = _start(plan)
        _keep_quiet()
        if plan.keeps_names and plan.warehouse is not None:
            try:
                attach_names(spark, plan.warehouse)
            except SparkStartError:
                spark.stop()
                raise
    return spark


def _require_packages() -> None:
    for package in ("pyspark", "delta-spark"):
        try:
            importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            raise SparkStartError(f"{package} is not installed. Nothing was changed. {INSTALL}") from None


def _running_session() -> SparkSession | None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    session = SparkSession._instantiatedSession
    if session is not None and session._sc._jsc is not None:
        return SparkSession.getActiveSession() or session
    if SparkContext._active_spark_context is not None:
        raise SparkStartError(
            "A SparkContext is already running in this process, without a session that has Delta. "
            "Nothing was changed. Stop it first (SparkContext.stop()), then open the session again."
        )
    return None


def _reuse(spark: SparkSession, asked: Mapping[str, str]) -> SparkSession:
    if "DATABRICKS_RUNTIME_VERSION" in os.environ:
        # There Delta is part of Spark, and shows in no setting.
        return spark
    if DELTA_EXTENSION not in entries(spark.conf.get(EXTENSIONS, "")) or not spark.conf.get(
        SESSION_CATALOG, ""
    ):
        raise SparkStartError(
            "A Spark session without Delta is already running in this process. Nothing was changed. "
            "Stop it first (spark.stop()), or start it with Delta's extension and catalog."
        )
    changes = {key: value for key, value in asked.items() if not _has(spark, key, value)}
    for key, value in changes.items():
        if key.startswith("spark.") and not spark.conf.isModifiable(key):
            raise SparkStartError(
                "A Spark session is already running in this process with "
                f"{key}={_current(spark, key) or '(not set)'}; {value} was asked for. Nothing was changed. "
                "Stop it first (spark.stop()), or leave the setting out."
            )
    for key, value in changes.items():
        spark.conf.set(key, value)
    return spark


def _current(spark: SparkSession, key: str) -> str:
    return str(spark.conf.get(key, "") or spark.sparkContext.getConf().get(key, "") or "")


def _has(spark: SparkSession, key: str, value: str) -> bool:
    current = _current(spark, key)
    if key in LISTS:
        return set(entries(value)) <= set(entries(current))
    return comparable(key, current) == comparable(key, value)


def _start(plan: SessionPlan) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    for key, value in plan.settings.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
        # Spark reads the settings of a session when it first needs them: now, not at the first statement.
        spark.conf.get(WAREHOUSE)
    except Exception as error:
        started = SparkSession._instantiatedSession or SparkContext._active_spark_context
        if started is not None:
            started.stop()
        raise launch_failure(_text_of(error).splitlines()) from None
    # Spark only warns when it cannot load an extension, and then fails much later, at the first statement.
    missing = [name for name in entries(plan.settings[EXTENSIONS]) if not _can_load(spark, name)]
    if missing:
        spark.stop()
        raise SparkStartError(
            f"Spark started without the jar of {missing[-1]}, and was stopped again. Nothing was changed. "
            "Add the jar to spark.jars or spark.jars.packages; if this Python process had a Spark session "
            "before, do so in a new process."
        )
    return spark


def _text_of(error: Exception) -> str:
    java_error = getattr(error, "java_exception", None)
    return str(error) if java_error is None else str(java_error.toString())


def _can_load(spark: SparkSession, class_name: str) -> bool:
    jvm: Any = spark._jvm
    return bool(jvm.org.apache.spark.util.Utils.classIsLoadable(class_name))


def _keep_quiet() -> None:
    """Stops PySpark from printing a page of JSON for each exception that it raises anyway."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
