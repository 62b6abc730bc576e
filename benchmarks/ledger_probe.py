"""One piece of work in a process of its own, so that time and memory are of that piece alone.

Reads one JSON object from the command line and prints another: seconds, the peak memory, what came out.
Modules are imported before the clock starts, on both sides.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.ledger_tables import action

__all__ = ["probe"]

_SECONDS = 1800


def probe(work: str, **values: Any) -> dict[str, Any]:
    """Run a piece of work in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.ledger_probe", json.dumps({"work": work, **values})]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{work} failed: {done.stderr.strip()[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _peak_bytes() -> int:
    """The most memory of this process; getrusage would count that of the one that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def _open_deltalake(path: str) -> dict[str, Any]:
    from deltalake import DeltaTable

    start = time.perf_counter()
    files = DeltaTable(path).get_add_actions()
    return {"seconds": time.perf_counter() - start, "files": files.num_rows}


def _open_ledger(uri: str, path: str, version: int | None = None) -> dict[str, Any]:
    from deltaplane.ledger import connect

    _load_driver(uri)
    start = time.perf_counter()
    ledger = connect(uri)
    files = ledger.snapshot(path, version).files()
    seconds = time.perf_counter() - start
    rows = files.num_rows
    assert files["stats"].null_count == 0
    ledger.close()
    return {"seconds": seconds, "files": rows}


def _load_driver(uri: str) -> None:
    """The engine's module, which the first connection would load."""
    import importlib

    importlib.import_module(f"deltaplane.ledger.stores.{uri.split('/')[2]}")


def _prune_deltalake(path: str, predicate: str) -> dict[str, Any]:
    from deltalake import DeltaTable

    start = time.perf_counter()
    files = DeltaTable(path).file_uris(file_pruning_predicate=predicate)
    return {"seconds": time.perf_counter() - start, "files": len(files)}


def _prune_ledger(uri: str, path: str, predicate: str) -> dict[str, Any]:
    from deltaplane.ledger import connect

    _load_driver(uri)
    start = time.perf_counter()
    ledger = connect(uri)
    files = ledger.snapshot(path).files(predicate)
    seconds = time.perf_counter() - start
    ledger.close()
    return {"seconds": seconds, "files": files.num_rows}


def _adopt(uri: str, path: str) -> dict[str, Any]:
    from deltaplane.ledger import connect

    _load_driver(uri)
    start = time.perf_counter()
    ledger = connect(uri)
    adopted = ledger.adopt(path)
    seconds = time.perf_counter() - start
    ledger.close()
    return {"seconds": seconds, "files": adopted.num_files}


def _checkpoint(uri: str, path: str) -> dict[str, Any]:
    from deltaplane.ledger import connect
    from deltaplane.ledger.checkpointing import write_checkpoint

    _load_driver(uri)
    ledger = connect(uri)
    context = ledger._ctx
    table = context.table(path)
    start = time.perf_counter()
    summary = write_checkpoint(context, table, table.head_version)
    seconds = time.perf_counter() - start
    ledger.close()
    return {"seconds": seconds, "files": summary.num_add_files}


def _append(uri: str, path: str, first: int, threads: int, commits: int) -> dict[str, Any]:
    """Many threads that append without looking; what they were told is compared by the caller."""
    from deltaplane.ledger import connect

    told: list[str] = []
    failed: list[str] = []
    guard = threading.Lock()

    def append(worker: int) -> None:
        for number in range(commits):
            added = action(first + worker * commits + number)
            try:
                with ledger.transaction() as transaction:
                    transaction.commit(path, [added])
            except Exception as error:
                with guard:
                    failed.append(f"{type(error).__name__}: {error}")
            else:
                with guard:
                    told.append(added["add"]["path"])

    start = time.perf_counter()
    with connect(uri) as ledger:
        workers = [threading.Thread(target=append, args=(worker,)) for worker in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    return {"seconds": time.perf_counter() - start, "told": told, "failed": failed}


_WORK = {
    "open-deltalake": _open_deltalake,
    "open-ledger": _open_ledger,
    "prune-deltalake": _prune_deltalake,
    "prune-ledger": _prune_ledger,
    "adopt": _adopt,
    "checkpoint": _checkpoint,
    "append": _append,
}


def main() -> int:
    wanted = json.loads(sys.argv[1])
    answer = _WORK[wanted.pop("work")](**wanted)
    print(json.dumps({**answer, "peak": _peak_bytes(), "arrow": pa.total_allocated_bytes()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
