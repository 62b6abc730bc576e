"""Commits of outside writers: noticed before our next commit, imported or refused (invariant 8)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from deltaplane import telemetry
from deltaplane.errors import CorruptLog, DeltaplaneError, ForeignCommit
from deltaplane.ledger.authoring import ENGINE_INFO
from deltaplane.ledger.completing import completed
from deltaplane.ledger.context import Context
from deltaplane.ledger.head import read_head
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.names import LOG_FOLDER, commit_path
from deltaplane.ledger.prepare import Prepared, prepare_bytes
from deltaplane.ledger.publish import check_log_present, commit_content, freeze, publish_pending
from deltaplane.ledger.ratify import Version, ratify
from deltaplane.ledger.storage import Storage
from deltaplane.ledger.stores.base import Session
from deltaplane.log.features import check_readable
from deltaplane.log.paths import check_inside

__all__ = [
    "import_foreign_commits",
    "notice_foreign_commits",
    "notice_outsiders",
    "prepared_foreign",
    "ratify_foreign",
]

_AT_ONCE = 8


def notice_foreign_commits(ctx: Context, table: ManagedTable) -> int:
    """See whether somebody wrote the version after the head without us.

    Returns:
        How many versions were imported.

    Raises:
        ForeignCommit: There are some, and the table's policy is to refuse.
        TableFrozen: The ledger had ratified the same version with other content.
        NotADeltaTable, CorruptLog: What had been published is gone.
    """
    if table.state != "managed":
        return 0
    storage = ctx.storage(table.location)
    newest_is_there = _check_pending(ctx, table)
    if not storage.exists(commit_path(table.head_version + 1)):
        if not newest_is_there:
            check_log_present(storage, table)
        return 0
    if table.foreign_commits == "refuse" and not _is_ours(ctx, table, table.head_version + 1):
        raise ForeignCommit(
            f"{table.label}: an outside writer has committed version {table.head_version + 1}, and this "
            f"table refuses that. Nothing was written. Stop that writer; take its commits in with: "
            f"deltaplane ledger refresh {table.label}"
        )
    return import_foreign_commits(ctx, table)


def notice_outsiders(ctx: Context, tables: Sequence[ManagedTable]) -> None:
    """Take in what outside writers committed to any of these tables; what is wrong with one is left alone.

    Most have nothing, so that is asked of all of them at once.
    """
    managed = [table for table in tables if table.state == "managed"]
    if not managed:
        return
    with ThreadPoolExecutor(min(_AT_ONCE, len(managed))) as pool:
        found = list(pool.map(lambda table: _has_next(ctx, table), managed))
    for table, has_next in zip(managed, found, strict=True):
        if not has_next:
            continue
        try:
            notice_foreign_commits(ctx, table)
        except (DeltaplaneError, OSError) as error:
            telemetry.LOGGER.warning("%s: outside writers' commits are left alone: %s", table.label, error)


def _has_next(ctx: Context, table: ManagedTable) -> bool:
    try:
        return ctx.storage(table.location).exists(commit_path(table.head_version + 1))
    except (DeltaplaneError, OSError) as error:
        telemetry.LOGGER.debug("%s: its log cannot be looked at: %s", table.label, error)
        return False


def _check_pending(ctx: Context, table: ManagedTable) -> bool:
    """See whether somebody took the place of a version that is ratified and not known to be published.

    Returns:
        Whether the newest published version was seen in the log.

    Raises:
        TableFrozen: So it is.
    """
    storage = ctx.storage(table.location)
    seen = _check_head(ctx, storage, table)
    for version in range(table.published_version + 1, table.head_version + 1):
        if not storage.exists(commit_path(version)):
            return seen
        ours = commit_content(ctx, table, version)
        # It may as well be ours: a publication that is under way, or that was interrupted.
        if ours is not None and storage.read(commit_path(version)) != ours:
            freeze(
                ctx,
                table,
                f"version {version} in {storage.root}/{commit_path(version)} was written by somebody else, "
                f"and the ledger had ratified another one",
            )
    return seen


def _check_head(ctx: Context, storage: Storage, table: ManagedTable) -> bool:
    """See whether the newest published version is still ours. Its size tells; `verify` compares every byte.

    Returns:
        Whether it was seen in the log.

    Raises:
        TableFrozen: Somebody wrote over it, or cut it off, or another table lies there now.
    """
    if table.published_version < 0 or not table.published_size:
        return False
    found = storage.size(commit_path(table.published_version))
    if found is not None and found != table.published_size:
        freeze(
            ctx,
            table,
            f"version {table.published_version} in {storage.root}/{commit_path(table.published_version)} has "
            f"{found} bytes, and {table.published_size} were published: somebody wrote over it",
        )
    return found is not None


def _is_ours(ctx: Context, table: ManagedTable, version: int) -> bool:
    """Another process may have ratified and published it since the table's row was read."""
    return ctx.by_id(table.table_id).head_version >= version


def import_foreign_commits(ctx: Context, table: ManagedTable) -> int:
    """Take every commit after the head into the ledger, in order.

    Raises:
        TableFrozen: A version that was ratified here has other content in the log.
        CorruptLog: A foreign commit cannot be read; nothing of it is imported.
    """
    imported = 0
    times: dict[str, int] = {}
    while True:
        current = ctx.by_id(table.table_id)
        version = current.head_version + 1
        storage = ctx.storage(current.location)
        _check_pending(ctx, current)
        if not storage.exists(commit_path(version)):
            return imported
        if current.published_version < current.head_version:
            # Ours come first: one of them may be what was found.
            publish_pending(ctx, current)
        if not imported:
            # Not the time of the import: whoever asks for a moment means the same version as Delta does.
            later = storage.list(LOG_FOLDER, start_after=f"{version:020d}")
            times = {f"{LOG_FOLDER}/{file.name}": file.modified_ms for file in later}
        content = storage.read(commit_path(version))
        imported += _import(ctx, current, version, content, times.get(commit_path(version)))


def _import(ctx: Context, table: ManagedTable, version: int, content: bytes, written_at: int | None) -> int:
    prepared = prepared_foreign(table, version, content)
    with ctx.store.writing() as session:
        rows = session.rows("lock_tables", keys=session.keys([table.table_id]))
        locked = ManagedTable.from_row(rows[0])
        # Ratified by another process in between: the same bytes mean that it was that one's publication.
        raced = locked.head_version >= version
        if not raced:
            ratify_foreign(ctx, session, locked, prepared, written_at)
    if raced:
        if commit_content(ctx, table, version) != content:
            freeze(
                ctx,
                table,
                f"version {version} was ratified here and written by an outside writer at the same time",
            )
        return 0
    telemetry.step("foreign.imported", table=table.label, version=version)
    return 1


def prepared_foreign(table: ManagedTable, version: int, content: bytes) -> Prepared:
    """Read a commit of an outside writer and see that it can be taken in.

    Raises:
        CorruptLog: It is damaged, or its writer has not finished it.
        UnsafePath: It names files outside the table.
    """
    source = f"{table.location}/{commit_path(version)}"
    if not content.strip():
        raise CorruptLog(
            source,
            "the file is empty: its writer has not finished, or died. Nothing was imported. Try again later; "
            "if it stays empty, remove it",
        )
    prepared = prepare_bytes(content, source)
    for path in prepared.paths():
        check_inside(table.location, path, table.label, table.allowed_paths)
    return prepared


def ratify_foreign(
    ctx: Context, session: Session, table: ManagedTable, prepared: Prepared, written_at: int | None
) -> None:
    """Take a commit of an outside writer in as the next version of a table, which is locked.

    Raises:
        UnsupportedTable: With it the table needs something that this version does not know.
    """
    version = table.head_version + 1
    head = completed(session, read_head(session, table))
    table = head.table
    now = ctx.clock()
    stamp = head.next_timestamp(min(now, written_at or now), prepared.in_commit_timestamp)
    told = _own_transaction(ctx, session, prepared)
    written = Version(version, prepared, prepared.content or b"", stamp, now, "foreign", told, now)
    head = head.indexing(session, written)
    totals, next_file_id = ratify(session, table, written, head.totals, head.columns)
    after = head.after(written, totals, next_file_id)
    if after.protocol and after.metadata:
        check_readable(after.protocol, after.metadata, table.label)
    session.run("mark_published", table_id=table.table_id, version=version)
    ctx.audit(session, "import", table.location, prepared.engine, f"foreign commit, version {version}")


def _own_transaction(ctx: Context, session: Session, prepared: Prepared) -> str | None:
    """The transaction of a commit that a ledger wrote.

    A database that was restored from an older backup meets its own commits as foreign ones. Whoever repeats
    one of them under its id must find that it took place.
    """
    told = prepared.text("txnId")
    if told is None or prepared.engine != ENGINE_INFO:
        return None
    session.run(
        "insert_transaction",
        transaction_id=told,
        state="committed",
        author=prepared.text("userName"),
        message=prepared.text("userMetadata"),
        origin="found in the published log",
        now=ctx.clock(),
        table_count=1,
    )
    row = session.row("transaction_by_id", transaction_id=told)
    return told if row is not None and row[1] == "committed" else None
