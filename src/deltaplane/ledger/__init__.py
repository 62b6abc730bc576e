"""The SQL plane: Delta's transaction log in a database, published to `_delta_log` for everybody else.

A commit travels through `transaction` (hand in), `commit` (lock, place, ratify in one database transaction)
and `publish` (the files of `_delta_log`, in order). `connection.Ledger` is what users hold.
"""

from deltaplane.ledger.adopt import Adoption
from deltaplane.ledger.alerts import Alert, Notifier, Thresholds, Webhook
from deltaplane.ledger.audit import AuditEntry
from deltaplane.ledger.cleanup import Cleanup
from deltaplane.ledger.connection import Ledger, connect
from deltaplane.ledger.context import Retries
from deltaplane.ledger.filelog import FileTxnLog
from deltaplane.ledger.model import CommitResult, HistoryEntry, Lag, ManagedTable
from deltaplane.ledger.ports import TxnLog, TxnLogCapabilities, TxnLogReader, TxnLogTransaction, TxnLogWriter
from deltaplane.ledger.read_point import ReadPoint
from deltaplane.ledger.reconcile import ReconcileReport
from deltaplane.ledger.release import Released
from deltaplane.ledger.repair import Repair
from deltaplane.ledger.snapshot import Snapshot
from deltaplane.ledger.status import LedgerStatus
from deltaplane.ledger.transaction import Transaction
from deltaplane.ledger.verify import Verification

__all__ = [
    "Adoption",
    "Alert",
    "AuditEntry",
    "Cleanup",
    "CommitResult",
    "FileTxnLog",
    "HistoryEntry",
    "Lag",
    "Ledger",
    "LedgerStatus",
    "ManagedTable",
    "Notifier",
    "ReadPoint",
    "ReconcileReport",
    "Released",
    "Repair",
    "Retries",
    "Snapshot",
    "Thresholds",
    "Transaction",
    "TxnLog",
    "TxnLogCapabilities",
    "TxnLogReader",
    "TxnLogTransaction",
    "TxnLogWriter",
    "Verification",
    "Webhook",
    "connect",
]
