"""A table at one version, as everybody reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from deltaplane.errors import VersionNotFound
from deltaplane.ledger.activefiles import Wanted, read_files
from deltaplane.ledger.completing import ensure_complete
from deltaplane.ledger.context import Context
from deltaplane.ledger.head import parse_metadata, parse_protocol
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.selecting import select_files
from deltaplane.ledger.stores.base import Session
from deltaplane.ledger.times import clock_text, to_ms
from deltaplane.log.actions import DomainMetadata, Metadata, Protocol, SetTransaction

__all__ = ["Predicate", "Snapshot", "read_snapshot", "version_of"]

Predicate = str | Sequence[tuple[str, str, Any]]


@dataclass(frozen=True)
class Snapshot:
    """A table at one version.

    Attributes:
        location: Where the table lies.
        version: The version.
        timestamp: When it was committed, in milliseconds.
        protocol: What readers and writers must be able to do.
        metadata: Schema, partitioning and properties.
        num_files: How many files are active.
        size_bytes: Their size together.
        transactions: The progress of applications, by their id.
        domains: The configuration of domains.
    """

    location: str
    version: int
    timestamp: int
    protocol: Protocol
    metadata: Metadata
    num_files: int
    size_bytes: int
    transactions: Mapping[str, SetTransaction]
    domains: Mapping[str, DomainMetadata]
    _files: Callable[[Predicate | None], pa.Table] = field(repr=False, compare=False)
    _records: Callable[[], int | None] = field(repr=False, compare=False)

    @property
    def schema_string(self) -> str | None:
        """The schema as in the log; None where a writer left it out."""
        return self.metadata.schema_string or None

    @property
    def partition_columns(self) -> list[str]:
        """The names of the partition columns."""
        return list(self.metadata.partition_columns)

    @property
    def num_records(self) -> int | None:
        """How many rows the statistics tell of, deleted ones included; None when a file has no statistics."""
        return self._records()

    def files(self, predicate: Predicate | None = None) -> pa.Table:
        """The active files: path (as in the log), size, modification_time, partition_values, num_records,
        stats, deletion_vector.

        Args:
            predicate: Leave out files that cannot hold such rows, for example "day = '2026-01-31' AND amount
                > 100", or [("amount", ">", 100)]. Files are left out by their statistics; rows are not
                filtered.
        """
        return self._files(predicate)


def version_of(ctx: Context, table: ManagedTable, version: int | None, timestamp: Any | None) -> int:
    """Which version is meant.

    Raises:
        VersionNotFound: The ledger does not hold it.
    """
    if version is not None and timestamp is not None:
        raise VersionNotFound(f"{table.label}: give a version or a timestamp, not both.")
    if timestamp is not None:
        return _version_at(ctx, table, to_ms(timestamp))
    if version is None:
        return table.head_version
    if not _is_held(ctx, table, version):
        inside = type(version) is int and table.base_version <= version <= table.head_version
        gap = " It lies in a gap in the adopted log." if inside else ""
        raise VersionNotFound(
            f"{table.label}: the ledger holds versions {table.base_version} to {table.head_version}, and "
            f"{version} was asked for.{gap}"
        )
    return version


def _is_held(ctx: Context, table: ManagedTable, version: int) -> bool:
    """Whether a state is known: versions in a gap of the log, or kept for history only, have none.

    The newest version may be bare, and has one all the same.
    """
    if type(version) is not int or not table.base_version <= version <= table.head_version:
        return False
    if version == table.head_version:
        return True
    with ctx.store.glance() as session:
        row = session.row("commit_totals", table_id=table.table_id, version=version)
    return row is not None and row[1] is not None


def _version_at(ctx: Context, table: ManagedTable, moment: int) -> int:
    with ctx.store.reading() as session:
        row = session.row("version_at", table_id=table.table_id, timestamp=moment)
        first = session.row("time_range", table_id=table.table_id)
    found = row[0] if row else None
    if found is None or found < table.base_version:
        earliest = f" The earliest is {clock_text(first[0])}." if first and first[0] is not None else ""
        raise VersionNotFound(f"{table.label}: there was no version at {clock_text(moment)}.{earliest}")
    return int(found)


def read_snapshot(ctx: Context, table: ManagedTable, version: int) -> Snapshot:
    """Read a version from the ledger. The files themselves are read when they are asked for."""
    with ctx.store.reading() as session:
        totals = session.row("commit_totals", table_id=table.table_id, version=version)
        metadata, protocol = _definition(session, table, version)
        apps, domains = (
            applications(session, table.table_id, version),
            domain_map(session, table.table_id, version),
        )
    if totals is not None and totals[1] is None:
        ensure_complete(ctx, table, version)
        with ctx.store.glance() as session:
            totals = session.row("commit_totals", table_id=table.table_id, version=version)
    num_files, size_bytes, vectors = (totals[1], totals[2], totals[3]) if totals else (0, 0, 0)
    counted = num_files if totals else None
    wanted = Wanted(table, version, counted, size_bytes, bool(metadata.partition_columns), bool(vectors))
    return Snapshot(
        table.location,
        version,
        totals[4] if totals else 0,
        protocol,
        metadata,
        num_files,
        size_bytes,
        apps,
        domains,
        lambda predicate: _files_of(ctx, wanted, metadata, predicate),
        lambda: _records_of(ctx, table, version),
    )


def _definition(session: Session, table: ManagedTable, version: int) -> tuple[Metadata, Protocol]:
    metadata = session.row("metadata_at", table_id=table.table_id, version=version)
    protocol = session.row("protocol_at", table_id=table.table_id, version=version)
    if metadata is None or protocol is None:
        raise VersionNotFound(f"{table.label}: the ledger has no schema or protocol for version {version}.")
    return parse_metadata(metadata[0]), parse_protocol(protocol[0])


def applications(session: Session, table_id: int, version: int) -> dict[str, SetTransaction]:
    """The progress of applications at a version."""
    rows = session.rows("app_transactions_at", table_id=table_id, version=version)
    return {row[0]: SetTransaction(*row) for row in rows}


def domain_map(session: Session, table_id: int, version: int) -> dict[str, DomainMetadata]:
    """The configuration of domains at a version."""
    rows = session.rows("domains_at", table_id=table_id, version=version)
    return {row[0]: DomainMetadata(row[0], row[1]) for row in rows}


def _files_of(ctx: Context, wanted: Wanted, metadata: Metadata, predicate: Predicate | None) -> pa.Table:
    if predicate is not None:
        return select_files(ctx, wanted, metadata, predicate)
    return read_files(ctx, wanted)


def _records_of(ctx: Context, table: ManagedTable, version: int) -> int | None:
    with ctx.store.reading() as session:
        row = session.row("count_files", table_id=table.table_id, version=version)
    if row is None or row[3] != row[0]:
        return None
    return int(row[4])
