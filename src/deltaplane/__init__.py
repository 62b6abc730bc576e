"""deltaplane: the control plane for Delta Lake tables.

Declare tables, see what would change, apply it safely::

    import deltaplane as dp
    from deltaplane.schema import Column, DeltaTable, Long, String

    columns = [Column("id", Long()), Column("name", String())]
    registry = dp.Registry(DeltaTable("dev", "silver", "customers", columns))
    engine = dp.build_spark_engine(dp.spark_session())
    print(engine.plan(registry).changes)
    engine.sync(registry)
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltaplane import errors
    from deltaplane.engines import build_databricks_engine, build_spark_engine, spark_session
    from deltaplane.errors import DeltaplaneError, SyncFailedError
    from deltaplane.ledger import Ledger, ReadPoint, connect
    from deltaplane.planning import Plan
    from deltaplane.schema import Column, DeltaTable, Registry, Waiver
    from deltaplane.spark.attaching import attach
    from deltaplane.spark.reading import reading_at
    from deltaplane.spark.transacting import run_transaction, transaction
    from deltaplane.sync import Engine, Report

__all__ = [
    "Column",
    "DeltaTable",
    "DeltaplaneError",
    "Engine",
    "Ledger",
    "Plan",
    "ReadPoint",
    "Registry",
    "Report",
    "SyncFailedError",
    "Waiver",
    "attach",
    "build_databricks_engine",
    "build_spark_engine",
    "connect",
    "errors",
    "reading_at",
    "run_transaction",
    "spark_session",
    "transaction",
]

__version__ = version("deltaplane")

# Looked up on first use, so that `import deltaplane` stays cheap and needs no extra.
_HOMES = {
    "Column": "deltaplane.schema",
    "DeltaTable": "deltaplane.schema",
    "Registry": "deltaplane.schema",
    "Waiver": "deltaplane.schema",
    "DeltaplaneError": "deltaplane.errors",
    "SyncFailedError": "deltaplane.errors",
    "Engine": "deltaplane.sync",
    "Ledger": "deltaplane.ledger",
    "connect": "deltaplane.ledger",
    "ReadPoint": "deltaplane.ledger",
    "Report": "deltaplane.sync",
    "Plan": "deltaplane.planning",
    "build_databricks_engine": "deltaplane.engines",
    "build_spark_engine": "deltaplane.engines",
    "spark_session": "deltaplane.engines",
    "attach": "deltaplane.spark.attaching",
    "reading_at": "deltaplane.spark.reading",
    "run_transaction": "deltaplane.spark.transacting",
    "transaction": "deltaplane.spark.transacting",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module("deltaplane.errors")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'deltaplane' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
