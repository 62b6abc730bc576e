"""Leases: who does a piece of work right now. They save double work; correctness never hangs on them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from deltaplane.ledger.context import Context

__all__ = ["Lease", "lease"]


class Lease:
    """A piece of work that is one's own for some seconds; false when somebody else has it."""

    def __init__(self, ctx: Context, name: str, seconds: float) -> None:
        self._ctx = ctx
        self._name = name
        self._seconds = seconds
        self._holder = f"{ctx.origin}/{uuid.uuid4().hex[:8]}"
        self._held = self.renew()

    def __bool__(self) -> bool:
        return self._held

    def renew(self) -> bool:
        """Hold it from now on again; False when it ran out and somebody else took it."""
        now = self._ctx.store.now()
        with self._ctx.store.relaxed() as session:
            row = session.row(
                "take_lease",
                name=self._name,
                holder=self._holder,
                now=now,
                expires_at=now + int(self._seconds * 1000),
            )
        return row is not None and row[0] == self._holder

    def drop(self) -> None:
        """Let others have it."""
        with self._ctx.store.relaxed() as session:
            session.run("drop_lease", name=self._name, holder=self._holder)


@contextmanager
def lease(ctx: Context, name: str, seconds: float) -> Iterator[Lease]:
    """Hold a lease for the time of a block.

    A holder that died keeps it until it expires, by the database's clock.
    """
    taken = Lease(ctx, name, seconds)
    try:
        yield taken
    finally:
        if taken:
            taken.drop()
