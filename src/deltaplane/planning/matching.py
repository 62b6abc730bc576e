"""Which declared column is which observed one, and how to get from one order to another."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from deltaplane.schema import Column, Field

__all__ = ["Match", "anchors", "match_columns", "moves"]

Node = Column | Field


@dataclass(frozen=True)
class Match:
    """The pairs of one level: `pairs` by declaration order, `added` without a past, `dropped` without a
    future.
    """

    pairs: tuple[tuple[Node, Node], ...]
    added: tuple[Node, ...]
    dropped: tuple[Node, ...]

    @cached_property
    def differing(self) -> tuple[tuple[Node, Node], ...]:
        """The pairs in which anything differs; in a wide table that is usually a small part."""
        return tuple((new, old) for new, old in self.pairs if new != old)

    @cached_property
    def renames(self) -> tuple[tuple[str, str], ...]:
        """Old and new names of what is renamed, in an order in which each new name is free when it is
        needed.
        """
        waiting = {old.name: new.name for new, old in self.differing if old.name != new.name}
        ordered: list[tuple[str, str]] = []
        while waiting:
            taken = {name.casefold() for name in waiting}
            free = sorted(
                old for old, new in waiting.items() if new.casefold() not in taken - {old.casefold()}
            )
            for old in free:
                ordered.append((old, waiting.pop(old)))
        return tuple(ordered)

    @property
    def reuses_names(self) -> bool:
        """Whether an added column takes the name that a renamed one gives up."""
        given_up = {old.casefold() for old, _ in self.renames}
        return any(node.name.casefold() in given_up for node in self.added)


def match_columns(
    declared: Sequence[Node], observed: Sequence[Node], unfinished: Mapping[str, str] | None = None
) -> Match:
    """Pair declared with observed columns by name, by `renamed_from`, and by unfinished renames.

    `renamed_from` counts only while the new name does not exist, so it can stay in the declaration for ever.

    Args:
        declared: The columns as they should be.
        observed: The columns as they are.
        unfinished: Temporary names an interrupted run left behind, with the names they were meant to get.
    """
    free = {node.name.casefold(): node for node in observed}
    partner: dict[str, Node] = {}
    for temporary, final in (unfinished or {}).items():
        if temporary.casefold() in free:
            wanted = next((node for node in declared if node.name.casefold() == final.casefold()), None)
            if wanted is not None and final.casefold() not in free:
                partner[wanted.name] = free.pop(temporary.casefold())
    claimed = True
    while claimed:
        claimed = False
        for node in declared:
            old = (node.renamed_from or "").casefold()
            if node.name not in partner and old in free and node.name.casefold() not in free:
                partner[node.name] = free.pop(old)
                claimed = True
    for node in declared:
        if node.name not in partner and node.name.casefold() in free:
            partner[node.name] = free.pop(node.name.casefold())
    pairs = tuple((node, partner[node.name]) for node in declared if node.name in partner)
    added = tuple(node for node in declared if node.name not in partner)
    dropped = tuple(node for node in observed if node.name.casefold() in free)
    return Match(pairs, added, dropped)


def anchors(
    order: Sequence[str], existing: Sequence[str], added: Sequence[str]
) -> dict[str, tuple[str, bool]]:
    """Tell for each added name which sibling it follows (`""`: none) and whether that is simply the end.

    Args:
        order: All names in the order they should have.
        existing: The names that are there, in their present order.
        added: The names to add.
    """
    new = set(added)
    current = list(existing)
    places: dict[str, tuple[str, bool]] = {}
    for index, name in enumerate(order):
        if name not in new:
            continue
        before = order[index - 1] if index else ""
        places[name] = (before, bool(current) and before == current[-1])
        current.insert(current.index(before) + 1 if before else 0, name)
    return places


def moves(order: Sequence[str], current: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the fewest moves that bring `current` into `order`, each as (name, sibling it goes after)."""
    rank = {name: index for index, name in enumerate(order)}
    ranks = [rank[name] for name in current]
    staying = {order[index] for index in _longest_increasing(ranks)}
    result: list[tuple[str, str]] = []
    for index, name in enumerate(order):
        if name not in staying:
            result.append((name, order[index - 1] if index else ""))
    return tuple(result)


def _longest_increasing(values: Sequence[int]) -> list[int]:
    tails: list[int] = []
    positions: list[int] = []
    previous: list[int] = [-1] * len(values)
    for index, value in enumerate(values):
        place = bisect_left(tails, value)
        previous[index] = positions[place - 1] if place else -1
        if place == len(tails):
            tails.append(value)
            positions.append(index)
        else:
            tails[place] = value
            positions[place] = index
    chain: list[int] = []
    at = positions[-1] if positions else -1
    while at >= 0:
        chain.append(values[at])
        at = previous[at]
    return chain[::-1]
