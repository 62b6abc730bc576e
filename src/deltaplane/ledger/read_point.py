"""The version of every managed table at one moment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from deltaplane import telemetry
from deltaplane.errors import ConfigError, DeltaplaneError, VersionNotFound
from deltaplane.ledger.context import Context
from deltaplane.ledger.foreign import notice_outsiders
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.publish import publish_pending
from deltaplane.ledger.stores.base import Session
from deltaplane.ledger.times import clock_text, to_ms

__all__ = ["ReadPoint", "pinned_tables", "read_point"]

_EARLIEST = 631_152_000_000
"""The year 1990: what is before is no moment of a lake, but seconds that were taken for milliseconds."""


@dataclass(frozen=True)
class ReadPoint:
    """The lake at one moment: a small value that can be stored, sent, and read at by every engine.

    Attributes:
        at: The moment, in milliseconds since 1970.
        versions: The version of every managed table, by its location; for VERSION AS OF of any engine.
    """

    at: int
    versions: Mapping[str, int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "versions", MappingProxyType(dict(self.versions)))

    def __str__(self) -> str:
        return f"{len(self.versions)} tables at {clock_text(self.at)}"

    def to_json(self) -> str:
        """The point as text."""
        return json.dumps(
            {"at": self.at, "versions": dict(self.versions)}, ensure_ascii=False, sort_keys=True
        )

    @classmethod
    def from_json(cls, text: str) -> ReadPoint:
        """Read what `to_json` wrote.

        Raises:
            ConfigError: It is not such a text.
        """
        try:
            content = json.loads(text)
        except (ValueError, TypeError) as error:
            raise ConfigError(
                f"This is not a read point: {error}. Nothing was read. Give what ReadPoint.to_json() wrote."
            ) from None
        told: dict[str, Any] = content if isinstance(content, dict) else {}
        at, versions = told.get("at", ""), told.get("versions", "")
        valid = type(at) is int and isinstance(versions, dict)
        if not valid or not all(type(version) is int for version in versions.values()):
            raise ConfigError(
                "This is not a read point: it takes 'at', a whole number, and 'versions', a whole number for "
                "each table. Nothing was read. Give what ReadPoint.to_json() wrote."
            )
        return cls(at, versions)


def read_point(ctx: Context, at: Any | None = None) -> ReadPoint:
    """The version of every managed table now, or at a moment in the past.

    A group of commits counts as a whole: a point never lies between two of them. What is not published yet of
    it is published, so that every engine can read there. Commits of outside writers are taken in before.

    Raises:
        VersionNotFound: The moment lies in the future, or before any table.
    """
    now = ctx.clock()
    moment = now if at is None else to_ms(at)
    if moment > now:
        raise VersionNotFound(
            f"A read point at {clock_text(moment)} lies in the future. Give a moment that has passed."
        )
    if moment < _EARLIEST:
        raise VersionNotFound(
            f"A read point at {clock_text(moment)} lies before there were tables. Give milliseconds since "
            f"1970, not seconds, or a time such as 2026-01-31T08:00:00+00:00."
        )
    with ctx.store.reading() as session:
        known = [ManagedTable.from_row(row) for row in session.rows("all_tables")]
    notice_outsiders(ctx, known)
    with ctx.store.reading() as session:
        tables = [ManagedTable.from_row(row) for row in session.rows("all_tables")]
        managed = {table.table_id: table for table in tables if table.state != "adopting"}
        if at is None:
            versions = {number: table.head_version for number, table in managed.items()}
        else:
            versions = _at(session, moment)
    located = {
        managed[n].location: version for n, version in versions.items() if n in managed and version >= 0
    }
    for table in managed.values():
        if table.state == "managed" and table.published_version < located.get(table.location, -1):
            _publish(ctx, table)
    return ReadPoint(moment, located)


def _publish(ctx: Context, table: ManagedTable) -> None:
    try:
        publish_pending(ctx, table)
    except (DeltaplaneError, OSError) as error:
        # Spark on this ledger reads there all the same, or says why it cannot.
        telemetry.LOGGER.warning("%s: publication is delayed: %s", table.label, error)


def _at(session: Session, moment: int) -> dict[int, int]:
    versions = {row[0]: row[1] for row in session.rows("versions_at_moment", moment=moment)}
    # Clocks of several machines differ a little: a commit on top of a group may be dated before the group
    # itself. What is on top of a group brings all of the group with it.
    later: dict[str, list[tuple[int, int]]] = {}
    for transaction_id, table_id, version in session.rows("groups_after_moment", moment=moment):
        later.setdefault(transaction_id, []).append((table_id, version))
    changed = True
    while changed:
        changed = False
        for members in later.values():
            if any(versions.get(table, -1) >= version for table, version in members):
                for table, version in members:
                    if versions.get(table, -1) < version:
                        versions[table] = version
                        changed = True
    return versions


def pinned_tables(ctx: Context, point: ReadPoint) -> tuple[dict[str, ManagedTable], dict[str, str]]:
    """The tables of a point as they were at it, by location.

    Returns:
        Those that are there, and the reason for each that is not.
    """
    pinned: dict[str, ManagedTable] = {}
    lost: dict[str, str] = {}
    with ctx.store.reading() as session:
        tables = {row.location: row for row in map(ManagedTable.from_row, session.rows("all_tables"))}
        for location, version in point.versions.items():
            fault = _fault(session, tables.get(location), version, point.at)
            if fault is None:
                pinned[location] = replace(tables[location], head_version=version)
            else:
                lost[location] = (
                    f"{location}: the read point of {clock_text(point.at)} is at version {version}, and "
                    f"{fault}. Nothing was read. Take a newer point."
                )
    return pinned, lost


def _fault(session: Session, table: ManagedTable | None, version: int, at: int) -> str | None:
    """Why a version of a table cannot be read at a moment."""
    if table is None:
        return "the ledger does not manage it"
    if not table.base_version <= version <= table.head_version:
        return f"the ledger holds {table.base_version} to {table.head_version}"
    if table.managed_since > at:
        # It may have left the ledger and come back. When the version itself is younger, it is another table.
        row = session.row("commit_totals", table_id=table.table_id, version=version)
        if row is None or row[4] > at:
            return "another table has been made there since"
    return None
