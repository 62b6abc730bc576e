"""What the ledger's commands say to people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deltaplane.ledger.alerts import Alert
    from deltaplane.ledger.audit import AuditEntry
    from deltaplane.ledger.model import HistoryEntry, Lag, ManagedTable
    from deltaplane.ledger.reconcile import ReconcileReport, TableReport
    from deltaplane.ledger.snapshot import Snapshot
    from deltaplane.ledger.status import LedgerStatus

__all__ = [
    "audit_text",
    "columns",
    "counted",
    "duration_text",
    "history_text",
    "reconcile_text",
    "round_text",
    "size_text",
    "snapshot_json",
    "snapshot_text",
    "status_text",
    "tables_text",
]

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")
_SHOWN_COLUMNS = 12


def counted(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size_text(size: float) -> str:
    """Bytes as people say them."""
    for unit in _UNITS:
        if size < 1000 or unit == _UNITS[-1]:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("the last unit returns")


def duration_text(seconds: float) -> str:
    """A time span in its largest sensible unit."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def columns(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Rows below a header; numbers to the right, text to the left."""
    content = [tuple(row) for row in rows]
    cells = [tuple(header), *(tuple("-" if cell is None else str(cell) for cell in row) for row in content)]
    numeric = [all(isinstance(row[i], int) or row[i] is None for row in content) for i in range(len(header))]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def tables_text(tables: Sequence[ManagedTable]) -> str:
    """Every table in one line."""
    if not tables:
        return "No tables yet. Bring one in with: deltaplane ledger adopt PATH"
    rows = [
        (t.name, t.head_version, t.published_version, t.base_version, t.state, t.foreign_commits, t.location)
        for t in tables
    ]
    header = ("name", "version", "published", "oldest", "state", "foreign commits", "location")
    return f"{columns(header, rows)}\n{counted(len(tables), 'table')}."


def status_text(status: LedgerStatus, alerts: Sequence[Alert] = ()) -> str:
    """The tables that need a look, then one sentence about all."""
    notable = sorted(
        (table for table in status.tables if table.versions or table.state != "managed"),
        key=lambda table: (-table.seconds, -table.versions, table.location),
    )
    lines = []
    if notable:
        header = ("table", "version", "published", "behind", "waiting", "failed", "state")
        lines += [columns(header, [_lag_row(table) for table in notable])]
        # An alert says the reason as well.
        alarmed = {alert.table for alert in alerts}
        quiet = [table for table in notable if table.label not in alarmed]
        lines += [f"  ! {table.label}: {reason}" for table in quiet if (reason := _reason(table))]
    lines += [f"  ! alert {alert.kind}: {alert.message}" for alert in alerts]
    lines += [""] if lines else []
    return "\n".join([*lines, _summary(status, " Publish with: deltaplane ledger reconcile.")])


def _lag_row(lag: Lag) -> tuple[Any, ...]:
    waiting = duration_text(lag.seconds) if lag.versions else "-"
    return (
        lag.label,
        lag.head_version,
        lag.published_version,
        lag.versions,
        waiting,
        counted(lag.attempts, "time") if lag.attempts else "-",
        lag.state,
    )


def _reason(lag: Lag) -> str | None:
    return lag.frozen_reason if lag.state == "frozen" else lag.last_error


def _summary(status: LedgerStatus, hint: str = "") -> str:
    if not status.tables:
        return "No tables yet. Bring one in with: deltaplane ledger adopt PATH"
    worst = status.worst
    said = f"{counted(len(status.tables), 'table')}, everything is published."
    if worst is not None:
        verb = "is" if len(status.behind) == 1 else "are"
        said = (
            f"{len(status.behind)} of {counted(len(status.tables), 'table')} {verb} behind: "
            f"{counted(status.versions, 'version')}, the oldest for {duration_text(worst.seconds)} "
            f"({worst.label}).{hint}"
        )
    if status.frozen:
        first = status.frozen[0].label
        verb = "is" if len(status.frozen) == 1 else "are"
        said += (
            f" {counted(len(status.frozen), 'table')} {verb} frozen; see: deltaplane ledger verify {first}."
        )
    return said


def reconcile_text(report: ReconcileReport) -> str:
    """What one round did, and how things stand."""
    lines = [_table_line(table) for table in report.tables if table.outcome != "clean"]
    if report.expired_leases:
        lines.append(f"{counted(report.expired_leases, 'lease')} of dead processes removed.")
    lines += [f"{place}: what a dead transaction left of a new table removed." for place in report.abandoned]
    lines.append(_summary(report.status))
    if report.failed:
        lines.append(f"{counted(len(report.failed), 'table')} could not be reconciled.")
    return "\n".join(lines)


def round_text(report: ReconcileReport) -> str | None:
    """What a round of a watch did; None when there was nothing to do."""
    lines = [_table_line(table) for table in report.tables if table.outcome not in {"clean", "busy"}]
    return "\n".join(lines) or None


def _table_line(table: TableReport) -> str:
    done = [
        f"{counted(table.published, 'version')} published" if table.published else "",
        f"{counted(table.imported, 'foreign commit')} imported" if table.imported else "",
        "the rows of a large commit written" if table.completed else "",
        f"checkpoint of version {table.checkpoint} written" if table.checkpoint is not None else "",
        f"{counted(len(table.removed), 'leftover')} removed" if table.removed else "",
    ]
    cause = (table.error or "").removeprefix(f"{table.label}: ")
    said = {
        "busy": "another reconciler has it",
        "waiting": "failed before, and waits for its next attempt (--force tries now)",
        "adopting": "its adoption is not finished; go on with: deltaplane ledger adopt",
        "gone": "it has left the ledger",
        "frozen": f"frozen: {cause}",
        "failed": f"failed: {cause}",
    }.get(table.outcome, "")
    return f"{table.label}: {', '.join(part for part in (*done, said) if part)}"


def history_text(entries: Sequence[HistoryEntry]) -> str:
    """The commits, newest first; where one of them changed several tables, the groups as well."""
    from deltaplane.ledger.times import clock_text

    grouped = any(map(_group, entries))
    header = ("version", "committed", "who", "operation", "files", "published", *(["group"] * grouped), "why")
    rows = [
        (
            entry.version,
            clock_text(entry.timestamp),
            entry.author or entry.engine or entry.source,
            entry.operation,
            f"+{entry.facts.adds} -{entry.facts.removes}",
            "yes" if entry.published_at is not None else "no",
            *([_group(entry)] * grouped),
            entry.message or "",
        )
        for entry in entries
    ]
    return columns(header, rows)


def _group(entry: HistoryEntry) -> str:
    tables = entry.tables_in_transaction or 0
    return f"{entry.transaction_id} ({tables} tables)" if tables > 1 else ""


def audit_text(entries: Sequence[AuditEntry]) -> str:
    """The acts, newest first."""
    from deltaplane.ledger.times import clock_text

    header = ("when", "what", "who", "from", "table", "detail")
    rows = [
        (clock_text(e.happened_at), e.action, e.author, e.origin, e.location, e.detail or "") for e in entries
    ]
    return columns(header, rows) if rows else "Nothing has been done yet."


def snapshot_json(snapshot: Snapshot) -> dict[str, Any]:
    """A version as one object, in the words of Delta's own log."""
    protocol, files = snapshot.protocol, snapshot.files()
    paths, sizes, vectors = (files[name].to_pylist() for name in ("path", "size", "deletion_vector"))
    return {
        "version": snapshot.version,
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "readerFeatures": _list(protocol.reader_features),
        "writerFeatures": _list(protocol.writer_features),
        "schemaString": snapshot.schema_string,
        "partitionColumns": snapshot.partition_columns,
        "numFiles": snapshot.num_files,
        "sizeInBytes": snapshot.size_bytes,
        "numRecords": snapshot.num_records,
        "files": [
            {"path": path, "size": size, "deletionVector": vector}
            for path, size, vector in zip(paths, sizes, vectors, strict=True)
        ],
    }


def _list(features: Sequence[str] | None) -> list[str] | None:
    return None if features is None else list(features)


def snapshot_text(snapshot: Snapshot) -> str:
    """A version at a glance."""
    from deltaplane.ledger.times import clock_text

    protocol = snapshot.protocol
    features = sorted({*(protocol.reader_features or ()), *(protocol.writer_features or ())})
    records = snapshot.num_records
    rows = "an unknown number of rows" if records is None else f"{counted(records, 'row')} in them"
    lines = [
        f"{snapshot.location}, version {snapshot.version}, {clock_text(snapshot.timestamp)}",
        f"files         {counted(snapshot.num_files, 'file')}, {size_text(snapshot.size_bytes)}, {rows}",
        f"protocol      {protocol.min_reader_version}/{protocol.min_writer_version}"
        + (f" with {', '.join(features)}" if features else ""),
        f"columns       {_columns_of(snapshot)}",
    ]
    if snapshot.partition_columns:
        lines.append(f"partitioned   by {', '.join(snapshot.partition_columns)}")
    properties = snapshot.metadata.configuration
    lines += [f"property      {key} = {properties[key]}" for key in sorted(properties)]
    lines += [f"application   {app} at {txn.version}" for app, txn in sorted(snapshot.transactions.items())]
    lines += [f"domain        {domain}" for domain in sorted(snapshot.domains)]
    return "\n".join(lines)


def _columns_of(snapshot: Snapshot) -> str:
    from deltaplane.log.schema_json import schema_fields

    fields = schema_fields(snapshot.schema_string) if snapshot.schema_string else []
    shown = [f"{field['name']} {_type_text(field['type'])}" for field in fields[:_SHOWN_COLUMNS]]
    more = len(fields) - len(shown)
    return ", ".join([*shown, *([f"and {more} more"] if more else [])]) or "none"


def _type_text(kind: Any) -> str:
    return str(kind.get("type")) if isinstance(kind, dict) else str(kind)
