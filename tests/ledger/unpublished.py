"""Tables whose publication is behind, in the ways that happen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from deltaplane.errors import StorageError
from deltaplane.ledger import Ledger
from ledger.conftest import SCHEMA, add


def commit(ledger: Ledger, table: str, *numbers: int) -> None:
    """One commit for every number, each with one file."""
    for number in numbers:
        with ledger.transaction(message=f"load {number}") as tx:
            tx.commit(table, [add(number)])


@contextmanager
def delayed() -> Iterator[None]:
    """Commits hold, and their publication is left to whoever comes next."""

    def later(*_: Any) -> int:
        raise StorageError("the writer was interrupted.")

    with patch("deltaplane.ledger.commit.publish_all", later):
        yield


def table_behind(ledger: Ledger, root: Path, name: str, versions: int) -> Path:
    """A new table with so many versions that are not published."""
    ledger.create(root / name, SCHEMA, name=name)
    with delayed():
        commit(ledger, name, *range(versions))
    return root / name


def block(table: Path, version: int) -> Path:
    """Put a folder in the place of a commit, so that its publication fails."""
    place = table / "_delta_log" / f"{version:020d}.json"
    place.mkdir()
    return place


def log_of(table: Path) -> list[str]:
    """The names in a table's log."""
    return sorted(path.name for path in (table / "_delta_log").iterdir())
