"""Moments: milliseconds since 1970 in the ledger, ISO text for people."""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime

from deltaplane.errors import VersionNotFound

__all__ = ["clock_text", "now_ms", "to_ms"]


def now_ms() -> int:
    """This machine's clock."""
    return time.time_ns() // 1_000_000


def clock_text(milliseconds: int) -> str:
    """A moment as people write it, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def to_ms(moment: str | int | float | datetime) -> int:
    """Read a moment: milliseconds, ISO text or a datetime. Without a zone it is UTC.

    Raises:
        VersionNotFound: The text is not a moment.
    """
    if isinstance(moment, int | float) and not isinstance(moment, bool) and math.isfinite(moment):
        return int(moment)
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError:
            raise VersionNotFound(
                f"{moment!r} is not a moment. Write it like 2026-01-31T08:00:00+00:00, or give milliseconds."
            ) from None
    if not isinstance(moment, datetime):
        raise VersionNotFound(f"{moment!r} is not a moment. Give ISO text, milliseconds or a datetime.")
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1000)
