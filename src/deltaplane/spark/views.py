"""What a thread sees of the managed tables: a transaction, or a read point. No Spark in here."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from deltaplane.errors import TransactionEnded
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.prepare import Prepared
from deltaplane.log.actions import Metadata

__all__ = ["BEHIND", "StagedCommit", "TransactionView", "View"]

BEHIND = "-rolled-back"
"""At the end of a view's id: a thread whose transaction was rolled back, and which has not left its block."""

_LATE = "it took longer than its timeout allows"


@dataclass
class StagedCommit:
    """A commit that waits for its transaction.

    Attributes:
        version: The version that Delta gave it.
        prepared: What it does, with Spark's own bytes.
        file: The file that holds it, as Hadoop spells the path.
        size: The file's size.
        modified_ms: When it was staged.
        collected: Delta has asked for the file, so the statement went on behind the commit.
    """

    version: int
    prepared: Prepared = field(repr=False)
    file: str
    size: int
    modified_ms: int
    collected: bool = False

    def line(self, shown: str | None = None) -> str:
        """The commit as the Java side reads it."""
        return f"{shown or self.file}\t{self.size}\t{self.modified_ms}\t{self.file}"


@dataclass
class View:
    """The managed tables at one moment.

    Attributes:
        view_id: The id under which Spark's threads carry it.
        pins: The tables as they were at that moment, by location.
        query: The streaming query that it began in, if any.
        used: The locations of those that somebody asked for.
        checked: The locations of those whose version the log was seen to hold.
        lost: Tables that were there at that moment and cannot be read any more, by location, with the reason.
    """

    view_id: str
    pins: dict[str, ManagedTable]
    query: str | None
    ended: bool = False
    used: set[str] = field(default_factory=set)
    checked: set[str] = field(default_factory=set)
    lost: Mapping[str, str] = field(default_factory=dict)
    guard: threading.RLock = field(default_factory=threading.RLock, repr=False)

    moment: ClassVar[str] = "the read point"
    """What messages call the moment, and what to do for another one."""
    advice: ClassVar[str] = "Take a newer point"

    def check_alive(self, query: str | None) -> None:
        """See that the view may still be used by whoever asks.

        Raises:
            TransactionEnded: It may not.
        """
        if self.ended:
            raise TransactionEnded(
                f"{self.label} has ended, and something still runs in it: a thread, or a DataFrame that was "
                f"built inside. Nothing was read or written. Read the table anew."
            )
        if query != self.query:
            raise TransactionEnded(
                f"A streaming query was started inside of {self.label.lower()}. It would outlive it and "
                f"keep versions that may never exist. Nothing was read or written. Start the query before or "
                f"after; inside of foreachBatch a transaction may begin."
            )

    @property
    def label(self) -> str:
        """What messages call it."""
        return "The read point"

    @property
    def begun(self) -> str:
        """When it is, for messages about what came later."""
        return "the block of reading_at began"


@dataclass
class TransactionView(View):
    """A transaction: the tables at its begin, with what it has staged on top.

    Attributes:
        staged: Its commits, oldest first, by the table's location.
        doomed: Why it can only be rolled back; None when it can be committed.
        deadline: The monotonic time after which it is given up.
        begun_at: When it began, by the clock of this machine.
        bound: How many functions run in it that other threads called.
        metadata: What the tables were at its begin, by location, as far as somebody had to know.
    """

    moment: ClassVar[str] = "the transaction began"
    advice: ClassVar[str] = "Begin anew"

    staged: dict[str, list[StagedCommit]] = field(default_factory=dict)
    doomed: str | None = None
    deadline: float | None = None
    begun_at: float = field(default_factory=time.time)
    bound: int = 0
    metadata: dict[str, Metadata] = field(default_factory=dict, repr=False)

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"The transaction {self.view_id}"

    @property
    def begun(self) -> str:
        """When it is, for messages about what came later."""
        return "the transaction began"

    @property
    def created(self) -> list[str]:
        """The locations of tables that begin to exist with the transaction."""
        return [location for location in self.staged if location not in self.pins]

    def check_alive(self, query: str | None) -> None:
        """See that the transaction may still be used by whoever asks.

        Raises:
            TransactionEnded: It may not.
        """
        super().check_alive(query)
        self.check_time()
        if self.doomed == _LATE:
            raise TransactionEnded(
                f"{self.label} took longer than its timeout allows, and is rolled back. Nothing was written. "
                f"Run it again, with a longer timeout if it needs one."
            )

    def check_time(self) -> None:
        """Doom a transaction that has lasted longer than its timeout allows."""
        if self.deadline is not None and time.monotonic() > self.deadline:
            self.doom(_LATE)

    def doom(self, reason: str) -> None:
        """Let the transaction end without a commit; the first reason counts."""
        with self.guard:
            self.doomed = self.doomed or reason

    def head(self, location: str) -> int:
        """The newest version of a table that the transaction sees."""
        pinned = self.pins[location].head_version if location in self.pins else -1
        return pinned + len(self.staged.get(location, ()))

    def at(self, location: str, version: int) -> StagedCommit | None:
        """A staged commit."""
        return next((s for s in self.staged.get(location, ()) if s.version == version), None)

    def uncollected(self) -> StagedCommit | None:
        """A commit whose statement failed right behind it."""
        return next((s for commits in self.staged.values() for s in commits if not s.collected), None)
