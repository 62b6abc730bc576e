"""Goals, what was measured, and whether they were met."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["Result", "Series", "load_now", "megabytes", "say", "show", "skipped"]


@dataclass(frozen=True)
class Result:
    """One goal and what came of it; `met` is None where nothing is asked for or measured."""

    what: str
    goal: str
    measured: str
    met: bool | None


@dataclass(frozen=True)
class Series:
    """The same measurement several times."""

    values: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def seconds(self) -> str:
        return self._spread(_seconds)

    def rate(self) -> str:
        return self._spread("{:.0f}".format) + " per s"

    def _spread(self, text: Callable[[float], str]) -> str:
        if len(self.values) == 1:
            return text(self.median)
        return f"{text(self.median)} ({text(min(self.values))} to {text(max(self.values))})"


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 0.1 else f"{value * 1000:.1f} ms"


def megabytes(size: float) -> str:
    return f"{size / 2**20:,.0f} MiB"


def skipped(what: str, why: str) -> Result:
    return Result(what, "", f"skipped: {why}", None)


def load_now() -> str:
    return " ".join(f"{value:.1f}" for value in os.getloadavg())


def say(text: str) -> None:
    """What is being done, for whoever waits."""
    print(f"-- {text} (load {load_now()})", flush=True)


def show(results: Sequence[Result]) -> int:
    """Print the table; the exit code says whether every goal was met."""
    what = max(len(result.what) for result in results)
    goal = max(len(result.goal) for result in results)
    measured = max(len(result.measured) for result in results)
    print(f"\n{'what':<{what}}  {'goal':<{goal}}  {'measured':<{measured}}")
    for result in results:
        verdict = "" if result.met is None else "met" if result.met else "MISSED"
        print(f"{result.what:<{what}}  {result.goal:<{goal}}  {result.measured:<{measured}}  {verdict}")
    return 0 if all(result.met is not False for result in results) else 1
