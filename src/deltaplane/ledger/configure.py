"""What the ledger notes about a table beside its log: its name and the policy for outside writers."""

from __future__ import annotations

import re
import unicodedata

from deltaplane.errors import ConfigError, TableAlreadyManaged
from deltaplane.ledger.context import Context
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.prepare import check_text, text_fault
from deltaplane.ledger.storage import canonical_root

__all__ = ["POLICIES", "check_name", "configure_table", "spellings", "take_name"]

POLICIES = ("import", "refuse")
_CATALOG = "spark_catalog"
_DEFAULT_SCHEMA = "default"
_LIKE_A_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def check_name(ctx: Context, name: object, location: str) -> None:
    """See that a name can be told from a path and from an address; None is no name.

    Args:
        ctx: The ledger.
        name: What the table is to be called.
        location: Where the table lies.

    Raises:
        ConfigError: It cannot, or it is the path of another table.
    """
    if name is None:
        return
    fault = text_fault(name) or _name_fault(str(name))
    if fault is None:
        place = canonical_root(str(name))
        with ctx.store.glance() as session:
            there = session.row("table_by_location", location=place)
            alike = session.rows("tables_of_name", **spellings(str(name)))
        if place != location and there is not None:
            fault = "is also the path of another table, seen from the working directory"
        for row in alike:
            # Who has the very same name is told by whoever gives it.
            if row[1] != location and row[2] != name:
                fault = f"would be the same in Spark as {row[2]!r:.80}, the name of {row[1]}"
    if fault:
        raise ConfigError(
            f"{location}: the table's name {name!r:.80} {fault}. Nothing was changed. Give a name such as "
            f"sales.orders."
        )


def spellings(name: str) -> dict[str, str]:
    """How a name may be written: Spark does not mind the case, and has a catalog and a schema by default."""
    parts = name.lower().split(".")
    if len(parts) == 3 and parts[0] == _CATALOG:
        parts = parts[1:]
    if len(parts) == 1:
        parts = [_DEFAULT_SCHEMA, *parts]
    qualified = ".".join(parts)
    short = parts[1] if len(parts) == 2 and parts[0] == _DEFAULT_SCHEMA else qualified
    return {"qualified": qualified, "full": f"{_CATALOG}.{qualified}", "short": short}


def _name_fault(name: str) -> str | None:
    if not name.strip() or name in (".", ".."):
        return "is empty, or only stands for a folder"
    if name.strip() != name:
        return "begins or ends with white space"
    if "/" in name or "\\" in name or _LIKE_A_URI.match(name) or name.startswith("~"):
        return "looks like a path or an address"
    if any(unicodedata.category(sign) == "Cc" for sign in name):
        return "holds a control character"
    return None


def configure_table(
    ctx: Context, table: ManagedTable, name: str | None, foreign_commits: str | None, author: str | None
) -> ManagedTable:
    """Change a table's name, its policy, or both.

    Raises:
        ConfigError: There is no such policy, or the name cannot be one.
        TableAlreadyManaged: Another table has that name.
    """
    if foreign_commits is not None and foreign_commits not in POLICIES:
        raise ConfigError(
            f"foreign_commits is one of {', '.join(POLICIES)}, and {foreign_commits!r} was given."
        )
    check_name(ctx, name, table.location)
    check_text(table.label, author=author)
    with ctx.store.writing() as session:
        if name is not None:
            taken = session.row("table_by_reference", name=name, location="")
            if taken is not None and taken[0] != table.table_id:
                raise TableAlreadyManaged(
                    f"{name}: {taken[1]} has that name already. Nothing was changed. Choose another name."
                )
            session.run("set_name", table_id=table.table_id, name=name)
        if foreign_commits is not None:
            session.run("set_policy", table_id=table.table_id, foreign_commits=foreign_commits)
        detail = f"name {name}, foreign commits {foreign_commits}"
        ctx.audit(session, "configure", table.location, author, detail)
    return ctx.by_id(table.table_id)


def take_name(ctx: Context, table: ManagedTable, detail: str) -> None:
    """Let a table be known by its place alone."""
    with ctx.store.writing() as session:
        session.run("set_name", table_id=table.table_id, name=None)
        ctx.audit(session, "configure", table.location, None, detail)
