"""The columns of a table as they will be, written over those that are there now."""

from __future__ import annotations

from deltaplane.planning import ObservedTable
from deltaplane.planning.matching import match_columns
from deltaplane.schema import Column, DeltaTable
from deltaplane.schema.typetext import render_type
from deltaplane.sqltext import quote_identifier

__all__ = ["columns_after"]


def columns_after(declared: DeltaTable, observed: ObservedTable) -> dict[str, str]:
    """Return, for each declared column, what its value will be in a row that exists.

    A renamed column has the value of the old name, an added one its default, and one whose default an
    interrupted run has still to bring to the rows counts as if it had. Columns whose inside changes are left
    out: what a check will see there cannot be said in one expression.
    """
    match = match_columns(declared.columns, observed.table.columns, observed.pending.renames)
    found: dict[str, str] = {}
    for new, old in match.pairs:
        value = quote_identifier(old.name)
        default = new.default if isinstance(new, Column) else None
        if new.name.casefold() in observed.pending.backfill and default is not None:
            value = f"coalesce({value}, {default})"
        if new.type == old.type or "<" not in new.type.text:
            found[new.name] = value
    for node in match.added:
        if isinstance(node, Column) and node.generated is None and node.identity is None:
            found[node.name] = f"CAST({node.default or 'NULL'} AS {render_type(node.type)})"
    return found
