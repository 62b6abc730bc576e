"""What every transaction log must do. Subclass `TxnLogBehaviours` and give it four fixtures.

    class TestMyLog(TxnLogBehaviours):
        @pytest.fixture
        def log(self) -> TxnLog: ...             # the log, without a table at `place`

        @pytest.fixture
        def place(self) -> str: ...              # a path that nobody else uses, also with -other behind

        @pytest.fixture
        def files(self) -> Callable[[str], Storage]: ...            # the files of a table, by its path

        @pytest.fixture
        def outside(self) -> Callable[[str, int], set[str]]: ...    # the paths that another reader sees

Every method is a test of pytest; each states one behaviour. Where logs differ, `log.capabilities` says so.
"""

from __future__ import annotations

from deltaplane.testing.txnlog_parts.conflicts import ConflictBehaviours, RefusalBehaviours
from deltaplane.testing.txnlog_parts.reading import FileBehaviours, ReadingBehaviours
from deltaplane.testing.txnlog_parts.writing import ContentBehaviours, TransactionBehaviours

__all__ = ["TxnLogBehaviours"]


class TxnLogBehaviours(
    ReadingBehaviours,
    FileBehaviours,
    ContentBehaviours,
    TransactionBehaviours,
    ConflictBehaviours,
    RefusalBehaviours,
):
    """The behaviours. Nothing here knows which log it talks to."""
