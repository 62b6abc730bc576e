"""What Spark and Delta say when they refuse, in one line a person can read."""

from __future__ import annotations

import re
from dataclasses import dataclass

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

__all__ = ["ENGINE_ERRORS", "Refusal", "explain"]

ENGINE_ERRORS = (PySparkException, Py4JError)

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]\s*(.*)", re.DOTALL)
# Where the message ends and the plan, the position or the trace of the engine begins.
_END = re.compile(r"\n\s*at |\n\tat |\s*SQLSTATE:|; line \d+ pos|\nJVM stacktrace|\n'|\n== SQL", re.DOTALL)
_CONCURRENT = (
    "DELTA_METADATA_CHANGED",
    "DELTA_PROTOCOL_CHANGED",
    "DELTA_CONCURRENT_",
    "TABLE_OR_VIEW_ALREADY_EXISTS",
    "DELTA_TABLE_ALREADY_EXISTS",
    "FIELD_ALREADY_EXISTS",
    "DELTA_CONSTRAINT_ALREADY_EXISTS",
)
_NOT_FOUND = (
    "TABLE_OR_VIEW_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
    "DELTA_TABLE_NOT_FOUND",
    "NO_SUCH_CATALOG_EXCEPTION",
)
_MOST = 400


@dataclass(frozen=True)
class Refusal:
    """A refusal of the engine.

    Attributes:
        condition: Its class, such as DELTA_METADATA_CHANGED; "" when there is none.
        text: The message in one line.
    """

    condition: str
    text: str

    @property
    def not_found(self) -> bool:
        """Whether the table or its schema does not exist."""
        return self.condition.startswith(_NOT_FOUND)

    @property
    def concurrent(self) -> bool:
        """Whether somebody else was faster."""
        return self.condition.startswith(_CONCURRENT)


def explain(error: BaseException) -> Refusal:
    """Read an exception of PySpark or py4j. Some errors of Delta arrive only as the latter."""
    raw = str(error)
    if isinstance(error, Py4JJavaError):
        raw = str(error.java_exception.toString())
    match = _CONDITION.search(raw)
    condition, message = (match.group(1), match.group(2)) if match else ("", raw)
    end = _END.search(message)
    flat = " ".join((message[: end.start()] if end else message).split()).rstrip(". ")
    shown = flat if len(flat) <= _MOST else flat[: _MOST - 1] + "…"
    return Refusal(condition, f"{shown}." + (f" [{condition}]" if condition else ""))
