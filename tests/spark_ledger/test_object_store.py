"""Tables on an object store: the scheme's own file system and log store serve what the ledger does not."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from deltalake import DeltaTable
from moto.server import ThreadedMotoServer
from pyspark.sql import SparkSession

import deltaplane as dp
from deltaplane.errors import TransactionConflict
from deltaplane.ledger import Ledger
from deltaplane.spark.attaching import attach, detach
from postgres_server import PostgresServer
from spark_ledger.conftest import elsewhere
from spark_ledger.drivers import Driver
from spark_ledger.store import open_store, storage_options

pytestmark = pytest.mark.spark


class Bucket:
    """A bucket that a session with a ledger reaches as s3a://, and everybody else as s3://."""

    def __init__(self, spark: SparkSession, endpoint: str) -> None:
        self.spark = spark
        self.name = f"b{uuid.uuid4().hex[:10]}"
        self.endpoint = endpoint
        self.options = storage_options(endpoint)
        self._client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="not-to-be-seen",
        )
        self._client.create_bucket(Bucket=self.name)

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        """In statements @name stands for a table."""
        words = [
            f"delta.`{self.at(word[1:])}`" if word.startswith("@") else word for word in statement.split()
        ]
        return [tuple(row) for row in self.spark.sql(" ".join(words)).collect()]

    def at(self, table: str) -> str:
        return f"s3a://{self.name}/{table}"

    def outside(self, table: str) -> list[int]:
        """What deltalake reads."""
        read = DeltaTable(f"s3://{self.name}/{table}", storage_options=self.options)
        return sorted(read.to_pyarrow_table()["id"].to_pylist())

    def objects(self, prefix: str) -> list[str]:
        found = self._client.list_objects_v2(Bucket=self.name, Prefix=prefix).get("Contents", [])
        return [entry["Key"] for entry in found]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(spark: SparkSession, endpoint: str) -> Bucket:
    open_store(spark, endpoint)
    return Bucket(spark, endpoint)


@pytest.fixture
def ledger(bucket: Bucket, ledger_uri: str) -> Iterator[Ledger]:
    """Attached after the session has used the bucket, so that Hadoop has its file system open already."""
    bucket.sql("CREATE TABLE @plain (id BIGINT) USING delta")
    opened = dp.connect(ledger_uri, storage_options=bucket.options)
    attach(bucket.spark, opened, manage=[f"s3a://{bucket.name}/managed"])
    yield opened
    detach(bucket.spark)
    for table in opened.tables():
        assert opened.verify(table.location, every=True).differences == ()
    opened.close()


@pytest.mark.parametrize("ledger_uri", ["sqlite"], indirect=True)
def test_a_transaction_over_tables_on_a_store(bucket: Bucket, ledger: Ledger) -> None:
    bucket.sql("CREATE TABLE @managed/a (id BIGINT) USING delta TBLPROPERTIES (delta.checkpointInterval = 2)")
    bucket.sql("INSERT INTO @managed/a VALUES (1)")
    ledger.adopt(f"s3://{bucket.name}/plain")
    point = ledger.read_point()
    with dp.transaction(bucket.spark):
        bucket.sql("UPDATE @managed/a SET id = 2")
        bucket.sql("INSERT INTO @managed/a SELECT id + 1 FROM @managed/a")
        bucket.sql("INSERT INTO @plain VALUES (7)")
        bucket.sql("CREATE TABLE @managed/made USING delta AS SELECT 9L AS id")
        assert bucket.sql("SELECT * FROM @managed/a ORDER BY id") == [(2,), (3,)]
        assert elsewhere(lambda: bucket.sql("SELECT * FROM @managed/a")) == [(1,)]
        assert (bucket.outside("managed/a"), bucket.outside("plain")) == ([1], [])
    assert (bucket.outside("managed/a"), bucket.outside("plain")) == ([2, 3], [7])
    assert bucket.outside("managed/made") == [9]
    with dp.reading_at(bucket.spark, point):
        assert bucket.sql("SELECT * FROM @managed/a") == [(1,)]
    assert any("checkpoint" in name for name in bucket.objects("managed/a/_delta_log/"))


@pytest.mark.parametrize("ledger_uri", ["sqlite"], indirect=True)
def test_a_rollback_leaves_nothing_on_a_store(bucket: Bucket, ledger: Ledger) -> None:
    bucket.sql("CREATE TABLE @managed/a USING delta AS SELECT 1L AS id")
    with dp.transaction(bucket.spark) as transaction:
        bucket.sql("DELETE FROM @managed/a")
        bucket.sql("CREATE TABLE @managed/made USING delta AS SELECT 9L AS id")
        transaction.rollback()
    assert bucket.sql("SELECT * FROM @managed/a") == [(1,)]
    assert (bucket.outside("managed/a"), bucket.objects("managed/made")) == ([1], [])
    bucket.sql("CREATE TABLE @managed/made USING delta AS SELECT 9L AS id")
    assert bucket.outside("managed/made") == [9]


@pytest.mark.parametrize("ledger_uri", ["sqlite"], indirect=True)
def test_the_first_committer_wins_on_a_store(bucket: Bucket, ledger: Ledger) -> None:
    bucket.sql("CREATE TABLE @managed/a USING delta AS SELECT 1L AS id")

    def loses() -> None:
        bucket.sql("UPDATE @managed/a SET id = 2")
        elsewhere(lambda: bucket.sql("UPDATE @managed/a SET id = 3"))

    with pytest.raises(TransactionConflict, match="UPDATE"):
        dp.run_transaction(bucket.spark, loses, retries=0)
    assert bucket.outside("managed/a") == [3]


@pytest.mark.slow
@pytest.mark.parametrize("ledger_uri", ["postgres"], indirect=True)
def test_drivers_share_a_table_on_a_store_without_a_lock_service(
    bucket: Bucket, ledger: Ledger, ledger_uri: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    """S3's own log store allows one driver; the ledger's database decides here."""
    bucket.sql("CREATE TABLE @managed/shared (id BIGINT) USING delta")
    job = {
        "work": "store",
        "uri": ledger_uri,
        "folder": str(tmp_path),
        "endpoint": bucket.endpoint,
        "bucket": bucket.name,
        "rounds": 6,
        "go": str(tmp_path / "go"),
    }
    drivers = [Driver(tmp_path / f"driver{number}", **job, number=number) for number in (1, 2)]
    try:
        for driver in drivers:
            driver.wait_for("ready")
        (tmp_path / "go").touch()
        mine = threading.Thread(
            target=lambda: [bucket.sql(f"INSERT INTO @managed/shared VALUES ({n})") for n in range(6)]
        )
        mine.start()
        mine.join()
        assert [driver.ended() for driver in drivers] == [0, 0]
    finally:
        for driver in drivers:
            driver.clear()
    expected = sorted([*range(6), *range(100, 106), *range(200, 206)])
    assert bucket.outside("managed/shared") == expected
    assert [row[0] for row in bucket.sql("SELECT id FROM @managed/shared ORDER BY id")] == expected
    assert ledger.latest_version(f"s3://{bucket.name}/managed/shared") == 18
