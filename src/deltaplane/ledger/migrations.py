"""The ledger's own schema: numbered migrations, up and down, and which of them a database has."""

from __future__ import annotations

import getpass
import re
import socket
from dataclasses import dataclass
from functools import cache
from importlib import resources

from deltaplane import telemetry
from deltaplane.errors import LedgerSchemaError
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
        if _present(session):
            return False
        session.script(schema.read_text(encoding="utf-8"))
        for migration in migrations(store.engine):
            _record(session, migration)
    return True


def _present(session: Session) -> bool:
    """Whether somebody else made the ledger while this process waited for the lock."""
    return bool(session.rows("ledger_present"))


def migrate(store: Store, to: int | None = None) -> tuple[int, int]:
    """Bring the schema to a version, each step in a transaction of its own.

    Returns:
        The version before and the version after.

    Raises:
        LedgerSchemaError: There is no ledger, or no such version.
    """
    before = installed_version(store)
    target = newest_version(store.engine) if to is None else to
    if before == 0:
        raise LedgerSchemaError(f"{store!r} holds no ledger yet. Make one with: deltaplane ledger init")
    if before > newest_version(store.engine) or not 1 <= target <= newest_version(store.engine):
        raise LedgerSchemaError(
            f"{store!r} has schema version {before}, and this client knows 1 to "
            f"{newest_version(store.engine)}; it "
            f"cannot bring it to {target}. Nothing was changed. Use the client that the newer version came "
            f"with."
        )
    for migration in migrations(store.engine):
        if before < migration.version <= target:
            with store.writing() as session:
                session.script(migration.up)
                telemetry.step("migrate.applied", version=migration.version)
                _record(session, migration)
            telemetry.step("migrate.recorded", version=migration.version)
    for migration in reversed(migrations(store.engine)):
        if target < migration.version <= before:
            with store.writing() as session:
                session.run("forget_schema_version", version=migration.version)
                telemetry.step("migrate.forgotten", version=migration.version)
                session.script(migration.down)
            telemetry.step("migrate.undone", version=migration.version)
    return before, target


def _record(session: Session, migration: Migration) -> None:
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    session.run("record_schema_version", version=migration.version, name=migration.name, now=now_ms(), by=by)
