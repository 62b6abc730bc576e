"""Publication: what the ledger ratified appears in `_delta_log`, in order and to the byte.

Anybody may publish at any time. Two publishers do no harm: a name is taken once (put if absent), what is
found there must be what the ledger holds, and both go upwards from the same version, so no gap can appear.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace

from deltaplane import telemetry
from deltaplane.errors import CorruptLog, DeltaplaneError, NotADeltaTable, TableFrozen
from deltaplane.ledger.checkpointing import checkpoint_if_due
from deltaplane.ledger.context import Context
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.names import LOG_FOLDER, commit_path
from deltaplane.ledger.ratify import decompress
from deltaplane.ledger.storage import Storage
from deltaplane.ledger.stores.base import Question
from deltaplane.log.actions import Metadata

__all__ = [
    "LONGEST_BACKOFF_MS",
    "Publication",
    "check_log_present",
    "commit_content",
    "freeze",
    "publish_all",
    "publish_pending",
]

_AT_ONCE = 8
_CHUNK = 200
LONGEST_BACKOFF_MS = 300_000


@dataclass(frozen=True)
class Publication:
    """What is to appear in the log of one table.

    Attributes:
        table: The table, as the ledger knew it before.
        upto: The newest version that is to appear.
        known: The contents that are at hand, by version; the others are read from the ledger.
        metadata: The table's properties at that version, where they are at hand.
        checkpoint: Whether a checkpoint that is due is written with it.
    """

    table: ManagedTable
    upto: int
    known: Mapping[int, bytes] = field(default_factory=dict, repr=False)
    metadata: Metadata | None = None
    checkpoint: bool = True

    @property
    def first(self) -> int:
        """The oldest version that is missing."""
        return self.table.published_version + 1


def publish_pending(ctx: Context, table: ManagedTable) -> int:
    """Publish what is pending of one table.

    Returns:
        The newest published version.

    Raises:
        StorageError: A file could not be written. What was ratified stays, and is published later.
        TableFrozen: A foreign file stands where one of ours belongs.
    """
    failures = publish_all(ctx, [Publication(table, table.head_version)])
    if table.location in failures:
        raise failures[table.location]
    return table.head_version


def publish_all(ctx: Context, publications: Sequence[Publication]) -> dict[str, DeltaplaneError | OSError]:
    """Publish versions of several tables, which do not wait for each other's disk.

    Returns:
        Why a table was not published, by its location.
    """
    failures: dict[str, DeltaplaneError | OSError] = {}
    if len(publications) < 2:
        outcomes = [_write_files(ctx, publication) for publication in publications]
    else:
        # The threads only write files: one that asked the database would take a connection of its own.
        ready = [_with_contents(ctx, publication) for publication in publications]
        with ThreadPoolExecutor(min(_AT_ONCE, len(publications))) as pool:
            # Each in a copy of the context, so that its span belongs to that of the commit.
            under_way = [pool.submit(copy_context().run, _write_files, ctx, p) for p in ready]
        outcomes = [future.result() for future in under_way]
    written = []
    for publication, failed in zip(publications, outcomes, strict=True):
        if failed is None:
            written.append(publication)
            continue
        version, failure = failed
        failures[publication.table.location] = failure
        if publication.table.state != "frozen":
            _record_failure(ctx, publication.table, version, failure)
    _mark(ctx, [publication for publication in written if publication.upto >= publication.first])
    for publication in written:
        if publication.checkpoint:
            checkpoint_if_due(ctx, publication.table, publication.upto, publication.metadata)
    return failures


def _with_contents(ctx: Context, publication: Publication) -> Publication:
    """The same with the contents that are to be written first."""
    table, first = publication.table, publication.first
    last = min(publication.upto, first + _CHUNK - 1)
    try:
        found = dict(_contents(ctx, table, publication.known, first, last))
    except DeltaplaneError as error:
        telemetry.LOGGER.debug("%s: asked for again when it is published: %s", table.label, error)
        return publication
    return replace(publication, known={**publication.known, **found})


def _write_files(ctx: Context, publication: Publication) -> tuple[int, DeltaplaneError | OSError] | None:
    """Put the missing versions into the log, oldest first; gives at which version what went wrong."""
    table, first, upto = publication.table, publication.first, publication.upto
    version = first
    try:
        with telemetry.span("ledger.publish", table=table.label, version=upto, versions=upto - first + 1):
            if table.state == "frozen":
                raise TableFrozen(
                    f"{table.label} is not published while it is frozen: {table.frozen_reason}. Decide with: "
                    f"deltaplane ledger repair {table.label} --keep ledger|log"
                )
            storage = ctx.storage(table.location)
            if upto >= first:
                check_log_present(storage, table)
            while version <= upto:
                last = min(upto, version + _CHUNK - 1)
                for number, content in _contents(ctx, table, publication.known, version, last):
                    version = number
                    _put(ctx, storage, table, number, content)
                    telemetry.step("publish.file_written", table=table.label, version=number)
                version = last + 1
    except (DeltaplaneError, OSError) as error:
        return version, error
    return None


def check_log_present(storage: Storage, table: ManagedTable) -> None:
    """See that the log which was published is still there: a deleted table must not come back as a torso.

    Raises:
        NotADeltaTable: The table's folder is gone.
        CorruptLog: The newest published version is gone.
    """
    newest = table.published_version
    if newest < 0 or storage.exists(commit_path(newest)):
        return
    if next(iter(storage.list(LOG_FOLDER)), None) is None:
        raise NotADeltaTable(
            f"{table.label}: the table's folder is gone: {storage.root}/{LOG_FOLDER} is empty or missing, "
            f"and versions up to {table.published_version} had been published there. Nothing was written; "
            f"the ledger holds everything it held. Restore the folder from a backup, or let the table go "
            f"with: deltaplane ledger release {table.label} --discard-unpublished"
        )
    # A table may have been adopted from a checkpoint without its commit.
    following = next(iter(storage.list(LOG_FOLDER, start_after=f"{newest:020d}")), None)
    if following is not None and following.name[:20].isdigit() and int(following.name[:20]) > newest:
        raise CorruptLog(
            f"{storage.root}/{LOG_FOLDER}",
            f"the log has moved on to {following.name}, and what came after version {newest}, the last one "
            f"that the ledger knows, was cleaned up: the database was probably restored from an older "
            f"backup. Nothing was written. Take the table in anew: deltaplane ledger release {table.label}, "
            f"then deltaplane ledger adopt {table.location}",
        )
    if following is None or not following.name.startswith(f"{newest:020d}."):
        raise CorruptLog(
            f"{storage.root}/{commit_path(newest)}",
            f"version {newest} had been published and is gone from the log, so the next one would leave a "
            f"gap. Nothing was written; the ledger holds everything it held. Restore the file from a "
            f"backup, or see what is missing with: deltaplane ledger verify {table.label}",
        )


def _contents(
    ctx: Context, table: ManagedTable, known: Mapping[int, bytes], first: int, last: int
) -> list[tuple[int, bytes]]:
    if all(version in known for version in range(first, last + 1)):
        return [(version, known[version]) for version in range(first, last + 1)]
    with ctx.store.reading() as session:
        rows = session.rows("contents", table_id=table.table_id, first=first, last=last)
    found = [(row[0], known.get(row[0]) or decompress(row[1], row[2])) for row in rows]
    if [version for version, _ in found] != list(range(first, last + 1)):
        raise CorruptLog(
            table.label,
            f"the ledger lacks the content of a version between {first} and {last}. Nothing was published "
            f"beyond. Look at it with: deltaplane ledger verify {table.label}",
        )
    return found


def commit_content(ctx: Context, table: ManagedTable, version: int) -> bytes | None:
    """The bytes of a commit as the ledger keeps them; None when it has none of that version."""
    with ctx.store.reading() as session:
        row = session.row("content", table_id=table.table_id, version=version)
    return decompress(row[0], row[1]) if row else None


def _put(ctx: Context, storage: Storage, table: ManagedTable, version: int, content: bytes) -> None:
    path = commit_path(version)
    if storage.put_if_absent(path, content):
        return
    if storage.read(path) != content:
        freeze(
            ctx,
            table,
            f"version {version} in {storage.root}/{path} was written by somebody else, and the ledger had "
            f"ratified another one",
        )


def freeze(ctx: Context, table: ManagedTable, reason: str) -> None:
    """Stop writes to a table whose log contradicts the ledger (invariant 8).

    Raises:
        TableFrozen: Always, once the table is frozen.
    """
    with ctx.store.writing() as session:
        session.run("freeze", table_id=table.table_id, reason=reason)
        ctx.audit(session, "freeze", table.location, None, reason)
    raise TableFrozen(
        f"{table.label}: {reason}. The table is frozen for writes; neither version is lost. Compare them "
        f"with: deltaplane ledger verify {table.label}, then keep one with: deltaplane ledger repair "
        f"{table.label} --keep ledger|log"
    )


def _mark(ctx: Context, publications: Sequence[Publication]) -> None:
    if not publications:
        return
    # In the order of their ids, as whoever commits locks them.
    ordered = sorted(publications, key=lambda publication: publication.table.table_id)
    if len(ordered) == 1:
        one = ordered[0]
        ctx.store.note_published(one.table.table_id, one.first, one.upto, ctx.clock())
    else:
        with ctx.store.relaxed() as session, session.pipelined(True):
            for one in ordered:
                for query, values in _published(ctx, one.table, one.upto):
                    session.run(query, **values)
    for one in ordered:
        telemetry.step("publish.marked", table=one.table.label, version=one.upto)


def _published(ctx: Context, table: ManagedTable, upto: int) -> tuple[Question, Question]:
    """What is noted of the versions that were missing, up to one that is there."""
    first = table.published_version + 1
    seen = {"table_id": table.table_id, "first": first, "last": upto, "now": ctx.clock()}
    return ("mark_published", {"table_id": table.table_id, "version": upto}), ("record_published", seen)


def _record_failure(ctx: Context, table: ManagedTable, version: int, error: Exception) -> None:
    """Note why it failed, for `ledger status`; the failure itself goes on to the caller."""
    try:
        with ctx.store.relaxed() as session:
            if version > table.published_version + 1:
                for query, values in _published(ctx, table, version - 1):
                    session.run(query, **values)
            row = session.row("publication", table_id=table.table_id, version=version)
            wait = _backoff_ms(row[0] if row else 0)
            session.run(
                "record_failure",
                table_id=table.table_id,
                version=version,
                error=str(error)[:2000],
                next_attempt_at=ctx.clock() + wait,
            )
    except DeltaplaneError as second:
        telemetry.LOGGER.warning(
            "%s: the failed publication could not be noted either: %s", table.label, second
        )


def _backoff_ms(attempts: int) -> int:
    longest = min(LONGEST_BACKOFF_MS, 1000 * 2**attempts)
    return int(random.uniform(longest / 2, longest))  # noqa: S311 - spreads load, keeps no secret
