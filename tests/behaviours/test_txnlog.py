"""The behaviours of a transaction log, in files (local and S3) and on every database."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable

from deltaplane.ledger import Ledger, connect
from deltaplane.ledger.filelog import FileTxnLog
from deltaplane.ledger.storage import Storage, canonical_root, open_storage
from deltaplane.testing.txnlog import TxnLogBehaviours
from postgres_server import PostgresServer


def deltalake_paths(place: str, version: int, options: dict[str, str] | None = None) -> set[str]:
    root = canonical_root(place)
    uris = DeltaTable(root, version=version, storage_options=options).file_uris()
    return {unquote(uri).removeprefix("file://").removeprefix(f"{root}/") for uri in uris}


@pytest.fixture(scope="module")
def s3_options() -> Iterator[dict[str, str]]:
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    endpoint = f"http://{host}:{port}"
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys)
    client.create_bucket(Bucket="lake")
    yield {"endpoint": endpoint, "region": "us-east-1", "allow_http": "true", **keys}
    server.stop()


@pytest.fixture(scope="module")
def postgres_ledger() -> Iterator[Ledger]:
    """One for all tests: each has a table of its own, and a database costs more than a test."""
    server = PostgresServer()
    with connect(server.uri(server.new_database())) as ledger:
        yield ledger
    server.stop()


class LocalFiles(TxnLogBehaviours):
    @pytest.fixture
    def place(self, tmp_path: Path) -> str:
        return str(tmp_path / "my table")

    @pytest.fixture
    def files(self) -> Callable[[str], Storage]:
        return open_storage

    @pytest.fixture
    def outside(self) -> Callable[[str, int], set[str]]:
        return deltalake_paths


class TestFileTxnLog(LocalFiles):
    """A plain `_delta_log` on a disk."""

    @pytest.fixture
    def log(self) -> FileTxnLog:
        return FileTxnLog()


class TestFileTxnLogOnS3(TxnLogBehaviours):
    """A plain `_delta_log` in an object store."""

    @pytest.fixture
    def place(self) -> str:
        return f"s3://lake/{uuid.uuid4().hex}/table"

    @pytest.fixture
    def log(self, s3_options: dict[str, str]) -> FileTxnLog:
        return FileTxnLog(s3_options)

    @pytest.fixture
    def files(self, s3_options: dict[str, str]) -> Callable[[str], Storage]:
        return lambda place: open_storage(place, s3_options)

    @pytest.fixture
    def outside(self, s3_options: dict[str, str]) -> Callable[[str, int], set[str]]:
        return lambda place, version: deltalake_paths(place, version, s3_options)


class TestLedgerOnSqlite(LocalFiles):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[Ledger]:
        with connect(f"deltasql://sqlite/{tmp_path}/ledger.db") as ledger:
            yield ledger


class TestLedgerOnDuckdb(LocalFiles):
    @pytest.fixture
    def log(self, tmp_path: Path) -> Iterator[Ledger]:
        with connect(f"deltasql://duckdb/{tmp_path}/ledger.duckdb") as ledger:
            yield ledger


class TestLedgerOnPostgres(LocalFiles):
    @pytest.fixture
    def log(self, postgres_ledger: Ledger) -> Ledger:
        return postgres_ledger
