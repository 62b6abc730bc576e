"""Every error deltaplane raises on purpose.

    DeltaplaneError
    ├── ConfigError               deltaplane.toml or an environment variable is wrong
    ├── DeclarationError          a table, column, key or type is declared in a way that cannot be built
    │   └── TypeTextError         a type written as text is not a type of Spark or Delta
    ├── RegistryError             declarations contradict each other
    │   └── RegistryLoadError     MODULE:ATTRIBUTE does not lead to a Registry
    ├── SparkStartError           Spark could not be started (Java, jars, settings)
    ├── CatalogError              the catalog did not answer, or answered with something unusable
    │   └── StatementFailed       one statement of a plan was refused by the engine
    ├── PlanError                 a saved plan cannot be used
    │   └── PlanStale             the tables changed since the plan was made (PL101)
    ├── SyncFailedError           at least one table could not be brought to its declaration
    ├── DeltaLogError             a transaction log cannot be used
    │   ├── NotADeltaTable        there is no log
    │   ├── CorruptLog            a file of the log is missing, damaged or contradicts another
    │   ├── UnsupportedTable      the table asks for something that this version does not know
    │   ├── UnsafePath            a path in the log leaves the table's folder
    │   └── VersionNotFound       the log or the ledger no longer holds, or never held, that version
    │       └── ReadPointExpired  … of a read point
    ├── StorageError              a file could not be read or written (disk full, no permission, no network)
    ├── PredicateError            a predicate cannot be read
    └── LedgerError               the ledger refuses or cannot do what was asked
        ├── LedgerUnavailable     the database cannot be reached, or is in use by another process
        ├── LedgerSchemaError     the database holds no ledger, or one of another version
        ├── TableNotManaged       the ledger does not know the table
        ├── TableAlreadyManaged   the ledger knows the table already
        ├── TableFrozen           the table diverged from its published log and takes no writes until repaired
        ├── ForeignCommit         an outside writer committed, and the policy is to refuse
        ├── CommitRefused         the commit breaks a rule of the table or of the protocol
        ├── StatementRefused      a statement cannot be part of a transaction, or not run at a read point
        ├── TableNewerThanPoint   the table is managed since after the transaction or the read point began
        ├── TransactionEnded      something runs on in a transaction or at a read point that has ended
        ├── TransactionDoomed     a transaction could only be rolled back, and was
        ├── CommitConflict        somebody else committed first
        │   └── TransactionConflict  … to one of the tables of a transaction
        └── CommitOutcomeUnknown  it could not be found out whether the commit took place

A message says what happened, to what, what was not harmed and what to do next. None of them carries a secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltaplane.sync.report import Report

__all__ = [
    "CatalogError",
    "CommitConflict",
    "CommitOutcomeUnknown",
    "CommitRefused",
    "ConfigError",
    "CorruptLog",
    "DeclarationError",
    "DeltaLogError",
    "DeltaplaneError",
    "ForeignCommit",
    "LedgerError",
    "LedgerSchemaError",
    "LedgerUnavailable",
    "NotADeltaTable",
    "PlanError",
    "PlanStale",
    "PredicateError",
    "ReadPointExpired",
    "RegistryError",
    "RegistryLoadError",
    "SparkStartError",
    "StatementFailed",
    "StatementRefused",
    "StorageError",
    "SyncFailedError",
    "TableAlreadyManaged",
    "TableFrozen",
    "TableNewerThanPoint",
    "TableNotManaged",
    "TransactionConflict",
    "TransactionDoomed",
    "TransactionEnded",
    "TypeTextError",
    "UnsafePath",
    "UnsupportedTable",
    "VersionNotFound",
]


class DeltaplaneError(Exception):
    """Base of every error that deltaplane raises on purpose."""


class ConfigError(DeltaplaneError):
    """A setting is missing, unknown or of the wrong kind."""


class DeclarationError(DeltaplaneError):
    """A declaration that no Delta table can satisfy."""


class TypeTextError(DeclarationError):
    """Text that does not name a type of Spark or Delta."""


class RegistryError(DeltaplaneError):
    """Declarations that contradict each other."""


class RegistryLoadError(RegistryError):
    """A MODULE:ATTRIBUTE that does not lead to a registry."""


class SparkStartError(DeltaplaneError):
    """Spark could not be started. The message names the cause and the remedy."""


class CatalogError(DeltaplaneError):
    """The catalog did not answer, or its answer cannot be used."""


class StatementFailed(CatalogError):
    """One statement was refused.

    Attributes:
        sql: The statement that was refused.
        cause_text: What the engine said, in one line.
        concurrent: True when somebody else changed the table at the same time.
        statements_done: How many statements of the same change had run before.
    """

    def __init__(
        self, sql: str, cause_text: str, *, concurrent: bool = False, statements_done: int = 0
    ) -> None:
        self.sql = sql
        self.cause_text = cause_text
        self.concurrent = concurrent
        self.statements_done = statements_done
        super().__init__(f"{cause_text} (statement: {sql})")


class PlanError(DeltaplaneError):
    """A saved plan that cannot be read or used."""


class PlanStale(PlanError):
    """The tables are no longer in the state the plan was made from (PL101)."""


class SyncFailedError(DeltaplaneError):
    """At least one table was not brought to its declaration.

    Attributes:
        report: What happened to every table, failed or not.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__(report.failure_text())


class DeltaLogError(DeltaplaneError):
    """A transaction log cannot be used."""


class NotADeltaTable(DeltaLogError):
    """There is no transaction log at that place."""


class CorruptLog(DeltaLogError):
    """A file of the log is missing, damaged or contradicts another.

    Attributes:
        source: The file, and the line where there is one.
        cause_text: What is wrong with it.
    """

    def __init__(self, source: str, cause_text: str) -> None:
        self.source = source
        self.cause_text = cause_text
        super().__init__(f"{source}: {cause_text}")


class UnsupportedTable(DeltaLogError):
    """The table asks for a protocol or a feature that this version does not know.

    Attributes:
        features: The features by name, or the protocol versions as text.
    """

    def __init__(self, message: str, features: tuple[str, ...] = ()) -> None:
        self.features = features
        super().__init__(message)


class UnsafePath(DeltaLogError):
    """A path in the log leaves the table's folder."""


class VersionNotFound(DeltaLogError):
    """That version, or time, is not in the log any more, or not yet."""


class ReadPointExpired(VersionNotFound):
    """The log no longer holds a version of a read point."""


class StorageError(DeltaplaneError):
    """A file could not be read or written."""


class PredicateError(DeltaplaneError):
    """A predicate over a table's files cannot be read."""


class LedgerError(DeltaplaneError):
    """The ledger refuses, or cannot do, what was asked."""


class LedgerUnavailable(LedgerError):
    """The database cannot be reached, or another process holds it."""


class LedgerSchemaError(LedgerError):
    """The database holds no ledger, or one of a version that this client does not know."""


class TableNotManaged(LedgerError):
    """The ledger does not know the table."""


class TableAlreadyManaged(LedgerError):
    """The ledger knows the table already."""


class TableFrozen(LedgerError):
    """The published log contradicts the ledger: no writes until it is repaired."""


class ForeignCommit(LedgerError):
    """An outside writer committed to a table whose policy refuses that."""


class CommitRefused(LedgerError):
    """The commit breaks a rule of the table or of the protocol. Nothing was written."""


class StatementRefused(LedgerError):
    """A statement cannot be part of a transaction, or not run at a read point."""


class TableNewerThanPoint(LedgerError):
    """The table is managed since after the transaction or the read point began."""


class TransactionEnded(LedgerError):
    """Something runs on in a transaction or at a read point that has ended."""


class TransactionDoomed(LedgerError):
    """A transaction could only be rolled back, and was."""


DEPARTED = "dropped or released the table, or made another one in its place"
"""How somebody ended a table while others used it."""


class CommitConflict(LedgerError):
    """Somebody else committed first, in a way that cannot be reconciled. Nothing was written.

    Attributes:
        table: The table.
        version: The version that was wanted.
        winner: Who has it: author, operation and time, as text.
    """

    def __init__(self, table: str, version: int, winner: str, reason: str = "") -> None:
        self.table = table
        self.version = version
        self.winner = winner
        self.reason = reason
        if reason == DEPARTED:
            super().__init__(
                f"{table}: {winner} {reason}. Nothing was written. Look at what is there now with: "
                f"deltaplane ledger tables, and repeat if it is what you mean."
            )
        else:
            super().__init__(
                f"{table}: version {version} was taken by {winner}{': ' + reason if reason else ''}. Nothing "
                f"was written. Read the table again and repeat, or see: deltaplane ledger history {table}"
            )


class TransactionConflict(CommitConflict):
    """One table of a transaction was changed by somebody else; no table of it was written."""


class CommitOutcomeUnknown(LedgerError):
    """The database went away during COMMIT and has not come back to say how it ended.

    Attributes:
        transaction_id: What to ask for when it is back.
    """

    def __init__(self, transaction_id: str, cause_text: str) -> None:
        self.transaction_id = transaction_id
        super().__init__(
            f"Transaction {transaction_id}: the database went away during COMMIT ({cause_text}), and it is "
            f"not known whether it took place. Do not repeat it blindly. When the database is back, ask: "
            f"ledger.outcome({transaction_id!r})"
        )
