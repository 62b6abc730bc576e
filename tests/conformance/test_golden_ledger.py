"""The golden tables on every database: adopted, compared with the recorded answers, released, unchanged."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deltaplane.errors import DeltaLogError
from deltaplane.ledger import Ledger, Snapshot, connect
from deltaplane.log.actions import AddFile, DeletionVector
from deltaplane.log.replay import TableState, file_key
from golden import GoldenTable, golden_tables, needs_golden
from golden_answers import observed, observed_version, recorded, recorded_protocol, tables
from postgres_server import PostgresServer

# Spark's recorded answers at older versions of this table come from compaction files that are not reconciled.
WRONG_COMPACTION = "kernel-rs/compacted-log-files-table"


@pytest.fixture(scope="module", params=["sqlite", "duckdb", "postgres"])
def ledger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """One ledger for all tables: many tables in one database is the usual case."""
    folder = tmp_path_factory.mktemp("golden")
    server = PostgresServer() if request.param == "postgres" else None
    uri = server.uri(server.new_database()) if server else f"deltasql://{request.param}/{folder}/ledger.db"
    with connect(uri) as opened:
        yield opened
    if server:
        server.stop()


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The table itself, or an unpacked copy of a packed one."""
    unpacked: dict[str, Path] = {}

    def folder(table: GoldenTable) -> Path:
        if not table.packed:
            return table.path
        if table.name not in unpacked:
            unpacked[table.name] = table.copy(tmp_path_factory.mktemp("unpacked") / "delta")
        return unpacked[table.name]

    return folder


def fingerprint(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def state_of(snapshot: Snapshot) -> TableState:
    state = TableState(snapshot.version, snapshot.protocol, snapshot.metadata)
    for row in snapshot.files().to_pylist():
        vector = row["deletion_vector"]
        file = AddFile(
            row["path"],
            dict(row["partition_values"]),
            row["size"],
            row["modification_time"],
            stats=row["stats"],
            deletion_vector=vector
            and DeletionVector(
                vector["storageType"],
                vector["pathOrInlineDv"],
                vector["sizeInBytes"],
                vector["cardinality"],
                vector["offset"],
            ),
        )
        state.files[file_key(file)] = file
    state.transactions.update(snapshot.transactions)
    state.domains.update(snapshot.domains)
    return state


def sized(*verdicts: str) -> list[Any]:
    """The packed table has 300,000 files: minutes on a busy machine."""
    slow = [pytest.param(*p.values, id=p.id, marks=pytest.mark.slow) for p in tables(*verdicts) if packed(p)]
    return [*(p for p in tables(*verdicts) if not packed(p)), *slow]


def packed(parameter: Any) -> bool:
    table = parameter.values[0]
    return table is not None and bool(table.packed)


@pytest.mark.parametrize("table", sized("readable", "log_only"))
def test_adopted_table_equals_spark_at_every_recorded_version_and_leaves_unchanged(
    ledger: Ledger, table: GoldenTable, folder_of: Any
) -> None:
    folder = folder_of(table)
    before = fingerprint(folder) if not table.packed else {}
    ledger.adopt(folder)
    spark = table.expected()["spark"]
    snapshot = ledger.snapshot(folder)
    wanted = {key: value for key, value in recorded(spark).items() if key in spark}
    seen = observed(state_of(snapshot))
    if wanted.get("numRecordsFromStats", 0) is None:
        del wanted["numRecordsFromStats"]  # see check_older
    assert {key: seen[key] for key in wanted} == wanted
    assert (snapshot.num_files, snapshot.size_bytes) == (spark["numFiles"], spark["sizeInBytes"])
    for older in table.expected().get("spark_versions") or []:
        if table.name != WRONG_COMPACTION and "error" not in older:
            check_older(ledger, folder, older)
    assert ledger.verify(folder).differences == ()
    ledger.release(folder)
    assert (fingerprint(folder) if not table.packed else {}) == before


def check_older(ledger: Ledger, folder: Path, older: dict[str, Any]) -> None:
    seen = observed_version(state_of(ledger.snapshot(folder, version=older["version"])))
    wanted = older | {"protocol": recorded_protocol(older["protocol"])}
    if wanted["numRecords"] is None:
        # Spark read a checkpoint that left the statistics out; the ledger knows them from the commits.
        del wanted["numRecords"]
    assert {key: seen[key] for key in wanted} == wanted


@pytest.mark.parametrize("table", tables("reject"))
def test_table_that_others_refuse_is_refused_and_nothing_is_left(
    ledger: Ledger, table: GoldenTable, folder_of: Any
) -> None:
    with pytest.raises(DeltaLogError) as refusal:
        ledger.adopt(folder_of(table))
    assert cause_of(table) in str(refusal.value)
    assert ledger.tables() == []


def cause_of(table: GoldenTable) -> str:
    """A word that the message must have, from what Spark said."""
    error = table.expected()["spark"]["snapshotError"]
    text = f"{error.get('condition')} {error['msg']}"
    metadata = "metaData" if "checkpoint" in table.name else ""
    for spark_word, our_word in {
        "protocol of your Delta table could not be recovered": "protocol",
        "metadata of your Delta table could not be recovered": metadata,
        "not a Delta table": "not a Delta table",
        "INVALID_PROTOCOL_VERSION": "reader version 99",
        "catalogOwned": "catalogOwned",
        "vacuumProtocolCheck": "catalog",
    }.items():
        if spark_word in text:
            return our_word
    raise AssertionError(f"no word for {text}")


@pytest.mark.parametrize("table", tables("disputed"))
def test_disputed_table_is_adopted_as_delta_rs_loads_it(
    ledger: Ledger, table: GoldenTable, folder_of: Any
) -> None:
    """A checkpoint alone is a whole state, and an object over several lines is unambiguous: both are
    taken.
    """
    folder = folder_of(table)
    ledger.adopt(folder)
    snapshot, wanted = ledger.snapshot(folder), table.expected()["deltars"]
    paths = "\n".join(sorted(snapshot.files()["path"].to_pylist())).encode()
    assert {
        "version": snapshot.version,
        "numFiles": snapshot.num_files,
        "sizeInBytes": snapshot.size_bytes,
        "paths_sha256": hashlib.sha256(paths).hexdigest(),
    } == {key: wanted[key] for key in ("version", "numFiles", "sizeInBytes", "paths_sha256")}
    ledger.release(folder)


@needs_golden
def test_all_279_tables_are_covered() -> None:
    wanted = {"readable": 233, "log_only": 22, "reject": 20, "disputed": 4}
    assert {verdict: len(golden_tables(verdict)) for verdict in wanted} == wanted
