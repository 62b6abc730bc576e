"""Names of the ledger's tables as Spark asks for them, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest

import deltaplane as dp
from deltaplane.errors import ConfigError, LedgerUnavailable
from deltaplane.ledger import Ledger
from deltaplane.spark.ledger_names import TableNames

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with dp.connect(f"deltasql://sqlite/{tmp_path}/ledger.db") as opened:
        yield opened


@pytest.fixture
def names(ledger: Ledger) -> TableNames:
    found = TableNames(ledger.context)
    found.kept = True
    return found


@pytest.mark.parametrize(
    ("given", "asked", "listed"),
    [
        ("sales.orders", ("sales", "orders"), "sales.orders"),
        ("Sales.Orders", ("sales", "ORDERS"), "sales.orders"),
        ("orders", ("default", "orders"), "default.orders"),
        ("spark_catalog.sales.orders", ("sales", "orders"), "sales.orders"),
        ("unity.sales.orders", ("sales", "orders"), None),
        ("sales.orders of May", ("sales", "orders of May"), None),
    ],
)
def test_a_name_is_found_as_spark_spells_it(
    ledger: Ledger,
    names: TableNames,
    tmp_path: Path,
    given: str,
    asked: tuple[str, str],
    listed: str | None,
) -> None:
    ledger.create(str(tmp_path / "t"), schema=SCHEMA, name=given)
    assert names.all() == ([] if listed is None else [listed])
    if listed is not None:
        assert names.location(*asked) == str(tmp_path / "t")
    assert names.location("sales", "other") is None


@pytest.mark.parametrize("other", ["Sales.Orders", "spark_catalog.sales.orders"])
def test_a_name_that_spark_could_not_tell_apart_is_refused(
    ledger: Ledger, tmp_path: Path, other: str
) -> None:
    ledger.create(str(tmp_path / "t"), schema=SCHEMA, name="sales.orders")
    with pytest.raises(
        ConfigError, match=r"would be the same in Spark as 'sales.orders', the name of .*/t\."
    ):
        ledger.create(str(tmp_path / "u"), schema=SCHEMA, name=other)
    ledger.create(str(tmp_path / "u"), schema=SCHEMA, name="sales.refunds")
    with pytest.raises(ConfigError, match=r"would be the same in Spark"):
        ledger.configure("sales.refunds", name=other)
    ledger.configure("sales.orders", name=other)
    assert {table.name for table in ledger.tables()} == {other, "sales.refunds"}


def test_the_default_schema_may_be_left_out_of_one_name_only(ledger: Ledger, tmp_path: Path) -> None:
    ledger.create(str(tmp_path / "t"), schema=SCHEMA, name="orders")
    with pytest.raises(ConfigError, match=r"would be the same in Spark as 'orders'"):
        ledger.create(str(tmp_path / "u"), schema=SCHEMA, name="default.orders")


def test_names_that_were_seen_are_known_while_the_database_is_away(
    ledger: Ledger, names: TableNames, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.create(str(tmp_path / "t"), schema=SCHEMA, name="sales.orders")
    ledger.create(str(tmp_path / "u"), schema=SCHEMA, name="sales.refunds")
    assert names.location("sales", "orders") == str(tmp_path / "t")

    @contextmanager
    def away() -> Iterator[NoReturn]:
        raise LedgerUnavailable("gone")
        yield

    monkeypatch.setattr(ledger.context.store, "glance", away)
    assert names.location("sales", "orders") == str(tmp_path / "t")
    assert names.location("sales", "refunds") is None
    assert names.all() == ["sales.orders"]


def test_a_dropped_name_is_taken_only_from_the_table_that_has_it(
    ledger: Ledger, names: TableNames, tmp_path: Path
) -> None:
    ledger.create(str(tmp_path / "t"), schema=SCHEMA, name="sales.orders")
    table = ledger.context.find_location(str(tmp_path / "t"))
    assert table is not None
    names.drop(table, "sales", "an_alias")
    assert names.all() == ["sales.orders"]
    names.drop(table, "sales", "orders")
    assert names.all() == []


@pytest.mark.parametrize(
    ("namespace", "table", "expected"),
    [("sales", "orders", "sales.orders"), ("sales", "two words", None), ("a.b", "t", None)],
)
def test_only_names_that_spark_can_look_up_are_given(
    names: TableNames, tmp_path: Path, namespace: str, table: str, expected: Any
) -> None:
    root = str(tmp_path / "t")
    names.wish(namespace, table, root)
    assert names.of_new(root) == expected
    assert names.of_new(str(tmp_path / "other")) is None


def test_a_session_with_a_metastore_gives_no_names(ledger: Ledger, tmp_path: Path) -> None:
    names = TableNames(ledger.context)
    names.wish("sales", "orders", str(tmp_path / "t"))
    assert names.of_new(str(tmp_path / "t")) is None
