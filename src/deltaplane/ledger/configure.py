"""What the ledger notes about a table beside its log: its name and the policy for outside writers."""

from __future__ import annotations

from deltaplane.errors import ConfigError, TableAlreadyManaged
from deltaplane.ledger.context import Context
from deltaplane.ledger.model import ManagedTable

__all__ = ["POLICIES", "configure_table"]

POLICIES = ("import", "refuse")


def configure_table(
    ctx: Context, table: ManagedTable, name: str | None, foreign_commits: str | None, author: str | None
) -> ManagedTable:
    """Change a table's name, its policy, or both.

    Raises:
        ConfigError: There is no such policy.
        TableAlreadyManaged: Another table has that name.
    """
    if foreign_commits is not None and foreign_commits not in POLICIES:
        raise ConfigError(
            f"foreign_commits is one of {', '.join(POLICIES)}, and {foreign_commits!r} was given."
        )
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
