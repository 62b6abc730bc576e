"""The recorded answers of Spark about the golden tables, and ours in the same words."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import pytest

from deltaplane.log.actions import AddFile, Protocol
from deltaplane.log.replay import TableState
from golden import ABSENT, golden_tables


def tables(*verdicts: str) -> list[Any]:
    found = [pytest.param(table, id=table.name) for table in golden_tables(*verdicts)]
    return found or [pytest.param(None, marks=pytest.mark.skip(reason=ABSENT))]


def sha256(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def protocol_dict(protocol: Protocol | None) -> dict[str, Any]:
    assert protocol is not None
    return {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "readerFeatures": None if protocol.reader_features is None else sorted(protocol.reader_features),
        "writerFeatures": None if protocol.writer_features is None else sorted(protocol.writer_features),
    }


def recorded_protocol(recorded: dict[str, Any]) -> dict[str, Any]:
    features = {key: recorded.get(key) for key in ("readerFeatures", "writerFeatures")}
    ordered = {key: None if value is None else sorted(value) for key, value in features.items()}
    return {key: recorded[key] for key in ("minReaderVersion", "minWriterVersion")} | ordered


def with_vector(file: AddFile) -> str:
    vector = file.deletion_vector
    if vector is None:
        return f"{file.path}\t\t"
    return f"{file.path}\t{vector.path_or_inline_dv}\t{'' if vector.offset is None else vector.offset}"


def record_count(files: Iterable[AddFile]) -> int | None:
    """The sum of numRecords, or None when a file does not say; there are statistics whose text is "null"."""
    counts = [(json.loads(file.stats or "null") or {}).get("numRecords") for file in files]
    return None if None in counts else sum(counts)


def observed(state: TableState) -> dict[str, Any]:
    """The state in the words of expected.json."""
    files = list(state.files.values())
    assert state.metadata is not None
    return protocol_dict(state.protocol) | {
        "version": state.version,
        "schemaString": state.metadata.schema_string or None,
        "partitionColumns": list(state.metadata.partition_columns),
        "configuration": dict(state.metadata.configuration),
        "tableId": state.metadata.id,
        "numFiles": len(files),
        "sizeInBytes": sum(file.size for file in files),
        "txns": sorted((txn.app_id, txn.version) for txn in state.transactions.values()),
        "domains": sorted((domain.domain, domain.configuration) for domain in state.domains.values()),
        "paths_sha256": sha256(file.path for file in files),
        "paths_dv_sha256": sha256(with_vector(file) for file in files),
        "numRecordsFromStats": record_count(files),
        "numFilesWithDv": sum(file.deletion_vector is not None for file in files),
    }


def recorded(spark: dict[str, Any]) -> dict[str, Any]:
    return (
        recorded_protocol(spark)
        | {
            key: spark.get(key)
            for key in (
                "version",
                "schemaString",
                "partitionColumns",
                "configuration",
                "tableId",
                "numFiles",
                "sizeInBytes",
                "paths_sha256",
                "paths_dv_sha256",
                "numRecordsFromStats",
                "numFilesWithDv",
            )
        }
        | {
            "txns": sorted((txn["appId"], txn["version"]) for txn in spark["txns"]),
            "domains": sorted((domain["domain"], domain["configuration"]) for domain in spark["domains"]),
        }
    )


def spark_path(path: str) -> str:
    """Spark resolves an absolute path without a scheme before it hands out the files of an older version."""
    return f"file://{path}" if path.startswith("/") else path


def observed_version(state: TableState) -> dict[str, Any]:
    files = list(state.files.values())
    assert state.metadata is not None
    vectors = [(file, file.deletion_vector) for file in files]
    deleted = sum(dv.cardinality for _, dv in vectors if dv)
    records = record_count(files)
    lines = (f"{spark_path(file.path)}\t{dv.path_or_inline_dv if dv else ''}" for file, dv in vectors)
    return {
        "version": state.version,
        "files_sha256": sha256(lines),
        "numFiles": len(files),
        "numRecords": None if records is None else records - deleted,
        "partitionColumns": list(state.metadata.partition_columns),
        "protocol": protocol_dict(state.protocol),
        "schemaString": state.metadata.schema_string or None,
        "sizeInBytes": sum(file.size for file in files),
    }
