"""The SQL plane: Delta's transaction log in a database, published to `_delta_log` for everybody else.

A commit travels through `transaction` (hand in), `commit` (lock, place, ratify in one database transaction)
and
`publish` (the files of `_delta_log`, in order). `connection.Ledger` is what users hold.
"""

from deltaplane.ledger.connection import Ledger, connect
from deltaplane.ledger.context import Retries
from deltaplane.ledger.filelog import FileTxnLog
from deltaplane.ledger.model import CommitResult, HistoryEntry, Lag, ManagedTable
from deltaplane.ledger.ports import TxnLog, TxnLogCapabilities, TxnLogReader, TxnLogTransaction, TxnLogWriter
from deltaplane.ledger.snapshot import Snapshot
from deltaplane.ledger.transaction import Transaction

__all__ = [
    "CommitResult",
    "FileTxnLog",
    "HistoryEntry",
    "Lag",
    "Ledger",
    "ManagedTable",
    "Retries",
    "Snapshot",
    "Transaction",
    "TxnLog",
    "TxnLogCapabilities",
    "TxnLogReader",
    "TxnLogTransaction",
    "TxnLogWriter",
    "connect",
]
