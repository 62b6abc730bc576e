"""How fast a table of many files is opened, as a whole and for one predicate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ledger_probe import probe
from benchmarks.ledger_report import Result, Series, megabytes, say
from benchmarks.ledger_tables import IDS_PER_FILE, Databases, copy_log, write_log

__all__ = ["reading"]

_FASTER = {"sqlite": 3.0, "duckdb": 3.0, "postgres": 2.0}
_FASTER_WITHOUT_CHECKPOINT = 10.0
_FASTER_PRUNING = 30.0
_OLDER_WITHIN = 2.0
_GOAL_SECONDS = 1.0


@dataclass(frozen=True)
class Measured:
    """Several runs of the same work."""

    time: Series
    peak: float

    @classmethod
    def of(cls, repeat: int, files: int, work: str, **values: Any) -> Measured:
        answers = [probe(work, **values) for _ in range(repeat)]
        found = {answer["files"] for answer in answers}
        if found != {files}:
            raise RuntimeError(f"{work} found {found} files, and there are {files}")
        return cls(Series([a["seconds"] for a in answers]), Series([a["peak"] for a in answers]).median)


def reading(folder: Path, dbs: Databases, files: int, commits: int, repeat: int) -> list[Result]:
    say(f"writing a log of {files:,} files in {commits:,} commits")
    bare = write_log(folder / "bare", files, commits)
    checkpointed = copy_log(bare, folder / "checkpointed", checkpoint=True)
    say("opening it with deltalake")
    fresh = Measured.of(repeat, files, "open-deltalake", path=str(checkpointed))
    slow = Measured.of(min(2, repeat), files, "open-deltalake", path=str(bare))
    predicate = f"id = {files // 2 * IDS_PER_FILE + 7}"
    pruned = Measured.of(repeat, 1, "prune-deltalake", path=str(checkpointed), predicate=predicate)
    size = f"{files:,} files"
    results = [
        Result(f"deltalake: open {size}, fresh checkpoint", "", _told(fresh), None),
        Result(f"deltalake: open {size}, {commits:,} commits, no checkpoint", "", _told(slow), None),
        Result(f"deltalake: open and prune {size}", "", _told(pruned), None),
    ]
    for engine in dbs.engines:
        uri = dbs.uri(engine)
        say(f"{engine}: adopting {size}")
        adopted = Measured.of(1, files, "adopt", uri=uri, path=str(checkpointed))
        results.append(Result(f"{engine}: adopt {size}, {commits:,} commits", "", _told(adopted), None))
        say(f"{engine}: opening {size}")
        place = {"uri": uri, "path": str(checkpointed)}
        newest = Measured.of(repeat, files, "open-ledger", **place)
        results += _opening(engine, size, newest, fresh, slow)
        results += _older(engine, files, commits, repeat, newest, place)
        found = Measured.of(repeat, 1, "prune-ledger", predicate=predicate, **place)
        results.append(_ratio(f"{engine}: files for one selective predicate", _FASTER_PRUNING, found, pruned))
    return results


def _told(measured: Measured) -> str:
    return f"{measured.time.seconds()}, {megabytes(measured.peak)}"


def _ratio(what: str, goal: float, ours: Measured, theirs: Measured) -> Result:
    ratio = theirs.time.median / ours.time.median
    return Result(what, f"{goal:g}x deltalake", f"{ratio:.1f}x, {ours.time.seconds()}", ratio >= goal)


def _opening(engine: str, size: str, ours: Measured, fresh: Measured, slow: Measured) -> list[Result]:
    what = f"{engine}: open {size} with statistics"
    return [
        _ratio(f"{what}, fresh checkpoint", _FASTER[engine], ours, fresh),
        _ratio(f"{what}, no checkpoint", _FASTER_WITHOUT_CHECKPOINT, ours, slow),
        Result(
            f"{what}, time",
            f"under {_GOAL_SECONDS:g} s",
            ours.time.seconds(),
            ours.time.median < _GOAL_SECONDS,
        ),
        Result(
            f"{what}, peak memory",
            f"below {megabytes(fresh.peak)}",
            megabytes(ours.peak),
            ours.peak < fresh.peak,
        ),
    ]


def _older(
    engine: str, files: int, commits: int, repeat: int, newest: Measured, place: dict[str, str]
) -> list[Result]:
    results = []
    for version in (commits // 2, commits - 2):
        wanted = (version + 1) * (files // commits)
        older = Measured.of(repeat, wanted, "open-ledger", version=version, **place)
        ratio = older.time.median / newest.time.median
        results.append(
            Result(
                f"{engine}: open at version {version}, the newest being {commits - 1}",
                f"within {_OLDER_WITHIN:g}x",
                f"{ratio:.2f}x, {older.time.seconds()}",
                ratio <= _OLDER_WITHIN,
            )
        )
    return results
