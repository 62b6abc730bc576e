"""Workers of the load tests: a prepared process forks them; each writes down what was acknowledged to it."""

from __future__ import annotations

import json
import os
import random
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltaplane.errors import CommitConflict
from deltaplane.ledger import Ledger, connect
from deltaplane.ledger.registry import open_store
from deltaplane.ledger.uri import parse_uri

Job = dict[str, Any]


def add(name: str) -> dict[str, Any]:
    """An add action with statistics."""
    stats = '{"numRecords":1,"minValues":{"id":1},"maxValues":{"id":1},"nullCount":{"id":0}}'
    body = {"path": f"{name}.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1}
    return {"add": body | {"dataChange": True, "stats": stats}}


class Worker:
    """One process that commits until its time is up."""

    def __init__(self, job: Job, number: int) -> None:
        self._tables: list[str] = job["tables"]
        self._number = number
        self._turn = 0
        self._chance = random.Random(number)
        self._notes = (Path(job["folder"]) / f"worker-{number}.jsonl").open("a")

    def note(self, what: str, *detail: Any) -> None:
        """Write a line down at once: the file is what this worker has been told."""
        self._notes.write(json.dumps([what, *detail]) + "\n")
        self._notes.flush()

    def commit(self, ledger: Ledger, mixed: bool) -> None:
        """One transaction: most are blind appends, some go over several tables, some remove a file."""
        self._turn += 1
        identity = f"{self._number}-{self._turn}"
        kind = self._chance.choice(["append", "append", "append", "group", "remove"]) if mixed else "append"
        try:
            with ledger.transaction(transaction_id=identity) as transaction:
                _KINDS[kind](self, transaction, identity)
        except CommitConflict:
            self.note("conflict", kind)
        except Exception:
            self.note("failed", kind, traceback.format_exc())
        else:
            if transaction.result is not None:
                self.note("acknowledged", kind, identity, transaction.result.versions)
                if transaction.result.unpublished:
                    self.note("unpublished", list(transaction.result.unpublished.values()))

    def _append(self, transaction: Any, identity: str) -> None:
        transaction.commit(self._chance.choice(self._tables), [add(identity)])

    def _group(self, transaction: Any, identity: str) -> None:
        for table in self._chance.sample(self._tables, self._chance.choice([2, 3])):
            transaction.commit(table, [add(identity)])

    def _remove(self, transaction: Any, identity: str) -> None:
        """One file for another, from exactly the version that was read."""
        table = self._chance.choice(self._tables)
        snapshot = transaction.snapshot(table)
        paths = snapshot.files()["path"].to_pylist()
        if paths:
            gone = {"path": self._chance.choice(paths), "deletionTimestamp": 1, "dataChange": True}
            actions = [{"remove": gone}, add(identity)]
            transaction.commit(table, actions, expected_version=snapshot.version)


_KINDS: dict[str, Callable[[Worker, Any, str], None]] = {
    "append": Worker._append,
    "group": Worker._group,
    "remove": Worker._remove,
}


def work(job: Job, number: int) -> None:
    """Commit for some seconds, or a number of times."""
    worker = Worker(job, number)
    try:
        while time.time() < job["begin"]:
            time.sleep(0.01)
        with connect(job["uri"]) as ledger:
            if "seconds" in job:
                while time.time() < job["begin"] + job["seconds"]:
                    worker.commit(ledger, mixed=True)
            for _ in range(job.get("commits", 0)):
                worker.commit(ledger, mixed=False)
    except Exception:
        worker.note("failed", "worker", traceback.format_exc())
        raise


def main() -> None:
    """Fork as many workers as the job on standard input wants, and wait for them."""
    job = json.loads(sys.stdin.read())
    open_store(parse_uri(job["uri"]))
    job["begin"] = time.time() + 1
    children = []
    for number in range(job["workers"]):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work(job, number)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.exit(int(any(codes)))


if __name__ == "__main__":
    main()
