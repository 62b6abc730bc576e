"""Reading and writing without a JVM.

`write_arrow` writes Arrow data into a table of the ledger. Below it, `write_files` turns the data into
Parquet
files and gives the actions for the log, and `check_embedded_writable` says which tables need Spark instead.
"""

from __future__ import annotations

from deltaplane.embedded.parquet import write_files
from deltaplane.embedded.writable import check_embedded_writable
from deltaplane.embedded.writing import Written, write_arrow

__all__ = ["Written", "check_embedded_writable", "write_arrow", "write_files"]
