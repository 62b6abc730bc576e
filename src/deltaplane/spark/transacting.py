"""Transactions over many tables, from ordinary Spark SQL and DataFrames."""

from __future__ import annotations

import inspect
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from deltaplane import telemetry
from deltaplane.errors import (
    DEPARTED,
    CommitConflict,
    CommitOutcomeUnknown,
    ConfigError,
    DeltaplaneError,
    LedgerError,
    TableAlreadyManaged,
    TransactionConflict,
    TransactionDoomed,
)
from deltaplane.ledger.commit import NewTable, Request, commit, outcome
from deltaplane.ledger.context import Context, Retries
from deltaplane.ledger.creations import forget_creations, missing_files
from deltaplane.ledger.grouping import Participant, with_group
from deltaplane.ledger.model import CommitResult
from deltaplane.ledger.names import LOG_FOLDER
from deltaplane.ledger.placing import Staged
from deltaplane.ledger.prepare import Prepared, check_text
from deltaplane.spark.attaching import Attachment, attachment_of
from deltaplane.spark.definitions import departed, table_id
from deltaplane.spark.pinning import QUERY, VIEW, enter, is_running, leave, stay_behind
from deltaplane.spark.port import lost_creation
from deltaplane.spark.undoing import remove_created, take_back_names
from deltaplane.spark.views import TransactionView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SparkTransaction", "run_transaction", "transaction"]

Result = TypeVar("Result")


class SparkTransaction:
    """A transaction that a thread of Spark is in.

    Attributes:
        transaction_id: The id under which the outcome can be asked for.
        result: Where it landed, once it is committed.
    """

    def __init__(
        self,
        spark: SparkSession,
        attachment: Attachment,
        view: TransactionView,
        author: str | None,
        message: str | None,
    ) -> None:
        self.transaction_id = view.view_id
        self.result: CommitResult | None = None
        self._spark = spark
        self._attachment = attachment
        self._view = view
        self._author = author
        self._message = message

    def __repr__(self) -> str:
        state = "ended" if self._view.ended else "open"
        return f"SparkTransaction({self.transaction_id!r}, {len(self._view.staged)} tables, {state})"

    def rollback(self) -> None:
        """End the transaction without a trace. What the block still writes behind it is refused.

        Raises:
            LedgerError: It has ended already.
        """
        if self._view.ended:
            raise LedgerError(f"Transaction {self.transaction_id} has ended. Begin a new one.")
        stay_behind(self._spark, self._attachment, self._view)
        self._abandon()

    def bind(self, fn: Callable[..., Result]) -> Callable[..., Result]:
        """Let a function take part in the transaction when another thread of Python calls it.

        Threads that Spark starts take part by themselves, those of Python do not. All of them must have ended
        before the transaction does.
        """

        def bound(*args: Any, **kwargs: Any) -> Result:
            with self._view.guard:
                self._view.check_alive(self._view.query)
                self._view.bound += 1
            context = self._spark.sparkContext
            context.setLocalProperty(VIEW, self.transaction_id)
            try:
                return fn(*args, **kwargs)
            finally:
                context.setLocalProperty(VIEW, None)  # type: ignore[arg-type]
                with self._view.guard:
                    self._view.bound -= 1

        return bound

    def _abandon(self) -> None:
        """Nothing of it takes place, also where the database is away and the reconciler has to clear away."""
        if self._view.staged:
            telemetry.count("spark_transactions_total", outcome="rolled back")
        try:
            self._clear_away()
        except (DeltaplaneError, OSError) as error:
            # Nobody may take this for a failed commit, or lose the exception that led here.
            away = isinstance(error, CommitOutcomeUnknown)
            telemetry.LOGGER.warning(
                "transaction %s is rolled back, and what it staged stays for a while: %s",
                self.transaction_id,
                "the database is away" if away else error,
            )

    def _clear_away(self) -> None:
        """Use its id up, and remove what only it needed."""
        context = self._attachment.ledger.context
        take_back_names(context, self._attachment.names, self._view)
        if self._view.staged:
            outcome(context, self.transaction_id)
            remove_created(context, self._view)

    def _leave(self) -> None:
        """From here on the thread sees what everybody sees."""
        leave(self._spark, self._attachment, self._view)

    def _finish(self) -> None:
        view = self._view
        if not is_running(self._spark):
            view.doom("its session was stopped inside of it")
        checksums = {} if view.doomed else self._checksums()
        self._leave()
        view.check_time()
        uncollected = view.uncollected()
        if view.bound:
            many = "a function that was" if view.bound == 1 else f"{view.bound} functions that were"
            view.doom(f"{many} bound to it still ran at its end")
        if uncollected is not None:
            view.doom(f"a statement failed after its commit was staged as {uncollected.file}")
        if view.doomed:
            self._abandon()
            raise TransactionDoomed(
                f"Transaction {self.transaction_id} was rolled back, because {view.doomed.rstrip('.')}. No "
                f"table was changed. Run it again."
            )
        context = self._attachment.ledger.context
        if not view.staged:
            self._attachment.names.forget(self.transaction_id)
            self._check_tables(None)
            self.result = CommitResult(self.transaction_id, {})
            return
        try:
            request = self._request()
            _check_files(context, request)
            self.result = commit(context, request)
        except CommitOutcomeUnknown:
            raise
        except TableAlreadyManaged as error:
            self._abandon()
            table, reason = lost_creation(context, request.creates)
            raise TransactionConflict(table, 0, "somebody else", reason) from error
        except CommitConflict as error:
            self._abandon()
            raise TransactionConflict(error.table, error.version, error.winner, error.reason) from None
        except DeltaplaneError as error:
            self._abandon()
            self._check_tables(error)
            raise
        except BaseException:
            # Such as Ctrl-C, perhaps behind COMMIT: what took place must not be cleared away.
            if not self._may_have_taken_place():
                self._abandon()
            raise
        self._attachment.names.forget(self.transaction_id)
        telemetry.count("spark_transactions_total", outcome="committed")
        self._forget_created()
        self._write_checksums(checksums, self.result)
        self._refresh_cached()

    def _check_tables(self, error: BaseException | None) -> None:
        """See that the tables are still those that the transaction began with.

        Args:
            error: What else is wrong, perhaps because they are not.

        Raises:
            TransactionConflict: Somebody else dropped one, released it, or made another one in its place.
        """
        try:
            gone = departed(self._attachment.ledger.context, self._view)
        except DeltaplaneError as unknown:
            telemetry.LOGGER.warning(
                "transaction %s: nobody knows whether its tables are still the same: %s",
                self.transaction_id,
                unknown,
            )
            return
        if gone is not None:
            version = gone.head_version + 1
            raise TransactionConflict(gone.label, version, "somebody else", DEPARTED) from error

    def _may_have_taken_place(self) -> bool:
        try:
            return outcome(self._attachment.ledger.context, self.transaction_id)
        except DeltaplaneError as error:
            telemetry.LOGGER.warning("transaction %s: %s", self.transaction_id, error)
            return True

    def _forget_created(self) -> None:
        """The new tables are in the ledger, so their places need not be noted beside it."""
        if not self._view.created:
            return
        try:
            forget_creations(self._attachment.ledger.context, self.transaction_id)
        except DeltaplaneError as error:
            # The commit has taken place; the reconciler finds that out as well.
            telemetry.LOGGER.debug("the places of new tables stay noted for a while: %s", error)

    def _refresh_cached(self) -> None:
        """Let what is cached of the tables be computed anew, as Spark does after every write."""
        for commits in self._view.staged.values():
            root = commits[-1].file.rpartition(f"/{LOG_FOLDER}/")[0]
            try:
                self._spark.catalog.refreshByPath(root)
            except Exception as error:
                # The commit has taken place, and an exception would say that it has not.
                telemetry.LOGGER.warning("%s: cached queries may be older than the commit: %s", root, error)

    def _checksums(self) -> dict[str, tuple[int, str]]:
        """What Delta knows of the newest versions, so that the next reader need not compute it again."""
        found: dict[str, tuple[int, str]] = {}
        for location, commits in self._view.staged.items():
            log = commits[-1].file.rpartition("/_staged_commits/")[0]
            told = self._attachment.cache.checksum(self.transaction_id, log)
            if told is not None:
                version, _, text = told.partition("\t")
                found[location] = (int(version), text)
        return found

    def _write_checksums(self, checksums: dict[str, tuple[int, str]], result: CommitResult) -> None:
        """Write them where they fit: a version that moved behind another one has other sums."""
        for location, (version, text) in checksums.items():
            staged = self._view.staged[location][-1].version
            if not version == staged == result.versions.get(location) or location in result.unpublished:
                continue
            storage = self._attachment.ledger.context.storage(location)
            try:
                storage.put_if_absent(f"{LOG_FOLDER}/{version:020d}.crc", f"{text}\n".encode())
            except (DeltaplaneError, OSError) as error:
                telemetry.LOGGER.warning("%s: no checksum of version %d: %s", location, version, error)

    def _request(self) -> Request:
        view = self._view
        prepared = self._noted()
        staged = tuple(
            Staged(view.pins[location], one, view.pins[location].head_version, False)
            for location, commits in prepared.items()
            if location in view.pins
            for one in commits
        )
        names = self._attachment.port.names_of_tables
        creates = tuple(
            NewTable(location, names.of_new(location), "import", (), first, tuple(following))
            for location in view.created
            for first, *following in (prepared[location],)
        )
        read = tuple(view.pins[location] for location in sorted(view.used - view.staged.keys()))
        return Request(self.transaction_id, staged, self._author, self._message, creates, read)

    def _noted(self) -> dict[str, list[Prepared]]:
        """The commits by location; those of several tables tell that they belong together."""
        staged = self._view.staged
        prepared = {location: [one.prepared for one in commits] for location, commits in staged.items()}
        if len(staged) < 2:
            return prepared
        ctx = self._attachment.ledger.context
        members = [
            Participant(table_id(ctx, self._view, location), commits[-1].version)
            for location, commits in staged.items()
        ]
        return {
            location: [with_group(one, self.transaction_id, members) for one in commits]
            for location, commits in prepared.items()
        }


def _check_files(ctx: Context, request: Request) -> None:
    """See that the files of new tables are still there: nobody knows of the tables yet.

    Raises:
        CommitConflict: They are not.
    """
    missing = {
        new.location: path
        for new in request.creates
        for one in (new.prepared, *new.following)
        for path in missing_files(new.location, one)
    }
    if not missing:
        return
    with ctx.store.glance() as session:
        if session.row("transaction_by_id", transaction_id=request.transaction_id) is not None:
            # The transaction was given up for dead and cleared away, which is for the ledger to say.
            return
    location, path = next(iter(missing.items()))
    reason = f"they removed files of the new table, as DROP SCHEMA CASCADE does, such as {path}"
    raise CommitConflict(location, 0, "somebody else", reason)


@contextmanager
def transaction(
    spark: SparkSession,
    *,
    author: str | None = None,
    message: str | None = None,
    timeout: float | None = None,
) -> Iterator[SparkTransaction]:
    """Commit to many tables at once: everything that the block writes takes place at its end, or nothing.

    Inside, every managed table is read as of the begin, with the block's own writes. Others see nothing of it
    before its end. On an exception nothing is written.

    Args:
        spark: A session with a ledger.
        author: Who commits.
        message: Why.
        timeout: After so many seconds the transaction is given up.

    Raises:
        TransactionConflict: Somebody else committed first to one of the tables. Nothing was written.
        CommitOutcomeUnknown: The database went away during the commit and did not come back.
        LedgerError: It was given up, and why. Nothing was written.
    """
    with telemetry.span("spark.transaction") as note:
        running = begin(spark, author, message, timeout)
        note(transaction=running.transaction_id)
        yield from _ended(running)


def _ended(running: SparkTransaction) -> Iterator[SparkTransaction]:
    """Commit behind the block, or roll back."""
    from deltaplane.spark.failures import ENGINE_ERRORS

    failures = running._attachment.port.failures
    try:
        yield running
    except BaseException as error:
        cause = failures.get(running.transaction_id)
        if not running._view.ended:
            running.rollback()
        if isinstance(error, (*ENGINE_ERRORS, DeltaplaneError)):
            running._check_tables(error)
        if cause is not None and str(cause) in str(error):
            # Spark wraps what the ledger said; whoever catches errors of the ledger must find it.
            raise cause from error
        raise
    finally:
        if running._view.ended:
            running._leave()
    if not running._view.ended:
        running._finish()


def begin(
    spark: SparkSession, author: str | None, message: str | None, timeout: float | None
) -> SparkTransaction:
    """Begin a transaction in the calling thread."""
    check_text("The transaction", author=author, message=message)
    if timeout is not None and not timeout > 0:
        raise ConfigError(
            f"The timeout of a transaction is {timeout!r}. Nothing was changed. Give the seconds that it may "
            f"take, more than 0, or None."
        )
    attachment = attachment_of(spark)
    pins = {table.location: table for table in attachment.ledger.tables() if table.state != "adopting"}
    view = TransactionView(
        str(uuid.uuid4()),
        pins,
        spark.sparkContext.getLocalProperty(QUERY),
        deadline=None if timeout is None else time.monotonic() + timeout,
    )
    enter(spark, attachment, view)
    return SparkTransaction(spark, attachment, view, author, message)


def run_transaction(
    spark: SparkSession,
    fn: Callable[..., Result],
    *,
    retries: int = 3,
    author: str | None = None,
    message: str | None = None,
    timeout: float | None = None,
) -> Result:
    """Run a function in a transaction, again when somebody else committed first.

    Args:
        spark: A session with a ledger.
        fn: Called once for every attempt, with the session where it has a parameter without a default. An
            exception of it rolls back and is raised.
        retries: How often to repeat after a conflict.
        author: Who commits.
        message: Why.
        timeout: After so many seconds an attempt is given up.

    Returns:
        What the function gave.

    Raises:
        TransactionConflict: The last attempt lost too. Nothing was written.
    """
    if retries < 0:
        raise ConfigError(
            f"run_transaction cannot repeat {retries} times. Nothing was run. Give 0 to run it once, or more."
        )
    pauses = Retries()
    takes_session = _takes_session(fn)
    for attempt in range(retries + 1):
        try:
            with transaction(spark, author=author, message=message, timeout=timeout):
                value = fn(spark) if takes_session else fn()
        except CommitConflict:
            if attempt == retries:
                raise
            telemetry.count("spark_transaction_retries_total")
            pauses.pause(attempt)
        else:
            return value
    raise AssertionError("the last attempt raises")


def _takes_session(fn: Callable[..., Any]) -> bool:
    """Parameters with defaults are the caller's own, as in `lambda day=day: …`."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = inspect.signature(fn).parameters.values()
    return any(one.kind in positional and one.default is inspect.Parameter.empty for one in given)
