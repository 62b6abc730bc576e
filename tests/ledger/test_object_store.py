"""Tables on an object store: committed through the ledger, published there, read by deltalake."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import boto3
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from moto.server import ThreadedMotoServer

from deltaplane.embedded import write_arrow
from deltaplane.ledger import Ledger, connect
from deltaplane.testing.txnlog_parts.actions import SCHEMA, add


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def options(endpoint: str) -> dict[str, str]:
    options = {
        "aws_access_key_id": "test",
        "aws_secret_access_key": "not-to-be-seen",
        "aws_region": "us-east-1",
        "aws_endpoint": endpoint,
        "aws_allow_http": "true",
    }
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="not-to-be-seen",
    )
    client.create_bucket(Bucket="lake")
    return options


@pytest.fixture
def ledger(tmp_path: Path, options: dict[str, str]) -> Iterator[Ledger]:
    with connect(f"deltasql://sqlite/{tmp_path}/ledger.db", storage_options=options) as opened:
        yield opened


def test_rows_written_through_the_ledger_are_read_by_deltalake(
    ledger: Ledger, options: dict[str, str]
) -> None:
    for day in ("mon", "tue"):
        write_arrow(ledger, "s3://lake/sales", pa.table({"day": [day], "amount": [1]}), partition_by=["day"])
    table = DeltaTable("s3://lake/sales", storage_options=options)
    assert sorted(table.to_pyarrow_table()["day"].to_pylist()) == ["mon", "tue"]
    assert ledger.to_deltalake("s3://lake/sales").version() == 2
    assert ledger.verify("s3://lake/sales", every=True).ok


def test_many_writers_share_a_table_without_a_lock_table(ledger: Ledger, options: dict[str, str]) -> None:
    """S3 needs a lock table for several plain Delta writers; the ledger's database is the lock here."""
    ledger.create("s3://lake/shared", SCHEMA, properties={"delta.checkpointInterval": "5"})

    def append(writer: int) -> None:
        for number in range(5):
            with ledger.transaction() as tx:
                tx.commit("s3://lake/shared", [add(10 * writer + number)])

    threads = [threading.Thread(target=append, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ledger.publish()
    assert DeltaTable("s3://lake/shared", storage_options=options).version() == 20
    assert ledger.snapshot("s3://lake/shared").num_files == 20
    assert ledger.verify("s3://lake/shared", every=True).ok


def test_adopted_table_on_a_store_is_released_unchanged(ledger: Ledger, options: dict[str, str]) -> None:
    table = pa.table({"amount": [1, 2, 3]})
    from deltalake import write_deltalake

    write_deltalake("s3://lake/theirs", table, storage_options=options)
    ledger.adopt("s3://lake/theirs", name="theirs")
    write_arrow(ledger, "theirs", table)
    ledger.release("theirs")
    write_deltalake("s3://lake/theirs", table, storage_options=options, mode="append")
    assert DeltaTable("s3://lake/theirs", storage_options=options).to_pyarrow_table().num_rows == 9


def test_secret_of_a_store_is_not_shown(ledger: Ledger) -> None:
    assert "not-to-be-seen" not in repr(ledger) + repr(ledger.context) + repr(
        ledger.context.storage("s3://lake/x")
    )
