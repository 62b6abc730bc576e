"""Where the golden tables are, what they are, and copies of them to work on.

They are tables of other projects with the recorded answers of other readers; a checkout works without them,
and the tests that need them say that they were skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

__all__ = ["ABSENT", "GoldenTable", "golden_root", "golden_tables", "needs_golden"]

ABSENT = "the golden tables are not here: set DELTAPLANE_GOLDEN, or put them in ../shared/golden"


def golden_root() -> Path | None:
    """The folder of the golden tables, where there is one."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "golden"
    root = Path(os.environ.get("DELTAPLANE_GOLDEN") or beside)
    return root if (root / "INDEX.jsonl").is_file() else None


needs_golden = pytest.mark.skipif(golden_root() is None, reason=ABSENT)


@dataclass(frozen=True)
class GoldenTable:
    """One table.

    Attributes:
        name: source/table.
        verdict: readable, log_only, reject or disputed.
        home: The folder with expected.json.
        exercises: What the table is there for.
        packed: The name of its archive, where it is packed.
    """

    name: str
    verdict: str
    home: Path
    exercises: tuple[str, ...]
    packed: str | None

    @property
    def path(self) -> Path:
        """The table itself, to be read only. A packed one must be copied."""
        return self.home / "delta"

    def expected(self) -> dict[str, Any]:
        """What the other readers answered."""
        answers: dict[str, Any] = json.loads((self.home / "expected.json").read_text())
        return answers

    def expected_files(self) -> list[dict[str, Any]]:
        """The active files as Spark sees them; none where Spark refused the table."""
        path = self.home / "expected_files.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    def copy(self, target: Path) -> Path:
        """A copy of the table in a folder that does not exist yet; a packed one is unpacked."""
        if self.packed is None:
            return _writable(shutil.copytree(self.path, target))
        unpacked = target.with_name(target.name + ".unpacked")
        _unpack(self.home / self.packed, unpacked)
        found = next(iter(sorted(unpacked.rglob("_delta_log")))).parent
        return _writable(found.rename(target))


def golden_tables(*verdicts: str) -> list[GoldenTable]:
    """The tables with one of these verdicts, or all; none where the golden tables are absent."""
    return [table for table in _tables() if not verdicts or table.verdict in verdicts]


@cache
def _tables() -> Iterable[GoldenTable]:
    root = golden_root()
    if root is None:
        return ()
    rows = [json.loads(line) for line in (root / "INDEX.jsonl").read_text().splitlines()]
    return tuple(_table(root, row) for row in rows)


def _table(root: Path, row: dict[str, Any]) -> GoldenTable:
    path = root / row["path"]
    packed = path.name if path.name.endswith(".tar.zst") else None
    return GoldenTable(
        f"{row['source']}/{row['table']}", row["verdict"], path.parent, tuple(row["exercises"]), packed
    )


def _writable(folder: Path) -> Path:
    """The originals are protected against writing, and a copy takes that over."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode | 0o200)
    return folder


def _unpack(archive: Path, target: Path) -> None:
    import zstandard

    with (
        archive.open("rb") as file,
        zstandard.ZstdDecompressor().stream_reader(file) as content,
        tarfile.open(fileobj=content, mode="r|") as members,
    ):
        members.extractall(target, filter="data")
