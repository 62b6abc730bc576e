"""What the tables of a transaction are: their metadata as it sees them, and whether they still exist."""

from __future__ import annotations

from deltaplane.errors import DEPARTED, LedgerUnavailable, StatementRefused, TransactionConflict
from deltaplane.ledger.context import Context
from deltaplane.ledger.head import parse_metadata
from deltaplane.ledger.load import load_state
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.prepare import Prepared
from deltaplane.log.actions import Metadata
from deltaplane.spark.views import TransactionView, View

__all__ = ["check_exports", "departed", "table_id"]

# Where they are set Delta writes files for other engines behind a commit, past the log store.
_EXPORTS = ("delta.compatibility.symlinkFormatManifest.enabled", "delta.universalFormat.enabledFormats")


def check_exports(ctx: Context, seen: TransactionView, root: str, new: Prepared) -> None:
    """See that Delta tells nobody else of what is staged, as it does behind commits to some tables.

    Raises:
        StatementRefused: The table keeps files for other engines.
    """
    configuration = _metadata(ctx, seen, root, new).configuration
    exports = [key for key in _EXPORTS if configuration.get(key, "false") != "false"]
    if exports:
        raise StatementRefused(
            f"{root} cannot be written inside of a transaction while {exports[0]} is set: behind each "
            f"commit Delta writes files for other engines, and they would show what is not committed. "
            f"Nothing was written. Write to it outside, or unset the property first."
        )


def table_id(ctx: Context, seen: TransactionView, root: str) -> str:
    """The id that a table has in its own metadata."""
    return _metadata(ctx, seen, root).id or ""


def departed(ctx: Context, seen: View) -> ManagedTable | None:
    """A table that was used in a view and that has left the ledger since, whatever lies in its place now."""
    used = [seen.pins[location] for location in sorted(seen.used)]
    with ctx.store.reading() as session:
        found = session.ask(*(("table_by_id", {"table_id": table.table_id}) for table in used))
    return next((table for table, rows in zip(used, found, strict=True) if not rows), None)


def _metadata(ctx: Context, seen: TransactionView, root: str, *new: Prepared) -> Metadata:
    commits = [*(staged.prepared for staged in seen.staged.get(root, ())), *new]
    changed = [one for one in commits if one.facts.metadata]
    told = [action for one in changed for action in one.actions if isinstance(action, Metadata)]
    return told[-1] if told else _pinned(ctx, seen, root)


def _pinned(ctx: Context, seen: TransactionView, root: str) -> Metadata:
    if root not in seen.metadata:
        seen.metadata[root] = _read(ctx, seen.pins[root])
    return seen.metadata[root]


def _read(ctx: Context, pinned: ManagedTable) -> Metadata:
    try:
        with ctx.store.glance() as session:
            row = session.row("metadata_at", table_id=pinned.table_id, version=pinned.head_version)
    except LedgerUnavailable:
        # Staging goes on without the database: the log says the same, and takes longer.
        found = load_state(ctx.storage(pinned.location), pinned.head_version).metadata
    else:
        found = None if row is None else parse_metadata(row[0])
    if found is None:
        # Every managed table has metadata, so it left the ledger a moment ago.
        raise TransactionConflict(pinned.label, pinned.head_version + 1, "somebody else", DEPARTED)
    return found
