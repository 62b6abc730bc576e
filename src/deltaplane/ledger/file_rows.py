"""The rows of files: which come and which go with a version, and the sums over them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from deltaplane.errors import CorruptLog
from deltaplane.ledger.model import NO_END, ManagedTable
from deltaplane.ledger.prepare import Prepared, short_key
from deltaplane.ledger.pruning import BOUND_COLUMNS, PruningColumns
from deltaplane.ledger.stores.base import NewRows, Question, Row, Session
from deltaplane.log.actions import AddFile, FileKey, RemoveFile
from deltaplane.log.jsonlines import action_to_dict, dump_json
from deltaplane.log.order_keys import INT64_MAX
from deltaplane.log.replay import file_key as logical_key
from deltaplane.log.replay import path_key

__all__ = [
    "Totals",
    "known_question",
    "records_of",
    "vector_id",
    "write_base_files",
    "write_files",
]

FILE_COLUMNS = (
    "table_id",
    "file_id",
    "added_version",
    "file_key",
    "size",
    "modification_time",
    "num_records",
    "path",
    "stats",
    "partition_values",
    "deletion_vector",
    "tags",
    "base_row_id",
    "default_row_commit_version",
    "clustering_provider",
)
REMOVAL_COLUMNS = (
    "table_id",
    "file_id",
    "removed_version",
    "tombstone_until",
    "deletion_timestamp",
    "removal",
)
_SMALL = 50
_RECORDS_FIRST = re.compile(r'\{"numRecords":(\d{1,18})[,}]')


@dataclass(frozen=True)
class Totals:
    """Sums over the active files of a version, so that nobody has to count them again."""

    num_files: int = 0
    size_bytes: int = 0
    num_vectors: int = 0

    def checked(self, label: str) -> Totals:
        """The sums, where a database can hold them.

        Raises:
            CorruptLog: It cannot.
        """
        if self.size_bytes > INT64_MAX:
            raise CorruptLog(
                label, "the sizes of its files sum up to more than 64 bits can hold. Nothing was written"
            )
        return self


def known_question(session: Session, table_id: int, prepared: Prepared) -> Question:
    """What the ledger knows of the files that a commit touches, to be asked before it is written."""
    # Two files may share a stand-in, and each is to be found once.
    keys = list(dict.fromkeys(prepared.keys.values()))
    return "files_by_key", {"table_id": table_id, "keys": session.keys(keys)}


def write_files(
    session: Session,
    table: ManagedTable,
    version: int,
    prepared: Prepared,
    before: Totals,
    columns: PruningColumns,
    known_rows: Sequence[Row] | None,
    following: Callable[[Totals, int], Sequence[Question]],
) -> tuple[Totals, int]:
    """Write the rows of the files that come or go with a version.

    Args:
        session: The transaction, in which the table is locked.
        table: The table before the version, as far as its files are concerned.
        version: The version.
        prepared: What it does.
        before: The sums before it.
        columns: The columns to index.
        known_rows: The answer to `known_question`, where it was asked already.
        following: What is to be written with them, once the sums and the next free file id are known.

    Returns:
        The sums after it, and the next free file id.
    """
    touched = prepared.keys
    if known_rows is None:
        known_rows = session.ask(known_question(session, table.table_id, prepared))[0] if touched else []
    known = _known_files(session, table.table_id, known_rows, touched)
    small = len(touched) * max(1, len(columns.indexed)) <= _SMALL
    # From here on nothing is asked, only written: a small commit goes in one round trip.
    with session.pipelined(True):
        change, totals = _changed_files(table, version, prepared, before, known)
        next_file_id = table.next_file_id + len(change.files)
        new_rows = [
            NewRows("files", FILE_COLUMNS, change.files),
            NewRows("removals", REMOVAL_COLUMNS, change.removals),
        ]
        if change.ended:
            values = {"table_id": table.table_id, "version": version}
            session.run("end_tombstones", **values, keys=session.keys(change.ended))
        if not small:
            session.together(*new_rows)
        bounds = columns.bounds(table.table_id, table.next_file_id, prepared.adds())
        session.together(
            *(new_rows if small else []),
            NewRows("file_bounds", BOUND_COLUMNS, bounds),
            *following(totals, next_file_id),
        )
    return totals, next_file_id


def records_of(stats: str | None) -> int | None:
    """NumRecords of a statistics text."""
    if not stats:
        return None
    usual = _RECORDS_FIRST.match(stats)
    if usual is not None and stats.endswith("}"):
        # As Spark and delta-rs write it: nothing else has to be read.
        return int(usual[1])
    if '"numRecords"' not in stats:
        return None
    try:
        count = json.loads(stats).get("numRecords")
    except (ValueError, AttributeError, RecursionError):
        # Statistics may be junk: Delta does not check them either, and the file stays readable.
        return None
    return count if type(count) is int and 0 <= count < 2**63 else None


def write_base_files(
    session: Session,
    table_id: int,
    version: int,
    actions: Sequence[AddFile | RemoveFile],
    before: Totals,
    next_file_id: int,
) -> tuple[Totals, int]:
    """Write files and tombstones of a checkpoint, from which a table starts.

    Returns:
        The sums with them, and the next free file id.
    """
    rows = []
    removals = []
    for number, action in enumerate(actions, next_file_id):
        key = short_key(logical_key(action))
        if isinstance(action, AddFile):
            rows.append(_add_row(table_id, number, version, action, key))
        else:
            rows.append(_stranger_row(table_id, number, version, action, key))
            removals.append(_removal_row(table_id, number, version, action))
    session.insert("files", FILE_COLUMNS, rows)
    session.insert("removals", REMOVAL_COLUMNS, removals)
    adds = [action for action in actions if isinstance(action, AddFile)]
    totals = Totals(
        before.num_files + len(adds),
        before.size_bytes + sum(action.size for action in adds),
        before.num_vectors + sum(action.deletion_vector is not None for action in adds),
    )
    return totals.checked("the checkpoint"), next_file_id + len(rows)


class _Known(NamedTuple):
    file_id: int
    size: int
    active: bool
    has_vector: bool
    tombstone: bool


_Keyed = list[tuple[FileKey, Any]]
"""Actions, each behind what identifies its file."""
_KnownFiles = dict[FileKey, list[_Known]]


@dataclass(frozen=True)
class _Change:
    """What a version does to the rows of files.

    Attributes:
        files: The rows of new ones.
        removals: The rows of those that go.
        ended: The ids of such whose tombstones end.
    """

    files: list[Row]
    removals: list[Row]
    ended: list[int]


def _changed_files(
    table: ManagedTable, number: int, prepared: Prepared, before: Totals, known: _KnownFiles
) -> tuple[_Change, Totals]:
    """What becomes of the files that are there, and the rows of new ones; and the sums with them."""
    files = prepared.files
    adds: _Keyed = [(key, action) for action, key in files if type(action) is AddFile]
    removes: _Keyed = [(key, action) for action, key in files if type(action) is RemoveFile]
    short, first = prepared.keys, table.next_file_id
    gone: list[_Known] = []
    removals: list[Row] = []
    strangers: _Keyed = []
    for key, action in removes:
        active = [file for file in known.get(key, ()) if file.active]
        if not active:
            strangers.append((key, action))
        for file in active:
            gone.append(file)
            removals.append(_removal_row(table.table_id, file.file_id, number, action))
    # Replaced by a newer add of the same file: no tombstone.
    again = [file for key, _ in adds for file in known.get(key, ()) if file.active]
    removals += [(table.table_id, file.file_id, number, number, None, None) for file in again]
    # A file that comes back, or is removed once more, has its older tombstone no longer.
    ended = [f.file_id for key, _ in (*adds, *strangers) for f in known.get(key, ()) if f.tombstone]
    rows = [_add_row(table.table_id, at, number, a, short[key]) for at, (key, a) in enumerate(adds, first)]
    for at, (key, action) in enumerate(strangers, first + len(adds)):
        rows.append(_stranger_row(table.table_id, at, number, action, short[key]))
        removals.append(_removal_row(table.table_id, at, number, action))
    gone += again
    totals = Totals(
        before.num_files + len(adds) - len(gone),
        before.size_bytes + sum(a.size for _, a in adds) - sum(k.size for k in gone),
        before.num_vectors
        + sum(a.deletion_vector is not None for _, a in adds)
        - sum(k.has_vector for k in gone),
    )
    return _Change(rows, removals, ended), totals.checked(table.label)


def _known_files(
    session: Session, table_id: int, rows: Sequence[Row], asked: Collection[FileKey]
) -> _KnownFiles:
    known: defaultdict[FileKey, list[_Known]] = defaultdict(list)
    if not rows:
        return known
    keys = session.keys([row[0] for row in rows])
    ended: dict[int, int] = dict(session.rows("removals_of", table_id=table_id, keys=keys))
    for file_id, path, vector, size in rows:
        key = (path_key(path), vector_id(vector) if vector else "")
        if key in asked:
            until = ended.get(file_id)
            known[key].append(_Known(file_id, size, until is None, vector is not None, until == NO_END))
    return known


def vector_id(text: str | None) -> str:
    """The unique id of a deletion vector as the ledger keeps it."""
    if not text:
        return ""
    vector = json.loads(text)
    base = f"{vector['storageType']}{vector['pathOrInlineDv']}"
    return base if vector.get("offset") is None else f"{base}@{vector['offset']}"


def _removal_row(table_id: int, file_id: int, version: int, action: RemoveFile) -> Row:
    return table_id, file_id, version, NO_END, action.deletion_timestamp, _removal(action)


def _removal(action: RemoveFile) -> str:
    return _removal_text(action.data_change, action.extended_file_metadata)


@cache
def _removal_text(data_change: bool, extended: bool | None) -> str:
    return dump_json({"dataChange": data_change, "extended": extended})


def _texts(values: Any) -> str | None:
    if not values:
        return None if values is None else "{}"
    return dump_json(dict(sorted(values.items())))


def _vector_text(action: AddFile | RemoveFile) -> str | None:
    if action.deletion_vector is None:
        return None
    return dump_json(action_to_dict(action)[action.kind]["deletionVector"])


def _add_row(table_id: int, file_id: int, version: int, action: AddFile, key: int) -> Row:
    return (
        table_id,
        file_id,
        version,
        key,
        action.size,
        action.modification_time,
        records_of(action.stats),
        action.path,
        action.stats,
        _texts(action.partition_values),
        _vector_text(action),
        _texts(action.tags),
        action.base_row_id,
        action.default_row_commit_version,
        action.clustering_provider,
    )


def _stranger_row(table_id: int, file_id: int, version: int, action: RemoveFile, key: int) -> Row:
    """The file of a tombstone that was never seen active: it came from a checkpoint or a commit before the
    base. It comes and goes with the same version.
    """
    return (
        table_id,
        file_id,
        version,
        key,
        action.size or 0,
        0,
        None,
        action.path,
        None,
        _texts(action.partition_values or {}),
        _vector_text(action),
        _texts(action.tags),
        action.base_row_id,
        action.default_row_commit_version,
        None,
    )
