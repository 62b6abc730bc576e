"""Leases: who does a piece of work right now. They save double work; correctness never hangs on them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from deltaplane.ledger.context import Context

__all__ = ["lease"]


@contextmanager
def lease(ctx: Context, name: str, seconds: float) -> Iterator[bool]:
    """Hold a lease for the time of a block; yields False when somebody else has it.

    A holder that died keeps it until it expires, by the database's clock.
    """
    holder = f"{ctx.origin}/{uuid.uuid4().hex[:8]}"
    held = _take(ctx, name, holder, seconds)
    try:
        yield held
    finally:
        if held:
            with ctx.store.relaxed() as session:
                session.run("drop_lease", name=name, holder=holder)


def _take(ctx: Context, name: str, holder: str, seconds: float) -> bool:
    now = ctx.store.now()
    with ctx.store.relaxed() as session:
        row = session.row(
            "take_lease", name=name, holder=holder, now=now, expires_at=now + int(seconds * 1000)
        )
    return row is not None and row[0] == holder
