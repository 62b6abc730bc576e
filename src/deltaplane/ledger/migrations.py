"""The ledger's own schema: numbered migrations, up and down, and which of them a database has."""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources

from deltaplane import telemetry
from deltaplane.errors import DeltaplaneError, LedgerSchemaError
from deltaplane.ledger.stores.base import Session, Store
from deltaplane.ledger.times import now_ms

__all__ = [
    "Migration",
    "check_schema",
    "install",
    "installed_version",
    "migrate",
    "migrations",
    "newest_version",
]

_FILE = re.compile(r"(\d{4})_(\w+)\.up\.sql")
_AUDITED_FROM = 3  # the version of the schema that brought the audit trail


@dataclass(frozen=True)
class Migration:
    """One step of the schema."""

    version: int
    name: str
    up: str
    down: str


@cache
def migrations(engine: str) -> tuple[Migration, ...]:
    """All steps of an engine, in order."""
    folder = resources.files(f"deltaplane.ledger.sql.{engine}").joinpath("migrations")
    found = []
    for entry in folder.iterdir():
        if match := _FILE.fullmatch(entry.name):
            down = folder.joinpath(entry.name.replace(".up.", ".down.")).read_text(encoding="utf-8")
            found.append(Migration(int(match[1]), match[2], entry.read_text(encoding="utf-8"), down))
    return tuple(sorted(found, key=lambda migration: migration.version))


def newest_version(engine: str) -> int:
    """The version of the schema that this client was made for."""
    return migrations(engine)[-1].version


def installed_version(store: Store) -> int:
    """The version of the schema in the database; 0 where there is no ledger."""
    if not store.has_ledger():
        return 0
    with store.reading() as session:
        row = session.row("schema_version")
    return int(row[0]) if row and row[0] is not None else 0


def check_schema(store: Store) -> None:
    """See that this client and the database go together.

    Raises:
        LedgerSchemaError: There is no ledger, or it is older or newer than this client.
    """
    installed, known = installed_version(store), newest_version(store.engine)
    if installed == known:
        return
    if installed == 0:
        raise LedgerSchemaError(f"{store!r} holds no ledger yet. Make one with: deltaplane ledger init")
    if installed < known:
        raise LedgerSchemaError(
            f"{store!r} has schema version {installed}, and this client needs {known}. Nothing was changed. "
            f"Back the "
            f"database up, then run: deltaplane ledger migrate"
        )
    raise LedgerSchemaError(
        f"{store!r} has schema version {installed}, and this client knows versions up to {known}. Nothing "
        f"was changed. "
        f"Install a newer deltaplane, or let a newer client take the schema back with: deltaplane ledger "
        f"migrate --to "
        f"{known}"
    )


def install(store: Store) -> bool:
    """Make a ledger in an empty database; False when there is one already."""
    if installed_version(store) > 0:
        check_schema(store)
        return False
    schema = resources.files(f"deltaplane.ledger.sql.{store.engine}").joinpath("schema.sql")
    with store.writing() as session:
        session.rows("lock_schema")
        if session.rows("ledger_present"):
            # Somebody else made the ledger while this process waited for the lock.
            return False
        session.script(schema.read_text(encoding="utf-8"))
        for migration in migrations(store.engine):
            _record(session, migration)
    return True


def migrate(store: Store, to: int | None = None, author: str | None = None) -> tuple[int, int]:
    """Bring the schema to a version, each step in a transaction of its own.

    Several may call it at once: they take turns, and each step is done once.

    Args:
        store: The database.
        to: Which version; the newest by default.
        author: Who does it, for the audit trail.

    Returns:
        The version before and the version after.

    Raises:
        LedgerSchemaError: There is no ledger or no such version, or a step failed and was undone.
    """
    before, newest = installed_version(store), newest_version(store.engine)
    target = newest if to is None else to
    if before == 0:
        raise LedgerSchemaError(f"{store!r} holds no ledger yet. Make one with: deltaplane ledger init")
    if before > newest or not 1 <= target <= newest:
        raise LedgerSchemaError(
            f"{store!r} has schema version {before}, and this client knows 1 to {newest}; it cannot bring it "
            f"to {target}. Nothing was changed. Use the client that the newer version came with."
        )
    for migration in migrations(store.engine):
        if before < migration.version <= target:
            _step(store, migration, _up, author)
    for migration in reversed(migrations(store.engine)):
        if target < migration.version <= before:
            _step(store, migration, _down, author)
    return before, installed_version(store)


_Change = Callable[[Session, Migration, str | None], None]


def _step(store: Store, migration: Migration, change: _Change, author: str | None) -> None:
    installed = migration.version - (change is _up)
    try:
        with store.writing() as session:
            session.rows("lock_schema")
            if session.row("schema_version") != (installed,):
                # Somebody else has taken this step while this process waited.
                return
            change(session, migration, author)
    except DeltaplaneError:
        raise
    except Exception as error:
        told = str(error).strip().splitlines()
        raise LedgerSchemaError(
            f"{store!r}: migration {migration.version} ({migration.name}) failed: "
            f"{told[0] if told else type(error).__name__}. It was rolled back; the schema is at version "
            f"{installed} as before, and nothing was lost. Mend the cause, then run: deltaplane ledger "
            f"migrate"
        ) from error
    telemetry.step("migrate.recorded" if change is _up else "migrate.undone", version=migration.version)


def _up(session: Session, migration: Migration, author: str | None) -> None:
    session.script(migration.up)
    telemetry.step("migrate.applied", version=migration.version)
    _record(session, migration)
    _note(session, migration.version, author, f"schema {migration.version - 1} to {migration.version}")


def _down(session: Session, migration: Migration, author: str | None) -> None:
    session.run("forget_schema_version", version=migration.version)
    telemetry.step("migrate.forgotten", version=migration.version)
    session.script(migration.down)
    _note(session, migration.version - 1, author, f"schema {migration.version} to {migration.version - 1}")


def _record(session: Session, migration: Migration) -> None:
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    session.run("record_schema_version", version=migration.version, name=migration.name, now=now_ms(), by=by)


def _note(session: Session, version: int, author: str | None, detail: str) -> None:
    """Enter a step in the audit trail, where that version of the schema has one."""
    if version < _AUDITED_FROM:
        return
    origin = f"{getpass.getuser()}@{socket.gethostname()}:{os.getpid()}"
    session.run(
        "insert_audit",
        now=now_ms(),
        action="migrate",
        location=None,
        author=author,
        origin=origin,
        detail=detail,
    )
