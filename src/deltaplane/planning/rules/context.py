"""What a rule may look at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from deltaplane.planning.capabilities import Capabilities
from deltaplane.planning.changes import Change, CreateTable
from deltaplane.planning.observed import ObservedTable
from deltaplane.schema import DeltaTable, QualifiedName

__all__ = ["RuleContext", "Violations"]

C = TypeVar("C", bound=Change)


@dataclass(frozen=True)
class Violations:
    """Rows that a new CHECK would refuse."""

    count: int
    samples: tuple[str, ...] = ()


@dataclass(frozen=True)
class RuleContext:
    """One table's plan, before it is accepted.

    Attributes:
        table: The table's name.
        declared: What it should be; None when it is to be dropped.
        observed: What it is; None when it does not exist.
        changes: What would be done, in order.
        caps: What the engine can do.
        after: What the table would be afterwards.
        violations: For each new CHECK, the rows that violate it.
        inbound: Tables that point to this one with a foreign key.
    """

    table: QualifiedName
    declared: DeltaTable | None
    observed: ObservedTable | None
    changes: tuple[Change, ...]
    caps: Capabilities
    after: ObservedTable | None = None
    violations: Mapping[str, Violations] = field(default_factory=dict)
    inbound: tuple[QualifiedName, ...] = ()

    def each(self, kind: type[C]) -> Iterator[C]:
        """Yield the changes of one kind."""
        return iter([change for change in self.changes if isinstance(change, kind)])

    @property
    def creation(self) -> CreateTable | None:
        """The CREATE TABLE, if this is one."""
        return next(self.each(CreateTable), None)

    def property(self, key: str, default: str = "") -> str:
        """Return a property as it will be: declared, or observed where nothing is declared."""
        for source in (self.declared, self.observed.table if self.observed else None):
            if source is not None:
                for name, value in source.properties.items():
                    if name.casefold() == key.casefold():
                        return value
        return default
