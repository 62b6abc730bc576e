"""Files that go: every tombstone says what its own removal said."""

from __future__ import annotations

import time
from pathlib import Path

from deltaplane.ledger import Ledger
from deltaplane.ledger.load import load_state
from deltaplane.ledger.storage import open_storage
from ledger.conftest import SCHEMA, add, remove


def test_files_that_go_in_one_commit_keep_times_of_their_own(ledger: Ledger, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    ledger.create(path, SCHEMA, properties={"delta.checkpointInterval": "2"})
    with ledger.transaction() as tx:
        tx.commit(path, [add(number) for number in range(300)])
    now = int(time.time() * 1000)
    times = {number: None if number % 7 == 0 else now - number for number in range(200)}

    with ledger.transaction() as tx:
        tx.commit(path, [remove(n, deletionTimestamp=at, dataChange=n % 3 > 0) for n, at in times.items()])

    state = load_state(open_storage(path))
    # One without a time counts as expired long ago, and is not in the checkpoint.
    expected = {f"part-{number:05d}.parquet": at for number, at in times.items() if at is not None}
    assert {file.path: file.deletion_timestamp for file in state.tombstones.values()} == expected
    assert len(state.files) == 100
    assert ledger.verify(path, every=True).differences == ()
