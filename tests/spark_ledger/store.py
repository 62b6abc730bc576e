"""An object store for Spark and the ledger: a real S3 server in memory, with Hadoop's view of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from deltaplane.spark.compiling import load_sources

__all__ = ["open_store", "storage_options"]

_CLASS = "deltaplane.tests.StoreFileSystem"
_SOURCE = Path(__file__).with_name("StoreFileSystem.java")


def storage_options(endpoint: str) -> dict[str, str]:
    """What the ledger and deltalake need to reach it."""
    return {
        "aws_access_key_id": "test",
        "aws_secret_access_key": "not-to-be-seen",
        "aws_region": "us-east-1",
        "aws_endpoint": endpoint,
        "aws_allow_http": "true",
    }


def open_store(spark: SparkSession, endpoint: str) -> None:
    """Let a session reach it as s3a://, as one would with the jars of S3A."""
    jvm: Any = spark._jvm
    if not jvm.org.apache.spark.util.Utils.classIsLoadable(_CLASS):
        load_sources(spark, {_CLASS: _SOURCE.read_text()})
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    settings.set("test.store.endpoint", endpoint)
    settings.set("fs.s3a.impl", _CLASS)
    # Its class is in the jars of S3A.
    settings.unset("fs.AbstractFileSystem.s3a.impl")
