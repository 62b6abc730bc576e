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
    └── SyncFailedError           at least one table could not be brought to its declaration

A message says what happened, to what, what was not harmed and what to do next. None of them carries a secret.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deltaplane.sync.report import Report

__all__ = [
    "CatalogError",
    "ConfigError",
    "DeclarationError",
    "DeltaplaneError",
    "PlanError",
    "PlanStale",
    "RegistryError",
    "RegistryLoadError",
    "SparkStartError",
    "StatementFailed",
    "SyncFailedError",
    "TypeTextError",
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
