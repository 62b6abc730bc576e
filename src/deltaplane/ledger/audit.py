"""The audit trail: who did what, from where and why."""

from __future__ import annotations

from dataclasses import dataclass

from deltaplane.ledger.context import Context
from deltaplane.ledger.model import row_limit

__all__ = ["AuditEntry", "read_audit"]


@dataclass(frozen=True)
class AuditEntry:
    """One thing that was done to the ledger.

    Attributes:
        happened_at: When, in milliseconds.
        action: What: create, adopt, release, import, freeze, repair, migrate …
        location: The table it was done to; None for the ledger as a whole.
        author: Who says to have done it.
        origin: From where: user, machine and process.
        detail: Why, or what came of it.
    """

    happened_at: int
    action: str
    location: str | None
    author: str | None
    origin: str
    detail: str | None


def read_audit(ctx: Context, limit: int | None = None) -> list[AuditEntry]:
    """Read the newest entries, newest first."""
    with ctx.store.reading() as session:
        rows = session.rows("audit_trail", limit=row_limit(limit))
    return [AuditEntry(*row) for row in rows]
