"""Which statements may run: those that no rollback brings back are refused inside of a transaction."""

from __future__ import annotations

from deltaplane.ledger.context import Context
from deltaplane.ledger.staged import open_staged
from deltaplane.spark.views import TransactionView, View

__all__ = ["check_statement"]

_REFUSED = {
    "VacuumTableCommand": ("VACUUM", "it deletes files, which no rollback brings back"),
    "ConvertToDeltaCommand": ("CONVERT TO DELTA", "it makes a table of files that lie there already"),
    "DropTable": ("DROP TABLE", "it deletes the table's files, which no rollback brings back"),
    "DropTableCommand": ("DROP TABLE", "it deletes the table's files, which no rollback brings back"),
    "DropView": ("DROP VIEW", "it is seen by everybody at once, and no rollback brings it back"),
    "DropNamespace": ("DROP SCHEMA", "it is seen by everybody at once, and no rollback brings it back"),
    "DropDatabaseCommand": ("DROP SCHEMA", "it is seen by everybody at once, and no rollback brings it back"),
    "CreateNamespace": ("CREATE SCHEMA", "it is seen by everybody at once, and no rollback takes it back"),
    "CreateDatabaseCommand": (
        "CREATE SCHEMA",
        "it is seen by everybody at once, and no rollback takes it back",
    ),
    "AlterTableDropFeature": ("DROP FEATURE", "it needs checkpoints of versions that nobody has committed"),
    "RenameTable": ("RENAME", "a name changes for everybody at once"),
    "AlterTableRenameCommand": ("RENAME", "a name changes for everybody at once"),
    "TruncateTableCommand": ("TRUNCATE of a table that is not Delta", "no rollback brings its rows back"),
    "DeltaGenerateCommand": ("GENERATE", "other engines would read what is not committed"),
    "CacheTable": ("CACHE TABLE", "Spark would serve what is cached to everybody"),
    "CacheTableAsSelect": ("CACHE TABLE", "Spark would serve what is cached to everybody"),
}


_NOTHING_NEW = (
    "No table can be created at a read point. Nothing was written. Leave the block of reading_at first, or "
    "use a transaction."
)


def check_statement(ctx: Context, statement: str, root: str | None, seen: View | None) -> str | None:
    """Why a statement may not run; None when it may.

    Args:
        ctx: The ledger.
        statement: The class of Spark's plan.
        root: The location of the table that it is about, where it is a Delta table; of one that gets another
            name only where the folder gets it as well.
        seen: The view that it runs in.
    """
    if statement == "CreateTable":
        # Before Delta makes the folder of a log that will never be.
        return None if isinstance(seen, TransactionView) else _NOTHING_NEW
    name, reason = _REFUSED[statement]
    if seen is not None:
        where = "a transaction" if isinstance(seen, TransactionView) else "a block of reading_at"
        return (
            f"{name} cannot run inside of {where}: {reason}. Nothing was changed. Run it before or after "
            f"the block."
        )
    if name not in {"VACUUM", "RENAME"} or root is None:
        return None
    table = ctx.find_location(root)
    if name == "RENAME" and table is not None:
        return (
            f"RENAME would move the folder of {table.label}, and the ledger knows the table by it. Nothing "
            f"was changed. Release the table with: deltaplane ledger release {table.label}, rename it, and "
            f"adopt it again; tables with a LOCATION of their own can be renamed."
        )
    open_ones = [] if table is None else open_staged(ctx, table)
    if not open_ones:
        return None
    return (
        f"VACUUM of {root} has to wait: {len(open_ones)} open transactions have files there that are part of "
        f"no version yet, the oldest is {open_ones[0]}. Nothing was changed. Repeat it when they have ended; "
        f"what a dead process left behind ends with: deltaplane ledger reconcile"
    )
