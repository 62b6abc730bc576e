"""What a commit made of bare actions must satisfy. Commits in the writer's own bytes were checked by that
writer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from urllib.parse import unquote

from deltaplane.errors import CommitRefused
from deltaplane.ledger.definition import check_change, check_metadata, check_protocol
from deltaplane.ledger.file_rows import vector_id
from deltaplane.ledger.head import Head
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.names import LOG_FOLDER
from deltaplane.ledger.prepare import Prepared, short_key
from deltaplane.ledger.stores.base import Session
from deltaplane.log.actions import AddCDCFile, AddFile, FileKey, Metadata, Protocol, RemoveFile
from deltaplane.log.features import IMPLIED, check_writable, supports
from deltaplane.log.order_keys import key_kind, order_key
from deltaplane.log.paths import check_inside, resolve
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
    metadata = prepared.metadata or head.metadata
    protocol = prepared.protocol or head.protocol
    if metadata is None or protocol is None:
        raise CommitRefused(
            f"{table.label}: the first commit of a table needs a protocol and a metaData action. Nothing "
            f"was written. "
            f"Use ledger.create, or add both."
        )
    _check_definition(table, prepared, head, metadata, protocol)
    adds, removes = prepared.adds(), prepared.removes()
    _check_paths(table, prepared)
    _check_features(table, prepared, protocol)
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


def _check_definition(
    table: ManagedTable, prepared: Prepared, head: Head, metadata: Metadata, protocol: Protocol
) -> None:
    """What is defined anew must be sound. What was there already is taken as it is."""
    if prepared.facts.metadata:
        check_metadata(metadata, table.label)
    check_writable(protocol, metadata, table.label)
    if not (prepared.facts.metadata or prepared.facts.protocol):
        return
    check_protocol(protocol, metadata, table.label)
    if head.metadata is not None and head.protocol is not None:
        left = head.totals.num_files - prepared.facts.removes
        check_change((head.metadata, head.protocol), (metadata, protocol), left, table.label)


def _check_paths(table: ManagedTable, prepared: Prepared) -> None:
    files = [a for a in prepared.actions if isinstance(a, AddFile | RemoveFile | AddCDCFile)]
    for action in files:
        check_inside(table.location, action.path, table.label, table.allowed_paths)
        if not isinstance(action, RemoveFile) and _in_log(table.location, action.path):
            raise CommitRefused(
                f"{table.label}: {action.path} lies in {LOG_FOLDER}, where cleaning up would delete it. "
                f"Nothing was written. Put data files beside that folder."
            )


def _in_log(root: str, path: str) -> bool:
    if LOG_FOLDER not in unquote(path):
        return False
    parts = [part for part in resolve(root, path).removeprefix(root).split("/") if part not in ("", ".")]
    return parts[:1] == [LOG_FOLDER]


_WITH_DOMAINS = ("domainMetadata", *(name for name, all_of in IMPLIED.items() if "domainMetadata" in all_of))


def _check_features(table: ManagedTable, prepared: Prepared, protocol: Protocol) -> None:
    """What only a feature brings must not come without it: other readers would not look for it."""
    vectors = any(action.deletion_vector for action in prepared.adds())
    lacking = "deletionVectors" if vectors and not supports(protocol, "deletionVectors") else None
    if prepared.facts.domains and not any(supports(protocol, name) for name in _WITH_DOMAINS):
        lacking = "domainMetadata"
    if lacking:
        raise CommitRefused(
            f"{table.label}: the commit needs the table feature {lacking}, which the table does not have. "
            f"Nothing was written. Add it with a protocol action first, or leave that out."
        )


def _check_partitions(table: ManagedTable, metadata: Metadata, adds: list[AddFile]) -> None:
    if not adds:
        return
    types = partition_types(
        metadata.schema_string, metadata.partition_columns, mapped=maps_columns(metadata.configuration)
    )
    for action in adds:
        if action.partition_values.keys() != types.keys():
            raise CommitRefused(
                f"{table.label}: {action.path} gives partition values for "
                f"{sorted(action.partition_values)}, and the "
                f"table is partitioned by {sorted(types)}. Nothing was written. Give exactly these."
            )
        for column, value in action.partition_values.items():
            if not is_partition_value(value, types[column]):
                raise CommitRefused(
                    f"{table.label}: {action.path} has the partition value {value!r:.60} for {column}, which "
                    f"is no {types[column]}. Nothing was written. Write it as Delta does, null for none."
                )


@lru_cache(maxsize=256)
def partition_types(schema_string: str, columns: tuple[str, ...], *, mapped: bool) -> Mapping[str, str]:
    """The type of each partition column, by the name that partition values use."""
    if not columns:
        return {}
    fields = {field["name"]: field for field in schema_fields(schema_string)}
    found: dict[str, str] = {}
    for column in columns:
        field = fields.get(column, {"name": column, "type": "string"})
        found[physical_name(field) if mapped else column] = str(field["type"])
    return found


_DIGITS = re.compile(r"[+-]?\d+", re.ASCII)
_TIME = r"[+-]?\d{4,7}-\d{1,2}-\d{1,2} \d{1,2}:\d{1,2}:\d{1,2}(?:\.\d+)?"
_FORMS = {
    "date": re.compile(r"[+-]?\d{4,7}-\d{1,2}-\d{1,2}", re.ASCII),
    "timestamp_ntz": re.compile(_TIME, re.ASCII),
    "timestamp": re.compile(rf"{_TIME}|{_TIME.replace(' ', 'T')}(?:Z|[+-]\d\d:\d\d)", re.ASCII),
}
"""How the protocol writes them; Spark takes more, and other readers do not."""
_PLAIN = re.compile(r"[+-]?(\d+)(?:\.(\d+))?", re.ASCII)
_WHOLE = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_DECIMAL_TYPE = re.compile(r"decimal(?:\(\s*(\d+)\s*,\s*(\d+)\s*\))?")


def is_partition_value(text: str | None, kind: str) -> bool:
    """Whether readers can read the text of a partition value as the column's type; null and '' are null."""
    if not text or key_kind(kind) in (None, "text"):
        return True
    if text != text.strip():
        return False
    if kind in _WHOLE:
        # Some readers take no fraction or exponent here, even where the number is whole.
        half = 2 ** (_WHOLE[kind] - 1)
        return bool(_DIGITS.fullmatch(text)) and len(text) < 40 and -half <= int(text) < half
    if order_key(text, kind) is None:
        return False
    decimal = _DECIMAL_TYPE.fullmatch(kind)
    if decimal is not None:
        return _fits(text, int(decimal[1] or 10), int(decimal[2] or 0))
    return kind not in _FORMS or _FORMS[kind].fullmatch(text) is not None


def _fits(text: str, precision: int, scale: int) -> bool:
    """Whether a decimal column holds the number; some readers want exactly its digits after the point."""
    number = _PLAIN.fullmatch(text)
    if number is None or len(number[2] or "") != scale:
        return False
    return len(number[1].lstrip("0")) <= precision - scale


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
        hashes = session.keys([short_key(logical_key(action)) for action in removes])
        rows = session.rows("files_by_key", table_id=table.table_id, keys=hashes)
        ids = session.keys([row[0] for row in rows])
        gone = {row[0] for row in session.rows("removals_of", table_id=table.table_id, keys=ids)}
        return {(path_key(row[1]), vector_id(row[2])) for row in rows if row[0] not in gone}

    return ask


def _check_removed(active: Collection[FileKey], table: ManagedTable, removes: Sequence[RemoveFile]) -> None:
    for action in removes:
        if logical_key(action) not in active:
            raise CommitRefused(
                f"{table.label}: {action.path} is not a file of version {table.head_version}, so it cannot "
                f"be removed. "
                f"Nothing was written. Take the paths, and deletion vectors, from ledger.snapshot(…).files()."
            )
