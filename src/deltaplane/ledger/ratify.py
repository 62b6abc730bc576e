"""Ratification: the rows of one version of one table, written inside a database transaction.

Here a version comes to exist (invariant 1). The caller holds the table's lock and has decided which version
it is. The rows of its files are in `file_rows`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from deltaplane.ledger.file_rows import Totals, write_files
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.prepare import Prepared
from deltaplane.ledger.pruning import PruningColumns
from deltaplane.ledger.stores.base import Question, Row, Session
from deltaplane.log.actions import (
    Action,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from deltaplane.log.jsonlines import action_to_dict, dump_json

__all__ = [
    "Version",
    "compress",
    "decompress",
    "ratify",
    "ratify_bare",
    "write_applications",
    "write_commit_row",
    "write_domains",
    "write_state",
]


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
