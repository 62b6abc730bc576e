"""How far every table's published log is behind the ledger."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from deltaplane.ledger.context import Context
from deltaplane.ledger.model import Lag

__all__ = ["LedgerStatus", "read_status"]


@dataclass(frozen=True)
class LedgerStatus:
    """The lag of every table at one moment.

    Attributes:
        ledger: The ledger's address.
        at: The moment by the database's clock, in milliseconds.
        tables: One entry for every table, by location.
    """

    ledger: str
    at: int
    tables: tuple[Lag, ...]

    @property
    def behind(self) -> tuple[Lag, ...]:
        """The tables with versions that are not published yet."""
        return tuple(table for table in self.tables if table.versions)

    @property
    def frozen(self) -> tuple[Lag, ...]:
        """The tables that take no writes until they are repaired."""
        return tuple(table for table in self.tables if table.state == "frozen")

    @property
    def versions(self) -> int:
        """How many versions of all tables wait for publication."""
        return sum(table.versions for table in self.tables)

    @property
    def worst(self) -> Lag | None:
        """The table that has been waiting longest; None when nothing waits."""
        return max(self.behind, key=lambda table: (table.seconds, table.versions), default=None)

    def to_json(self) -> dict[str, Any]:
        """The status as plain values."""
        return {
            "ledger": self.ledger,
            "at": self.at,
            "tables_behind": len(self.behind),
            "versions_behind": self.versions,
            "seconds_behind": self.worst.seconds if self.worst else 0.0,
            "worst": self.worst.label if self.worst else None,
            "frozen": [table.label for table in self.frozen],
            "tables": [asdict(table) for table in self.tables],
        }


def read_status(ctx: Context) -> LedgerStatus:
    """Read the lag of every table."""
    with ctx.store.reading() as session:
        rows = session.rows("lag")
    now = ctx.store.now()
    return LedgerStatus(ctx.uri, now, tuple(_lag(row, now) for row in rows))


def _lag(row: tuple[Any, ...], now: int) -> Lag:
    _, location, name, state, reason, head, published, checkpoint, oldest, attempts, error, _ = row
    versions = max(0, head - published)
    # A commit noted by a clock that was ahead must not make the lag negative.
    seconds = max(0, now - oldest) / 1000 if versions and oldest is not None else 0.0
    return Lag(
        location,
        name,
        state,
        reason,
        head,
        published,
        checkpoint,
        versions,
        seconds,
        (attempts or 0) if versions else 0,
        error if versions else None,
    )
