"""Drivers in processes of their own, which a test starts and kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["SHORT_LIVED", "Driver"]

PROGRAM = Path(__file__).with_name("driver.py")
# A driver does little before it ends: compiling its code with care would take longer than running it.
SHORT_LIVED = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}


class Driver:
    """A running driver."""

    def __init__(self, report: Path, **job: Any) -> None:
        self._report = report
        self._output = report.with_suffix(".log")
        paths = [str(PROGRAM.parent.parent), os.environ.get("PYTHONPATH", "")]
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(PROGRAM), json.dumps({**job, "report": str(report)})],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={
                    **os.environ,
                    **SHORT_LIVED,
                    "PYTHONPATH": os.pathsep.join(path for path in paths if path),
                },
                start_new_session=True,
            )

    def said(self, what: str) -> list[Any]:
        """The details of what it said of one kind."""
        if not self._report.exists():
            return []
        # The last line may be cut off by a kill.
        lines = [line for line in self._report.read_text().split("\n")[:-1] if line]
        return [detail for kind, detail in map(json.loads, lines) if kind == what]

    def wait_for(self, what: str, times: int = 1, seconds: float = 300) -> None:
        """Wait until it is open and has said something so many times."""
        deadline = time.monotonic() + seconds
        while not self.said("open") or len(self.said(what)) < times:
            assert self.running(), self.output()
            assert time.monotonic() < deadline, f"the driver did not come to {what!r}: {self.output()}"
            time.sleep(0.05)

    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self, *, python_only: bool = False) -> None:
        """Kill it, Java and Python at once; or Python alone, upon which Java ends by itself."""
        if python_only:
            self._process.kill()
            self._process.wait(60)
            time.sleep(0.5)
        self.clear()

    def clear(self) -> None:
        """See that nothing of it runs any more."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        finally:
            self._process.wait(60)

    def ended(self, seconds: float = 600) -> int:
        """Wait for its end; the exit code."""
        try:
            return self._process.wait(seconds)
        finally:
            self.clear()

    def output(self) -> str:
        return self._output.read_text(errors="replace")[-3000:]
