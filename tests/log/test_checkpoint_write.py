"""What we write is what other readers take, and the same state always gives the same bytes."""

from __future__ import annotations

import io
import json
import resource
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from deltaplane.errors import CorruptLog
from deltaplane.log import checkpoint_write
from deltaplane.log.actions import (
    Action,
    AddFile,
    CheckpointMetadata,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
)
from deltaplane.log.checkpoint_read import iter_checkpoint_actions
from deltaplane.log.checkpoint_schema import FILE_BATCH, file_batch, tombstone_batch
from deltaplane.log.checkpoint_write import CheckpointSummary, write_classic, write_v2
from deltaplane.log.jsonlines import write_commit
from deltaplane.log.last_checkpoint import LastCheckpoint
from golden import golden_root, needs_golden

IDENTITY = uuid.UUID("6f1d2a3b-0000-4000-8000-00000000000a")
longs = st.integers(-(2**63), 2**63 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
text_maps = st.dictionaries(texts, st.none() | texts, max_size=4)
full_maps = st.dictionaries(texts, texts, max_size=4)
vectors = st.builds(
    DeletionVector,
    storage_type=st.sampled_from("uip"),
    path_or_inline_dv=texts,
    size_in_bytes=ints,
    cardinality=longs,
    offset=st.none() | ints,
)
shared = {
    "path": texts.filter(bool),
    "deletion_vector": st.none() | vectors,
    "base_row_id": st.none() | longs,
    "default_row_commit_version": st.none() | longs,
    "data_change": st.just(False),
}
adds = st.builds(
    AddFile,
    partition_values=text_maps,
    size=longs,
    modification_time=longs,
    stats=st.none() | texts,
    tags=st.none() | text_maps,
    clustering_provider=st.none() | texts,
    **shared,
)
removes = st.builds(
    RemoveFile,
    deletion_timestamp=st.none() | longs,
    extended_file_metadata=st.none() | st.booleans(),
    partition_values=st.none() | text_maps,
    size=st.none() | longs,
    **shared,
)
names = st.none() | st.lists(texts, max_size=3).map(tuple)
protocols = st.builds(
    Protocol, min_reader_version=ints, min_writer_version=ints, reader_features=names, writer_features=names
)
metadatas = st.builds(
    Metadata,
    id=texts,
    schema_string=texts,
    name=st.none() | texts,
    description=st.none() | texts,
    format=st.builds(Format, provider=texts, options=full_maps),
    partition_columns=st.lists(texts, max_size=3).map(tuple),
    configuration=full_maps,
    created_time=st.none() | longs,
)
transactions = st.builds(SetTransaction, app_id=texts, version=longs, last_updated=st.none() | longs)
domains = st.builds(DomainMetadata, domain=texts, configuration=texts, removed=st.booleans())
headers = st.tuples(
    protocols,
    metadatas,
    st.lists(transactions, max_size=4, unique_by=lambda txn: txn.app_id),
    st.lists(domains, max_size=4, unique_by=lambda domain: domain.domain),
).map(lambda parts: [parts[0], parts[1], *parts[2], *parts[3]])


def by_text(actions: Iterable[Action]) -> list[bytes]:
    return sorted(write_commit([action]) for action in actions)


def classic(
    header: Sequence[Action], files: Iterable[pa.RecordBatch], tombstones: Iterable[pa.RecordBatch] = ()
) -> tuple[bytes, CheckpointSummary]:
    sink = io.BytesIO()
    summary = write_classic(sink, header, files, tombstones)
    return sink.getvalue(), summary


class Folder:
    """A log folder in memory; a file appears when its sink is closed without an error."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    @contextmanager
    def open_sink(self, name: str) -> Iterator[IO[bytes]]:
        sink = io.BytesIO()
        yield sink
        self.files[name] = sink.getvalue()


def v2(
    header: Sequence[Action],
    files: Iterable[pa.RecordBatch],
    tombstones: Iterable[pa.RecordBatch],
    **options: Any,
) -> tuple[dict[str, bytes], CheckpointSummary]:
    folder = Folder()
    summary = write_v2(
        folder.open_sink,
        7,
        IDENTITY,
        header,
        files,
        tombstones,
        modification_time_ms=1_700_000_000_000,
        **options,
    )
    return folder.files, summary


def read(content: bytes) -> list[Action]:
    return list(iter_checkpoint_actions(content, "the checkpoint"))


@given(headers, st.lists(adds, max_size=8), st.lists(removes, max_size=8))
def test_a_classic_checkpoint_gives_back_the_state(
    header: list[Action], files: list[AddFile], gone: list[RemoveFile]
) -> None:
    content, summary = classic(header, [file_batch(files)], [tombstone_batch(gone)])
    assert by_text(read(content)) == by_text([*header, *files, *gone])
    assert summary == CheckpointSummary(len(header) + len(files) + len(gone), len(files), len(content))


@given(headers, st.lists(adds, max_size=8), st.lists(removes, max_size=8), st.integers(1, 5))
def test_a_v2_checkpoint_gives_back_the_state(
    header: list[Action], files: list[AddFile], gone: list[RemoveFile], per_sidecar: int
) -> None:
    found, summary = v2(header, [file_batch(files)], [tombstone_batch(gone)], files_per_sidecar=per_sidecar)
    assert list(found) == list(summary.names)
    *sidecars, top = found.values()
    assert by_text(read(top)) == by_text([CheckpointMetadata(7), *header, *summary.sidecars])
    in_sidecars = [read(content) for content in sidecars]
    assert [action for part in in_sidecars for action in part] == [*files, *gone]
    assert max([len(part) for part in in_sidecars], default=0) <= per_sidecar
    assert [(f"_sidecars/{sidecar.path}", sidecar.size_in_bytes) for sidecar in summary.sidecars] == [
        (name, len(content)) for name, content in list(found.items())[:-1]
    ]
    assert (summary.size, summary.num_add_files) == (
        1 + len(header) + len(files) + len(gone) + len(sidecars),
        len(files),
    )
    assert summary.size_in_bytes == sum(map(len, found.values()))


@settings(max_examples=30)
@given(headers, st.lists(adds, min_size=1, max_size=12), st.data())
def test_the_same_state_gives_the_same_bytes_however_it_is_cut(
    header: list[Action], files: list[AddFile], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(files)), max_size=4)))
    pieces = [file_batch(files[a:b]) for a, b in zip([0, *cuts], [*cuts, len(files)], strict=True)]
    shuffled = data.draw(st.permutations(header))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint_write, "ROWS_PER_GROUP", 5)
        patch.setattr(checkpoint_write, "_TEXT_PER_GROUP", 40)
        assert classic(shuffled, pieces)[0] == classic(header, [file_batch(files)])[0]
        assert v2(shuffled, pieces, [])[0] == v2(header, [file_batch(files)], [])[0]


PROTOCOL = Protocol(1, 2)
METADATA = Metadata("2f6f2f0c-0c0e-4e4e-8f8f-000000000001", "{}")
HEADER: list[Action] = [PROTOCOL, METADATA]


def test_row_groups_are_bounded_in_rows_and_in_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_write, "ROWS_PER_GROUP", 4)
    monkeypatch.setattr(checkpoint_write, "_TEXT_PER_GROUP", 100)
    lengths = [1, 1, 1, 1, 1, 60, 60, 500, 1, 20]
    batches = [file_batch([AddFile("p", stats="x" * length)]) for length in lengths]
    file = pq.ParquetFile(io.BytesIO(classic(HEADER, batches)[0]))
    groups = [file.metadata.row_group(at).num_rows for at in range(file.metadata.num_row_groups)]
    assert groups == [2, 4, 2, 1, 1, 2]


def test_an_empty_table_has_a_checkpoint() -> None:
    content, summary = classic(HEADER, [], [])
    assert (read(content), summary.size, summary.num_add_files) == ([METADATA, PROTOCOL], 2, 0)
    found, summary = v2(HEADER, [], [])
    assert summary.names == (f"00000000000000000007.checkpoint.{IDENTITY}.parquet",)
    assert read(found[summary.names[0]]) == [METADATA, PROTOCOL, CheckpointMetadata(7)]


def test_very_long_statistics_survive() -> None:
    file = AddFile("a", data_change=False, stats=json.dumps({"minValues": {"x": "é" * 3_000_000}}))
    assert read(classic(HEADER, [file_batch([file])])[0])[-1] == file


def test_a_checkpoint_never_claims_a_data_change() -> None:
    files = file_batch([AddFile("a", data_change=True)])
    gone = tombstone_batch([RemoveFile("b", data_change=True, stats="{}", tags={"k": "v"})])
    assert read(classic(HEADER, [files], [gone])[0])[2:] == [
        AddFile("a", data_change=False),
        RemoveFile("b", data_change=False),
    ]


def test_what_is_not_state_is_refused_in_the_header() -> None:
    with pytest.raises(TypeError, match="commitInfo is not part of a checkpoint's header"):
        classic([*HEADER, CommitInfo({})], [])


@pytest.mark.parametrize(
    "batch",
    [
        file_batch([AddFile("a", deletion_vector=DeletionVector("u", "x", 2**31, 1))]),
        pa.RecordBatch.from_pylist([{"path": "a", "partition_values": "{"}], schema=FILE_BATCH),
        pa.RecordBatch.from_pylist([{"path": "a", "partition_values": "[]"}], schema=FILE_BATCH),
    ],
)
def test_a_state_that_delta_cannot_hold_is_refused_and_nothing_appears(batch: pa.RecordBatch) -> None:
    folder = Folder()
    with pytest.raises(CorruptLog, match="has no form in a checkpoint, and none was written"):
        write_v2(folder.open_sink, 1, IDENTITY, HEADER, [batch], [], modification_time_ms=0)
    assert folder.files == {}
    with pytest.raises(CorruptLog, match="has no form in a checkpoint, and none was written"):
        classic(HEADER, [batch])


def test_a_failure_of_the_source_leaves_no_file_that_could_be_read() -> None:
    def files() -> Iterator[pa.RecordBatch]:
        yield from [file_batch([AddFile(f"{at}")]) for at in range(3)]
        raise ConnectionError("the database went away")

    sink = io.BytesIO()
    with pytest.raises(ConnectionError):
        write_classic(sink, HEADER, files(), [])
    with pytest.raises(CorruptLog):
        read(sink.getvalue())
    folder = Folder()
    with pytest.raises(ConnectionError):
        write_v2(folder.open_sink, 1, IDENTITY, HEADER, files(), [], modification_time_ms=0)
    assert folder.files == {}


def test_a_full_disk_is_reported_as_it_is() -> None:
    class Full(io.BytesIO):
        def write(self, data: Any, /) -> int:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left on device"):
        write_classic(Full(), HEADER, [file_batch([AddFile("a")])], [])


@needs_golden
def test_the_columns_have_the_types_that_spark_gives_them() -> None:
    root = golden_root()
    assert root is not None
    spark = pq.read_schema(
        root
        / "trino/deltalake__checksum_invalid_json/delta/_delta_log/00000000000000000001.checkpoint.parquet"
    )
    ours = pq.read_schema(io.BytesIO(classic(HEADER, [])[0]))
    assert _columns(ours) == _columns(spark)
    folder = root / "kernel-rs/v2-checkpoints-parquet-with-last-checkpoint/delta/_delta_log"
    top = pq.read_schema(next(folder.glob("*.checkpoint.*.parquet")))
    assert _columns(pq.read_schema(io.BytesIO(list(v2(HEADER, [], [])[0].values())[-1]))) == _columns(top)


# What Spark has and the protocol does not: one field of deletion vectors, and two of tombstones.
NOT_IN_THE_PROTOCOL = ("maxRowIndex", "remove.stats", "remove.tags")


def _columns(schema: pa.Schema) -> dict[str, str]:
    found: dict[str, str] = {}

    def walk(field: pa.Field, path: str) -> None:
        if pa.types.is_struct(field.type):
            for child in field.type:
                walk(child, f"{path}.{child.name}")
        elif not path.endswith(NOT_IN_THE_PROTOCOL):
            found[path] = str(field.type)

    for field in schema:
        walk(field, field.name)
    return found


def _generated(count: int, step: int) -> Iterator[pa.RecordBatch]:
    stats = json.dumps({"numRecords": 1, "minValues": {f"c{at}": at for at in range(20)}})
    for start in range(0, count, step):
        rows = range(start, start + step)
        columns = {
            "path": [f"d=2024-01-{row % 28 + 1:02d}/part-{row:08d}.snappy.parquet" for row in rows],
            "partition_values": [f'{{"d":"2024-01-{row % 28 + 1:02d}"}}' for row in rows],
            "size": list(rows),
            "modification_time": list(rows),
            "stats": [f'{stats[:-1]},"row":{row}}}' for row in rows],
        }
        arrays = [pa.array(columns.get(field.name, [None] * step), field.type) for field in FILE_BATCH]
        yield pa.RecordBatch.from_arrays(arrays, schema=FILE_BATCH)


class Drain(io.BytesIO):
    """Forgets what it is given."""

    def write(self, data: Any, /) -> int:
        return len(data)


def test_three_hundred_thousand_files_pass_in_bounded_memory() -> None:
    pool = pa.default_memory_pool()
    before_arrow, before = pool.bytes_allocated(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peaks: list[int] = []

    def watched() -> Iterator[pa.RecordBatch]:
        for batch in _generated(300_000, 5_000):
            peaks.append(pool.bytes_allocated() - before_arrow)
            yield batch

    summary = write_classic(Drain(), HEADER, watched(), [])
    assert (summary.size, summary.num_add_files) == (300_002, 300_000)
    assert max(peaks) < 150 << 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 << 10


SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "p", "type": "string", "nullable": True, "metadata": {}},
        ],
    }
)


class Table:
    """A table on disk whose log begins with one of our checkpoints."""

    def __init__(self, root: Path, protocol: Protocol) -> None:
        self.root, self.log = root, root / "_delta_log"
        (self.log / "_sidecars").mkdir(parents=True)
        self.header: list[Action] = [
            protocol,
            Metadata(
                "5c1c0d3e-0000-4000-8000-000000000001", SCHEMA, partition_columns=("p",), created_time=1
            ),
            SetTransaction("app", 3, 1),
        ]

    def add(self, name: str, ids: list[int], partition: str | None) -> AddFile:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), path)
        stats = {
            "numRecords": len(ids),
            "minValues": {"id": min(ids)},
            "maxValues": {"id": max(ids)},
            "nullCount": {"id": 0},
        }
        return AddFile(name, {"p": partition}, path.stat().st_size, 1, False, json.dumps(stats))

    @contextmanager
    def open_sink(self, name: str) -> Iterator[IO[bytes]]:
        with (self.log / name).open("wb") as sink:
            yield sink

    def finish(self, summary: CheckpointSummary, later: list[Action]) -> None:
        (self.log / "_last_checkpoint").write_bytes(summary.last_checkpoint(7).write())
        (self.log / f"{8:020d}.json").write_bytes(write_commit([CommitInfo({"operation": "WRITE"}), *later]))

    def rows(self) -> list[tuple[int, str | None]]:
        frame = pl.read_delta(str(self.root)).sort("id").select("id", "p")
        return [(row[0], row[1]) for row in frame.rows()]

    def names(self) -> set[str]:
        table = deltalake.DeltaTable(str(self.root))
        assert table.version() == 8
        assert table.transaction_version("app") == 3
        return {
            uri.removeprefix(str(self.root)).removeprefix("file://").lstrip("/") for uri in table.file_uris()
        }


def _state(table: Table) -> tuple[list[AddFile], list[RemoveFile], list[Action]]:
    files = [
        table.add("p=x/a.parquet", [1, 2], "x"),
        table.add("p=__HIVE_DEFAULT_PARTITION__/b.parquet", [3], None),
        table.add("p=é/c.parquet", [4], "é"),
    ]
    gone = [RemoveFile("p=x/gone.parquet", 5, False, True, {"p": "x"}, 10)]
    later: list[Action] = [
        replace(table.add("p=x/d.parquet", [5], "x"), data_change=True),
        RemoveFile("p=x/a.parquet", 9, True, True, {"p": "x"}, files[0].size),
    ]
    return files, gone, later


EXPECTED_NAMES = {"p=__HIVE_DEFAULT_PARTITION__/b.parquet", "p=é/c.parquet", "p=x/d.parquet"}
EXPECTED_ROWS = [(3, None), (4, "é"), (5, "x")]


def test_deltalake_and_polars_read_a_table_on_our_classic_checkpoint(tmp_path: Path) -> None:
    table = Table(tmp_path / "t", Protocol(1, 2))
    files, gone, later = _state(table)
    with table.open_sink(f"{7:020d}.checkpoint.parquet") as sink:
        summary = write_classic(sink, table.header, [file_batch(files)], [tombstone_batch(gone)])
    table.finish(summary, later)
    assert (table.names(), table.rows()) == (EXPECTED_NAMES, EXPECTED_ROWS)


@pytest.mark.parametrize("per_sidecar", [1, 100])
def test_deltalake_reads_a_table_on_our_v2_checkpoint(tmp_path: Path, per_sidecar: int) -> None:
    table = Table(tmp_path / "t", Protocol(3, 7, ("v2Checkpoint",), ("v2Checkpoint",)))
    files, gone, later = _state(table)
    summary = write_v2(
        table.open_sink,
        7,
        IDENTITY,
        table.header,
        [file_batch(files)],
        [tombstone_batch(gone)],
        modification_time_ms=1,
        files_per_sidecar=per_sidecar,
    )
    table.finish(summary, later)
    assert table.names() == EXPECTED_NAMES
    # Polars refuses the feature before it looks at the checkpoint.
    rows = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(table.root)))
    found = pa.table(rows.execute("SELECT id, p FROM t ORDER BY id").read_all())
    assert list(zip(*found.to_pydict().values(), strict=True)) == EXPECTED_ROWS


def test_deltalake_reads_an_empty_table_and_deletion_vectors_from_our_checkpoint(tmp_path: Path) -> None:
    features = ("deletionVectors",)
    table = Table(tmp_path / "t", Protocol(3, 7, features, features))
    inline = DeletionVector("i", "0rJua", 4, 1)
    stored = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 36, 2, 1)
    files = [AddFile("i.parquet", {"p": None}, 9, 1, deletion_vector=inline, stats='{"numRecords":5}')]
    files += [AddFile("u.parquet", {"p": "x"}, 9, 1, deletion_vector=stored, stats='{"numRecords":5}')]
    for kept in (files, []):
        with table.open_sink(f"{7:020d}.checkpoint.parquet") as sink:
            summary = write_classic(sink, table.header, [file_batch(kept)], [])
        table.finish(summary, [])
        assert table.names() == {file.path for file in kept}


def test_the_hint_tells_readers_what_was_written() -> None:
    _, summary = classic(HEADER, [file_batch([AddFile("a")])])
    assert summary.last_checkpoint(7) == LastCheckpoint(
        7, 3, size_in_bytes=summary.size_in_bytes, num_of_add_files=1
    )
    found, summary = v2(HEADER, [file_batch([AddFile("a")])], [])
    top = summary.names[-1]
    assert summary.last_checkpoint(7) == LastCheckpoint(
        7,
        5,
        size_in_bytes=summary.size_in_bytes,
        num_of_add_files=1,
        v2_checkpoint={
            "path": top,
            "sizeInBytes": len(found[top]),
            "modificationTime": 1_700_000_000_000,
        },
    )
