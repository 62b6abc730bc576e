"""How fast commits are, of one writer, of groups of tables and of a crowd."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, Schema
from deltalake.transaction import AddAction

from benchmarks.ledger_probe import probe
from benchmarks.ledger_report import Result, Series, say
from benchmarks.ledger_tables import Databases, action, schema_string
from deltaplane.ledger import Ledger, connect

__all__ = ["crowd", "groups", "one_writer"]

INTERVAL = 100
"""A checkpoint every so many versions on both sides: deltalake's own default."""
_PROPERTIES = {"delta.checkpointInterval": str(INTERVAL)}
_FILES = 3
_FASTER = {"sqlite": 15.0, "postgres": 15.0}
_RATE = {"sqlite": 300.0, "postgres": 300.0}
_TABLES = 10
_GROUP_RATE = {"sqlite": 30.0, "postgres": 30.0}
_APPENDERS = 64
_PROCESSES = {"sqlite": 8, "postgres": 8, "duckdb": 1}
_APPENDS_EACH = 5


def _rate(count: int, work: Callable[[int], None]) -> float:
    start = time.perf_counter()
    for number in range(count):
        work(number)
    return count / (time.perf_counter() - start)


def one_writer(folder: Path, dbs: Databases, commits: int, repeat: int) -> list[Result]:
    what = f"commits of {_FILES} files, published, a checkpoint every {INTERVAL}"
    results = []
    for engine in dbs.engines:
        say(f"{engine}: {what}, in turns with deltalake")
        pairs = [
            (
                _deltalake_rate(Path(_new_place(folder)), commits),
                _ledger_rate(folder, dbs.uri(engine), commits),
            )
            for _ in range(repeat)
        ]
        theirs, ours = (Series(rates) for rates in zip(*pairs, strict=True))
        results.append(Result(f"deltalake: {what}", "", theirs.rate(), None))
        results.append(_against_deltalake(f"{engine}: {what}", ours, theirs, _FASTER.get(engine)))
        if engine in _RATE:
            results.append(_against(f"{engine}: {what}, rate", ours, _RATE[engine]))
    return results


def _against_deltalake(what: str, ours: Series, theirs: Series, goal: float | None) -> Result:
    ratio = ours.median / theirs.median
    wanted = f"{goal:g}x deltalake" if goal else ""
    return Result(what, wanted, f"{ratio:.1f}x, {ours.rate()}", ratio >= goal if goal else None)


def _against(what: str, measured: Series, goal: float | None) -> Result:
    wanted = f"{goal:g} per s" if goal else ""
    return Result(what, wanted, measured.rate(), measured.median >= goal if goal else None)


def _deltalake_rate(folder: Path, commits: int) -> float:
    schema = Schema.from_json(schema_string())
    table = DeltaTable.create(folder, schema, configuration=_PROPERTIES)

    def commit(number: int) -> None:
        adds = [_deltalake_add(_FILES * number + one) for one in range(_FILES)]
        table.create_write_transaction(adds, "append", schema)

    rate = _rate(commits, commit)
    assert DeltaTable(folder).version() == commits
    return rate


def _deltalake_add(number: int) -> AddAction:
    add = action(number)["add"]
    return AddAction(
        add["path"],
        add["size"],
        add["partitionValues"],
        add["modificationTime"],
        add["dataChange"],
        add["stats"],
    )


def _ledger_rate(folder: Path, uri: str, commits: int) -> float:
    path = _new_place(folder)
    with connect(uri) as ledger:
        ledger.create(path, schema_string(), properties=_PROPERTIES)

        def commit(number: int) -> None:
            with ledger.transaction() as transaction:
                transaction.commit(path, [action(_FILES * number + one) for one in range(_FILES)])

        rate = _rate(commits, commit)
        _check_published(ledger, path, commits)
    return rate


def _new_place(folder: Path) -> str:
    return str(folder / f"table-{uuid.uuid4().hex[:8]}")


def _check_published(ledger: Ledger, path: str, version: int) -> None:
    """What is counted must be in the log, where others see it."""
    status = next(table for table in ledger.tables() if table.location == path)
    seen = DeltaTable(path).version()
    if (status.published_version, seen) != (version, version):
        raise RuntimeError(
            f"version {version} was committed, {status.published_version} published, {seen} seen"
        )


def groups(folder: Path, dbs: Databases, count: int, repeat: int) -> list[Result]:
    what = f"groups of {_TABLES} tables, published"
    results = []
    for engine in dbs.engines:
        say(f"{engine}: {what}")
        ours = Series([_group_rate(folder, dbs.uri(engine), count) for _ in range(repeat)])
        results.append(_against(f"{engine}: {what}", ours, _GROUP_RATE.get(engine)))
    return results


def _group_rate(folder: Path, uri: str, count: int) -> float:
    paths = [_new_place(folder) for _ in range(_TABLES)]
    with connect(uri) as ledger:
        for path in paths:
            ledger.create(path, schema_string(), properties=_PROPERTIES)

        def commit(number: int) -> None:
            with ledger.transaction() as transaction:
                for path in paths:
                    transaction.commit(path, [action(number)])

        rate = _rate(count, commit)
        for path in paths:
            _check_published(ledger, path, count)
    return rate


def crowd(folder: Path, dbs: Databases) -> list[Result]:
    """Many appenders at once, in several processes where the database serves several."""
    results = []
    for engine in dbs.engines:
        processes = _PROCESSES[engine]
        say(f"{engine}: {_APPENDERS} appenders")
        uri, path = dbs.uri(engine), _new_place(folder)
        with connect(uri) as ledger:
            ledger.create(path, schema_string(), properties=_PROPERTIES)
        start = time.perf_counter()
        answers = _appended(uri, path, processes)
        seconds = time.perf_counter() - start
        results.append(_crowd_result(engine, uri, path, answers, processes, seconds))
    return results


def _appended(uri: str, path: str, processes: int) -> list[dict[str, Any]]:
    threads = _APPENDERS // processes

    def run(process: int) -> dict[str, Any]:
        first = process * threads * _APPENDS_EACH
        return probe("append", uri=uri, path=path, first=first, threads=threads, commits=_APPENDS_EACH)

    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(run, range(processes)))


def _crowd_result(
    engine: str, uri: str, path: str, answers: list[dict[str, Any]], processes: int, seconds: float
) -> Result:
    told = [name for answer in answers for name in answer["told"]]
    failed = [text for answer in answers for text in answer["failed"]]
    with connect(uri) as ledger:
        ledger.publish(path)
        held = ledger.snapshot(path).files()["path"].to_pylist()
    logged = [name for file in sorted(Path(path, "_delta_log").glob("*.json")) for name in _added(file)]
    wanted = _APPENDERS * _APPENDS_EACH
    lost = len(set(told) - set(logged)) + len(set(told) - set(held))
    whole = sorted(held) == sorted(logged) == sorted(told) and len(told) == wanted
    if failed:
        say(f"{engine}: {failed[0]}")
    return Result(
        f"{engine}: {_APPENDERS} appenders in {processes} processes, {_APPENDS_EACH} commits each",
        "none lost, no error",
        f"{lost} lost, {len(failed)} errors, {wanted / seconds:.0f} per s",
        whole and not failed,
    )


def _added(file: Path) -> list[str]:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [line["add"]["path"] for line in lines if "add" in line]
