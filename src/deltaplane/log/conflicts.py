"""Delta's conflict rules: may a commit still be made after somebody else won its version?

The rules are those of Delta's ConflictChecker, with two differences, both to the safe side. Delta resolves
some changes of protocol and metadata by rewriting the loser's actions; here each of them is a conflict. And
Delta exempts the backfill of row tracking, again by rewriting; here it is a commit like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from deltaplane.errors import UnsupportedTable
from deltaplane.log.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CommitInfo,
    DomainMetadata,
    FileKey,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    Texts,
)
from deltaplane.log.properties import in_commit_timestamps_enabled, row_tracking_supported

__all__ = [
    "ROW_TRACKING_DOMAIN",
    "AddedFile",
    "CommitFacts",
    "Conflict",
    "ConflictKind",
    "Isolation",
    "can_rebase",
    "check_conflict",
    "isolation_for",
    "our_facts",
    "table_isolation",
    "version_bound_features",
    "winner_facts",
]

ROW_TRACKING_DOMAIN = "delta.rowTracking"
_IDENTITY_TAG = "delta.identity.schemaUpdate"


class Isolation(Enum):
    """How much of what the winner did may go unnoticed."""

    SERIALIZABLE = "Serializable"
    WRITE_SERIALIZABLE = "WriteSerializable"
    SNAPSHOT = "SnapshotIsolation"


class ConflictKind(Enum):
    """Why two commits cannot both stand. The values are stable and may be stored."""

    PROTOCOL_CHANGED = "protocol-changed"
    METADATA_CHANGED = "metadata-changed"
    DOMAIN_METADATA = "domain-metadata"
    CONCURRENT_TRANSACTION = "concurrent-transaction"
    CONCURRENT_APPEND = "concurrent-append"
    CONCURRENT_DELETE_READ = "concurrent-delete-read"
    CONCURRENT_DELETE_DELETE = "concurrent-delete-delete"
    NOT_A_BLIND_APPEND = "not-a-blind-append"
    SAME_FILE = "same-file"
    VERSION_IN_BYTES = "version-in-bytes"


@dataclass(frozen=True, slots=True)
class Conflict:
    """One reason why the commit cannot be made on top of the winner."""

    kind: ConflictKind
    sentence: str

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True, slots=True)
class AddedFile:
    """What the rules need to know of a file that a commit added."""

    key: FileKey
    partition_values: Texts = field(default_factory=dict)
    data_change: bool = True


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """What a commit did and, where it is ours, what it had read to get there.

    Attributes:
        read_partitions: Partition values that restrict what was read, each a mapping that a file must agree
            with; none of them when no partition was read, None when the reading was not restricted.
        label: What to call the commit in a sentence.
    """

    added: tuple[AddedFile, ...] = ()
    removed: frozenset[FileKey] = frozenset()
    changes_data: bool = False
    metadata_changed: bool = False
    identity_only: bool = False
    protocol_changed: bool = False
    app_ids: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()
    is_blind_append: bool = False
    reads_whole_table: bool = False
    read_files: frozenset[FileKey] = frozenset()
    read_partitions: tuple[Texts, ...] | None = None
    read_app_ids: frozenset[str] = frozenset()
    label: str = "the other commit"


def our_facts(
    actions: Iterable[Action],
    *,
    reads_whole_table: bool = False,
    read_files: Iterable[FileKey] = (),
    read_partitions: Iterable[Texts] | None = None,
    read_app_ids: Iterable[str] = (),
    label: str = "our commit",
) -> CommitFacts:
    """The facts of a commit that is to be made.

    It counts as a blind append when it only adds data and nothing is said to have been read, neither here nor
    in its commitInfo. Any other commit is taken to have read anything, unless partitions are given.
    """
    listed = tuple(actions)
    files = frozenset(read_files)
    partitions = None if read_partitions is None else tuple(read_partitions)
    read_nothing = not (reads_whole_table or files or partitions)
    blind = read_nothing and _only_new_data(listed) and _claimed_blind(listed) is not False
    return _facts(
        listed,
        is_blind_append=blind,
        label=label,
        reads_whole_table=reads_whole_table,
        read_files=files,
        read_partitions=partitions,
        read_app_ids=frozenset(read_app_ids),
    )


def winner_facts(actions: Iterable[Action], label: str = "the other commit") -> CommitFacts:
    """The facts of a commit that was made; as in Delta, a blind append only if its commitInfo says so."""
    listed = tuple(actions)
    only_adds = not any(isinstance(action, RemoveFile | AddCDCFile) for action in listed)
    return _facts(listed, is_blind_append=only_adds and _claimed_blind(listed) is True, label=label)


def _facts(
    actions: Sequence[Action],
    *,
    is_blind_append: bool,
    label: str,
    reads_whole_table: bool = False,
    read_files: frozenset[FileKey] = frozenset(),
    read_partitions: tuple[Texts, ...] | None = None,
    read_app_ids: frozenset[str] = frozenset(),
) -> CommitFacts:
    adds = [action for action in actions if isinstance(action, AddFile)]
    removes = [action for action in actions if isinstance(action, RemoveFile)]
    return CommitFacts(
        added=tuple(AddedFile(add.key, add.partition_values, add.data_change) for add in adds),
        removed=frozenset(remove.key for remove in removes),
        changes_data=any(add.data_change for add in adds) or any(remove.data_change for remove in removes),
        metadata_changed=any(isinstance(action, Metadata) for action in actions),
        identity_only=_is_identity_update(actions),
        protocol_changed=any(isinstance(action, Protocol) for action in actions),
        app_ids=frozenset(action.app_id for action in actions if isinstance(action, SetTransaction)),
        domains=frozenset(action.domain for action in actions if isinstance(action, DomainMetadata)),
        is_blind_append=is_blind_append,
        reads_whole_table=reads_whole_table,
        read_files=read_files,
        read_partitions=read_partitions,
        read_app_ids=read_app_ids,
        label=label,
    )


def _only_new_data(actions: Sequence[Action]) -> bool:
    files = [action for action in actions if isinstance(action, AddFile | RemoveFile | AddCDCFile)]
    return all(isinstance(action, AddFile) and action.data_change for action in files)


def _commit_info(actions: Sequence[Action]) -> Mapping[str, object]:
    return next((action.content for action in actions if isinstance(action, CommitInfo)), {})


def _claimed_blind(actions: Sequence[Action]) -> bool | None:
    claim = _commit_info(actions).get("isBlindAppend")
    return claim if isinstance(claim, bool) else None


def _is_identity_update(actions: Sequence[Action]) -> bool:
    tags = _commit_info(actions).get("tags")
    return isinstance(tags, Mapping) and str(tags.get(_IDENTITY_TAG, "")).casefold() == "true"


def table_isolation(metadata: Metadata, default: Isolation = Isolation.WRITE_SERIALIZABLE) -> Isolation:
    """The isolation that the table asks for by delta.isolationLevel.

    Raises:
        UnsupportedTable: The property names no isolation level of tables.
    """
    value = metadata.configuration.get("delta.isolationLevel")
    if value is None:
        return default
    for level in (Isolation.SERIALIZABLE, Isolation.WRITE_SERIALIZABLE):
        if level.value.casefold() == value.casefold():
            return level
    raise UnsupportedTable(
        f"{metadata.name or 'the table with id ' + metadata.id}: delta.isolationLevel is {value!r:.60}, and "
        "must be Serializable or WriteSerializable. Nothing was written. Set the property right and repeat.",
        ("delta.isolationLevel",),
    )


def isolation_for(ours: CommitFacts, table: Isolation) -> Isolation:
    """The isolation a commit needs: one that changes no data, such as OPTIMIZE, gets by with a snapshot."""
    says_more = (
        ours.metadata_changed or ours.protocol_changed or ours.app_ids or ours.domains - {ROW_TRACKING_DOMAIN}
    )
    return table if ours.changes_data or says_more else Isolation.SNAPSHOT


def check_conflict(
    ours: CommitFacts, winner: CommitFacts, isolation: Isolation = Isolation.WRITE_SERIALIZABLE
) -> Conflict | None:
    """Whether our commit, made on the state before the winner, still holds after it.

    None says that the actions do not contradict each other. Where the log itself depends on the version
    (`version_bound_features`), they must be written anew all the same.
    """
    return (
        _state_conflict(ours, winner)
        or _append_conflict(ours, winner, isolation)
        or _delete_read_conflict(ours, winner)
        or _delete_delete_conflict(ours, winner)
    )


def _state_conflict(ours: CommitFacts, winner: CommitFacts) -> Conflict | None:
    """Conflicts over what is not files: protocol, metadata, domains, application transactions."""
    if winner.protocol_changed:
        return _conflict(ConflictKind.PROTOCOL_CHANGED, winner, "changed the table's protocol")
    if winner.metadata_changed and (ours.metadata_changed or not winner.identity_only):
        return _conflict(ConflictKind.METADATA_CHANGED, winner, "changed the table's schema or properties")
    if shared := sorted((ours.domains & winner.domains) - {ROW_TRACKING_DOMAIN}):
        return _conflict(ConflictKind.DOMAIN_METADATA, winner, f"changed the domain {shared[0]}, as we do")
    if seen := sorted(ours.read_app_ids & winner.app_ids):
        return _conflict(
            ConflictKind.CONCURRENT_TRANSACTION,
            winner,
            f"moved the application {seen[0]} on, whose progress we read",
        )
    return None


def _append_conflict(ours: CommitFacts, winner: CommitFacts, isolation: Isolation) -> Conflict | None:
    if isolation is Isolation.SNAPSHOT or ours.is_blind_append:
        return None
    forgiving = isolation is Isolation.WRITE_SERIALIZABLE and not ours.metadata_changed
    if forgiving and winner.is_blind_append:
        return None
    unseen = next((file for file in winner.added if _would_have_read(ours, file)), None)
    if unseen is None:
        return None
    place = unseen.key[0] + _partition_text(unseen.partition_values)
    return _conflict(
        ConflictKind.CONCURRENT_APPEND, winner, f"added files that we should have read, such as {place}"
    )


def _would_have_read(ours: CommitFacts, file: AddedFile) -> bool:
    if ours.reads_whole_table or ours.read_partitions is None:
        return True
    return any(
        all(file.partition_values.get(column) == value for column, value in wanted.items())
        for wanted in ours.read_partitions
    )


def _partition_text(values: Texts) -> str:
    return (
        f" of partition [{', '.join(f'{column}={value}' for column, value in values.items())}]"
        if values
        else ""
    )


def _delete_read_conflict(ours: CommitFacts, winner: CommitFacts) -> Conflict | None:
    # By path alone: a file whose deletion vector changed is not what we read any more.
    if shared := sorted(_paths(ours.read_files) & _paths(winner.removed)):
        return _conflict(ConflictKind.CONCURRENT_DELETE_READ, winner, f"removed {shared[0]}, which we read")
    if winner.removed and ours.reads_whole_table:
        gone = min(winner.removed)[0]
        return _conflict(
            ConflictKind.CONCURRENT_DELETE_READ, winner, f"removed {gone}, and we read the whole table"
        )
    return None


def _delete_delete_conflict(ours: CommitFacts, winner: CommitFacts) -> Conflict | None:
    if shared := sorted(_paths(ours.removed) & _paths(winner.removed)):
        return _conflict(ConflictKind.CONCURRENT_DELETE_DELETE, winner, f"removed {shared[0]}, as we do")
    return None


def _paths(keys: Iterable[FileKey]) -> frozenset[str]:
    return frozenset(path for path, _ in keys)


def _conflict(kind: ConflictKind, winner: CommitFacts, what: str) -> Conflict:
    return Conflict(kind, f"{winner.label} {what}")


def version_bound_features(protocol: Protocol, metadata: Metadata) -> tuple[str, ...]:
    """The features that put a commit's version or time into its bytes, so that renumbering rewrites them."""
    found = {
        "inCommitTimestamp": in_commit_timestamps_enabled(protocol, metadata),
        "rowTracking": row_tracking_supported(protocol),
    }
    return tuple(name for name, present in found.items() if present)


def can_rebase(
    ours: CommitFacts,
    winners: Iterable[CommitFacts],
    protocol: Protocol,
    metadata: Metadata,
    *,
    bytes_are_fixed: bool,
) -> Conflict | None:
    """Whether our commit can take a later version than it was made for: None, or the reason why not.

    Only a blind append can, and only when no winner changed what it was made from.

    Args:
        ours: The commit.
        winners: The commits since the state it was made on.
        protocol: The table's protocol.
        metadata: The table's metadata.
        bytes_are_fixed: Whether the commit's text was written by somebody else and must stay as it is.
    """
    if not ours.is_blind_append or ours.metadata_changed or ours.protocol_changed:
        return Conflict(
            ConflictKind.NOT_A_BLIND_APPEND,
            f"{ours.label} does more than add new files, so it holds only on the version it was made for",
        )
    if bytes_are_fixed and (bound := version_bound_features(protocol, metadata)):
        return Conflict(
            ConflictKind.VERSION_IN_BYTES,
            f"{ours.label} cannot take a later version as it is: its text depends on the version in a table "
            f"with {' and '.join(bound)}",
        )
    return next((found for winner in winners if (found := _rebase_conflict(ours, winner))), None)


def _rebase_conflict(ours: CommitFacts, winner: CommitFacts) -> Conflict | None:
    if found := _state_conflict(ours, winner):
        return found
    if shared := sorted(ours.app_ids & winner.app_ids):
        return _conflict(
            ConflictKind.CONCURRENT_TRANSACTION, winner, f"moved the application {shared[0]} on, as we do"
        )
    theirs = _paths(winner.removed) | _paths(file.key for file in winner.added)
    if shared := sorted(_paths(file.key for file in ours.added) & theirs):
        return _conflict(ConflictKind.SAME_FILE, winner, f"added or removed {shared[0]}, which we add")
    return None
