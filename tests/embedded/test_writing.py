"""Arrow data into tables of the ledger: what other readers then see, and what is refused without a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from deltaplane import errors
from deltaplane.embedded import Written, write_arrow
from deltaplane.ledger import Ledger

DATA = pa.table({"day": ["mon", "mon", "tue"], "amount": [1, 2, 3]})


def rows(path: Path) -> list[dict[str, Any]]:
    return sorted(polars.read_delta(str(path)).to_dicts(), key=str)


def data_files(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*.parquet") if "_delta_log" not in file.parts}


@pytest.fixture
def sales(ledger: Ledger, tmp_path: Path) -> Path:
    path = tmp_path / "sales"
    write_arrow(ledger, path, DATA, partition_by=["day"], name="shop.sales", author="loader")
    return path


def test_new_table_is_created_from_the_data(ledger: Ledger, tmp_path: Path) -> None:
    written = write_arrow(
        ledger, tmp_path / "t", DATA, partition_by=["day"], properties={"delta.appendOnly": "true"}
    )
    snapshot = ledger.snapshot(tmp_path / "t")
    assert written == Written(version=1, files_added=2, files_removed=0, rows=3)
    assert (snapshot.partition_columns, dict(snapshot.metadata.configuration)) == (
        ["day"],
        {"delta.appendOnly": "true"},
    )
    assert rows(tmp_path / "t") == sorted(DATA.to_pylist(), key=str)


def test_append_by_name_adds_rows_for_other_readers(ledger: Ledger, sales: Path) -> None:
    write_arrow(ledger, "shop.sales", pa.table({"day": ["wed"], "amount": [4]}))
    assert rows(sales) == sorted([*DATA.to_pylist(), {"day": "wed", "amount": 4}], key=str)
    assert DeltaTable(str(sales)).version() == 2


def test_address_with_a_fragment_names_the_table(ledger: Ledger, sales: Path) -> None:
    write_arrow(ledger, f"{ledger.uri}#shop.sales", DATA)
    assert ledger.snapshot(f"{ledger.uri}#shop.sales").num_files == 4


def test_overwrite_replaces_everything_and_keeps_older_versions(ledger: Ledger, sales: Path) -> None:
    written = write_arrow(ledger, sales, pa.table({"day": ["sun"], "amount": [9]}), mode="overwrite")
    assert written == Written(version=2, files_added=1, files_removed=2, rows=1)
    assert rows(sales) == [{"day": "sun", "amount": 9}]
    assert ledger.to_deltalake(sales, version=1).to_pyarrow_table().num_rows == 3


def test_replace_where_replaces_only_these_partitions(ledger: Ledger, sales: Path) -> None:
    new = pa.table({"day": ["mon"], "amount": [100]})
    write_arrow(ledger, sales, new, mode="overwrite", replace_where="day = 'mon'")
    assert rows(sales) == sorted([{"day": "mon", "amount": 100}, {"day": "tue", "amount": 3}], key=str)


@pytest.mark.parametrize(
    ("predicate", "message"),
    [("amount = 1", "predicate over the partition columns"), ("day = 'tue'", "do not satisfy")],
)
def test_replace_where_that_cannot_be_is_refused_and_leaves_no_file(
    ledger: Ledger, sales: Path, predicate: str, message: str
) -> None:
    before = data_files(sales)
    with pytest.raises(errors.CommitRefused, match=message):
        write_arrow(
            ledger,
            sales,
            pa.table({"day": ["mon"], "amount": [1]}),
            mode="overwrite",
            replace_where=predicate,
        )
    assert (data_files(sales), ledger.latest_version(sales)) == (before, 1)


@pytest.mark.parametrize(
    "data",
    [
        pa.table({"day": ["mon"], "amount": ["many"]}),
        pa.table({"day": ["mon"], "amount": [1], "colour": ["red"]}),
    ],
)
def test_data_that_does_not_fit_the_schema_is_refused_and_leaves_no_file(
    ledger: Ledger, sales: Path, data: pa.Table
) -> None:
    before = data_files(sales)
    with pytest.raises(errors.CommitRefused, match="Nothing was"):
        write_arrow(ledger, sales, data)
    assert (data_files(sales), ledger.latest_version(sales)) == (before, 1)


def test_overwrite_that_lost_against_an_append_leaves_no_file(
    ledger: Ledger, sales: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltaplane.embedded import writing

    real = writing.write_files

    def slow(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(writing, "write_files", real)
        write_arrow(ledger, sales, DATA, author="somebody quicker")
        return real(*arguments, **named)

    monkeypatch.setattr(writing, "write_files", slow)
    with pytest.raises(errors.CommitConflict, match="somebody quicker"):
        write_arrow(ledger, sales, pa.table({"day": ["mon"], "amount": [0]}), mode="overwrite")
    assert (len(data_files(sales)), ledger.latest_version(sales)) == (4, 2)


def test_append_goes_behind_an_append_that_was_quicker(
    ledger: Ledger, sales: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltaplane.embedded import writing

    real = writing.write_files

    def slow(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(writing, "write_files", real)
        write_arrow(ledger, sales, DATA)
        return real(*arguments, **named)

    monkeypatch.setattr(writing, "write_files", slow)
    assert write_arrow(ledger, sales, DATA).version == 3
    assert len(rows(sales)) == 9


def test_append_only_table_refuses_an_overwrite(ledger: Ledger, tmp_path: Path) -> None:
    write_arrow(ledger, tmp_path / "t", DATA, properties={"delta.appendOnly": "true"})
    with pytest.raises(errors.CommitRefused, match="append-only"):
        write_arrow(ledger, tmp_path / "t", DATA, mode="overwrite")
    assert len(data_files(tmp_path / "t")) == 1


def test_table_that_needs_spark_is_refused_by_name(ledger: Ledger, tmp_path: Path) -> None:
    ledger.create(tmp_path / "t", DATA.schema, properties={"delta.enableRowTracking": "true"})
    with pytest.raises(errors.UnsupportedTable, match="rowTracking"):
        write_arrow(ledger, tmp_path / "t", DATA)


def test_unmanaged_table_is_not_written(ledger: Ledger, tmp_path: Path) -> None:
    polars.DataFrame({"amount": [1]}).write_delta(str(tmp_path / "foreign"))
    with pytest.raises(errors.CommitRefused, match="ledger adopt"):
        write_arrow(ledger, tmp_path / "foreign", pa.table({"amount": [2]}))
    assert DeltaTable(str(tmp_path / "foreign")).version() == 0


def test_history_says_what_was_written_and_by_whom(ledger: Ledger, sales: Path) -> None:
    newest = ledger.history(sales, limit=1)[0]
    assert (newest.author, newest.operation, newest.facts.adds) == ("loader", "WRITE", 2)


def test_to_deltalake_publishes_what_is_pending_first(
    ledger: Ledger, sales: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from deltaplane.ledger import commit

    def fails(*_arguments: Any) -> int:
        raise errors.StorageError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(commit, "publish_all", fails)
        write_arrow(ledger, sales, DATA)
    assert DeltaTable(str(sales)).version() == 1
    assert ledger.to_deltalake("shop.sales").version() == 2


def test_mode_that_does_not_exist_is_refused(ledger: Ledger, sales: Path) -> None:
    with pytest.raises(errors.CommitRefused, match='"append" or "overwrite"'):
        write_arrow(ledger, sales, DATA, mode="upsert")


def test_two_tables_are_written_in_one_transaction(ledger: Ledger, tmp_path: Path) -> None:
    for name in ("orders", "totals"):
        ledger.create(tmp_path / name, DATA.schema, name=name)
    with ledger.transaction(author="me") as tx:
        for name in ("orders", "totals"):
            assert write_arrow(ledger, name, DATA, transaction=tx).version is None
    assert tx.result is not None
    assert set(tx.result.versions.values()) == {1}
    assert rows(tmp_path / "orders") == rows(tmp_path / "totals") == sorted(DATA.to_pylist(), key=str)


def test_failed_transaction_leaves_no_file_in_any_table(ledger: Ledger, tmp_path: Path) -> None:
    for name in ("orders", "totals"):
        ledger.create(tmp_path / name, DATA.schema, name=name)

    def interrupted() -> None:
        with ledger.transaction() as tx:
            for name in ("orders", "totals"):
                write_arrow(ledger, name, DATA, transaction=tx)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interrupted()
    assert data_files(tmp_path / "orders") == data_files(tmp_path / "totals") == set()


def test_delayed_publication_is_told(ledger: Ledger, sales: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_ctx: object, publications: Any) -> dict[str, Exception]:
        return {each.table.location: errors.StorageError("the disk is full") for each in publications}

    monkeypatch.setattr("deltaplane.ledger.commit.publish_all", full)
    assert write_arrow(ledger, sales, DATA) == Written(2, 2, 0, 3, "the disk is full")
    assert DeltaTable(str(sales)).version() == 1


def test_words_that_cannot_be_kept_are_refused_before_a_table_is_made(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(errors.CommitRefused, match="message must be text"):
        write_arrow(ledger, tmp_path / "t", DATA, message=5)  # type: ignore[arg-type]
    assert ledger.tables() == []
    assert not (tmp_path / "t").exists()
