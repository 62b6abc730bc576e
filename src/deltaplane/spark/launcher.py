"""The Java process behind a session: started once, kept quiet while it starts, explained when it fails."""

from __future__ import annotations

import os
import pwd
import re
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from deltaplane.errors import SparkStartError
from deltaplane.spark.java_version import require_java
from deltaplane.spark.settings import PACKAGES, SessionPlan, entries, versions

__all__ = ["JavaOutput", "ensure_jvm", "launch_failure"]

# Read when the Java process starts, and never again in it.
JVM_SETTINGS = (
    PACKAGES,
    "spark.driver.memory",
    "spark.driver.extraJavaOptions",
    "spark.driver.extraClassPath",
)

UNRESOLVED = re.compile(
    r"unresolved dependency|UNRESOLVED DEPENDENCIES|Server access error|download failed", re.I
)
NOISE = re.compile(
    r"\bWARN(ING)?\b|\bINFO\b|^Using Spark's|^Setting |^To adjust|^::|^\s|^Picked up|^Ivy |^The jars"
)


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


class JavaOutput:
    """Standard output and error of the Java process that this Python process has started."""

    running: ClassVar[JavaOutput | None] = None

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


def ensure_jvm(plan: SessionPlan, asked: Mapping[str, str]) -> Any:
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
        delta, spark = versions()
        text = f"Fetching the Delta {delta} jars for Spark {spark} (first start only) …"
        sys.stderr.write(text)
        sys.stderr.flush()
    output = JavaOutput()
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
        raise launch_failure(said or [reason])
    SparkContext._ensure_initialized(gateway=gateway)
    JavaOutput.running = output
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
        if key in asked and not set(entries(asked[key])) <= set(entries(started_with)):
            raise SparkStartError(
                f"{key}={asked[key]} takes effect only when the Java process starts, and this Python process "
                f"has one already, with {started_with or 'no such setting'}. Nothing was changed. "
                "Start a new Python process, or leave the setting out."
            )


def _is_cached(plan: SessionPlan) -> bool:
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


def launch_failure(lines: Sequence[str]) -> SparkStartError:
    """Say in one message why Spark did not start, from what it printed."""
    delta, spark = versions()
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
