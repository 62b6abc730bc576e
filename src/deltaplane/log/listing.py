"""The names in `_delta_log`: what each of them is, and which of them make up a version.

Only names decide. `_last_checkpoint` is a hint for those who must not list, so a stale or damaged one does no
harm here. Compacted commits are known and not used: one that disagrees with its commits would change the
answer unnoticed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from deltaplane.errors import CorruptLog, NotADeltaTable, VersionNotFound

__all__ = [
    "Checkpoint",
    "CheckpointForm",
    "FileKind",
    "LogFile",
    "LogListing",
    "LogSegment",
    "bases",
    "classify",
    "commit_name",
    "list_log",
    "missing_runs",
    "older_segments",
    "reconstructable",
    "segment",
]


class FileKind(Enum):
    """What a name in `_delta_log` stands for."""

    COMMIT = "commit"
    CHECKPOINT = "classic checkpoint"
    CHECKPOINT_PART = "part of a checkpoint"
    CHECKPOINT_V2 = "checkpoint with an id"
    COMPACTED = "compacted commits"
    CHECKSUM = "checksum"
    LAST_CHECKPOINT = "hint to the newest checkpoint"
    STAGED_COMMIT = "staged commit"
    SIDECAR = "sidecar"
    TEMPORARY = "temporary file"
    OTHER = "unknown"


class CheckpointForm(Enum):
    """How a checkpoint is laid out; of several at one version the last of these goes first, as in Spark."""

    CLASSIC = 0
    PARTS = 1
    V2 = 2


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of the log.

    Attributes:
        name: Its path below `_delta_log`.
        kind: What it is.
        version: The version it is about; the last one for compacted commits; -1 where there is none.
        part: Which part of a checkpoint, from 1.
        parts: Of how many.
        first_version: The first version of compacted commits.
        size: Its size in bytes, where it is known.
        modified_ms: When it was written, where it is known.
    """

    name: str
    kind: FileKind
    version: int = -1
    part: int = 0
    parts: int = 0
    first_version: int = -1
    size: int = -1
    modified_ms: int = -1


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that has all its files."""

    version: int
    form: CheckpointForm
    files: tuple[LogFile, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Its files below `_delta_log`, in order."""
        return tuple(file.name for file in self.files)


@dataclass(frozen=True)
class LogListing:
    """What a log consists of.

    Attributes:
        source: What to call the table in an error.
        commits: The commits by version.
        checkpoints: The complete ones, oldest first; of one version, the preferred last.
        incomplete: Files of checkpoints that lack parts.
        others: Everything else.
    """

    source: str = "the table"
    commits: Mapping[int, LogFile] = field(default_factory=dict)
    checkpoints: tuple[Checkpoint, ...] = ()
    incomplete: tuple[LogFile, ...] = ()
    others: tuple[LogFile, ...] = ()

    @property
    def newest(self) -> int:
        """The newest version that a commit or a complete checkpoint tells of, -1 for none."""
        checkpoint = self.checkpoints[-1].version if self.checkpoints else -1
        return max(max(self.commits, default=-1), checkpoint)


@dataclass(frozen=True, slots=True)
class LogSegment:
    """What to read for one version: a checkpoint, or nothing, and the commits after it, none missing.

    Attributes:
        checkpoint: Where to start; None to start from nothing.
        commits: The versions whose commits follow.
        version: The version that results.
    """

    checkpoint: Checkpoint | None
    commits: range
    version: int

    @property
    def first_version(self) -> int:
        """The oldest version that can be rebuilt from this start."""
        return self.checkpoint.version if self.checkpoint else self.commits.start


_PATTERNS: tuple[tuple[FileKind, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.ASCII))
    for kind, pattern in (
        (FileKind.COMMIT, r"(?P<version>\d{20})\.json"),
        (FileKind.CHECKPOINT, r"(?P<version>\d{20})\.checkpoint\.parquet"),
        (
            FileKind.CHECKPOINT_PART,
            r"(?P<version>\d{20})\.checkpoint\.(?P<part>\d{10})\.(?P<parts>\d{10})\.parquet",
        ),
        (FileKind.CHECKPOINT_V2, r"(?P<version>\d{20})\.checkpoint\.[^./]+\.(json|parquet)"),
        (FileKind.COMPACTED, r"(?P<first>\d{20})\.(?P<version>\d{20})\.compacted\.json"),
        (FileKind.CHECKSUM, r"(?P<version>\d{20})\.crc"),
        (FileKind.LAST_CHECKPOINT, r"_last_checkpoint"),
        (FileKind.STAGED_COMMIT, r"_staged_commits/(?P<version>\d{20})\.[^./]+\.json"),
        (FileKind.SIDECAR, r"_sidecars/[^/]+\.parquet"),
        # Names with a leading dot are of writers at work and of checksums beside the files (Hadoop, macOS).
        (FileKind.TEMPORARY, r"(.*/)?\..*|.*\.tmp"),
    )
)


def commit_name(version: int) -> str:
    """The name of a version's commit below `_delta_log`."""
    return f"{version:020d}.json"


def classify(name: str, size: int = -1, modified_ms: int = -1) -> LogFile:
    """What a path below `_delta_log` stands for."""
    for kind, pattern in _PATTERNS:
        match = pattern.fullmatch(name)
        if match:
            numbers = {key: int(value) for key, value in match.groupdict().items()}
            return LogFile(
                name,
                kind,
                version=numbers.get("version", -1),
                part=numbers.get("part", 0),
                parts=numbers.get("parts", 0),
                first_version=numbers.get("first", -1),
                size=size,
                modified_ms=modified_ms,
            )
    return LogFile(name, FileKind.OTHER, size=size, modified_ms=modified_ms)


def list_log(files: Iterable[LogFile | str], source: str = "the table") -> LogListing:
    """Sort the files of a log by what they are.

    Args:
        files: Names below `_delta_log`, or what `classify` made of them.
        source: What to call the table in an error.
    """
    known = [classify(file) if isinstance(file, str) else file for file in files]
    commits = {file.version: file for file in known if file.kind is FileKind.COMMIT}
    checkpoints, incomplete = _checkpoints(known)
    rest = {FileKind.COMMIT, FileKind.CHECKPOINT, FileKind.CHECKPOINT_PART, FileKind.CHECKPOINT_V2}
    others = tuple(file for file in known if file.kind not in rest)
    return LogListing(source, dict(sorted(commits.items())), checkpoints, incomplete, others)


def _checkpoints(files: Iterable[LogFile]) -> tuple[tuple[Checkpoint, ...], tuple[LogFile, ...]]:
    complete: list[Checkpoint] = []
    parts: dict[tuple[int, int], dict[int, LogFile]] = {}
    for file in files:
        if file.kind is FileKind.CHECKPOINT:
            complete.append(Checkpoint(file.version, CheckpointForm.CLASSIC, (file,)))
        elif file.kind is FileKind.CHECKPOINT_V2:
            complete.append(Checkpoint(file.version, CheckpointForm.V2, (file,)))
        elif file.kind is FileKind.CHECKPOINT_PART:
            parts.setdefault((file.version, file.parts), {})[file.part] = file
    incomplete: list[LogFile] = []
    for (version, count), found in sorted(parts.items()):
        ordered = tuple(found[part] for part in sorted(found))
        if count > 0 and sorted(found) == list(range(1, count + 1)):
            complete.append(Checkpoint(version, CheckpointForm.PARTS, ordered))
        else:
            incomplete.extend(ordered)
    complete.sort(key=lambda one: (one.version, one.form.value, len(one.files), one.names))
    return tuple(complete), tuple(incomplete)


def segment(listing: LogListing, version: int | None = None) -> LogSegment:
    """What to read for a version, the newest by default, from the newest checkpoint that helps.

    Raises:
        NotADeltaTable: There is neither a commit nor a checkpoint.
        VersionNotFound: The version is newer than the newest, or its beginning was cleaned up.
        CorruptLog: Commits are missing in between.
    """
    return bases(listing, version)[-1]


def reconstructable(listing: LogListing) -> LogSegment:
    """The oldest start from which every later version to the newest can be rebuilt; raises as `segment`."""
    return bases(listing)[0]


def bases(listing: LogListing, version: int | None = None) -> tuple[LogSegment, ...]:
    """Every way to rebuild a version, the oldest start first.

    They lead to one state. Where a file of one is damaged, the next may do without it.

    Raises:
        NotADeltaTable: There is neither a commit nor a checkpoint.
        VersionNotFound: The version is newer than the newest, or its beginning was cleaned up.
        CorruptLog: Commits are missing in between.
    """
    target = _target(listing, version)
    start = target + 1
    while start - 1 in listing.commits:
        start -= 1
    found = [] if start > 0 else [LogSegment(None, range(target + 1), target)]
    found.extend(
        LogSegment(checkpoint, range(checkpoint.version + 1, target + 1), target)
        for checkpoint in listing.checkpoints
        if start - 1 <= checkpoint.version <= target
    )
    if not found:
        raise _broken(listing, target, asked=version is not None)
    return tuple(found)


def older_segments(listing: LogListing, before: int) -> tuple[LogSegment, ...]:
    """Runs of versions before one that can be rebuilt by themselves, oldest first.

    A gap in the log does not take the versions before it: commits from version 0 on, or after a checkpoint,
    lead to their own states.
    """
    anchors: list[tuple[int, Checkpoint | None]] = [(c.version, c) for c in listing.checkpoints]
    if 0 in listing.commits:
        anchors.insert(0, (-1, None))
    runs: list[LogSegment] = []
    for version, checkpoint in anchors:
        if version >= before or (runs and version <= runs[-1].version):
            continue
        end = version
        while end + 1 in listing.commits and end + 1 < before:
            end += 1
        runs.append(LogSegment(checkpoint, range(version + 1, end + 1), end))
    return tuple(runs)


def missing_runs(listing: LogListing, version: int | None = None) -> tuple[tuple[int, int], ...]:
    """The commits that are absent after the newest checkpoint before: first and last of each run."""
    target = listing.newest if version is None else version
    start = max((one.version for one in listing.checkpoints if one.version <= target), default=-1)
    # Runs, not single versions: one stray name with a huge number must not fill the memory.
    runs = []
    for number in [number for number in sorted(listing.commits) if start < number <= target] + [target + 1]:
        if number > start + 1:
            runs.append((start + 1, number - 1))
        start = number
    return tuple(runs)


def _runs_text(runs: tuple[tuple[int, int], ...]) -> str:
    """Such as 'version 3 is' or 'versions 3 to 5, 9 are'."""
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in runs]
    single = len(runs) == 1 and runs[0][0] == runs[0][1]
    return f"version {texts[0]} is" if single else f"versions {', '.join(texts)} are"


def _target(listing: LogListing, version: int | None) -> int:
    newest = listing.newest
    if newest < 0:
        raise _no_table(listing)
    if version is None:
        return newest
    if not 0 <= version <= newest:
        raise VersionNotFound(
            f"{listing.source} has no version {version}; its newest is {newest}. Nothing was changed. "
            f"Ask for a version up to {newest}."
        )
    return version


def _no_table(listing: LogListing) -> NotADeltaTable | CorruptLog:
    if listing.incomplete:
        names = ", ".join(file.name for file in listing.incomplete[:3])
        return CorruptLog(
            f"{listing.source}/_delta_log",
            f"the log has no commit, and its checkpoint lacks parts (it has {names}). "
            f"Restore them from a backup.",
        )
    found = f"; what is there is no part of a log: {listing.others[0].name}" if listing.others else ""
    return NotADeltaTable(
        f"{listing.source} is not a Delta table: its _delta_log has no commit and no checkpoint{found}. "
        f"Check the path, or create the table first."
    )


def _broken(listing: LogListing, target: int, asked: bool) -> VersionNotFound | CorruptLog:
    runs = missing_runs(listing, target)
    present = [*listing.commits, *(one.version for one in listing.checkpoints)]
    before = max((number for number in present if number < runs[0][0]), default=None)
    after = min((number for number in present if number > runs[-1][1]), default=None)
    missing = _runs_text(runs)
    if before is None and asked:
        return VersionNotFound(
            f"{listing.source}: version {target} cannot be rebuilt: {missing} no longer in the log and "
            f"no checkpoint stands in. Nothing was changed. Ask for a later version."
        )
    place = f"before {after}" if before is None else f"after {before}"
    if before is not None and after is not None:
        place = f"between {before} and {after}"
    return CorruptLog(
        f"{listing.source}/_delta_log",
        f"{missing} missing {place}, and no complete checkpoint stands in. Nothing was changed. "
        f"Restore the missing files from a backup.",
    )
