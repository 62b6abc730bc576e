"""Ratification: the rows of one version of one table, written inside a database transaction.

Here a version comes to exist (invariant 1). The caller holds the table's lock and has decided which version
it is.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa

from deltaplane.errors import CorruptLog
from deltaplane.ledger.model import NO_END, ManagedTable
from deltaplane.ledger.prepare import Prepared, short_key
from deltaplane.ledger.pruning import BOUND_COLUMNS, PruningColumns
from deltaplane.ledger.stores.base import NewRows, Question, Row, Session
from deltaplane.log.actions import (
    Action,
    AddFile,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from deltaplane.log.jsonlines import action_to_dict, dump_json
from deltaplane.log.order_keys import INT64_MAX
from deltaplane.log.replay import file_key as logical_key
from deltaplane.log.replay import path_key

__all__ = [
    "FILE_COLUMNS",
    "REMOVAL_COLUMNS",
    "Totals",
    "Version",
    "compress",
    "decompress",
    "known_question",
    "ratify",
    "ratify_bare",
    "records_of",
    "vector_id",
    "write_base_files",
    "write_commit_row",
    "write_files",
    "write_state",
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


@dataclass(frozen=True)
class Version:
    """One version to be written.

    Attributes:
        number: Which version.
        prepared: What it does.
        content: The bytes to publish.
        timestamp: The commit's time, later than that of the version before.
        committed_at: When the ledger took it.
        source: 'ledger', 'adopted' or 'foreign'.
        transaction_id: The transaction it belongs to.
        published_at: When it was published; None when that is still to be done.
    """

    number: int
    prepared: Prepared
    content: bytes
    timestamp: int
    committed_at: int
    source: str
    transaction_id: str | None = None
    published_at: int | None = None


def known_question(session: Session, table_id: int, prepared: Prepared) -> Question:
    """What the ledger knows of the files that a commit touches, to be asked before it is written."""
    # Two files may share a stand-in, and each is to be found once.
    keys = list(dict.fromkeys(prepared.keys.values()))
    return "files_by_key", {"table_id": table_id, "keys": session.keys(keys)}


def ratify(
    session: Session,
    table: ManagedTable,
    version: Version,
    before: Totals,
    columns: PruningColumns,
    known_rows: Sequence[Row] | None = None,
) -> tuple[Totals, int]:
    """Write a version.

    Args:
        session: The transaction, in which the table is locked.
        table: The table before it.
        version: The version.
        before: The sums before it.
        columns: The columns to index, those of this version included.
        known_rows: The answer to `known_question`, where it was asked already.

    Returns:
        The sums after it, and the next free file id.
    """

    def commit_and_head(totals: Totals, next_file_id: int) -> tuple[Question, ...]:
        write_state(session, table.table_id, version.number, version.prepared.actions)
        return _version_rows(table, version, totals, next_file_id)

    return write_files(
        session, table, version.number, version.prepared, before, columns, known_rows, commit_and_head
    )


def ratify_bare(session: Session, table: ManagedTable, version: Version) -> None:
    """Write a version without the rows of its files, which `completing` writes."""
    with session.pipelined(True):
        write_state(session, table.table_id, version.number, version.prepared.actions)
        session.together(*_version_rows(table, version, None, table.next_file_id))


def _version_rows(
    table: ManagedTable, version: Version, totals: Totals | None, next_file_id: int
) -> tuple[Question, ...]:
    head = {"table_id": table.table_id, "version": version.number, "next_file_id": next_file_id}
    return *commit_rows(table.table_id, version, totals), ("advance_head", head)


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


def write_commit_row(session: Session, table_id: int, version: Version, totals: Totals | None) -> None:
    """Write the commit itself.

    Without totals it is history only, and no snapshot can be taken at it; unless it is the newest, which is
    bare then: its totals follow.
    """
    session.together(*commit_rows(table_id, version, totals))


def commit_rows(table_id: int, version: Version, totals: Totals | None) -> tuple[Question, ...]:
    """The rows by which a version exists, and by which it is known to be published or not."""
    publication = {"table_id": table_id, "version": version.number, "published_at": version.published_at}
    return ("insert_commit", _commit_values(table_id, version, totals)), ("insert_publication", publication)


def _commit_values(table_id: int, version: Version, totals: Totals | None) -> dict[str, Any]:
    prepared = version.prepared
    return {
        "table_id": table_id,
        "version": version.number,
        "transaction_id": version.transaction_id,
        "source": version.source,
        "content": compress(version.content),
        "content_size": len(version.content),
        "sha256": hashlib.sha256(version.content).hexdigest(),
        "operation": prepared.operation,
        "engine": prepared.engine,
        "blind_append": int(prepared.blind_append),
        "facts": prepared.facts.to_json(),
        "committed_at": version.committed_at,
        "commit_timestamp": version.timestamp,
        "num_files": totals.num_files if totals else None,
        "size_bytes": totals.size_bytes if totals else None,
        "num_vectors": totals.num_vectors if totals else None,
    }


def compress(content: bytes) -> bytes:
    """Raw lines as they are kept."""
    squeezed: bytes = pa.compress(content, codec="zstd", asbytes=True)
    return squeezed


def decompress(content: bytes, size: int) -> bytes:
    """The raw lines again, to the byte."""
    raw: bytes = (
        pa.decompress(bytes(content), decompressed_size=size, codec="zstd", asbytes=True) if size else b""
    )
    return raw


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


def write_state(session: Session, table_id: int, version: int, actions: Iterable[Action]) -> None:
    """Note protocol, metadata, applications and domains of a version."""
    apps: dict[str, SetTransaction] = {}
    domains: dict[str, DomainMetadata] = {}
    for action in actions:
        kind = type(action)
        if kind is AddFile or kind is RemoveFile:
            # Nearly all are, and there may be hundreds of thousands.
            continue
        if isinstance(action, Metadata):
            session.run("insert_metadata", table_id=table_id, version=version, content=_action_text(action))
        elif isinstance(action, Protocol):
            session.run("insert_protocol", table_id=table_id, version=version, content=_action_text(action))
        elif isinstance(action, SetTransaction):
            apps[action.app_id] = action
        elif isinstance(action, DomainMetadata):
            domains[action.domain] = action
    write_applications(session, table_id, version, apps.values())
    write_domains(session, table_id, version, domains.values())


def _action_text(action: Metadata | Protocol) -> str:
    return dump_json(action_to_dict(action))


def write_applications(session: Session, table_id: int, version: int, apps: Iterable[SetTransaction]) -> None:
    """Note the progress of applications."""
    for app in apps:
        session.run(
            "insert_app_transaction",
            table_id=table_id,
            app_id=app.app_id,
            version=version,
            app_version=app.version,
            last_updated=app.last_updated,
        )


def write_domains(session: Session, table_id: int, version: int, domains: Iterable[DomainMetadata]) -> None:
    """Note the configuration of domains."""
    for domain in domains:
        session.run(
            "insert_domain",
            table_id=table_id,
            domain=domain.domain,
            version=version,
            configuration=domain.configuration,
            removed=int(domain.removed),
        )
