"""Which version a commit gets, or against whom it lost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deltaplane.ledger.model import ManagedTable, Winner
from deltaplane.ledger.prepare import Prepared

__all__ = ["Lost", "Staged", "place"]


@dataclass(frozen=True)
class Staged:
    """A commit that waits for its transaction.

    Attributes:
        table: The table as it was when the commit was handed in.
        prepared: What it does.
        read_version: The version it was made from.
        exact: It must land right after that version, whatever it does.
    """

    table: ManagedTable
    prepared: Prepared
    read_version: int
    exact: bool


@dataclass(frozen=True)
class Lost:
    """A commit cannot be placed: somebody was faster."""

    version: int
    winner: Winner | None
    reason: str


def place(
    staged: Staged, head: int, own: int, winners: Sequence[Winner], fixed_reason: str | None
) -> int | Lost:
    """Decide where a commit lands.

    Args:
        staged: The commit.
        head: The newest version of the table, without this transaction.
        own: How many versions this transaction has put on top already.
        winners: The commits after `staged.read_version`, oldest first.
        fixed_reason: Why the bytes cannot move to another version; None when they can.
    """
    wanted = staged.read_version + 1
    if head == staged.read_version:
        return head + 1 + own
    first = winners[0] if winners else None
    if head < staged.read_version:
        return Lost(
            wanted, first, f"the newest version is {head}, so {staged.read_version} cannot have been read"
        )
    if staged.exact:
        return Lost(wanted, first, "")
    ours = f"our {staged.prepared.operation or 'commit'}"
    # Row numbers come as a domain, with which no commit is a blind append; for whoever appends they are why.
    appends = staged.prepared.blind_append or (fixed_reason and staged.prepared.info.get("isBlindAppend"))
    if not appends:
        return Lost(wanted, first, f"{ours} is not a blind append, so it cannot be moved behind the other")
    if fixed_reason:
        return Lost(wanted, first, f"{ours} cannot be moved behind the other: {fixed_reason}")
    for winner in winners:
        reason = _clash(staged.prepared, winner)
        if reason:
            return Lost(winner.version, winner, f"{ours} cannot be moved behind it: {reason}")
    return head + 1 + own


def _clash(prepared: Prepared, winner: Winner) -> str | None:
    if winner.facts.protocol:
        return "it changed the protocol"
    if winner.facts.metadata:
        return "it changed the schema or the properties"
    shared = set(prepared.facts.apps) & set(winner.facts.apps)
    if shared:
        return f"both advance the application transaction {min(shared)}"
    shared = set(prepared.facts.domains) & set(winner.facts.domains)
    if shared:
        return f"both change the domain {min(shared)}"
    return None
