"""What every operation of a ledger shares: the database, the storages, who is acting and the time."""

from __future__ import annotations

import getpass
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from deltaplane.errors import ConfigError, LedgerUnavailable, TableNotManaged
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.prepare import text_fault
from deltaplane.ledger.storage import Storage, canonical_root, open_storage
from deltaplane.ledger.stores.base import Row, Session, Store
from deltaplane.ledger.times import now_ms
from deltaplane.ledger.uri import SCHEME, parse_uri

__all__ = ["Context", "Retries"]

Result = TypeVar("Result")


@dataclass(frozen=True)
class Retries:
    """How long to try again what may be repeated safely.

    Attributes:
        attempts: At most so many attempts.
        first_wait: Seconds before the second; doubled each time, with jitter.
        longest_wait: Never longer than that between two.
    """

    attempts: int = 8
    first_wait: float = 0.05
    longest_wait: float = 5.0

    def pause(self, attempt: int) -> None:
        """Wait before the next attempt. Jitter keeps a crowd from coming back together."""
        longest = min(self.longest_wait, self.first_wait * 2**attempt)
        time.sleep(random.uniform(longest / 2, longest))  # noqa: S311 - no secret depends on it


@lru_cache(maxsize=1)
def _origin(pid: int) -> str:
    """Asked for with every commit, and the same until the process forks."""
    return f"{getpass.getuser()}@{socket.gethostname()}:{pid}"


@dataclass
class Context:
    """The parts of an open ledger."""

    store: Store
    uri: str
    author: str | None = None
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    retries: Retries = Retries()
    clock: Callable[[], int] = now_ms
    _storages: dict[str, Storage] = field(default_factory=dict)
    _behind: list[threading.Thread] = field(default_factory=list, repr=False)
    _closing: threading.Event = field(default_factory=threading.Event, repr=False)
    _guard: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def origin(self) -> str:
        """Where this process runs, for the audit trail."""
        return _origin(os.getpid())

    def storage(self, root: str) -> Storage:
        """The files of a table."""
        if root not in self._storages:
            self._storages[root] = open_storage(root, dict(self.storage_options))
        return self._storages[root]

    def start_behind(self, thread: threading.Thread) -> None:
        """Start work that nobody waits for, except for `close`."""
        with self._guard:
            thread.start()
            self._behind[:] = [*(earlier for earlier in self._behind if earlier.is_alive()), thread]

    def wait_behind(self, seconds: float) -> None:
        """Let others go first; not while somebody waits in `close`."""
        self._closing.wait(seconds)

    def close(self) -> None:
        """Finish what is under way, and give back the database's connections."""
        self._closing.set()
        for thread in tuple(self._behind):
            thread.join()
        self.store.close()

    def find(self, table: str) -> ManagedTable | None:
        """Look a table up by path, by name or by `deltasql://…#table`."""
        wanted = self.reference(table)

        def look() -> Row | None:
            with self.store.glance() as session:
                return session.row("table_by_reference", name=wanted, location=canonical_root(wanted))

        row = self.repeated(look, f"Looking for the table {wanted}")
        return ManagedTable.from_row(row) if row else None

    def find_location(self, location: str) -> ManagedTable | None:
        """Look a table up by its canonical location; one that is being adopted is not managed yet.

        It is asked once more when the connection turns out to be broken, and no longer: somebody waits.
        """

        def look() -> Row | None:
            with self.store.glance() as session:
                return session.row("table_by_location", location=location)

        try:
            row = look()
        except LedgerUnavailable:
            row = look()
        table = ManagedTable.from_row(row) if row else None
        return None if table is None or table.state == "adopting" else table

    def reference(self, table: str) -> str:
        """The name or path meant by whatever a caller may give."""
        text = os.fspath(table)
        fault = text_fault(text)
        if fault:
            raise ConfigError(
                f"The table's path or name {text!r:.80} {fault}. Nothing was read or written. "
                f"Give plain text."
            )
        if not text.startswith(f"{SCHEME}://"):
            return text
        uri = parse_uri(text)
        if uri.table is None:
            raise TableNotManaged(f"{text} names a ledger and no table. Add the table: {text}#NAME")
        if str(uri.without_table()) != self.uri:
            raise TableNotManaged(
                f"{uri.table} is asked for in {uri.without_table()}, and this ledger is {self.uri}. Connect "
                f"to that one."
            )
        return uri.table

    def table(self, table: str) -> ManagedTable:
        """Look a table up that must be there.

        Raises:
            TableNotManaged: The ledger does not know it.
        """
        found = self.find(table)
        if found is None or found.state == "adopting":
            started = " (its adoption is not finished)" if found else ""
            alike = "" if found else self._alike(self.reference(table))
            raise TableNotManaged(
                f"{table}: the ledger does not manage this table{started}.{alike} Bring it in with: "
                f"deltaplane ledger adopt {table}, or see what there is with: deltaplane ledger tables"
            )
        return found

    def _alike(self, wanted: str) -> str:
        """A question whether a table in some namespace is meant, or nothing."""
        with self.store.glance() as session:
            names = [row[0] for row in session.rows("table_names")]
        meant = [name for name in names if name.lower().rpartition(".")[2] == wanted.lower()]
        return f" Is {' or '.join(meant[:3])} meant?" if meant else ""

    def by_id(self, table_id: int) -> ManagedTable:
        """The table's row as it is now."""

        def look() -> Row | None:
            with self.store.glance() as session:
                return session.row("table_by_id", table_id=table_id)

        row = self.repeated(look, f"Looking for table {table_id}")
        if row is None:
            raise TableNotManaged(f"Table {table_id} has left the ledger meanwhile. Nothing was written.")
        return ManagedTable.from_row(row)

    def repeated(self, work: Callable[[], Result], what: str) -> Result:
        """Do something that may be repeated safely until it works, within bounds."""
        for attempt in range(self.retries.attempts):
            try:
                return work()
            except LedgerUnavailable as error:
                if attempt + 1 == self.retries.attempts:
                    raise LedgerUnavailable(
                        f"{what}: given up after {self.retries.attempts} attempts. The last: {error}"
                    ) from error
                self.retries.pause(attempt)
        raise AssertionError("the last attempt raises")

    def audit(
        self,
        session: Session,
        action: str,
        location: str | None,
        author: str | None,
        detail: str | None = None,
    ) -> None:
        """Note who did what, from where and why."""
        session.run(
            "insert_audit",
            now=self.clock(),
            action=action,
            location=location,
            author=author or self.author,
            origin=self.origin,
            detail=detail,
        )
