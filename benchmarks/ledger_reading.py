"""How fast a table of many files is opened, as a whole and for one predicate."""

from __future__ import annotations

from collections.abc import Mapping
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
class Probe:
    """A piece of work and how many files it must find."""

    files: int
    work: str
    values: dict[str, Any]

    def run(self) -> dict[str, Any]:
        answer = probe(self.work, **self.values)
        if answer["files"] != self.files:
            raise RuntimeError(f"{self.work} found {answer['files']} files, and there are {self.files}")
        return answer


@dataclass(frozen=True)
class Measured:
    """Several runs of the same work."""

    time: Series
    peak: float


def in_turns(repeat: int, probes: Mapping[str, Probe]) -> dict[str, Measured]:
    """Run all of them again and again, one after the other: what else the machine does meets all alike."""
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in probes}
    for _ in range(repeat):
        for name, one in probes.items():
            answers[name].append(one.run())
    return {
        name: Measured(Series([a["seconds"] for a in found]), Series([a["peak"] for a in found]).median)
        for name, found in answers.items()
    }


def reading(folder: Path, dbs: Databases, files: int, commits: int, repeat: int) -> list[Result]:
    say(f"writing a log of {files:,} files in {commits:,} commits")
    bare = write_log(folder / "bare", files, commits)
    checkpointed = copy_log(bare, folder / "checkpointed", checkpoint=True)
    results = []
    for engine in dbs.engines:
        place = {"uri": dbs.uri(engine), "path": str(checkpointed)}
        say(f"{engine}: adopting {files:,} files")
        adopted = in_turns(1, {"adopted": Probe(files, "adopt", place)})["adopted"]
        what = f"{engine}: adopt {files:,} files, {commits:,} commits"
        results.append(Result(what, "", _told(adopted), None))
        say(f"{engine}: opening them, in turns with deltalake")
        results += _compared(engine, files, commits, in_turns(repeat, _probes(place, bare, files, commits)))
    return results


def _probes(place: dict[str, Any], bare: Path, files: int, commits: int) -> dict[str, Probe]:
    predicate = {"predicate": f"id = {files // 2 * IDS_PER_FILE + 7}"}
    older, share = commits // 2, files // commits
    path = {"path": place["path"]}
    return {
        "newest": Probe(files, "open-ledger", place),
        "fresh": Probe(files, "open-deltalake", path),
        "slow": Probe(files, "open-deltalake", {"path": str(bare)}),
        "older": Probe((older + 1) * share, "open-ledger", {**place, "version": older}),
        "before": Probe((commits - 1) * share, "open-ledger", {**place, "version": commits - 2}),
        "found": Probe(1, "prune-ledger", place | predicate),
        "pruned": Probe(1, "prune-deltalake", path | predicate),
    }


def _compared(engine: str, files: int, commits: int, seen: dict[str, Measured]) -> list[Result]:
    size = f"{files:,} files"
    newest = seen["newest"]
    return [
        Result(f"deltalake: open {size}, fresh checkpoint", "", _told(seen["fresh"]), None),
        Result(f"deltalake: open {size}, {commits:,} commits, no checkpoint", "", _told(seen["slow"]), None),
        Result(f"deltalake: open and prune {size}", "", _told(seen["pruned"]), None),
        *_opening(engine, size, newest, seen["fresh"], seen["slow"]),
        _older(engine, commits // 2, commits, seen["older"], newest),
        _older(engine, commits - 2, commits, seen["before"], newest),
        _ratio(
            f"{engine}: files for one selective predicate", _FASTER_PRUNING, seen["found"], seen["pruned"]
        ),
    ]


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


def _older(engine: str, version: int, commits: int, older: Measured, newest: Measured) -> Result:
    ratio = older.time.median / newest.time.median
    return Result(
        f"{engine}: open at version {version}, the newest being {commits - 1}",
        f"within {_OLDER_WITHIN:g}x",
        f"{ratio:.2f}x, {older.time.seconds()}",
        ratio <= _OLDER_WITHIN,
    )
