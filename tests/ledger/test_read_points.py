"""Points in the life of the lake, for readers of other engines."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from deltaplane.errors import StorageError, TableNotManaged
from deltaplane.ledger import Ledger, commit
from ledger.conftest import SCHEMA, add


@pytest.fixture
def pending(ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table of whose two versions only the first is published."""
    place = str(tmp_path / "table")
    ledger.create(place, SCHEMA, name="sales.orders")

    def not_now(*_: object) -> int:
        raise StorageError("not now")

    with monkeypatch.context() as patched, ledger.transaction() as transaction:
        patched.setattr(commit, "publish_all", not_now)
        transaction.commit(place, [add(0)])
        transaction.finish()
    return place


def test_whatever_a_point_names_can_be_read_by_others(ledger: Ledger, pending: str) -> None:
    assert DeltaTable(pending).version() == 0
    point = ledger.read_point()
    assert DeltaTable(pending, version=point.versions[pending]).version() == 1


def test_a_point_that_cannot_be_published_is_given_all_the_same(
    ledger: Ledger, pending: str, caplog: pytest.LogCaptureFixture
) -> None:
    (Path(pending) / "_delta_log" / f"{1:020d}.json").mkdir()
    assert ledger.read_point().versions == {pending: 1}
    assert "sales.orders: publication is delayed" in caplog.text


def test_verification_tells_what_is_not_published(ledger: Ledger, pending: str) -> None:
    found = ledger.verify(pending)
    assert (found.ok, found.pending, found.checked_versions) == (True, 1, (0,))
    ledger.publish(pending)
    assert ledger.verify(pending).pending == 0


def test_a_name_without_its_namespace_is_asked_about(ledger: Ledger, pending: str) -> None:
    with pytest.raises(TableNotManaged, match=r"Is sales\.orders meant\?"):
        ledger.history("Orders")
