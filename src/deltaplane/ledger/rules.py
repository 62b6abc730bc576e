"""What a commit made of bare actions must satisfy. Commits in the writer's own bytes were checked by that
writer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from deltaplane.errors import CommitRefused
from deltaplane.ledger.head import Head
from deltaplane.ledger.model import ACTIVE, ManagedTable
from deltaplane.ledger.prepare import Prepared
from deltaplane.ledger.ratify import file_key, vector_id
from deltaplane.ledger.stores.base import Session
from deltaplane.log.actions import AddFile, FileKey, Metadata, Protocol, RemoveFile
from deltaplane.log.features import check_writable
from deltaplane.log.paths import check_inside
from deltaplane.log.properties import append_only, row_tracking_supported, row_tracking_suspended
from deltaplane.log.replay import file_key as logical_key
from deltaplane.log.replay import path_key
from deltaplane.log.schema_json import maps_columns, physical_name, schema_fields

__all__ = ["ActiveFiles", "active_in", "check_commit"]

ActiveFiles = Callable[[Sequence[RemoveFile]], Collection[FileKey]]
"""Which of the files that are to go are active at the head, by their keys."""


def check_commit(active: ActiveFiles, table: ManagedTable, prepared: Prepared, head: Head) -> None:
    """See that a commit keeps the table readable for everybody.

    Args:
        active: Asked only when files go.
        table: The table, with the head as its newest version.
        prepared: The commit.
        head: What it builds on.

    Raises:
        CommitRefused: It does not. Nothing was written.
        UnsafePath: A file lies outside the table.
        UnsupportedTable: The table has a feature that this version cannot write.
    """
    metadata = next((a for a in prepared.actions if isinstance(a, Metadata)), head.metadata)
    protocol = next((a for a in prepared.actions if isinstance(a, Protocol)), head.protocol)
    if metadata is None or protocol is None:
        raise CommitRefused(
            f"{table.label}: the first commit of a table needs a protocol and a metaData action. Nothing "
            f"was written. "
            f"Use ledger.create, or add both."
        )
    check_writable(protocol, metadata, table.label)
    adds, removes = prepared.adds(), prepared.removes()
    for path in prepared.paths():
        check_inside(table.location, path, table.label, table.allowed_paths)
    if any(action.data_change for action in removes) and append_only(protocol, metadata):
        raise CommitRefused(
            f"{table.label}: the table is append-only (delta.appendOnly), and this commit removes data. "
            f"Nothing was "
            f"written. Only add, or take the property off first."
        )
    _check_partitions(table, metadata, adds)
    if row_tracking_supported(protocol) and not row_tracking_suspended(metadata):
        _check_row_ids(table, adds)
    if removes:
        _check_removed(active(removes), table, removes)


def _check_partitions(table: ManagedTable, metadata: Metadata, adds: list[AddFile]) -> None:
    wanted = set(metadata.partition_columns)
    if adds and maps_columns(metadata.configuration):
        names = {field["name"]: physical_name(field) for field in schema_fields(metadata.schema_string)}
        wanted = {names.get(column, column) for column in wanted}
    for action in adds:
        if set(action.partition_values) != wanted:
            raise CommitRefused(
                f"{table.label}: {action.path} gives partition values for "
                f"{sorted(action.partition_values)}, and the "
                f"table is partitioned by {sorted(wanted)}. Nothing was written. Give exactly these."
            )


def _check_row_ids(table: ManagedTable, adds: list[AddFile]) -> None:
    for action in adds:
        if action.base_row_id is None or action.default_row_commit_version is None:
            raise CommitRefused(
                f"{table.label}: the table tracks rows, and {action.path} comes without baseRowId and "
                f"defaultRowCommitVersion. Nothing was written. Give both, or write through Spark."
            )


def active_in(session: Session, table: ManagedTable) -> ActiveFiles:
    """The active files as the database knows them."""

    def ask(removes: Sequence[RemoveFile]) -> set[FileKey]:
        hashes = session.keys([file_key(logical_key(action)) for action in removes])
        rows = session.rows("files_by_key", table_id=table.table_id, keys=hashes)
        return {(path_key(row[1]), vector_id(row[2])) for row in rows if row[4] == ACTIVE}

    return ask


def _check_removed(active: Collection[FileKey], table: ManagedTable, removes: Sequence[RemoveFile]) -> None:
    for action in removes:
        if logical_key(action) not in active:
            raise CommitRefused(
                f"{table.label}: {action.path} is not a file of version {table.head_version}, so it cannot "
                f"be removed. "
                f"Nothing was written. Take the paths, and deletion vectors, from ledger.snapshot(…).files()."
            )
