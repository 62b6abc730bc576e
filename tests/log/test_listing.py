"""The names of a log: what they are, and what they add up to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltaplane.errors import CorruptLog, DeltaLogError, NotADeltaTable, VersionNotFound
from deltaplane.log.listing import (
    CheckpointForm,
    FileKind,
    LogFile,
    LogListing,
    bases,
    classify,
    commit_name,
    list_log,
    missing_runs,
    reconstructable,
    segment,
)

V = "00000000000000000007"
UUID = "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"{V}.json", LogFile(f"{V}.json", FileKind.COMMIT, 7)),
        (f"{V}.checkpoint.parquet", LogFile(f"{V}.checkpoint.parquet", FileKind.CHECKPOINT, 7)),
        (
            f"{V}.checkpoint.0000000002.0000000003.parquet",
            LogFile(
                f"{V}.checkpoint.0000000002.0000000003.parquet", FileKind.CHECKPOINT_PART, 7, part=2, parts=3
            ),
        ),
        (f"{V}.checkpoint.{UUID}.json", LogFile(f"{V}.checkpoint.{UUID}.json", FileKind.CHECKPOINT_V2, 7)),
        (
            f"{V}.checkpoint.{UUID}.parquet",
            LogFile(f"{V}.checkpoint.{UUID}.parquet", FileKind.CHECKPOINT_V2, 7),
        ),
        (
            f"00000000000000000004.{V}.compacted.json",
            LogFile(f"00000000000000000004.{V}.compacted.json", FileKind.COMPACTED, 7, first_version=4),
        ),
        (f"{V}.crc", LogFile(f"{V}.crc", FileKind.CHECKSUM, 7)),
        ("_last_checkpoint", LogFile("_last_checkpoint", FileKind.LAST_CHECKPOINT)),
        (
            f"_staged_commits/{V}.{UUID}.json",
            LogFile(f"_staged_commits/{V}.{UUID}.json", FileKind.STAGED_COMMIT, 7),
        ),
        (f"_sidecars/{UUID}.parquet", LogFile(f"_sidecars/{UUID}.parquet", FileKind.SIDECAR)),
        (f".{V}.json.crc", LogFile(f".{V}.json.crc", FileKind.TEMPORARY)),
        (f"._{V}.json", LogFile(f"._{V}.json", FileKind.TEMPORARY)),
        (f".{V}.json.{'0' * 32}.tmp", LogFile(f".{V}.json.{'0' * 32}.tmp", FileKind.TEMPORARY)),
        (f"{V}.json.tmp", LogFile(f"{V}.json.tmp", FileKind.TEMPORARY)),
        ("7.json", LogFile("7.json", FileKind.OTHER)),
        (f"{V}.json\n", LogFile(f"{V}.json\n", FileKind.OTHER)),
        ("٠" * 20 + ".json", LogFile("٠" * 20 + ".json", FileKind.OTHER)),
        (f"sub/{V}.json", LogFile(f"sub/{V}.json", FileKind.OTHER)),
    ],
)
def test_name_is_known_for_what_it_is(name: str, expected: LogFile) -> None:
    assert classify(name) == expected


def log(*names: str | int) -> LogListing:
    return list_log([commit_name(name) if isinstance(name, int) else name for name in names], "/lake/t")


def checkpoint(version: int, rest: str = "parquet") -> str:
    return f"{version:020d}.checkpoint.{rest}"


def starts(listing: LogListing, version: int | None = None) -> list[tuple[int | None, range]]:
    found = bases(listing, version)
    return [(one.checkpoint.version if one.checkpoint else None, one.commits) for one in found]


def test_log_without_checkpoint_is_read_from_the_first_commit() -> None:
    assert starts(log(2, 0, 1)) == [(None, range(3))]


def test_newest_checkpoint_that_is_old_enough_is_read() -> None:
    listing = log(0, 1, 2, 3, 4, checkpoint(1), checkpoint(3))
    assert starts(listing) == [(None, range(5)), (1, range(2, 5)), (3, range(4, 5))]
    assert segment(listing) == bases(listing)[-1]
    assert starts(listing, 2) == [(None, range(3)), (1, range(2, 3))]
    assert segment(listing, 3).commits == range(4, 4)


def test_oldest_start_is_the_one_to_rebuild_all_versions_from() -> None:
    assert reconstructable(log(0, 1, 2, checkpoint(1))).checkpoint is None
    cleaned = log(5, 6, 7, checkpoint(4), checkpoint(6))
    assert reconstructable(cleaned).first_version == 4
    gap = log(0, 1, 3, 4, 5, checkpoint(1), checkpoint(2), checkpoint(4))
    assert starts(gap) == [(2, range(3, 6)), (4, range(5, 6))]


def test_checkpoint_alone_is_a_table() -> None:
    assert starts(log(checkpoint(10))) == [(10, range(11, 11))]


def test_checkpoint_newer_than_every_commit_is_the_newest_version() -> None:
    listing = log(0, 1, checkpoint(3))
    assert (listing.newest, segment(listing).version, starts(listing)) == (3, 3, [(3, range(4, 4))])


def test_checkpoint_counts_when_all_its_parts_are_there() -> None:
    parts = [checkpoint(2, f"{part:010d}.0000000003.parquet") for part in (3, 1, 2)]
    whole = segment(log(*parts)).checkpoint
    assert whole is not None
    assert (whole.form, whole.names) == (CheckpointForm.PARTS, tuple(sorted(parts)))
    lacking = log(0, 1, 2, *parts[:2])
    assert (starts(lacking), [file.part for file in lacking.incomplete]) == ([(None, range(3))], [1, 3])


@pytest.mark.parametrize("stray", ["0000000000.0000000000", "0000000001.0000000000", "0000000004.0000000003"])
def test_impossible_part_is_no_checkpoint(stray: str) -> None:
    assert log(0, checkpoint(0, f"{stray}.parquet")).checkpoints == ()


def test_parts_of_two_attempts_are_not_mixed() -> None:
    listing = log(
        0, checkpoint(0, "0000000001.0000000002.parquet"), checkpoint(0, "0000000002.0000000003.parquet")
    )
    assert (listing.checkpoints, len(listing.incomplete)) == ((), 2)


def test_of_several_checkpoints_at_a_version_v2_goes_first_then_parts() -> None:
    listing = log(
        checkpoint(1, f"{UUID}.parquet"), checkpoint(1), checkpoint(1, "0000000001.0000000001.parquet")
    )
    assert [one.form for one in listing.checkpoints] == [
        CheckpointForm.CLASSIC,
        CheckpointForm.PARTS,
        CheckpointForm.V2,
    ]
    assert segment(listing).checkpoint == listing.checkpoints[-1]


def test_compacted_commits_do_not_stand_in_for_commits() -> None:
    compacted = f"{1:020d}.{2:020d}.compacted.json"
    with pytest.raises(CorruptLog, match="versions 1 to 2 are missing between 0 and 3"):
        segment(log(0, 3, compacted))


@pytest.mark.parametrize(
    ("names", "version", "error", "message"),
    [
        ([], None, NotADeltaTable, "/lake/t is not a Delta table: .* no commit and no checkpoint. Check"),
        ([f"{V}.crc"], None, NotADeltaTable, f"no part of a log: {V}.crc"),
        ([checkpoint(1, "0000000001.0000000002.parquet")], None, CorruptLog, "lacks parts"),
        ([0, 1], 2, VersionNotFound, "/lake/t has no version 2; its newest is 1"),
        ([0, 1], -1, VersionNotFound, "no version -1"),
        ([0, 2, 6], None, CorruptLog, "versions 1, 3 to 5 are missing between 0 and 6"),
        ([0, 1, 5], None, CorruptLog, "versions 2 to 4 are missing between 1 and 5"),
        ([0, 2], None, CorruptLog, "version 1 is missing between 0 and 2"),
        ([checkpoint(3), 5], None, CorruptLog, "version 4 is missing between 3 and 5"),
        ([4, 5], None, CorruptLog, "versions 0 to 3 are missing before 4"),
        ([4, 5, checkpoint(5)], 4, VersionNotFound, "versions 0 to 3 are no longer in the log"),
        ([checkpoint(5), 6], 2, VersionNotFound, "versions 0 to 2 are no longer in the log"),
        ([0, checkpoint(5), 6], 2, CorruptLog, "versions 1 to 2 are missing between 0 and 5"),
        ([0, 10**19], None, CorruptLog, "versions 1 to 9999999999999999999 are missing"),
    ],
)
def test_what_cannot_be_rebuilt_is_refused_with_the_missing_versions(
    names: list[str | int], version: int | None, error: type[DeltaLogError], message: str
) -> None:
    with pytest.raises(error, match=message):
        segment(log(*names), version)


@given(st.sets(st.integers(0, 12)), st.sets(st.integers(0, 12)), st.integers(0, 12))
def test_starts_are_those_from_which_no_commit_is_missing(
    commits: set[int], checkpoints: set[int], version: int
) -> None:
    listing = log(*commits, *(checkpoint(one) for one in checkpoints))
    possible = [
        start
        for start in [-1, *sorted(checkpoints)]
        if start <= version and set(range(start + 1, version + 1)) <= commits
    ]
    try:
        found = [one.checkpoint.version if one.checkpoint else -1 for one in bases(listing, version)]
    except DeltaLogError:
        found = []
    assert found == (possible if version <= listing.newest else [])


@given(st.sets(st.integers(0, 30)), st.integers(0, 30))
def test_missing_runs_are_the_absent_versions(commits: set[int], version: int) -> None:
    runs = missing_runs(log(*commits), version)
    absent = [number for first, last in runs for number in range(first, last + 1)]
    assert absent == [number for number in range(version + 1) if number not in commits]
