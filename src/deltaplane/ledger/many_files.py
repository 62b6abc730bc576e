"""Whether anything is odd about the files of a commit, told of all of them at once.

There may be hundreds of thousands, and a loop over them in Python takes longer than to write them down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from deltaplane.log.actions import AddFile, RemoveFile
from deltaplane.log.replay import file_key

__all__ = ["FileAction", "Found", "look_through"]

FileAction = AddFile | RemoveFile

_path = attrgetter("path")
_vector = attrgetter("deletion_vector")


@dataclass(frozen=True)
class Found:
    """What was found.

    Attributes:
        plain: Every path is for certain a text that any database keeps.
        distinct: No file is named twice.
    """

    plain: bool
    distinct: bool


def look_through(files: Sequence[FileAction]) -> Found:
    """Look whether paths are odd, or named twice."""
    paths = list(map(_path, files))
    together = "\n".join(paths)
    # A path without escapes is its own key; and is hashed faster.
    bare = "%" not in together and "file:" not in together and not any(map(_vector, files))
    keys = set(paths) if bare else set(map(file_key, files))
    return Found(together.isascii() and "\0" not in together, len(keys) == len(files))
