"""Adoption and checkpoints of a large table of another project."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.ledger_probe import probe
from benchmarks.ledger_report import Result, megabytes, say, skipped
from benchmarks.ledger_tables import Databases, packed_table

__all__ = ["bulk"]

_ADOPT_SECONDS = 30.0
_CHECKPOINT_SECONDS = 60.0
_BYTES = 2**30
_FILES = 300_000


def bulk(folder: Path, dbs: Databases) -> list[Result]:
    say("unpacking the table of 300,000 files")
    table = packed_table(folder / "packed")
    if table is None:
        return [skipped("adoption and checkpoint of 300,000 files", "the golden tables are not here")]
    results = []
    for engine in dbs.engines:
        uri = dbs.uri(engine)
        say(f"{engine}: adopting and checkpointing it")
        adopted = probe("adopt", uri=uri, path=str(table))
        results.append(_within(f"{engine}: adopt {_FILES:,} files", adopted, _ADOPT_SECONDS))
        written = probe("checkpoint", uri=uri, path=str(table))
        results.append(_within(f"{engine}: checkpoint of {_FILES:,} files", written, _CHECKPOINT_SECONDS))
        for made in (table / "_delta_log").glob("*checkpoint*"):
            made.unlink()
    return results


def _within(what: str, answer: dict[str, Any], seconds: float) -> Result:
    if answer["files"] != _FILES:
        raise RuntimeError(f"{what}: {answer['files']} files")
    return Result(
        what,
        f"{seconds:g} s, {megabytes(_BYTES)}",
        f"{answer['seconds']:.1f} s, {megabytes(answer['peak'])}",
        answer["seconds"] <= seconds and answer["peak"] <= _BYTES,
    )
