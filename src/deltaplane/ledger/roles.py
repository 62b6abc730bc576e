"""Least-privilege roles for a ledger on PostgreSQL."""

from __future__ import annotations

from importlib import resources

__all__ = ["ROLES", "roles_script"]

ROLES = ("deltaplane_reader", "deltaplane_writer", "deltaplane_reconciler", "deltaplane_owner")
"""The roles that the script makes. None of them can log in: grant them to the users who do."""


def roles_script() -> str:
    """The SQL script that makes the roles and gives them their rights. It may be run again at any time."""
    return resources.files("deltaplane.ledger.sql.postgres").joinpath("roles.sql").read_text(encoding="utf-8")
