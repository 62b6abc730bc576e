"""Committing: one database transaction over one table or many, then publication.

1. look for commits of outside writers (invariant 8)
2. lock the tables in the order of their ids, place each commit behind the head, write its rows, COMMIT
   (invariants 1 and 4); what may be repeated is repeated, an unknown outcome is found out (invariant 6)
3. publish, in order (invariant 2); what fails here is finished by whoever comes next (invariant 5)
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import NoReturn

from deltaplane import telemetry
from deltaplane.errors import (
    DEPARTED,
    CommitConflict,
    CommitOutcomeUnknown,
    CommitRefused,
    DeltaplaneError,
    LedgerUnavailable,
    TableAlreadyManaged,
    TableFrozen,
    TransactionConflict,
)
from deltaplane.ledger.authoring import authored_bytes, fixed_reason
from deltaplane.ledger.bulk import without_collections
from deltaplane.ledger.completing import Lacking, complete_behind, completed, is_large, may_be_bare
from deltaplane.ledger.context import Context
from deltaplane.ledger.file_rows import known_question
from deltaplane.ledger.foreign import notice_foreign_commits
from deltaplane.ledger.head import Head, head_of, head_question
from deltaplane.ledger.model import CommitResult, ManagedTable, Winner
from deltaplane.ledger.placing import Lost, Staged, place
from deltaplane.ledger.prepare import Prepared
from deltaplane.ledger.publish import Publication, publish_all
from deltaplane.ledger.ratify import Version, ratify, ratify_bare
from deltaplane.ledger.rules import active_in, check_commit
from deltaplane.ledger.stores.base import ConnectionLost, Question, Row, Session

__all__ = ["NewTable", "Request", "commit", "outcome", "raise_conflict"]

_MANY = 10_000


@dataclass(frozen=True)
class NewTable:
    """A table that begins to exist with the transaction.

    Attributes:
        prepared: Its first commit.
        following: The commits that the same transaction puts on top.
    """

    location: str
    name: str | None
    foreign_commits: str
    allowed_paths: tuple[str, ...]
    prepared: Prepared
    following: tuple[Prepared, ...] = ()


@dataclass(frozen=True)
class Request:
    """A whole transaction, ready to be committed.

    Attributes:
        read: Tables that it has read and does not write: they must still be the same tables.
        asks_for_checkpoints: Whoever commits asks for checkpoints that are due afterwards, so that the rows
            of a large version may follow it even then.
    """

    transaction_id: str
    staged: tuple[Staged, ...]
    author: str | None
    message: str | None
    creates: tuple[NewTable, ...] = ()
    read: tuple[ManagedTable, ...] = ()
    asks_for_checkpoints: bool = False

    @property
    def action_count(self) -> int:
        """How many actions it has."""
        new = (one for table in self.creates for one in (table.prepared, *table.following))
        return sum(len(one.actions) for one in (*(staged.prepared for staged in self.staged), *new))

    @property
    def table_count(self) -> int:
        """Over how many tables it goes."""
        return len({staged.table.table_id for staged in self.staged}) + len(self.creates)


def commit(ctx: Context, request: Request) -> CommitResult:
    """Commit a transaction: all of it or nothing.

    Raises:
        CommitConflict: Somebody else was first; TransactionConflict when several tables are written.
        CommitRefused: The commit breaks a rule.
        TableFrozen: A table diverged and awaits repair.
        CommitOutcomeUnknown: The database went away during COMMIT and did not come back.
        LedgerUnavailable: The database cannot be reached. Nothing was written.
    """
    with telemetry.span("ledger.commit", tables=request.table_count) as note:
        for table in {staged.table.table_id: staged.table for staged in request.staged}.values():
            notice_foreign_commits(ctx, table)
        telemetry.step("commit.begin")
        with without_collections(request.action_count > _MANY):
            landed = _ratified(ctx, request)
        note(
            table=[landing.table.label for landing in landed.values()],
            versions=[landing.newest for landing in landed.values()],
        )
        telemetry.step("commit.ratified")
        result = _published(ctx, request, landed)
        bare = [landing.lacking() for landing in landed.values() if landing.head.bare]
        if bare:
            complete_behind(ctx, bare)
        return result


@dataclass
class Landing:
    """What a transaction writes to one table.

    Attributes:
        table: The table as it was before.
        head: Its head with what was written.
        written: The versions, none when the transaction took place earlier.
    """

    table: ManagedTable
    head: Head
    written: list[Version] = field(default_factory=list)

    @property
    def newest(self) -> int:
        """The transaction's newest version."""
        return self.head.table.head_version

    def publication(self) -> Publication:
        """What is to be published of it."""
        contents = {version.number: version.content for version in self.written}
        return Publication(self.table, self.newest, contents, self.head.metadata, not self.head.bare)

    def lacking(self) -> Lacking:
        """The table, where the rows of its newest version are still to be written."""
        return Lacking(self.table, self.written[-1] if self.written else None)


Landed = dict[int, Landing]


def _ratified(ctx: Context, request: Request) -> Landed:
    """Ratify, repeating what the database rolled back.

    When the connection broke during COMMIT, the next attempt finds the outcome out, and does not repeat
    blindly: it begins with the transaction's own id, for which the database makes it wait until the earlier
    attempt has ended. If that one took place its versions are given, and nothing is written again.
    """
    unknown = False
    for attempt in range(ctx.retries.attempts):
        try:
            with ctx.store.writing() as session:
                landed = _attempt(ctx, session, request)
                telemetry.step("commit.before_commit")
        except LedgerUnavailable as error:
            if isinstance(error, ConnectionLost) and error.during_commit:
                unknown = True
                telemetry.step("commit.outcome_unknown")
            _pause_or_give_up(ctx, request, attempt, error, unknown)
        else:
            return landed
    raise AssertionError("the last attempt raises")


def _pause_or_give_up(
    ctx: Context, request: Request, attempt: int, error: LedgerUnavailable, unknown: bool
) -> None:
    if attempt + 1 >= ctx.retries.attempts:
        if unknown:
            raise CommitOutcomeUnknown(request.transaction_id, str(error)) from error
        raise LedgerUnavailable(
            f"The commit was given up after {ctx.retries.attempts} attempts. Nothing was written. The last: "
            f"{error}"
        ) from error
    telemetry.step("commit.retried")
    ctx.retries.pause(attempt)


def _attempt(ctx: Context, session: Session, request: Request) -> Landed:
    firsts = {staged.table.table_id: staged.prepared for staged in reversed(request.staged)}
    ids = sorted(firsts)
    # A large version is written without them.
    asked = [number for number in ids if not is_large(firsts[number])]
    # Everything that can be asked in advance, in one round trip. What follows the lock sees what it protects.
    claimed, locked, *answers = session.ask(
        _claim(ctx, request, "committed"),
        ("lock_tables", {"keys": session.keys(ids)}),
        *(head_question(number) for number in ids),
        *(known_question(session, number, firsts[number]) for number in asked),
        *(("table_by_id", {"table_id": table.table_id}) for table in request.read),
    )
    if not claimed:
        return _earlier(session, request)
    states = dict(zip(ids, answers, strict=False))
    known = dict(zip(asked, answers[len(ids) :], strict=False))
    read = answers[len(ids) + len(asked) :]
    for table, found in zip(request.read, read, strict=True):
        if not found:
            raise CommitConflict(table.label, table.head_version + 1, "somebody else", DEPARTED)
    tables = {row[0]: ManagedTable.from_row(row) for row in locked}
    landed: Landed = {}
    for new in request.creates:
        table = _create(ctx, session, request, new)
        landing = landed[table.table_id] = Landing(table, Head.empty(table))
        for prepared in (new.prepared, *new.following):
            _write(ctx, session, request, Staged(table, prepared, -1, True), landing)
    for staged in request.staged:
        table = _writable(tables, staged)
        number = table.table_id
        if number not in landed:
            landed[number] = Landing(table, head_of(table, states[number]))
        _write(ctx, session, request, staged, landed[number], known.pop(number, None))
    return landed


def _create(ctx: Context, session: Session, request: Request, new: NewTable) -> ManagedTable:
    row = session.row(
        "insert_table",
        location=new.location,
        name=new.name,
        state="managed",
        foreign_commits=new.foreign_commits,
        allowed_paths=json.dumps(list(new.allowed_paths)),
        now=ctx.clock(),
    )
    if row is None:
        raise TableAlreadyManaged(
            f"{new.name or new.location}: the ledger has a table of that place or name already. Nothing was "
            f"written. See it with: deltaplane ledger tables"
        )
    session.run("set_base", table_id=row[0], version=0)
    ctx.audit(session, "create", new.location, request.author, request.message)
    created = session.row("table_by_id", table_id=row[0])
    assert created is not None
    return ManagedTable.from_row(created)


def _claim(ctx: Context, request: Request, state: str) -> Question:
    """Takes the transaction's id; the answer is empty when its story has been told already."""
    return "insert_transaction", {
        "transaction_id": request.transaction_id,
        "state": state,
        "author": request.author or ctx.author,
        "message": request.message,
        "origin": ctx.origin,
        "now": ctx.clock(),
        "table_count": request.table_count,
    }


def _writable(tables: dict[int, ManagedTable], staged: Staged) -> ManagedTable:
    table = tables.get(staged.table.table_id)
    if table is None:
        raise CommitRefused(
            f"{staged.table.label}: the table left the ledger meanwhile. Nothing was written. Adopt it "
            f"again first."
        )
    if table.state == "frozen":
        raise TableFrozen(
            f"{table.label} takes no writes: {table.frozen_reason}. Nothing was written. See what differs "
            f"with: deltaplane ledger verify {table.label}, then decide with: deltaplane ledger repair "
            f"{table.label}"
        )
    return table


def _write(
    ctx: Context,
    session: Session,
    request: Request,
    staged: Staged,
    landing: Landing,
    known: list[Row] | None = None,
) -> None:
    head, versions = landing.head, landing.written
    table, prepared = head.table, staged.prepared
    ratified_head = table.head_version - len(versions)
    winners: list[Winner] = []
    if ratified_head > staged.read_version:
        rows = session.rows("winners", table_id=table.table_id, version=staged.read_version)
        winners = [Winner.from_row(row) for row in rows if row[0] <= ratified_head]
    placed = place(staged, ratified_head, len(versions), winners, fixed_reason(prepared, head))
    if isinstance(placed, Lost):
        raise_conflict(request, table, placed)
    if head.bare:
        head, known = completed(session, head), None
        table = head.table
    if prepared.content is None:
        check_commit(active_in(session, table), table, prepared, head)
    now = ctx.clock()
    timestamp = head.next_timestamp(now, prepared.in_commit_timestamp)
    prepared, content = authored_bytes(
        prepared, head, placed, timestamp, request.transaction_id, request.author or ctx.author
    )
    version = Version(placed, prepared, content, timestamp, now, "ledger", request.transaction_id)
    head = head.indexing(session, version)
    if may_be_bare(prepared, head, placed, request.asks_for_checkpoints):
        ratify_bare(session, table, version)
        landing.head = head.after(version, None, table.next_file_id)
    else:
        totals, next_file_id = ratify(session, table, version, head.totals, head.columns, known)
        landing.head = head.after(version, totals, next_file_id)
    versions.append(version)
    telemetry.step("commit.rows_written", table=table.label, version=placed)


def raise_conflict(request: Request, table: ManagedTable, lost: Lost) -> NoReturn:
    """Say against whom a commit lost.

    Raises:
        CommitConflict: Always; TransactionConflict when several tables are written.
    """
    many = request.table_count > 1
    winner = str(lost.winner) if lost.winner else "somebody else"
    raise (TransactionConflict if many else CommitConflict)(table.label, lost.version, winner, lost.reason)


def _earlier(session: Session, request: Request) -> Landed:
    row = session.row("transaction_by_id", transaction_id=request.transaction_id)
    if row is None or row[1] != "committed":
        raise CommitRefused(
            f"Transaction {request.transaction_id} was given up earlier, and its id is used up. Nothing was "
            f"written. Begin a new transaction."
        )
    landed: Landed = {}
    for location, _, version in session.rows("commits_of_transaction", transaction_id=request.transaction_id):
        current = session.row("table_by_location", location=location)
        if current is not None:
            table = ManagedTable.from_row(current)
            # The transaction's own version is told, not one that came later.
            told = replace(table, head_version=version)
            bare = session.row("bare_head", table_id=table.table_id) == (version,)
            landed[table.table_id] = Landing(told, replace(Head.empty(told), bare=bare))
    absent = [staged.table.label for staged in request.staged if staged.table.table_id not in landed]
    if absent:
        raise CommitRefused(
            f"Transaction {request.transaction_id} took place earlier, and {absent[0]} has nothing of it: "
            f"the table left the ledger since, or the database was restored from a backup before all of it "
            f"was published. Nothing was written. Compare the tables with: deltaplane ledger history, then "
            f"commit what is missing under a new id."
        )
    return landed


def outcome(ctx: Context, transaction_id: str) -> bool:
    """Find out whether a transaction took place, for good.

    Its id is claimed as abandoned: where the transaction is still being committed the database makes the
    claim wait, and afterwards only one of the two stories is true.

    Raises:
        CommitOutcomeUnknown: The database did not come back.
    """
    claim = Request(transaction_id, (), None, "found out after the connection was lost")
    failure: DeltaplaneError | None = None
    for attempt in range(ctx.retries.attempts):
        try:
            with ctx.store.writing() as session:
                _, told = session.ask(
                    _claim(ctx, claim, "abandoned"),
                    ("transaction_by_id", {"transaction_id": transaction_id}),
                )
            return bool(told) and told[0][1] == "committed"
        except LedgerUnavailable as error:
            failure = error
            ctx.retries.pause(attempt)
    raise CommitOutcomeUnknown(transaction_id, str(failure))


def _published(ctx: Context, request: Request, landed: Landed) -> CommitResult:
    versions = {landing.table.location: landing.newest for landing in landed.values()}
    try:
        failures = publish_all(ctx, [landing.publication() for landing in landed.values()])
    except (DeltaplaneError, OSError) as error:
        failures = dict.fromkeys(versions, error)
    for location, failure in failures.items():
        # The commit holds; publication is repeated by the next writer, reader or reconciler.
        telemetry.LOGGER.warning("%s: publication is delayed: %s", location, failure)
    unpublished = {location: str(failure) for location, failure in failures.items()}
    return CommitResult(request.transaction_id, versions, unpublished)
