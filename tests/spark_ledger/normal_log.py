"""A published log without what differs from run to run; what that is stands in test_parity.py."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

__all__ = ["Naming", "normal_log"]

_TIMES = {
    "timestamp",
    "inCommitTimestamp",
    "modificationTime",
    "deletionTimestamp",
    "createdTime",
    "lastUpdated",
    "delta.inCommitTimestampEnablementTimestamp",
    "INSERTION_TIME",
    "MIN_INSERTION_TIME",
    "MAX_INSERTION_TIME",
}
_SIZES = re.compile(r"size|sizeInBytes|num\w+Bytes|\w+FileSize|sizeOfDataToDelete")
_FOUND_BY_VACUUM = {"numFilesToDelete", "numDeletedFiles"}
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_EXPRESSION = re.compile(r"#\d+L?")
_RANDOM_FOLDER = re.compile(r"^[A-Za-z0-9]{2}/(?=part-|_change_data|cdc-)")
_COMMIT = re.compile(r"\d{20}\.json")
_BLANK = "<id>"


class Naming:
    """Names for random ids: when and in which order they came up first."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._names: dict[str, str] = {}

    def actions(self, version: int, lines: list[str]) -> list[str]:
        """The actions of a commit, sorted."""
        values = [_plain(json.loads(line), self._root) for line in lines]
        # Ids that came up before count for the order, new ones do not: it has to be the same in every run.
        texts = sorted(
            (json.dumps(value, sort_keys=True) for value in values),
            key=lambda text: self._told(text, blank=True),
        )
        for text in texts:
            for found in _UUID.findall(text):
                self._names.setdefault(found, f"<id {version}.{len(self._names)}>")
        return sorted(self._told(text) for text in texts)

    def value(self, value: Any) -> Any:
        """Anything that tells of ids, times or the table's folder."""
        return json.loads(self._told(json.dumps(_plain(value, self._root), default=str)))

    def _told(self, text: str, blank: bool = False) -> str:
        return _UUID.sub(lambda found: self._names.get(found[0], _BLANK if blank else found[0]), text)


def _plain(value: Any, root: str, key: str = "") -> Any:
    if key in _TIMES or key.endswith("TimeMs"):
        return "<time>"
    if _SIZES.fullmatch(key) or key in _FOUND_BY_VACUUM:
        return "<size>"
    if isinstance(value, dict):
        plain = {name: _plain(one, root, name) for name, one in value.items()}
        # The id of a file of deletion vectors is spelt in a code of its own.
        return plain | {"pathOrInlineDv": _BLANK} if value.get("storageType") == "u" else plain
    if isinstance(value, list):
        return [_plain(one, root) for one in value]
    if isinstance(value, str):
        return _EXPRESSION.sub("#", _RANDOM_FOLDER.sub("", value.replace(root, "<table>")))
    return value


def normal_log(root: Path) -> tuple[list[list[str]], Naming]:
    """The commits of a published log, oldest first, and the names that its ids got."""
    naming = Naming(root)
    commits = []
    files = (file for file in (root / "_delta_log").iterdir() if _COMMIT.fullmatch(file.name))
    for version, file in enumerate(sorted(files)):
        assert file.name == f"{version:020d}.json"
        commits.append(naming.actions(version, file.read_text(encoding="utf-8").splitlines()))
    return commits, naming
