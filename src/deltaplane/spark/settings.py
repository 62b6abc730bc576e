"""What a Spark session is started with: Delta, and on one machine defaults that fit it."""

from __future__ import annotations

import importlib.metadata
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deltaplane.errors import SparkStartError

__all__ = ["SessionPlan", "plan_session", "settings_asked_for"]

DEFAULT_WAREHOUSE = ".deltaplane/warehouse"
DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

EXTENSIONS = "spark.sql.extensions"
PACKAGES = "spark.jars.packages"
SESSION_CATALOG = "spark.sql.catalog.spark_catalog"
WAREHOUSE = "spark.sql.warehouse.dir"


@dataclass(frozen=True)
class SessionPlan:
    """What a new session is started with."""

    settings: dict[str, str]
    local: bool
    keeps_names: bool
    delta_package: str | None

    @property
    def warehouse(self) -> str | None:
        return self.settings.get(WAREHOUSE)


def settings_asked_for(master: str | None, warehouse: str | None, conf: Mapping[str, str]) -> dict[str, str]:
    """The caller's arguments as Spark settings."""
    asked = dict(conf)
    for key, value in (("spark.master", master), (WAREHOUSE, warehouse)):
        if value is None:
            continue
        if key in conf and comparable(key, conf[key]) != comparable(key, value):
            raise SparkStartError(
                f"{key} is asked for twice: {value} as an argument, {conf[key]} in conf. "
                "Nothing was changed. Give it once."
            )
        asked[key] = value
    if WAREHOUSE in asked:
        asked[WAREHOUSE] = _absolute(asked[WAREHOUSE])
    return asked


def submitted_settings() -> dict[str, str]:
    """Settings of a process that spark-submit started: it has chosen master, jars and more already."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def plan_session(app_name: str, asked: Mapping[str, str]) -> SessionPlan:
    """Decide what to start a session with; what is asked for wins."""
    master = asked.get("spark.master", "local[*]")
    local = master.startswith("local")
    metastore = (
        asked.get("spark.sql.catalogImplementation", "in-memory") != "in-memory"
        or asked.get(SESSION_CATALOG, DELTA_CATALOG) != DELTA_CATALOG
        or "spark.hadoop.hive.metastore.uris" in asked
    )
    settings = {"spark.app.name": app_name, "spark.master": master, SESSION_CATALOG: DELTA_CATALOG}
    if local:
        settings |= _local_defaults(master)
        if not metastore:
            settings[WAREHOUSE] = _absolute(DEFAULT_WAREHOUSE)
    if "spark.hadoop.hive.metastore.uris" in asked:
        # Spark looks at the address only when it is told to use Hive.
        settings["spark.sql.catalogImplementation"] = "hive"
    settings |= asked
    settings[EXTENSIONS] = _joined(asked.get(EXTENSIONS), DELTA_EXTENSION)
    package = None if _brings_delta(asked) else _delta_package()
    if package is not None:
        settings[PACKAGES] = _joined(asked.get(PACKAGES), package)
    return SessionPlan(settings, local, not metastore and (local or WAREHOUSE in asked), package)


def _local_defaults(master: str) -> dict[str, str]:
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        # The usual 200 and 50 tasks per query cost seconds on one machine and win nothing.
        "spark.sql.shuffle.partitions": str(_cores(master)),
        "spark.databricks.delta.snapshotPartitions": "1",
        # Only Delta tables are found by name in the next process, so that is what CREATE TABLE makes.
        "spark.sql.sources.default": "delta",
    }


def _cores(master: str) -> int:
    match = re.match(r"local\[(\d+)", master)
    if match:
        return int(match.group(1))
    return 1 if master == "local" else os.cpu_count() or 1


def _joined(asked: str | None, own: str) -> str:
    present = entries(asked)
    return ",".join(present if own in present else [*present, own])


def entries(text: str | None) -> list[str]:
    return [entry.strip() for entry in (text or "").split(",") if entry.strip()]


def _brings_delta(asked: Mapping[str, str]) -> bool:
    """Whether the jars that the caller names, or those of the installed Spark, contain Delta already."""
    from pyspark.find_spark_home import _find_spark_home

    named = (asked.get(key, "") for key in (PACKAGES, "spark.jars", "spark.driver.extraClassPath"))
    return any("delta-spark" in jars for jars in named) or any(
        Path(_find_spark_home(), "jars").glob("delta-spark*.jar")
    )


def versions() -> tuple[str, str]:
    """Versions of Delta, and of Spark without its patch level."""
    spark = importlib.metadata.version("pyspark")
    return importlib.metadata.version("delta-spark"), ".".join(spark.split(".")[:2])


def _delta_package() -> str:
    delta, spark = versions()
    return f"io.delta:delta-spark_{spark}_2.13:{delta}"


def _absolute(warehouse: str) -> str:
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", warehouse):
        return warehouse
    return os.path.abspath(os.path.expanduser(warehouse))


def _local_path(warehouse: str) -> Path | None:
    if warehouse.startswith("file:"):
        return Path("/" + warehouse.removeprefix("file:").lstrip("/"))
    return Path(warehouse) if warehouse.startswith("/") else None


def require_writable(warehouse: str | None) -> None:
    """Looks before Spark starts, and creates nothing: a failed start must leave no folder behind."""
    folder = _local_path(warehouse) if warehouse is not None else None
    if folder is None:
        return
    existing = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        why = "is not a folder" if not existing.is_dir() else "cannot be written to"
        raise SparkStartError(
            f"The warehouse {folder} cannot be used: {existing} {why}. Nothing was changed. "
            "Choose another folder (warehouse=...), or change that one's permissions."
        )


def comparable(key: str, value: str) -> str:
    if key != WAREHOUSE:
        return value
    path = _local_path(_absolute(value))
    return value if path is None else str(path)
