"""Work on hundreds of thousands of objects at once."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_collections"]

_guard = threading.Lock()
_inside = 0
_enabled_before = True


def _begin_anew() -> None:
    """A forked process has none of the threads that are at work."""
    global _guard, _inside  # noqa: PLW0603 - the collector is one for the process
    _guard = threading.Lock()
    if _inside:
        _inside = 0
        if _enabled_before:
            gc.enable()


os.register_at_fork(after_in_child=_begin_anew)


@contextmanager
def without_collections(wanted: bool = True) -> Iterator[None]:
    """Keep Python from searching for cycles while very many objects come to exist.

    It would go through all of them again and again, for a third of the time, and find none: what a commit
    holds is freed without it.
    """
    global _inside, _enabled_before  # noqa: PLW0603 - the collector is one for the process
    if not wanted:
        yield
        return
    with _guard:
        if _inside == 0:
            _enabled_before = gc.isenabled()
            gc.disable()
        _inside += 1
    try:
        yield
    finally:
        with _guard:
            _inside -= 1
            if _inside == 0 and _enabled_before:
                gc.enable()
