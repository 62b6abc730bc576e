"""Large versions: ratified bare, with their bytes and what others must know; the rows of their files follow.

The rows of a hundred thousand files take longer than everything else about a commit, and nobody needs them to
read the log. So whoever commits waits for neither. They are written right behind it by the same process, or
by whoever needs them first: the next commit to the table, a reader of the ledger, the reconciler. Only the
newest version of a table is ever bare.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from deltaplane import telemetry
from deltaplane.errors import DeltaplaneError, LedgerError, LedgerUnavailable
from deltaplane.ledger.bulk import without_collections
from deltaplane.ledger.context import Context
from deltaplane.ledger.head import Head, read_head
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.names import commit_path
from deltaplane.ledger.prepare import Prepared, prepare_bytes
from deltaplane.ledger.pruning import pruning_columns_of
from deltaplane.ledger.ratify import Totals, decompress, write_files
from deltaplane.ledger.stores.base import Session
from deltaplane.log.actions import AddFile
from deltaplane.log.order_keys import INT64_MAX

__all__ = ["complete_behind", "complete_table", "completed", "ensure_complete", "is_large", "may_be_bare"]

LARGE = 10_000
"""From so many files on a version is ratified bare."""
_PATIENCE_SECONDS = 60.0
_GLANCE_SECONDS = 0.1


def is_large(prepared: Prepared) -> bool:
    """Whether a version has very many files."""
    return len(prepared.files) >= LARGE


def may_be_bare(prepared: Prepared, before: Totals) -> bool:
    """Whether a version is large, and nothing can be found wrong with it when its rows are written."""
    if not is_large(prepared):
        return False
    coming = sum(action.size for action, _ in prepared.files if type(action) is AddFile)
    return before.size_bytes + coming <= INT64_MAX


def completed(session: Session, head: Head) -> Head:
    """The head of a table, which is locked, with the rows of its files; they are written if they lack."""
    if not head.bare:
        return head
    _complete(session, head.table, None)
    row = session.row("table_by_id", table_id=head.table.table_id)
    assert row is not None, "it is locked"
    return read_head(session, ManagedTable.from_row(row))


def complete_table(ctx: Context, table_id: int, known: tuple[int, Prepared] | None = None) -> bool:
    """Write the rows that the newest version of a table lacks, in a transaction of its own.

    What it writes may be lost in a power failure: it can be found out again.

    Args:
        ctx: The ledger.
        table_id: Which table.
        known: A version and what it does, where that is at hand.

    Returns:
        Whether there were any.
    """
    with without_collections(), ctx.store.relaxed() as session:
        locked = session.rows("lock_tables", keys=session.keys([table_id]))
        bare = session.row("bare_head", table_id=table_id)
        if not locked or bare is None:
            return False
        table = ManagedTable.from_row(locked[0])
        # If somebody else was faster and went on, what is bare now is another version.
        _complete(session, table, known[1] if known and known[0] == table.head_version else None)
        telemetry.step("complete.rows_written", table=table.label, version=table.head_version)
    telemetry.step("complete.done", table=table.label, version=table.head_version)
    return True


def _complete(session: Session, table: ManagedTable, prepared: Prepared | None) -> None:
    number = table.head_version
    place = {"table_id": table.table_id, "version": number}
    if prepared is None:
        row = session.row("content", **place)
        assert row is not None, "a version has its bytes"
        prepared = prepare_bytes(decompress(row[0], row[1]), f"{table.location}/{commit_path(number)}")
    before = Totals()
    if number > table.base_version:
        sums = session.row("commit_totals", table_id=table.table_id, version=number - 1)
        assert sums is not None, "only the newest version is bare"
        before = Totals(*sums[1:4])
    columns = pruning_columns_of(session, table.table_id)

    def sums_and_ids(totals: Totals, next_file_id: int) -> tuple[tuple[str, dict[str, int]], ...]:
        return (
            ("set_totals", {**place, **totals.__dict__}),
            ("advance_head", {**place, "next_file_id": next_file_id}),
        )

    write_files(session, table, number, prepared, before, columns, None, sums_and_ids)


def complete_behind(
    ctx: Context, table: ManagedTable, version: int, prepared: Prepared, then: Callable[[], object]
) -> None:
    """Write the rows that a version lacks, and do what waits for them, while whoever committed it goes on.

    Should it fail, whoever needs the rows next writes them.
    """

    def work() -> None:
        try:
            complete_table(ctx, table.table_id, (version, prepared))
            then()
        except DeltaplaneError as error:
            telemetry.LOGGER.warning(
                "%s: the rows of version %d are still to be written: %s", table.label, version, error
            )
        except Exception:
            telemetry.LOGGER.exception("%s: the rows of version %d failed", table.label, version)

    # Not a daemon: at the end of the process the transaction is finished, and not cut off.
    ctx.start_behind(threading.Thread(target=work, name=f"deltaplane rows of {table.label}"))


def ensure_complete(ctx: Context, table: ManagedTable, version: int) -> None:
    """See that a version has the rows of its files.

    Raises:
        LedgerError: It has not, this user may not write them, and nobody else does.
    """
    if not _is_bare(ctx, table, version):
        return
    try:
        ctx.repeated(lambda: complete_table(ctx, table.table_id), f"Writing the rows of {table.label}")
    except LedgerUnavailable:
        raise
    except LedgerError as error:
        _wait(ctx, table, version, error)


def _is_bare(ctx: Context, table: ManagedTable, version: int) -> bool:
    with ctx.store.glance() as session:
        row = session.row("bare_head", table_id=table.table_id)
    return row is not None and row[0] == version


def _wait(ctx: Context, table: ManagedTable, version: int, denied: LedgerError) -> None:
    """Whoever may only read waits for whoever committed."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while _is_bare(ctx, table, version):
        if time.monotonic() > deadline:
            raise LedgerError(
                f"{table.label}: version {version} is committed and published, and the rows of its files "
                f"are not in the ledger yet: whoever committed it has not finished, or died. Nothing was "
                f"read. Read the table's log, or let somebody who may write run: deltaplane ledger "
                f"reconcile"
            ) from denied
        time.sleep(_GLANCE_SECONDS)
