"""Checks a recorded history for snapshot isolation, from who wrote which version and what was read alone.

Every transaction leaves its id in each table that it writes, once for each of its commits there. So the ids
that a read finds tell which versions it saw, whatever the engine says. Nothing of the product is known here
but the order of the versions.

The rules:

- *once*: a transaction that was acknowledged has exactly the versions that it wrote, a failed one has none.
- *atomicity*: of a transaction whose end nobody saw, all versions are there or none.
- *one point*: all reads of a transaction see one version of each table, and its own writes on top.
- *no torn point*: that point takes in all of another transaction or nothing of it.
- *fresh*: the point is not older than what was committed before the begin, and not newer than what was there
  after it.
- *first committer wins*: a transaction lands right on top of the versions that it began at; only one that
  does nothing but append to a table may have others in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Read", "Recorded", "Versions", "check_history"]

Versions = Mapping[str, Sequence[str | None]]
"""By table: who wrote each version, from 0 on; None for one that leaves no id."""


@dataclass(frozen=True)
class Read:
    """The ids that somebody found in a table.

    Attributes:
        own: How many commits to the table the reader had made itself.
    """

    table: str
    seen: tuple[str, ...]
    own: int = 0


@dataclass(frozen=True)
class Recorded:
    """A transaction as its client saw it.

    Attributes:
        writes: How many commits it made to each table.
        appends: The tables to which it only appended, without a look.
        acknowledged: Whether the client heard that it was committed; None when it heard nothing.
        floor: The versions that were committed before it began.
        ceiling: The versions that were committed when it had begun.
    """

    name: str
    reads: tuple[Read, ...] = ()
    writes: Mapping[str, int] = field(default_factory=dict)
    appends: frozenset[str] = frozenset()
    acknowledged: bool | None = True
    floor: Mapping[str, int] = field(default_factory=dict)
    ceiling: Mapping[str, int] = field(default_factory=dict)


def check_history(versions: Versions, transactions: Sequence[Recorded]) -> list[str]:
    """Every rule that is broken, with who breaks it; none when the history is snapshot isolated."""
    landed = _landed(versions)
    found = [
        f"once: {name} wrote versions, and nobody knows of it"
        for name in landed
        if name not in {one.name for one in transactions}
    ]
    for one in transactions:
        found += _check_landing(one, landed.get(one.name, {}))
        point, faults = _point(versions, one)
        found += faults
        found += _check_fresh(one, point)
        found += _check_torn(one, point, landed)
        found += _check_first(one, point, landed.get(one.name, {}))
    return found


def _landed(versions: Versions) -> dict[str, dict[str, list[int]]]:
    """By transaction and table: its versions."""
    found: dict[str, dict[str, list[int]]] = {}
    for table, writers in versions.items():
        for version, writer in enumerate(writers):
            if writer is not None:
                found.setdefault(writer, {}).setdefault(table, []).append(version)
    return found


def _check_landing(one: Recorded, landed: Mapping[str, Sequence[int]]) -> list[str]:
    counts = {table: len(versions) for table, versions in landed.items()}
    if one.acknowledged is True and counts != dict(one.writes):
        return [f"once: {one.name} was acknowledged with {dict(one.writes)} and has {counts}"]
    if one.acknowledged is False and counts:
        return [f"once: {one.name} failed and has {counts}"]
    if one.acknowledged is None and counts and counts != dict(one.writes):
        return [f"atomicity: {one.name} wanted {dict(one.writes)} and has {counts}"]
    return []


def _point(versions: Versions, one: Recorded) -> tuple[dict[str, range], list[str]]:
    """The versions that fit all reads, by table; several where some of them leave no id."""
    point: dict[str, range] = {}
    faults = []
    for read in one.reads:
        fitting = _fitting(versions[read.table], one.name, read)
        if fitting is None:
            faults.append(f"one point: {one.name} read {read.seen} of {read.table}: that was never its state")
            continue
        before = point.setdefault(read.table, fitting)
        if before != fitting:
            faults.append(f"one point: {one.name} saw {read.table} at {before[0]} and at {fitting[0]}")
    return point, faults


def _fitting(writers: Sequence[str | None], name: str, read: Read) -> range | None:
    """The versions that hold what was read, without the reader's own commits."""
    wanted = Counter(read.seen)
    wanted[name] -= read.own
    state: Counter[str] = Counter()
    fits = []
    for version, writer in enumerate(writers):
        if writer is not None:
            state[writer] += 1
        if state == wanted:
            fits.append(version)
    return range(fits[0], fits[-1] + 1) if fits else None


def _check_fresh(one: Recorded, point: Mapping[str, range]) -> list[str]:
    stale = [
        f"fresh: {one.name} saw {table} at {at[-1]}, and {one.floor[table]} was there before it began"
        for table, at in point.items()
        if at[-1] < one.floor.get(table, 0)
    ]
    early = [
        f"fresh: {one.name} saw {table} at {at[0]}, and had begun at {one.ceiling[table]}"
        for table, at in point.items()
        if at[0] > one.ceiling.get(table, at[0])
    ]
    return stale + early


def _check_torn(
    one: Recorded, point: Mapping[str, range], landed: Mapping[str, Mapping[str, Sequence[int]]]
) -> list[str]:
    faults = []
    for name, tables in landed.items():
        # Ids are left in every commit, so the first fitting version tells which of them are in.
        seen = {
            f"{table}@{at}": point[table][0] >= at
            for table, versions in tables.items()
            for at in versions
            if table in point
        }
        if name != one.name and len(set(seen.values())) > 1:
            faults.append(f"no torn point: {one.name} saw half of {name}: {seen}")
    return faults


def _check_first(one: Recorded, point: Mapping[str, range], landed: Mapping[str, Sequence[int]]) -> list[str]:
    faults = []
    for table, versions in landed.items():
        if list(versions) != list(range(versions[0], versions[0] + len(versions))):
            faults.append(f"first committer wins: {one.name} has others between its own: {table} {versions}")
        began = _began(one, point, table)
        if table not in one.appends and began is not None and versions[0] - 1 not in began:
            faults.append(
                f"first committer wins: {one.name} began at version {began[-1]} of {table}, and landed at "
                f"{versions[0]}"
            )
    return faults


def _began(one: Recorded, point: Mapping[str, range], table: str) -> range | None:
    """The versions of a table at which a transaction may have begun; what it read tells it best."""
    if table in point:
        return point[table]
    return range(one.floor.get(table, 0), one.ceiling[table] + 1) if table in one.ceiling else None
