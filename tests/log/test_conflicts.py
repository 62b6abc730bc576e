from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from deltaplane.errors import UnsupportedTable
from deltaplane.log.actions import (
    Action,
    AddCDCFile,
    AddFile,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from deltaplane.log.conflicts import (
    ConflictKind,
    Isolation,
    can_rebase,
    check_conflict,
    isolation_for,
    our_facts,
    table_isolation,
    version_bound_features,
    winner_facts,
)

SERIALIZABLE, WRITE, SNAPSHOT = Isolation.SERIALIZABLE, Isolation.WRITE_SERIALIZABLE, Isolation.SNAPSHOT
BLIND, READING = CommitInfo({"isBlindAppend": True}), CommitInfo({"isBlindAppend": False})
VECTOR = DeletionVector("u", "v1", 1, 1, 1)
NEW, OTHER = AddFile("new"), AddFile("other")
ALTER, UPGRADE = Metadata("id", "{}"), Protocol(1, 3)
IDENTITY = CommitInfo({"tags": {"delta.identity.schemaUpdate": "true"}})
TXN = SetTransaction("stream", 7)
OPTIMIZE = (RemoveFile("old", data_change=False), AddFile("big", data_change=False))


def add(path: str, **partition: str | None) -> AddFile:
    return AddFile(path, partition)


def domain(name: str) -> DomainMetadata:
    return DomainMetadata(name, "{}")


@dataclass(frozen=True)
class Case:
    """Two commits on the same version: ours, with what it read, and the one that was first."""

    name: str
    ours: tuple[Action, ...]
    winner: tuple[Action, ...]
    expected: ConflictKind | None
    isolation: Isolation = WRITE
    reads: dict[str, Any] = field(default_factory=dict)


K = ConflictKind
WHOLE = {"reads_whole_table": True}
JANUARY = {"read_partitions": [{"month": "1"}]}
DELETE = (RemoveFile("old"),)
CASES = [
    Case("append after append", (NEW,), (BLIND, OTHER), None),
    Case("append after append, serializable", (NEW,), (BLIND, OTHER), None, SERIALIZABLE),
    Case("append after a delete", (NEW,), (READING, RemoveFile("old")), None, SERIALIZABLE),
    Case("append after an update", (NEW,), (READING, RemoveFile("old"), OTHER), None, SERIALIZABLE),
    Case("append after OPTIMIZE", (NEW,), (READING, *OPTIMIZE), None),
    Case("append after a change of schema", (NEW,), (ALTER,), K.METADATA_CHANGED),
    Case("append after a change of protocol", (NEW,), (UPGRADE,), K.PROTOCOL_CHANGED),
    Case("append after both changed", (NEW,), (ALTER, UPGRADE), K.PROTOCOL_CHANGED),
    Case("append after identity values moved on", (NEW,), (IDENTITY, ALTER, OTHER), None),
    Case("change of schema after identity values moved on", (ALTER,), (IDENTITY, ALTER), K.METADATA_CHANGED),
    Case("change of schema after an append", (ALTER,), (BLIND, OTHER), None),
    Case("change of schema after a change of schema", (ALTER,), (ALTER,), K.METADATA_CHANGED),
    Case("upgrade after an upgrade", (UPGRADE,), (UPGRADE,), K.PROTOCOL_CHANGED),
    Case("delete after a blind append", DELETE, (BLIND, OTHER), None, reads=WHOLE),
    Case(
        "delete after a blind append, serializable",
        DELETE,
        (BLIND, OTHER),
        K.CONCURRENT_APPEND,
        SERIALIZABLE,
        WHOLE,
    ),
    Case("delete after an append that read", DELETE, (READING, OTHER), K.CONCURRENT_APPEND, reads=WHOLE),
    Case("delete after an append that does not say", DELETE, (OTHER,), K.CONCURRENT_APPEND, reads=WHOLE),
    Case("delete after an append that lies", DELETE, (BLIND, OTHER, RemoveFile("x")), K.CONCURRENT_APPEND),
    Case("delete of unknown reads after an append", DELETE, (READING, OTHER), K.CONCURRENT_APPEND),
    Case("delete of unknown reads after a blind append", DELETE, (BLIND, OTHER), None),
    Case(
        "delete that changes the schema after a blind append",
        (*DELETE, ALTER),
        (BLIND, OTHER),
        K.CONCURRENT_APPEND,
    ),
    Case(
        "append that read the table after an append",
        (NEW,),
        (READING, OTHER),
        K.CONCURRENT_APPEND,
        reads=WHOLE,
    ),
    Case("append that says it read", (READING, NEW), (READING, OTHER), K.CONCURRENT_APPEND),
    Case(
        "append of unchanged data", (AddFile("n", data_change=False),), (READING, OTHER), K.CONCURRENT_APPEND
    ),
    Case(
        "delete in January after an append in January",
        DELETE,
        (add("a", month="1"),),
        K.CONCURRENT_APPEND,
        reads=JANUARY,
    ),
    Case("delete in January after an append in May", DELETE, (add("a", month="5"),), None, reads=JANUARY),
    Case(
        "delete in January after appends in both",
        DELETE,
        (add("a", month="5"), add("b", month="1")),
        K.CONCURRENT_APPEND,
        reads=JANUARY,
    ),
    Case(
        "delete in January after an append of no month", DELETE, (add("a", month=None),), None, reads=JANUARY
    ),
    Case(
        "delete of no month after an append of no month",
        DELETE,
        (add("a", month=None),),
        K.CONCURRENT_APPEND,
        reads={"read_partitions": [{"month": None}]},
    ),
    Case(
        "delete by one of two columns",
        DELETE,
        (add("a", month="1", day="9"),),
        K.CONCURRENT_APPEND,
        reads=JANUARY,
    ),
    Case(
        "delete by two columns, one differs",
        DELETE,
        (add("a", month="1", day="9"),),
        None,
        reads={"read_partitions": [{"month": "1", "day": "8"}]},
    ),
    Case(
        "delete in either of two months",
        DELETE,
        (add("a", month="2"),),
        K.CONCURRENT_APPEND,
        reads={"read_partitions": [{"month": "1"}, {"month": "2"}]},
    ),
    Case(
        "delete that read every partition",
        DELETE,
        (add("a", month="2"),),
        K.CONCURRENT_APPEND,
        reads={"read_partitions": [{}]},
    ),
    Case(
        "delete that read no partition",
        DELETE,
        (add("a", month="2"),),
        None,
        SERIALIZABLE,
        {"read_partitions": []},
    ),
    Case(
        "whole table beats partitions",
        DELETE,
        (add("a", month="5"),),
        K.CONCURRENT_APPEND,
        reads={**WHOLE, **JANUARY},
    ),
    Case(
        "read a file that was removed",
        (NEW,),
        (RemoveFile("old"),),
        K.CONCURRENT_DELETE_READ,
        reads={"read_files": [("old", "")]},
    ),
    Case(
        "read a file whose rows were deleted",
        (NEW,),
        (RemoveFile("old"), AddFile("old", deletion_vector=VECTOR)),
        K.CONCURRENT_APPEND,
        reads={"read_files": [("old", "")]},
    ),
    Case(
        "read a file with another vector than removed",
        (NEW,),
        (RemoveFile("old", deletion_vector=VECTOR),),
        K.CONCURRENT_DELETE_READ,
        reads={"read_files": [("old", "")]},
    ),
    Case(
        "read another file than was removed",
        (NEW,),
        (RemoveFile("old"),),
        None,
        reads={"read_files": [("else", "")]},
    ),
    Case(
        "read the table, a file was removed",
        (NEW,),
        (RemoveFile("old"),),
        K.CONCURRENT_DELETE_READ,
        SNAPSHOT,
        WHOLE,
    ),
    Case("both removed a file", DELETE, DELETE, K.CONCURRENT_DELETE_DELETE),
    Case("both removed a file, snapshot", OPTIMIZE, DELETE, K.CONCURRENT_DELETE_DELETE, SNAPSHOT),
    Case(
        "both removed a file, other vectors",
        DELETE,
        (RemoveFile("old", deletion_vector=VECTOR),),
        K.CONCURRENT_DELETE_DELETE,
    ),
    Case("removed different files", DELETE, (RemoveFile("x"),), None),
    Case("OPTIMIZE after an append", OPTIMIZE, (BLIND, OTHER), None, SNAPSHOT),
    Case(
        "OPTIMIZE after an append that read",
        OPTIMIZE,
        (READING, OTHER),
        None,
        SNAPSHOT,
        {"read_files": [("old", "")]},
    ),
    Case(
        "OPTIMIZE after a delete of its file",
        OPTIMIZE,
        DELETE,
        K.CONCURRENT_DELETE_READ,
        SNAPSHOT,
        {"read_files": [("old", "")]},
    ),
    Case(
        "delete after OPTIMIZE of its file",
        DELETE,
        OPTIMIZE,
        K.CONCURRENT_DELETE_DELETE,
        reads={"read_partitions": []},
    ),
    Case(
        "delete after OPTIMIZE elsewhere in what it read",
        DELETE,
        (READING, RemoveFile("z"), AddFile("y", data_change=False)),
        K.CONCURRENT_APPEND,
    ),
    Case(
        "same application moved on",
        (NEW, TXN),
        (BLIND, OTHER, TXN),
        K.CONCURRENT_TRANSACTION,
        reads={"read_app_ids": ["stream"]},
    ),
    Case(
        "another application moved on",
        (NEW, TXN),
        (BLIND, OTHER, SetTransaction("b", 1)),
        None,
        reads={"read_app_ids": ["stream"]},
    ),
    Case("application written without being read", (NEW, TXN), (BLIND, OTHER, TXN), None),
    Case(
        "application read and not written",
        (NEW,),
        (TXN,),
        K.CONCURRENT_TRANSACTION,
        SNAPSHOT,
        {"read_app_ids": ["stream"]},
    ),
    Case("same domain", (domain("d"),), (domain("d"),), K.DOMAIN_METADATA),
    Case("different domains", (domain("d"),), (domain("e"),), None),
    Case(
        "row tracking's domain is shared",
        (NEW, domain("delta.rowTracking")),
        (BLIND, domain("delta.rowTracking")),
        None,
    ),
    Case("domain goes before files", (domain("d"), *DELETE), (domain("d"), *DELETE), K.DOMAIN_METADATA),
    Case("empty commit after anything but metadata", (), (READING, OTHER, RemoveFile("x")), None),
    Case("change feed after a blind append", (*DELETE, AddCDCFile("c")), (BLIND, OTHER), None),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_two_commits_on_one_version(case: Case) -> None:
    found = check_conflict(our_facts(case.ours, **case.reads), winner_facts(case.winner), case.isolation)

    assert (found.kind if found else None) == case.expected


def test_the_names_of_the_cases_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 40


@pytest.mark.parametrize(
    ("ours", "winner", "sentence"),
    [
        ((NEW,), (UPGRADE,), "nightly changed the table's protocol"),
        ((NEW,), (ALTER,), "nightly changed the table's schema or properties"),
        ((domain("d"),), (domain("d"),), "nightly changed the domain d, as we do"),
        (DELETE, DELETE, "nightly removed old, as we do"),
        (
            DELETE,
            (add("a", month="1", day=None),),
            "nightly added files that we should have read, such as a of partition [month=1, day=None]",
        ),
    ],
)
def test_a_conflict_says_who_did_what(
    ours: tuple[Action, ...], winner: tuple[Action, ...], sentence: str
) -> None:
    assert str(check_conflict(our_facts(ours), winner_facts(winner, "nightly"))) == sentence


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        ((), SNAPSHOT),
        (OPTIMIZE, SNAPSHOT),
        ((*OPTIMIZE, domain("delta.rowTracking")), SNAPSHOT),
        ((*OPTIMIZE, domain("mine")), WRITE),
        ((*OPTIMIZE, TXN), WRITE),
        ((ALTER,), WRITE),
        ((UPGRADE,), WRITE),
        ((NEW,), WRITE),
        (DELETE, WRITE),
    ],
)
def test_a_commit_that_changes_no_data_needs_only_a_snapshot(
    ours: tuple[Action, ...], expected: Isolation
) -> None:
    assert isolation_for(our_facts(ours), WRITE) is expected


def with_property(value: str) -> Metadata:
    return Metadata("id", "{}", "orders", configuration={"delta.isolationLevel": value})


def test_a_table_may_ask_for_its_isolation() -> None:
    assert table_isolation(Metadata("id", "{}")) is WRITE
    assert table_isolation(with_property("serializable")) is SERIALIZABLE
    with pytest.raises(UnsupportedTable, match=r"^orders: delta\.isolationLevel is 'SnapshotIsolation'"):
        table_isolation(with_property("SnapshotIsolation"))


LEGACY, PLAIN = Protocol(1, 2), Metadata("id", "{}")
STAMPED = Metadata("id", "{}", configuration={"delta.enableInCommitTimestamps": "true"})
STAMPING = Protocol(1, 7, None, ("inCommitTimestamp",))
TRACKING = Protocol(1, 7, None, ("domainMetadata", "rowTracking"))


@pytest.mark.parametrize(
    ("protocol", "metadata", "expected"),
    [
        (Protocol(1, 2), PLAIN, ()),
        (STAMPING, PLAIN, ()),
        (STAMPING, STAMPED, ("inCommitTimestamp",)),
        (Protocol(1, 2), STAMPED, ()),
        (TRACKING, PLAIN, ("rowTracking",)),
    ],
)
def test_features_that_put_the_version_into_the_bytes(
    protocol: Protocol, metadata: Metadata, expected: tuple[str, ...]
) -> None:
    assert version_bound_features(protocol, metadata) == expected


@dataclass(frozen=True)
class Rebase:
    """Our commit and those that were made since; whether it can be put on top of them."""

    name: str
    ours: tuple[Action, ...]
    winners: tuple[tuple[Action, ...], ...]
    expected: ConflictKind | None
    protocol: Protocol = LEGACY
    metadata: Metadata = PLAIN
    fixed: bool = True
    reads: dict[str, Any] = field(default_factory=dict)


TRACKED = (NEW, domain("delta.rowTracking"))
REBASES = [
    Rebase("append on appends", (NEW,), ((BLIND, OTHER), (OTHER,)), None),
    Rebase("append on a delete", (BLIND, NEW), ((RemoveFile("old"),),), None),
    Rebase("append on nothing", (NEW,), (), None),
    Rebase("append with its progress", (NEW, TXN), ((OTHER, SetTransaction("b", 1)),), None),
    Rebase("progress alone", (TXN,), ((OTHER,),), None),
    Rebase("delete", DELETE, ((OTHER,),), K.NOT_A_BLIND_APPEND),
    Rebase("delete on nothing", DELETE, (), K.NOT_A_BLIND_APPEND),
    Rebase("append that read", (NEW,), ((OTHER,),), K.NOT_A_BLIND_APPEND, reads=WHOLE),
    Rebase("append that says it read", (READING, NEW), ((OTHER,),), K.NOT_A_BLIND_APPEND),
    Rebase("rewritten data", (AddFile("n", data_change=False),), (), K.NOT_A_BLIND_APPEND),
    Rebase("append that changes the schema", (NEW, ALTER), ((OTHER,),), K.NOT_A_BLIND_APPEND),
    Rebase("append that upgrades", (NEW, UPGRADE), ((OTHER,),), K.NOT_A_BLIND_APPEND),
    Rebase("append with a change feed", (NEW, AddCDCFile("c")), ((OTHER,),), K.NOT_A_BLIND_APPEND),
    Rebase("the second winner changed the schema", (NEW,), ((OTHER,), (ALTER,)), K.METADATA_CHANGED),
    Rebase("a winner upgraded", (NEW,), ((UPGRADE,),), K.PROTOCOL_CHANGED),
    Rebase("identity values moved on", (NEW,), ((IDENTITY, ALTER),), None),
    Rebase("same application", (NEW, TXN), ((OTHER, TXN),), K.CONCURRENT_TRANSACTION),
    Rebase(
        "application read", (NEW,), ((TXN,),), K.CONCURRENT_TRANSACTION, reads={"read_app_ids": ["stream"]}
    ),
    Rebase("same domain", (NEW, domain("d")), ((domain("d"),),), K.DOMAIN_METADATA),
    Rebase("other domain", (NEW, domain("d")), ((domain("e"),),), None),
    Rebase("same file added", (NEW,), ((BLIND, NEW),), K.SAME_FILE),
    Rebase("same file removed", (NEW,), ((RemoveFile("new"),),), K.SAME_FILE),
    Rebase("timestamps, bytes fixed", (NEW,), ((OTHER,),), K.VERSION_IN_BYTES, STAMPING, STAMPED),
    Rebase("timestamps, bytes ours", (NEW,), ((OTHER,),), None, STAMPING, STAMPED, fixed=False),
    Rebase("row tracking, bytes fixed", TRACKED, (TRACKED,), K.VERSION_IN_BYTES, TRACKING),
    Rebase("row tracking, bytes ours", TRACKED, ((OTHER, *TRACKED[1:]),), None, TRACKING, fixed=False),
]


@pytest.mark.parametrize("case", REBASES, ids=lambda case: case.name)
def test_a_commit_on_top_of_others(case: Rebase) -> None:
    found = can_rebase(
        our_facts(case.ours, **case.reads),
        [winner_facts(winner) for winner in case.winners],
        case.protocol,
        case.metadata,
        bytes_are_fixed=case.fixed,
    )

    assert (found.kind if found else None) == case.expected


def test_the_stored_names_of_conflicts_do_not_change() -> None:
    assert [kind.value for kind in ConflictKind] == [
        "protocol-changed",
        "metadata-changed",
        "domain-metadata",
        "concurrent-transaction",
        "concurrent-append",
        "concurrent-delete-read",
        "concurrent-delete-delete",
        "not-a-blind-append",
        "same-file",
        "version-in-bytes",
    ]
