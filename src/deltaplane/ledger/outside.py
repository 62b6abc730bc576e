"""Files that a log names outside its table: which of them an adoption takes, and which it refuses."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from deltaplane.ledger.model import ManagedTable
from deltaplane.log.paths import check_inside, is_inside, is_relative, resolve

__all__ = ["OutsideFiles"]

# Everything else is relative and cannot climb: most logs have nothing of the kind, and a million paths cost
# little.
_SUSPICIOUS = re.compile(r"^/|:|\\|\.\.|%2e", re.IGNORECASE)


class OutsideFiles:
    """Judges the paths of one table while it is adopted.

    Shallow clones name files of their source by absolute path, and old logs name places that are gone. Such
    paths are taken and told of, because adoption touches no data file and later work checks every path again.
    Refused is what could be made to reach something real: a relative path that climbs out of the folder, or
    an absolute one at which this machine has a file.
    """

    def __init__(self, table: ManagedTable) -> None:
        self._table = table
        self.count = 0
        self.example: str | None = None

    def check(self, paths: Iterable[str]) -> None:
        """Judge paths.

        Raises:
            UnsafePath: One of them could reach something that is not the table's.
        """
        root, allowed = self._table.location, self._table.allowed_paths
        for path in paths:
            if not _SUSPICIOUS.search(path) or is_inside(root, path, allowed):
                continue
            place = resolve(root, path)
            if is_relative(path) or ("://" not in place and os.path.lexists(place)):
                check_inside(root, path, self._table.label, allowed)
            self.count += 1
            self.example = self.example or path

    def notes(self) -> list[str]:
        """What to tell the user."""
        if not self.count:
            return []
        return [
            f"{self.count} actions name files outside the table's folder, such as {self.example}. They were "
            f"taken in as they are; new commits there are refused unless the folder is allowed."
        ]
