"""Points in the life of the lake, for readers of other engines."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from deltaplane.errors import ConfigError, StorageError, TableNotManaged
from deltaplane.ledger import Ledger, ReadPoint, commit
from deltaplane.ledger.names import commit_path
from deltaplane.log.jsonlines import action_from_dict, write_commit
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


def test_a_point_has_what_outside_writers_committed_before(ledger: Ledger, tmp_path: Path) -> None:
    places = {name: tmp_path / name for name in ("imports", "refuses", "damaged", "quiet", "gone")}
    for place in places.values():
        ledger.create(str(place), SCHEMA)
    ledger.configure(str(places["refuses"]), foreign_commits="refuse")
    for name in ("imports", "refuses"):
        (places[name] / commit_path(1)).write_bytes(write_commit([action_from_dict(add(1))]))
    (places["damaged"] / commit_path(1)).write_bytes(b"")
    (places["gone"] / commit_path(0)).unlink()
    before = ledger.read_point(ledger.context.clock() - 60_000)
    point = ledger.read_point()
    assert {Path(place).name: version for place, version in point.versions.items()} == {
        **dict.fromkeys(places, 0),
        "imports": 1,
    }
    assert before.versions == {}
    assert ledger.history(str(places["imports"]))[0].source == "foreign"


@pytest.mark.parametrize(
    "text",
    ["", "{", "{}", "[1]", "null", '{"at": "now", "versions": {}}', '{"at": 1, "versions": {"a": "b"}}'],
)
def test_a_text_that_is_no_point_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"not a read point.*Give what ReadPoint.to_json"):
        ReadPoint.from_json(text)
