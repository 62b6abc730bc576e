"""Ledgers for the embedded writer; the databases themselves are tested in tests/ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from deltaplane.ledger import Ledger, connect


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with connect(f"deltasql://sqlite/{tmp_path}/ledger.db") as opened:
        yield opened
