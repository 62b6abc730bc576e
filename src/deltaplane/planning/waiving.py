"""What a waiver does to a plan: the change runs, or it is left out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from deltaplane.planning.changes import Change, CreateTable, SetProperties
from deltaplane.planning.rules import Finding
from deltaplane.schema.frozen import FrozenMap

__all__ = ["leave_out"]


def leave_out(changes: Iterable[Change], kept: Iterable[Finding]) -> tuple[Change, ...]:
    """Return the changes without those that waived findings keep as they are."""
    result = list(changes)
    for finding in kept:
        for change in finding.about:
            if change not in result:
                continue
            at = result.index(change)
            smaller = _without(change, finding)
            result[at : at + 1] = [] if smaller is None else [smaller]
    return tuple(result)


def _without(change: Change, finding: Finding) -> Change | None:
    if isinstance(change, SetProperties) and finding.code == "PP101":
        left = {key: value for key, value in change.values.items() if key != finding.column}
        return replace(change, values=FrozenMap(left)) if left else None
    if isinstance(change, CreateTable):
        table = change.declaration
        if finding.code == "PP101":
            left = {key: value for key, value in table.properties.items() if key != finding.column}
            features = tuple(feature for feature in table.features if feature != finding.column)
            return replace(change, declaration=replace(table, properties=left, features=features))
        if finding.code == "LY102":
            return replace(change, declaration=replace(table, clustered_by=()))
    return None
