"""The example of the README: three tables change together, or none of them does."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

import deltaplane as dp
from spark_ledger.conftest import Lake, elsewhere

pytestmark = pytest.mark.spark


def settle(lake: Lake) -> None:
    lake.sql("UPDATE {orders} SET state = 'paid' WHERE id < 4")
    lake.sql(
        "MERGE INTO {totals} t USING (SELECT state, count(*) n FROM {orders} GROUP BY state) s "
        "ON t.state = s.state WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT *"
    )
    audit = lake.spark.createDataFrame([("settled",)], "what string")
    audit.write.format("delta").mode("append").save(lake.path("audit"))


def seen(lake: Lake) -> tuple[int, dict[str, int]]:
    paid = lake.value("SELECT count(*) FROM {orders} WHERE state = 'paid'")
    return paid, {row.state: row.n for row in lake.rows("SELECT state, n FROM {totals}")}


@pytest.fixture
def shop(lake: Lake) -> Lake:
    lake.table("orders", rows=10)
    lake.table("totals", "state string, n bigint")
    return lake


def test_three_tables_change_together(shop: Lake) -> None:
    with dp.transaction(shop.spark, author="me", message="settle invoices") as transaction:
        settle(shop)
        inside, outside = seen(shop), elsewhere(lambda: seen(shop))
    after = (4, {"new": 6, "paid": 4})
    assert (inside, outside, seen(shop)) == (after, (0, {}), after)
    assert transaction.result is not None
    assert transaction.result.versions == {
        shop.path("audit"): 0,
        shop.path("orders"): 2,
        shop.path("totals"): 1,
    }
    groups = {
        shop.ledger.history(shop.path(name))[0].transaction_id for name in ("orders", "totals", "audit")
    }
    assert groups == {transaction.transaction_id}
    assert DeltaTable(shop.path("totals")).to_pyarrow_table().num_rows == 2
    assert DeltaTable(shop.path("audit")).version() == 0


def test_an_exception_changes_none_of_them(shop: Lake) -> None:
    before = shop.log("orders"), shop.log("totals")

    def fail() -> None:
        with dp.transaction(shop.spark):
            settle(shop)
            raise KeyError("no")

    with pytest.raises(KeyError):
        fail()
    assert seen(shop) == (0, {})
    assert (shop.log("orders"), shop.log("totals")) == before
    assert not (shop.folder / "audit").exists()
    assert len(shop.ledger.tables()) == 2
