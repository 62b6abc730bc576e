"""The tables and databases that the benchmark works on. Everything lies in one temporary folder."""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from golden import golden_tables
from postgres_server import PostgresServer

__all__ = [
    "ENGINES",
    "IDS_PER_FILE",
    "Databases",
    "action",
    "copy_log",
    "databases",
    "packed_table",
    "schema_string",
    "write_log",
]

ENGINES = ("sqlite", "duckdb", "postgres")
IDS_PER_FILE = 1000
_PACKED = "kernel-rs/300k-add-files-100-col-partitioned"
_COLUMNS = (("id", "long"), ("name", "string"), ("amount", "double"))


class Databases:
    """Fresh databases of every engine."""

    def __init__(self, folder: Path, engines: Sequence[str], server: PostgresServer | None) -> None:
        self.engines = tuple(engines)
        self._folder = folder
        self._server = server

    def uri(self, engine: str) -> str:
        if engine == "postgres":
            assert self._server is not None
            return self._server.uri(self._server.new_database())
        return f"deltasql://{engine}/{self._folder}/ledger-{uuid.uuid4().hex[:8]}.{engine}"


@contextmanager
def databases(folder: Path, engines: Sequence[str]) -> Iterator[Databases]:
    """The server of PostgreSQL runs with its own defaults: what it acknowledges is on the disk."""
    server = PostgresServer() if "postgres" in engines else None
    try:
        yield Databases(folder, engines, server)
    finally:
        if server is not None:
            server.stop()


def schema_string() -> str:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in _COLUMNS]
    return json.dumps({"type": "struct", "fields": fields})


def stats(number: int) -> str:
    """What a writer tells of one file: its ids are of no other file."""
    first, last = number * IDS_PER_FILE, (number + 1) * IDS_PER_FILE - 1
    return (
        f'{{"numRecords":{IDS_PER_FILE},'
        f'"minValues":{{"id":{first},"name":"customer-{first:010d}","amount":0.25}},'
        f'"maxValues":{{"id":{last},"name":"customer-{last:010d}","amount":9999.75}},'
        f'"nullCount":{{"id":0,"name":0,"amount":0}}}}'
    )


def path_of(number: int) -> str:
    return f"part-{number:08d}-5d41402a-bc4b-4a76-b971-9d911017c592-c000.snappy.parquet"


def action(number: int) -> dict[str, Any]:
    """One file as an action of Delta."""
    content = {
        "path": path_of(number),
        "partitionValues": {},
        "size": 1_000_000 + number,
        "modificationTime": 1_700_000_000_000 + number,
        "dataChange": True,
        "stats": stats(number),
    }
    return {"add": content}


def _first_lines(identity: str) -> list[dict[str, Any]]:
    metadata = {
        "id": identity,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_string(),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 1_700_000_000_000,
    }
    return [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]


def write_log(folder: Path, files: int, commits: int) -> Path:
    """A table of so many files in so many commits. There are no data files: only the log is read here."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    share = files // commits
    for version in range(commits):
        info = {"timestamp": 1_700_000_000_000 + version, "operation": "WRITE", "isBlindAppend": True}
        lines: list[dict[str, Any]] = [{"commitInfo": info}]
        if version == 0:
            lines += _first_lines(str(uuid.uuid4()))
        last = files if version == commits - 1 else (version + 1) * share
        lines += (action(number) for number in range(version * share, last))
        text = "\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
        (log / f"{version:020d}.json").write_text(text + "\n")
    return folder


def copy_log(table: Path, target: Path, *, checkpoint: bool) -> Path:
    """A second table with the same commits; its checkpoint, where one is wanted, is deltalake's."""
    (target / "_delta_log").mkdir(parents=True)
    for file in (table / "_delta_log").glob("*.json"):
        os.link(file, target / "_delta_log" / file.name)
    if checkpoint:
        DeltaTable(target).create_checkpoint()
    return target


def packed_table(target: Path) -> Path | None:
    """The table of 300,000 files of another project; None where the golden tables are absent."""
    found = next((table for table in golden_tables() if table.name == _PACKED), None)
    return found.copy(target) if found else None
