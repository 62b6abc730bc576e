"""Names and policies of tables can be changed later."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaplane.errors import ConfigError, ForeignCommit, TableAlreadyManaged, TableNotManaged
from deltaplane.ledger import Ledger
from ledger.conftest import SCHEMA, add


def test_new_name_leads_to_the_table_and_the_old_one_does_not(ledger: Ledger, tmp_path: Path) -> None:
    ledger.create(tmp_path / "t", SCHEMA, name="old")
    ledger.configure("old", name="sales.new")
    assert ledger.snapshot("sales.new").version == 0
    with pytest.raises(TableNotManaged, match="ledger adopt old"):
        ledger.snapshot("old")


def test_name_of_another_table_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    ledger.create(tmp_path / "a", SCHEMA, name="a")
    ledger.create(tmp_path / "b", SCHEMA, name="b")
    with pytest.raises(TableAlreadyManaged, match="has that name already"):
        ledger.configure("b", name="a")
    assert ledger.snapshot("b").location == str(tmp_path / "b")


def test_policy_refuse_holds_from_then_on(ledger: Ledger, tmp_path: Path) -> None:
    ledger.create(tmp_path / "t", SCHEMA, name="t")
    ledger.configure("t", foreign_commits="refuse")
    log = tmp_path / "t" / "_delta_log"
    (log / f"{1:020d}.json").write_bytes((log / f"{0:020d}.json").read_bytes())
    with pytest.raises(ForeignCommit, match="ledger refresh t"), ledger.transaction() as tx:
        tx.commit("t", [add(1)])


def test_policy_that_does_not_exist_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    ledger.create(tmp_path / "t", SCHEMA, name="t")
    with pytest.raises(ConfigError, match="import, refuse"):
        ledger.configure("t", foreign_commits="maybe")
