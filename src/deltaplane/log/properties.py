"""Table properties that decide what the ledger does: switches, intervals, counts.

A value that cannot be understood is an error, never silently the default: a misread retention deletes files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from deltaplane.errors import UnsupportedTable
from deltaplane.log.actions import Metadata, Protocol
from deltaplane.log.features import PROPERTY_FEATURES, supports

__all__ = [
    "DataSkipping",
    "append_only",
    "change_feed_enabled",
    "checkpoint_interval",
    "checkpoint_policy",
    "checkpoint_protected_before",
    "checkpoint_stats_as_json",
    "checkpoint_stats_as_struct",
    "column_mapping_mode",
    "data_skipping",
    "deleted_file_retention_ms",
    "expired_log_cleanup_enabled",
    "in_commit_timestamps_enabled",
    "log_retention_ms",
    "parse_interval_ms",
    "row_tracking_enabled",
    "row_tracking_supported",
    "row_tracking_suspended",
    "set_transaction_retention_ms",
]


def _switched_on(protocol: Protocol, metadata: Metadata, key: str) -> bool:
    value, feature = PROPERTY_FEATURES[key]
    return metadata.configuration.get(key, "").casefold() == value and supports(protocol, feature)


def in_commit_timestamps_enabled(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether each commit must carry its own, strictly increasing timestamp."""
    return _switched_on(protocol, metadata, "delta.enableInCommitTimestamps")


def row_tracking_supported(protocol: Protocol) -> bool:
    """Whether new files must be given row ids, even if nobody may rely on them yet."""
    return supports(protocol, "rowTracking")


def row_tracking_enabled(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether every row has an id that outlives rewrites."""
    return _switched_on(protocol, metadata, "delta.enableRowTracking")


def append_only(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether files may be removed only when no row goes with them."""
    return _switched_on(protocol, metadata, "delta.appendOnly")


def change_feed_enabled(protocol: Protocol, metadata: Metadata) -> bool:
    """Whether changed rows must be readable from each commit."""
    legacy = metadata.configuration.get("delta.enableChangeDataCapture", "").casefold() == "true"
    return _switched_on(protocol, metadata, "delta.enableChangeDataFeed") or (
        legacy and supports(protocol, "changeDataFeed")
    )


def checkpoint_policy(protocol: Protocol, metadata: Metadata) -> str:
    """'v2' where the table asks for it and its protocol allows it, 'classic' otherwise."""
    return "v2" if _switched_on(protocol, metadata, "delta.checkpointPolicy") else "classic"


def column_mapping_mode(protocol: Protocol, metadata: Metadata) -> str:
    """'none', 'name' or 'id': how columns of the schema are found in data files and statistics."""
    mode = metadata.configuration.get("delta.columnMapping.mode", "none").casefold()
    return mode if mode in ("name", "id") and supports(protocol, "columnMapping") else "none"


def checkpoint_protected_before(protocol: Protocol, metadata: Metadata) -> int:
    """The version below which the log may not be cleaned up piecemeal; 0 when there is none."""
    if not supports(protocol, "checkpointProtection"):
        return 0
    return _integer(metadata, "delta.requireCheckpointProtectionBeforeVersion", 0, least=0)


def row_tracking_suspended(metadata: Metadata) -> bool:
    """Whether no new row ids are given out, which precedes the feature's removal."""
    return _boolean(metadata, "delta.rowTrackingSuspended", default=False)


def expired_log_cleanup_enabled(metadata: Metadata) -> bool:
    """Whether log files past their retention may be deleted."""
    return _boolean(metadata, "delta.enableExpiredLogCleanup", default=True)


def checkpoint_stats_as_json(metadata: Metadata) -> bool:
    """Whether checkpoints carry statistics as JSON text."""
    return _boolean(metadata, "delta.checkpoint.writeStatsAsJson", default=True)


def checkpoint_stats_as_struct(metadata: Metadata) -> bool:
    """Whether checkpoints carry statistics as columns."""
    return _boolean(metadata, "delta.checkpoint.writeStatsAsStruct", default=True)


def checkpoint_interval(metadata: Metadata) -> int:
    """After how many commits a checkpoint is due."""
    return _integer(metadata, "delta.checkpointInterval", 10, least=1)


def log_retention_ms(metadata: Metadata) -> int:
    """How long log files are kept."""
    return _interval(metadata, "delta.logRetentionDuration", "interval 30 days")


def deleted_file_retention_ms(metadata: Metadata) -> int:
    """How long a tombstone, and the data file it stands for, is kept."""
    return _interval(metadata, "delta.deletedFileRetentionDuration", "interval 1 week")


def set_transaction_retention_ms(metadata: Metadata) -> int | None:
    """How long the progress of an application is kept; None for ever."""
    key = "delta.setTransactionRetentionDuration"
    return _interval(metadata, key, "") if key in metadata.configuration else None


@dataclass(frozen=True, slots=True)
class DataSkipping:
    """Which columns have statistics: those named, or else the first `limit` leaves, all of them at -1."""

    limit: int = 32
    columns: tuple[tuple[str, ...], ...] | None = None


def data_skipping(metadata: Metadata) -> DataSkipping:
    """The columns for which statistics are collected."""
    limit = _integer(metadata, "delta.dataSkippingNumIndexedCols", 32, least=-1)
    text = metadata.configuration.get("delta.dataSkippingStatsColumns")
    return DataSkipping(limit, None if text is None else _column_list(metadata, text))


_NAME = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s`.,]+))\s*([.,]|$)")


def _column_list(metadata: Metadata, text: str) -> tuple[tuple[str, ...], ...]:
    columns: list[tuple[str, ...]] = []
    parts: list[str] = []
    position, more = 0, bool(text.strip())
    while more:
        found = _NAME.match(text, position)
        if found is None:
            wanted = "a list of columns such as 'a, s.b, `odd name`'"
            raise _misunderstood(metadata, "delta.dataSkippingStatsColumns", text, wanted)
        parts.append(found[1].replace("``", "`") if found[1] else found[2])
        if found[3] != ".":
            columns.append(tuple(parts))
            parts = []
        position, more = found.end(), found[3] != ""
    return tuple(columns)


def _misunderstood(metadata: Metadata, key: str, value: str, wanted: str) -> UnsupportedTable:
    return UnsupportedTable(
        f"{metadata.name or 'the table with id ' + metadata.id}: the property {key} is {value!r:.80}, and "
        f"must be {wanted}. Nothing was changed. Set it: ALTER TABLE … SET TBLPROPERTIES ('{key}' = …).",
        (key,),
    )


def _boolean(metadata: Metadata, key: str, *, default: bool) -> bool:
    value = metadata.configuration.get(key)
    if value is None:
        return default
    if value.casefold() not in ("true", "false"):
        raise _misunderstood(metadata, key, value, "true or false")
    return value.casefold() == "true"


def _integer(metadata: Metadata, key: str, default: int, *, least: int) -> int:
    value = metadata.configuration.get(key)
    if value is None:
        return default
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", value) or int(value) < least:
        raise _misunderstood(metadata, key, value, f"a whole number from {least}")
    return int(value)


def _interval(metadata: Metadata, key: str, default: str) -> int:
    value = metadata.configuration.get(key, default)
    try:
        return parse_interval_ms(value)
    except ValueError as error:
        raise _misunderstood(
            metadata, key, value, f"an interval such as 'interval 2 weeks' ({error})"
        ) from None


_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"\s*([+-]?)\s*([0-9]+)(\.[0-9]{0,9})?\s+([a-z]+)(?=\s|$)")


def parse_interval_ms(text: str) -> int:
    """Read an interval as Spark writes it, such as 'interval 30 days' or '1 week 2 hours', in milliseconds.

    Raises:
        ValueError: The text is no interval, has months or years, or is negative.
    """
    rest = re.sub(r"^interval\s+", "", text.strip().casefold())
    total, position = Fraction(0), 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None:
            raise ValueError(f"not understood from {rest[position:].strip()!r:.40} on")
        total += _part_microseconds(*part.groups())
        position = part.end()
    if not rest:
        raise ValueError("it is empty")
    if total < 0:
        raise ValueError("it is negative")
    return int(total // 1000)


def _part_microseconds(sign: str, whole: str, fraction: str | None, unit: str) -> Fraction:
    size = _MICROSECONDS.get(unit.removesuffix("s"))
    if size is None:
        reason = (
            "months and years have no fixed length"
            if unit.startswith(("month", "year"))
            else "an unknown unit"
        )
        raise ValueError(f"{unit}: {reason}")
    if fraction and size != _MICROSECONDS["second"]:
        raise ValueError(f"only seconds may have a fraction, and {unit} has one")
    amount = Fraction(int(whole)) + (Fraction("0" + fraction) if fraction and len(fraction) > 1 else 0)
    return -amount * size if sign == "-" else amount * size
