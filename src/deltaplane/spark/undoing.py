"""What a rolled-back transaction leaves behind, and how it goes away."""

from __future__ import annotations

import time
from typing import Any

from deltaplane.ledger.context import Context
from deltaplane.ledger.creations import forget_creations, remove_creation
from deltaplane.spark.port import holds_log, root_of
from deltaplane.spark.views import TransactionView

__all__ = ["remove_created", "take_back_names"]


def remove_created(ctx: Context, view: TransactionView) -> None:
    """Remove the files of tables that would have begun to exist.

    Commits staged for tables that exist stay for a while: a DataFrame that was built inside may still read
    them, and the reconciler removes them later.
    """
    for location in view.created:
        commits = [staged.prepared for staged in view.staged[location]]
        remove_creation(ctx, view.view_id, location, commits, (view.begun_at, time.time()))
    if view.created:
        forget_creations(ctx, view.view_id)


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
