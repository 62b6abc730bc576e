"""What the behaviours are written with: actions, one commit in a line, refusals as values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltaplane.ledger.names import LOG_FOLDER
from deltaplane.ledger.ports import TxnLog
from deltaplane.ledger.storage import Storage

if TYPE_CHECKING:
    from deltaplane.ledger.connection import Ledger
    from deltaplane.ledger.filelog import FileTxnLog

    _FITTING: tuple[type[TxnLog], ...] = (FileTxnLog, Ledger)

__all__ = [
    "SCHEMA",
    "OpenFiles",
    "ReadOutside",
    "Refusal",
    "active",
    "add",
    "foreign_commit",
    "land",
    "lines",
    "log_names",
    "paths",
    "refused",
    "remove",
    "vector",
]

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
OpenFiles = Callable[[str], Storage]
ReadOutside = Callable[[str, int], set[str]]
Given = Mapping[str, Any]


def add(number: int, **fields: Any) -> dict[str, Any]:
    """An add whose statistics tell of ids from 10 * number to 10 * number + 9."""
    stats = {
        "numRecords": 10,
        "minValues": {"id": 10 * number},
        "maxValues": {"id": 10 * number + 9},
        "nullCount": {"id": 0},
    }
    body: dict[str, Any] = {
        "path": f"part-{number:05d}.parquet",
        "partitionValues": {},
        "size": 100 + number,
        "modificationTime": 1_700_000_000_000 + number,
        "dataChange": True,
        "stats": json.dumps(stats),
    }
    return {"add": body | fields}


def remove(number: int, **fields: Any) -> dict[str, Any]:
    """The removal of what `add` added."""
    body = {"path": f"part-{number:05d}.parquet", "deletionTimestamp": 1_700_000_100_000, "dataChange": True}
    return {"remove": body | fields}


def vector(name: str) -> dict[str, Any]:
    """A deletion vector in a file of the table."""
    path = f"{name:>20}".replace(" ", "a")
    return {"storageType": "u", "pathOrInlineDv": path, "offset": 1, "sizeInBytes": 36, "cardinality": 2}


def land(log: TxnLog, place: str, *actions: Given, **options: Any) -> int:
    """Commit actions in a transaction of their own, and give the version.

    Args:
        log: The log.
        place: The table.
        actions: What to commit.
        options: `expected_version` for the commit; `author` and `message` for the transaction.
    """
    expected = options.pop("expected_version", None)
    with log.transaction(**options) as transaction:
        transaction.commit(place, actions, expected)
    assert transaction.result is not None
    (version,) = transaction.result.versions.values()
    return version


def foreign_commit(files: OpenFiles, place: str, version: int, *actions: Given) -> None:
    """A commit of a writer that knows nothing of us."""
    info = {"commitInfo": {"timestamp": 1_700_000_000_000, "operation": "WRITE", "engineInfo": "outsider"}}
    content = "\n".join(json.dumps(action) for action in (info, *actions)) + "\n"
    assert files(place).put_if_absent(f"{LOG_FOLDER}/{version:020d}.json", content.encode())


def lines(content: bytes) -> list[dict[str, Any]]:
    """The actions of a commit as JSON has them."""
    return [json.loads(line) for line in content.decode().splitlines()]


def log_names(files: OpenFiles, place: str) -> list[str]:
    """The names in `_delta_log`."""
    return [file.name for file in files(place).list(LOG_FOLDER)]


def paths(log: TxnLog, place: str, version: int | None = None) -> list[str]:
    """The paths of the active files, in order."""
    found: list[str] = log.snapshot(place, version).files()["path"].to_pylist()
    return sorted(found)


def active(log: TxnLog, place: str, version: int | None = None) -> list[dict[str, Any]]:
    """The active files as rows, by path."""
    rows: list[dict[str, Any]] = log.snapshot(place, version).files().to_pylist()
    return sorted(rows, key=lambda row: (row["path"], str(row["deletion_vector"])))


class Refusal:
    """The error that a block raised."""

    error: Any = None

    def __str__(self) -> str:
        return str(self.error)


@contextmanager
def refused(kind: type[Exception]) -> Iterator[Refusal]:
    """Expect an error of a kind; what it says can be looked at afterwards."""
    refusal = Refusal()
    try:
        yield refusal
    except kind as error:
        refusal.error = error
    else:
        raise AssertionError(f"no {kind.__name__} was raised")
