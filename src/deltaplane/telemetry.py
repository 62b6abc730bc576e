"""Spans, steps and metrics, named in one place.

OpenTelemetry and Prometheus are used when they are installed, and nothing here fails when they are not. A
*step* is a
point that a commit passes, such as "ratified"; who wants to know subscribes with `listen`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["LOGGER", "listen", "span", "step"]

LOGGER = logging.getLogger("deltaplane")
Listener = Callable[[str, dict[str, Any]], None]
_listeners: list[Listener] = []

try:
    from opentelemetry import trace as _trace
except ImportError:  # the extra `metrics` is not installed
    _trace = None  # type: ignore[assignment]


@contextmanager
def span(name: str, **attributes: str | int | float | bool) -> Iterator[None]:
    """Time a piece of work as a span of OpenTelemetry, under `deltaplane.<name>`."""
    if _trace is None:
        yield
        return
    tracer = _trace.get_tracer("deltaplane")
    known = {f"deltaplane.{key}": value for key, value in attributes.items()}
    with tracer.start_as_current_span(f"deltaplane.{name}", attributes=known):
        yield


def step(name: str, **attributes: Any) -> None:
    """Say that a piece of work has come to a named point."""
    for listener in _listeners:
        listener(name, attributes)


def listen(listener: Listener) -> Callable[[], None]:
    """Hear of every step; the function returned ends it."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)
