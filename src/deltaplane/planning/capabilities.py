"""What an engine can do in SQL, so that planning can choose a fallback or a rule."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DATABRICKS", "OPEN_SOURCE", "Capabilities"]


@dataclass(frozen=True)
class Capabilities:
    """The differences between engines that planning has to know.

    Attributes:
        engine: The name people know it by.
        set_not_null: ALTER COLUMN … SET NOT NULL works; otherwise a CHECK holds it.
        tags_follow_columns: A rename keeps a column's tags, a drop removes them.
        plain_names_only: Table and schema names may contain only letters, digits and underscores.
        databricks_properties: Properties that only Databricks knows are accepted.
    """

    engine: str
    set_not_null: bool
    tags_follow_columns: bool
    plain_names_only: bool
    databricks_properties: bool


OPEN_SOURCE = Capabilities("open-source Spark", False, False, True, False)
DATABRICKS = Capabilities("Databricks", True, True, False, True)
