"""deltalake and Polars read the rows of what we publish, after our checkpoints and after our cleanup."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from deltaplane.ledger import Ledger, connect
from ledger.conftest import SCHEMA
from ledger.independent_replay import published_versions

SPECIAL = [
    "plain",
    "a b",
    "x=y",
    "50%",
    "50%25",
    "ü/é",
    "quo'te\"",
    "semi;colon",
    "#hash?",
    "back\\slash",
    None,
]
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
Rows = list[dict[str, Any]]


def parquet_add(
    table: Path, name: str, rows: Rows, schema: pa.Schema, values: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A real file, and the action that adds it; folders are escaped twice in the log, as Delta does it."""
    values = values or {}
    data = pa.Table.from_pylist(rows, schema)
    folders = [
        f"{column}={quote(value, safe='') if value is not None else NO_VALUE}"
        for column, value in values.items()
    ]
    place = table.joinpath(*folders, name)
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(data, place)
    ids = [row["id"] for row in rows]
    stats = {
        "numRecords": len(rows),
        "minValues": {"id": min(ids)},
        "maxValues": {"id": max(ids)},
        "nullCount": {"id": 0},
    }
    body = {
        "path": quote("/".join([*folders, name])),
        "partitionValues": values,
        "size": place.stat().st_size,
        "modificationTime": 1_700_000_000_000,
        "dataChange": True,
        "stats": json.dumps(stats),
    }
    return {"add": body}


def removal(action: dict[str, Any]) -> dict[str, Any]:
    body = {"path": action["add"]["path"], "deletionTimestamp": 1_700_000_000_000, "dataChange": True}
    return {"remove": body}


def with_deltalake(table: Path, version: int) -> Rows:
    found = (
        QueryBuilder()
        .register("t", DeltaTable(table, version=version))
        .execute("SELECT * FROM t ORDER BY id")
    )
    rows: Rows = pa.table(found.read_all()).to_pylist()
    return rows


def with_polars_eagerly(table: Path, version: int) -> Rows:
    return pl.read_delta(str(table), version=version).sort("id").to_dicts()


def with_polars_lazily(table: Path, version: int) -> Rows:
    return pl.scan_delta(str(table), version=version).sort("id").collect().to_dicts()


@pytest.fixture
def sqlite(ledger_uri: Callable[[str], str]) -> Iterator[Ledger]:
    """For what does not depend on the database."""
    with connect(ledger_uri("sqlite")) as opened:
        yield opened


READERS: list[Callable[[Path, int], Rows]] = [with_deltalake, with_polars_eagerly, with_polars_lazily]


@pytest.fixture(params=READERS, ids=lambda reader: reader.__name__.removeprefix("with_"))
def read(request: pytest.FixtureRequest) -> Callable[[Path, int], Rows]:
    reader: Callable[[Path, int], Rows] = request.param
    return reader


def history_of(ledger: Ledger, table: Path, **properties: str) -> list[Rows]:
    """Versions 0 to 6 with a checkpoint at every second, and the rows that each must show."""
    ledger.create(table, SCHEMA, properties={"delta.checkpointInterval": "2"} | properties)
    expected: list[Rows] = [[]]
    adds: dict[int, dict[str, Any]] = {}
    rows: dict[int, dict[str, Any]] = {}
    for number in range(1, 7):
        adds[number] = parquet_add(
            table, f"f{number}.parquet", [{"id": number, "name": f"row {number}"}], SCHEMA
        )
        rows[number] = {"id": number, "name": f"row {number}"}
        actions = [adds[number]]
        if number % 3 == 0:
            actions.append(removal(adds.pop(number - 2)))
            del rows[number - 2]
        with ledger.transaction() as tx:
            tx.commit(str(table), actions)
        expected.append([rows[key] for key in sorted(rows)])
    return expected


def test_rows_are_the_same_at_every_version(
    ledger: Ledger, tmp_path: Path, read: Callable[[Path, int], Rows]
) -> None:
    table = tmp_path / "t"
    expected = history_of(ledger, table)
    assert [read(table, version) for version in range(7)] == expected
    assert len(list((table / "_delta_log").glob("*.checkpoint.parquet"))) == 3


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_rows_are_read_from_a_checkpoint_after_cleanup(
    sqlite: Ledger, tmp_path: Path, read: Callable[[Path, int], Rows], policy: str
) -> None:
    if policy == "v2" and read is not with_deltalake:
        pytest.skip("Polars refuses tables with v2 checkpoints")
    ledger = sqlite
    table = tmp_path / "t"
    retention = {"delta.logRetentionDuration": "interval 0 seconds"}
    expected = history_of(ledger, table, **retention, **{"delta.checkpointPolicy": policy})
    before = ledger._ctx.clock
    ledger._ctx.clock = lambda: before() + 60_000
    (report,) = ledger.cleanup(table, dry_run=False)
    assert report.files
    assert published_versions(table) == [6]
    assert read(table, 6) == expected[6]
    with ledger.transaction() as tx:
        tx.commit(str(table), [parquet_add(table, "late.parquet", [{"id": 70, "name": None}], SCHEMA)])
    assert read(table, 7) == [*expected[6], {"id": 70, "name": None}]


@pytest.mark.parametrize("checkpointed", [False, True], ids=["commits", "checkpoint"])
def test_special_characters_in_partition_values_survive(
    sqlite: Ledger, tmp_path: Path, read: Callable[[Path, int], Rows], checkpointed: bool
) -> None:
    ledger = sqlite
    table = tmp_path / "t"
    interval = "1" if checkpointed else "100"
    ledger.create(table, SCHEMA, ["name"], {"delta.checkpointInterval": interval})
    files = pa.schema([("id", pa.int64())])
    with ledger.transaction() as tx:
        tx.commit(
            str(table),
            [
                parquet_add(table, "f.parquet", [{"id": number}], files, {"name": value})
                for number, value in enumerate(SPECIAL)
            ],
        )
    assert bool(list((table / "_delta_log").glob("*.checkpoint.parquet"))) == checkpointed
    assert read(table, 1) == [{"id": number, "name": value} for number, value in enumerate(SPECIAL)]
    kept = ledger.snapshot(table).files([("name", "=", "50%")]).to_pylist(maps_as_pydicts="strict")
    assert [file["partition_values"] for file in kept] == [{"name": "50%"}]


def test_columns_that_came_later_are_empty_in_older_files(
    sqlite: Ledger, tmp_path: Path, read: Callable[[Path, int], Rows]
) -> None:
    ledger = sqlite
    table = tmp_path / "t"
    ledger.create(table, SCHEMA, properties={"delta.checkpointInterval": "2"})
    with ledger.transaction() as tx:
        tx.commit(str(table), [parquet_add(table, "old.parquet", [{"id": 1, "name": "a"}], SCHEMA)])
    wider = SCHEMA.append(pa.field("score", pa.float64()))
    fields = json.loads(ledger.snapshot(table).schema_string or "")["fields"]
    fields.append({"name": "score", "type": "double", "nullable": True, "metadata": {}})
    metadata = json.loads(ledger.read_commit(table, 0).splitlines()[2])["metaData"]
    changed = metadata | {"schemaString": json.dumps({"type": "struct", "fields": fields})}
    new = parquet_add(table, "new.parquet", [{"id": 2, "name": "b", "score": 0.5}], wider)
    with ledger.transaction() as tx:
        tx.commit(str(table), [{"metaData": changed}, new])
    assert read(table, 2) == [{"id": 1, "name": "a", "score": None}, {"id": 2, "name": "b", "score": 0.5}]


def test_outside_writers_continue_behind_our_checkpoint(ledger: Ledger, tmp_path: Path) -> None:
    table = tmp_path / "t"
    expected = history_of(ledger, table)
    ledger.release(table)
    write_deltalake(table, pa.table({"id": [99], "name": ["theirs"]}, schema=SCHEMA), mode="append")
    DeltaTable(table).create_checkpoint()
    ledger.adopt(table)
    assert with_deltalake(table, 7) == [*expected[6], {"id": 99, "name": "theirs"}]
    assert ledger.verify(table, every=True).differences == ()


@pytest.fixture
def duckdb_delta() -> Iterator[Any]:
    """DuckDB's own reader, where its extension is installed; it is never fetched."""
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        try:
            connection.execute("LOAD delta")
        except duckdb.Error as error:
            pytest.skip(f"DuckDB's delta extension is not installed: {str(error).splitlines()[0]}")
        yield connection


def test_duckdb_reads_the_same_rows(sqlite: Ledger, tmp_path: Path, duckdb_delta: Any) -> None:
    expected = history_of(sqlite, tmp_path / "t")
    found = duckdb_delta.execute(f"SELECT * FROM delta_scan('{tmp_path}/t') ORDER BY id").fetchall()
    assert found == [tuple(row.values()) for row in expected[6]]
