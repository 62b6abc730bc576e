"""Tables that open transactions are about to make, and what is left of those that nobody will make.

The ledger knows no table at such a place yet, so the place itself is noted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from urllib.parse import unquote

from deltaplane import telemetry
from deltaplane.errors import DeltaplaneError
from deltaplane.ledger.commit import outcome
from deltaplane.ledger.context import Context
from deltaplane.ledger.names import LOG_FOLDER
from deltaplane.ledger.prepare import Prepared, prepare_bytes
from deltaplane.ledger.staged import staged_by
from deltaplane.log.paths import is_inside, is_relative

__all__ = ["forget_creations", "missing_files", "note_creation", "remove_creation", "sweep_creations"]

# Data files, and the checksums that Hadoop keeps beside local files.
_SPARKS = re.compile(r"part-.*|\.part-.*\.crc")


def note_creation(ctx: Context, transaction_id: str, location: str, begun_at: int) -> None:
    """Note where a transaction makes a table, before anything of it lies there under the log.

    Raises:
        LedgerUnavailable: The database cannot be reached. Nothing was noted.
    """

    def note() -> None:
        with ctx.store.writing() as session:
            session.run(
                "insert_creation", transaction_id=transaction_id, location=location, begun_at=begun_at
            )

    ctx.repeated(note, f"{location}: the new table was not noted")


def forget_creations(ctx: Context, transaction_id: str) -> None:
    """Forget the places of a transaction that has ended, and has left nothing behind."""
    with ctx.store.relaxed() as session:
        session.run("delete_creations", transaction_id=transaction_id)


def sweep_creations(ctx: Context, older_than_ms: int) -> tuple[str, ...]:
    """Remove what dead transactions left of tables that they did not get to make (invariant 10).

    Returns:
        The places that were cleared.
    """
    limit = ctx.clock() - older_than_ms
    with ctx.store.reading() as session:
        noted = session.rows("creations_before", limit=limit)
    cleared = []
    for transaction_id, location, _ in noted:
        try:
            # After this the transaction has taken place or never will.
            if not outcome(ctx, transaction_id):
                commits = _staged(ctx, transaction_id, location)
                remove_creation(ctx, transaction_id, location, commits)
                cleared.append(location)
            with ctx.store.relaxed() as session:
                session.run("delete_creation", transaction_id=transaction_id, location=location)
        except (DeltaplaneError, OSError) as error:
            # It stays noted, and the next round tries again.
            telemetry.LOGGER.warning("%s: what a dead transaction left stays: %s", location, error)
    return tuple(cleared)


def _staged(ctx: Context, transaction_id: str, location: str) -> list[Prepared]:
    storage = ctx.storage(location)
    return [prepare_bytes(storage.read(path), path) for path in staged_by(storage, transaction_id)]


def remove_creation(
    ctx: Context,
    transaction_id: str,
    location: str,
    commits: Iterable[Prepared],
    time: tuple[float, float] | None = None,
) -> None:
    """Remove the files of a table that will not exist.

    Args:
        ctx: The ledger.
        transaction_id: Who would have made it. It has been given up.
        location: Where.
        commits: What it had staged there.
        time: From when on and until when it wrote, where that is certain. What Spark has written there in
            that time and put into no commit goes as well; long after its death nobody can tell whose it is.
    """
    storage = ctx.storage(location)
    paths = [path for one in commits for path in _own_files(location, one)]
    beside = [] if "://" in location else [_checksum_of(path) for path in paths]
    for path in (*paths, *beside, *staged_by(storage, transaction_id)):
        try:
            storage.delete(path)
        except (DeltaplaneError, OSError) as error:
            telemetry.LOGGER.warning("%s: %s of a rolled-back transaction stays: %s", location, path, error)
    if "://" not in location and ctx.find_location(location) is None:
        _remove_strays(location, time)


def _remove_strays(root: str, time: tuple[float, float] | None) -> None:
    """Remove what Spark wrote there in that time, and folders that are empty then.

    Nothing is touched where somebody else is about to make a table in the same place.
    """
    if any(files for _, _, files in os.walk(os.path.join(root, LOG_FOLDER))):
        return
    for folder, _, names in os.walk(root, topdown=False):
        for name in names:
            path = os.path.join(folder, name)
            if time is not None and _SPARKS.match(name) and time[0] <= os.path.getmtime(path) <= time[1]:
                os.unlink(path)
        if not os.listdir(folder):
            os.rmdir(folder)


def _checksum_of(path: str) -> str:
    """What Hadoop keeps beside a local file."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.crc".lstrip("/")


def missing_files(location: str, prepared: Prepared) -> list[str]:
    """The files of a new table that are not there.

    Whoever rolls back takes files away that nobody has committed, and cannot tell whose they are.
    """
    if "://" in location:
        return []
    own = _own_files(location, prepared)
    return [path for path in own if not os.path.exists(os.path.join(location, path))]


def _own_files(location: str, prepared: Prepared) -> list[str]:
    """The files in the table's folder; those of a clone lie in the table that it was made from."""
    paths = [add.path for add in prepared.adds()]
    return [unquote(path) for path in paths if is_relative(path) and is_inside(location, path)]
