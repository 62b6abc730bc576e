"""Opens a Spark session with Delta wired in, quietly, or says in one message why it cannot."""

from __future__ import annotations

import importlib.metadata
import logging
import os
import pwd
import re
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from deltaplane.errors import SparkStartError
from deltaplane.spark.java_version import require_java
from deltaplane.spark.names import attach_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["open_session"]

DEFAULT_WAREHOUSE = ".deltaplane/warehouse"
DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
INSTALL = "Install both with: pip install 'deltaplane[spark]'"

EXTENSIONS = "spark.sql.extensions"
PACKAGES = "spark.jars.packages"
SESSION_CATALOG = "spark.sql.catalog.spark_catalog"
WAREHOUSE = "spark.sql.warehouse.dir"
# Lists that are added to, where other settings are replaced.
LISTS = (EXTENSIONS, PACKAGES)
# Read when the Java process starts, and never again in it.
JVM_SETTINGS = (
    PACKAGES,
    "spark.driver.memory",
    "spark.driver.extraJavaOptions",
    "spark.driver.extraClassPath",
)

UNRESOLVED = re.compile(
    r"unresolved dependency|UNRESOLVED DEPENDENCIES|Server access error|download failed", re.IGNORECASE
)
NOISE = re.compile(
    r"\bWARN(ING)?\b|\bINFO\b|^Using Spark's|^Setting |^To adjust|^::|^\s|^Picked up|^Ivy |^The jars"
)


@dataclass(frozen=True)
class _Plan:
    """What a new session is started with."""

    settings: dict[str, str]
    local: bool
    keeps_names: bool
    delta_package: str | None

    @property
    def warehouse(self) -> str | None:
        return self.settings.get(WAREHOUSE)


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
    asked = _asked(master, warehouse, conf or {})
    running = _running_session()
    if running is not None:
        return _reuse(running, asked)
    plan = _plan(app_name, {**_submitted_settings(), **asked})
    _require_writable(plan.warehouse)
    gateway = _ensure_jvm(plan, asked)
    with _Output.running.held(gateway) if _Output.running is not None else nullcontext():
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


# ---- what to start with


def _asked(master: str | None, warehouse: str | None, conf: Mapping[str, str]) -> dict[str, str]:
    """The caller's arguments as Spark settings."""
    asked = dict(conf)
    for key, value in (("spark.master", master), (WAREHOUSE, warehouse)):
        if value is None:
            continue
        if key in conf and _comparable(key, conf[key]) != _comparable(key, value):
            raise SparkStartError(
                f"{key} is asked for twice: {value} as an argument, {conf[key]} in conf. "
                "Nothing was changed. Give it once."
            )
        asked[key] = value
    if WAREHOUSE in asked:
        asked[WAREHOUSE] = _absolute(asked[WAREHOUSE])
    return asked


def _submitted_settings() -> dict[str, str]:
    """Settings of a process that spark-submit started: it has chosen master, jars and more already."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _plan(app_name: str, asked: Mapping[str, str]) -> _Plan:
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
    settings |= asked
    settings[EXTENSIONS] = _joined(asked.get(EXTENSIONS), DELTA_EXTENSION)
    package = None if _brings_delta(asked) else _delta_package()
    if package is not None:
        settings[PACKAGES] = _joined(asked.get(PACKAGES), package)
    return _Plan(settings, local, not metastore and (local or WAREHOUSE in asked), package)


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
    }


def _cores(master: str) -> int:
    match = re.match(r"local\[(\d+)", master)
    if match:
        return int(match.group(1))
    return 1 if master == "local" else os.cpu_count() or 1


def _joined(asked: str | None, own: str) -> str:
    entries = _entries(asked)
    return ",".join(entries if own in entries else [*entries, own])


def _entries(text: str | None) -> list[str]:
    return [entry.strip() for entry in (text or "").split(",") if entry.strip()]


def _brings_delta(asked: Mapping[str, str]) -> bool:
    """Whether the jars that the caller names, or those of the installed Spark, contain Delta already."""
    from pyspark.find_spark_home import _find_spark_home

    named = (asked.get(key, "") for key in (PACKAGES, "spark.jars", "spark.driver.extraClassPath"))
    return any("delta-spark" in jars for jars in named) or any(
        Path(_find_spark_home(), "jars").glob("delta-spark*.jar")
    )


def _versions() -> tuple[str, str]:
    """Versions of Delta, and of Spark without its patch level."""
    spark = importlib.metadata.version("pyspark")
    return importlib.metadata.version("delta-spark"), ".".join(spark.split(".")[:2])


def _delta_package() -> str:
    delta, spark = _versions()
    return f"io.delta:delta-spark_{spark}_2.13:{delta}"


def _absolute(warehouse: str) -> str:
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", warehouse):
        return warehouse
    return os.path.abspath(os.path.expanduser(warehouse))


def _local_path(warehouse: str) -> Path | None:
    if warehouse.startswith("file:"):
        return Path("/" + warehouse.removeprefix("file:").lstrip("/"))
    return Path(warehouse) if warehouse.startswith("/") else None


def _require_writable(warehouse: str | None) -> None:
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


# ---- a session that is running


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
    if DELTA_EXTENSION not in _entries(spark.conf.get(EXTENSIONS, "")) or not spark.conf.get(
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
        return set(_entries(value)) <= set(_entries(current))
    return _comparable(key, current) == _comparable(key, value)


def _comparable(key: str, value: str) -> str:
    if key != WAREHOUSE:
        return value
    path = _local_path(_absolute(value))
    return value if path is None else str(path)


# ---- the Java process


class _Stream:
    """One output of the Java process: kept while Spark starts, to explain a failure, then passed on."""

    def __init__(self, descriptor: int) -> None:
        source, self.target = os.pipe()
        self.lines: deque[str] = deque(maxlen=2000)
        self._descriptor = descriptor
        self._held_until: bytes | None = uuid.uuid4().hex.encode()
        self._thread = threading.Thread(target=self._follow, args=(source,), daemon=True)
        self._thread.start()

    def hold(self) -> str:
        """Keeps what follows to itself, until the process prints the returned mark."""
        self._held_until = uuid.uuid4().hex.encode()
        return self._held_until.decode()

    def finish(self) -> list[str]:
        """Waits for the end of what a process that has exited wrote."""
        self._thread.join(timeout=5)
        return list(self.lines)

    def _follow(self, source: int) -> None:
        with os.fdopen(source, "rb", buffering=0) as stream:
            rest = b""
            while chunk := stream.read(65536):
                if self._held_until is None:
                    _write_all(self._descriptor, chunk)
                    continue
                *lines, rest = (rest + chunk).split(b"\n")
                if self._held_until in lines:
                    after = lines.index(self._held_until) + 1
                    _write_all(self._descriptor, b"\n".join([*lines[after:], rest]))
                    self._held_until, lines, rest = None, lines[:after], b""
                self.lines.extend(line.decode(errors="replace") for line in lines)


class _Output:
    """Standard output and error of the Java process that this Python process has started."""

    running: ClassVar[_Output | None] = None

    def __init__(self) -> None:
        self.streams = (_Stream(1), _Stream(2))

    @contextmanager
    def held(self, gateway: Any) -> Iterator[None]:
        """Shows nothing of what Spark prints while it starts."""
        out_mark, error_mark = (stream.hold() for stream in self.streams)
        try:
            yield
        finally:
            # The process prints the marks itself: what it wrote before them may be under way in the pipe.
            # Where it has died, there is nothing left to show, and its death is what the caller hears of.
            with suppress(Exception):
                gateway.jvm.java.lang.System.out.println(out_mark)
                gateway.jvm.java.lang.System.err.println(error_mark)


def _write_all(descriptor: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        # Nobody reads our output any more. The process must be drained all the same, or it would block.
        return


def _ensure_jvm(plan: _Plan, asked: Mapping[str, str]) -> Any:
    """Starts the Java process, unless this Python process has one, from before or from spark-submit.

    Returns:
        The gateway to it.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        _require_same_jvm(asked)
        return SparkContext._gateway
    if not _has_spark_env():
        require_java(os.environ)
    if plan.local:
        # Spark's default is whatever `python3` the PATH has, which need not be this interpreter.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf(loadDefaults=False)
    for key, value in plan.settings.items():
        conf.set(key, value)
    fetching = plan.delta_package is not None and not _is_cached(plan)
    started = time.monotonic()
    if fetching:
        delta, spark = _versions()
        text = f"Fetching the Delta {delta} jars for Spark {spark} (first start only) …"
        sys.stderr.write(text)
        sys.stderr.flush()
    output = _Output()
    stdout, stderr = (stream.target for stream in output.streams)
    try:
        pipes = {"stdout": stdout, "stderr": stderr}
        gateway = launch_gateway(conf, popen_kwargs=pipes)  # type: ignore[no-untyped-call]
    except Exception as error:
        gateway, reason = None, str(error)
    # Only the Java process writes there now, so its end is the end of the stream.
    os.close(stdout)
    os.close(stderr)
    if fetching:
        took = f"{time.monotonic() - started:.0f} s" if gateway is not None else "failed"
        sys.stderr.write(f" {took}\n")
    if gateway is None:
        said = [line for stream in reversed(output.streams) for line in stream.finish()]
        raise _launch_failure(said or [reason])
    SparkContext._ensure_initialized(gateway=gateway)
    _Output.running = output
    return gateway


def _has_spark_env() -> bool:
    """Whether a spark-env.sh may choose another Java than the environment does."""
    from pyspark.find_spark_home import _find_spark_home

    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf")
    return os.path.exists(os.path.join(folder, "spark-env.sh"))


def _require_same_jvm(asked: Mapping[str, str]) -> None:
    from pyspark import SparkContext

    SparkContext._ensure_initialized()
    system: Any = SparkContext._jvm.java.lang.System  # type: ignore[union-attr]
    for key in JVM_SETTINGS:
        started_with = system.getProperty(key) or ""
        if key in asked and not set(_entries(asked[key])) <= set(_entries(started_with)):
            raise SparkStartError(
                f"{key}={asked[key]} takes effect only when the Java process starts, and this Python process "
                f"has one already, with {started_with or 'no such setting'}. Nothing was changed. "
                "Start a new Python process, or leave the setting out."
            )


def _is_cached(plan: _Plan) -> bool:
    group, artifact, version = (plan.delta_package or "").split(":")
    jar = Path(group, artifact, "jars", f"{artifact}-{version}.jar")
    ivy = plan.settings.get("spark.jars.ivy")
    return Path(ivy or _java_home_folder() / ".ivy2.5.2", "cache", jar).exists()


def _java_home_folder() -> Path:
    """The user's home as Java sees it: from the user database, not from $HOME."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path.home()


def _launch_failure(lines: Sequence[str]) -> SparkStartError:
    delta, spark = _versions()
    if any(UNRESOLVED.search(line) for line in lines):
        cause = next((line.strip() for line in lines if "Server access error" in line), None)
        cause = cause or next((line.strip(" \t:") for line in lines if "not found" in line), "not found")
        return SparkStartError(
            f"The jars that Spark {spark} needs for Delta {delta} could not be fetched: {cause}. "
            "Nothing was changed. Check the network or the proxy, point spark.jars.repositories or "
            "spark.jars.ivySettings at a repository within reach, or name a local Delta jar in spark.jars."
        )
    return SparkStartError(
        f"Spark did not start: {_first_meaningful(lines)}. Nothing was changed. "
        "Correct the setting that it names, then open the session again."
    )


def _first_meaningful(lines: Sequence[str]) -> str:
    candidates = [line.strip() for line in lines if line.strip() and not NOISE.search(line)]
    telling = (
        line for line in candidates if re.search(r"exception|error|could not|invalid", line, re.IGNORECASE)
    )
    line = next(telling, next(iter(candidates), "it gave no reason"))
    return re.sub(r'^(Exception in thread "[^"]*" )?([\w.$]+(Exception|Error): )?', "", line).rstrip(".")


def _start(plan: _Plan) -> SparkSession:
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
        raise _launch_failure(_text_of(error).splitlines()) from None
    # Spark only warns when it cannot load an extension, and then fails much later, at the first statement.
    missing = [name for name in _entries(plan.settings[EXTENSIONS]) if not _can_load(spark, name)]
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
