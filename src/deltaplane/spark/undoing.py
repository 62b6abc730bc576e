"""What a rolled-back transaction leaves behind, and how it goes away."""

from __future__ import annotations

import os
import re
from typing import Any
from urllib.parse import unquote

from deltaplane import telemetry
from deltaplane.errors import DeltaplaneError
from deltaplane.ledger.context import Context
from deltaplane.ledger.names import LOG_FOLDER
from deltaplane.ledger.staged import staged_path
from deltaplane.spark.port import holds_log, root_of
from deltaplane.spark.views import TransactionView

__all__ = ["remove_created", "take_back_names"]

# Data files, and the checksums that Hadoop keeps beside local files.
_SPARKS = re.compile(r"part-.*|\.part-.*\.crc")


def remove_created(ctx: Context, view: TransactionView) -> None:
    """Remove the files of tables that would have begun to exist.

    Commits staged for tables that exist stay for a while: a DataFrame that was built inside may still read
    them, and the reconciler removes them later.
    """
    for location in view.created:
        for staged in view.staged[location]:
            paths = [unquote(add.path) for add in staged.prepared.adds()]
            for path in (*paths, staged_path(staged.version, view.view_id)):
                _delete(ctx, location, path)
        if "://" not in location and ctx.find_location(location) is None:
            _remove_leftovers(location, view.begun_at)


def take_back_names(ctx: Context, names: Any, view: TransactionView) -> None:
    """Remove the names that the transaction gave to tables.

    One stays where somebody else has made a table meanwhile: it leads to that table, and Spark would delete
    its files with the name.
    """
    for line in names.given(view.view_id):
        database, name, kind, place = line.split("\t")
        root = root_of(place) if place else None
        made = root is not None and (kind == "MANAGED" or root in view.created)
        if root is None or not made or not holds_log(ctx.storage(root)):
            names.takeBack(database, name)
    names.forget(view.view_id)


def _delete(ctx: Context, location: str, path: str) -> None:
    try:
        ctx.storage(location).delete(path)
    except (DeltaplaneError, OSError) as error:
        telemetry.LOGGER.warning("%s: %s of a rolled-back transaction stays: %s", location, path, error)


def _remove_leftovers(root: str, since: float) -> None:
    """Remove what Spark wrote there since the begin and put into no commit, and folders that are empty then.

    Nothing is touched where somebody else is about to make a table in the same place.
    """
    if any(files for _, _, files in os.walk(os.path.join(root, LOG_FOLDER))):
        return
    for folder, _, names in os.walk(root, topdown=False):
        for name in names:
            path = os.path.join(folder, name)
            if _SPARKS.match(name) and os.path.getmtime(path) >= since:
                os.unlink(path)
        if not os.listdir(folder):
            os.rmdir(folder)
