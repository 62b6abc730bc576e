"""Bring tables to their declarations: read, plan, validate, execute, report."""

from deltaplane.sync.engine import Engine
from deltaplane.sync.ports import CommitNote, TableCatalog
from deltaplane.sync.report import Report, TableReport

__all__ = ["CommitNote", "Engine", "Report", "TableCatalog", "TableReport"]
