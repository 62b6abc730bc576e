"""Loading the state of a table from its log: the golden tables, and logs that are damaged on purpose."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltaplane.errors import CorruptLog, DeltaLogError, NotADeltaTable, VersionNotFound
from deltaplane.ledger import load
from deltaplane.ledger.load import FileVanished, load_state, read_listing
from deltaplane.ledger.storage import Storage, open_storage
from deltaplane.log.actions import AddFile
from deltaplane.log.features import check_readable
from deltaplane.log.jsonlines import action_to_dict
from deltaplane.log.replay import TableState
from golden import GoldenTable, golden_tables, needs_golden
from golden_answers import observed, observed_version, recorded, recorded_protocol, tables

# Its compaction files are not reconciled, and Spark's answers at older versions come from them. The recorded
# answer at the newest version is of a plain replay of the commits, as ours is at every version.
WRONG_COMPACTION = "kernel-rs/compacted-log-files-table"


@pytest.fixture
def storage_of(tmp_path: Path) -> Any:
    """A golden table's storage; a packed one is unpacked first."""

    def opened(table: GoldenTable) -> Storage:
        return open_storage(table.path if table.packed is None else table.copy(tmp_path / "table"))

    return opened


@pytest.mark.parametrize("table", tables("readable", "log_only"))
def test_golden_table_equals_the_answer_of_spark(table: GoldenTable, storage_of: Any) -> None:
    state = load_state(storage_of(table))
    spark = table.expected()["spark"]
    known = {key: value for key, value in observed(state).items() if key in spark}
    assert known == {key: value for key, value in recorded(spark).items() if key in spark}
    assert state.notes == ()
    check_readable(*state.checked(table.name), table.name)


@pytest.mark.parametrize("table", tables("readable", "log_only"))
def test_golden_table_equals_the_answers_of_spark_at_older_versions(
    table: GoldenTable, storage_of: Any
) -> None:
    answers = [one for one in table.expected()["spark_versions"] or [] if "error" not in one]
    if table.name == WRONG_COMPACTION:
        answers = []
    storage = storage_of(table)
    for answer in answers:
        answer["protocol"] = recorded_protocol(answer["protocol"])
        assert observed_version(load_state(storage, answer["version"])) == answer


@pytest.mark.parametrize("table", tables("readable", "log_only"))
def test_golden_table_has_the_files_that_spark_lists(table: GoldenTable, storage_of: Any) -> None:
    if table.packed:
        pytest.skip("no list of files is recorded for the packed table")
    files = [our_fields(file) for file in load_state(storage_of(table)).files.values()]
    assert sorted(files, key=str) == sorted(map(file_fields, table.expected_files()), key=str)


def file_fields(file: dict[str, Any]) -> dict[str, Any]:
    vector = file.get("deletionVector")
    keys = ("path", "size", "modificationTime", "baseRowId", "defaultRowCommitVersion", "clusteringProvider")
    return {key: file.get(key) for key in keys} | {
        "partitionValues": file["partitionValues"],
        "tags": file.get("tags"),
        "deletionVector": vector and {key: vector.get(key) for key in VECTOR},
    }


VECTOR = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")


def our_fields(file: AddFile) -> dict[str, Any]:
    return file_fields(action_to_dict(file)["add"])


# What each refused table is refused for: the words that the error must have.
CAUSES = {
    "delta-golden/data-reader-absolute-paths-escaped-chars": "no metaData",
    "delta-golden/deltalog-invalid-protocol-version": "99",
    "delta-golden/deltalog-state-reconstruction-from-checkpoint-missing-metadata": "no metaData",
    "delta-golden/deltalog-state-reconstruction-from-checkpoint-missing-protocol": "no protocol",
    "delta-golden/deltalog-state-reconstruction-without-protocol": "no protocol",
    "delta-golden/no-delta-log-folder": "no commit and no checkpoint",
    "delta-kernel-java/basic_catalog_managed": "catalogManaged",
    "delta-kernel-java/catalog-owned-preview": "catalogManaged",
    "kernel-rs/crc-malformed": "no commit and no checkpoint",
    "delta-rs/err_logs__table_d": "catalogOwned",
    "delta-rs/err_logs__table_e": "catalogOwned",
    "delta-rs/err_logs__table_f": "catalogOwned",
    "delta-rs/err_logs__table_i": "catalogOwned",
    "trino/statistics__extended_stats_without_data_size": "no commit and no checkpoint",
    "trino/statistics__infinity_nan": "no protocol",
    "trino/statistics__nan": "no protocol",
    "trino/statistics__negative_infinity_nan": "no protocol",
    "trino/statistics__negative_zero": "no protocol",
    "trino/statistics__positive_infinity": "no protocol",
    "trino/statistics__zero_negative_infinity": "no protocol",
}


@pytest.mark.parametrize("table", tables("reject"))
def test_golden_table_that_others_refuse_is_refused_with_the_cause(
    table: GoldenTable, storage_of: Any
) -> None:
    with pytest.raises(DeltaLogError, match=re.escape(CAUSES[table.name])):
        check_readable(*load_state(storage_of(table)).checked(table.name), table.name)


@pytest.mark.parametrize("table", tables("disputed"))
def test_disputed_golden_table_loads_as_delta_rs_loads_it(table: GoldenTable, storage_of: Any) -> None:
    """Spark wants the commit beside a checkpoint, and one action a line.

    A checkpoint is the whole state of its version, and what a pretty-printed commit says is as clear as on
    one line, so refusing them would protect nothing.
    """
    state = load_state(storage_of(table))
    keys = [
        "version",
        "numFiles",
        "sizeInBytes",
        "partitionColumns",
        "paths_sha256",
        "minReaderVersion",
        "minWriterVersion",
    ]
    answer = table.expected()["deltars"]
    assert {key: observed(state)[key] for key in keys} == {key: answer[key] for key in keys}
    assert state.notes == ()


@needs_golden
def test_unreconciled_compaction_files_do_not_change_the_answer(tmp_path: Path) -> None:
    table = next(table for table in golden_tables() if table.name == WRONG_COMPACTION)
    copy = table.copy(tmp_path / "table")
    before = [observed(load_state(open_storage(copy), version)) for version in (12, 24, None)]
    for path in copy.glob("_delta_log/*.compacted.json"):
        path.unlink()
    assert before == [observed(load_state(open_storage(copy), version)) for version in (12, 24, None)]
    assert [one["numFiles"] for one in before[:2]] == [2, 1]


@needs_golden
def test_version_whose_commits_were_cleaned_up_is_not_found() -> None:
    table = next(table for table in golden_tables() if table.name == "delta-rs/checkpoint_with_partitions")
    with pytest.raises(VersionNotFound, match="no longer in the log"):
        load_state(open_storage(table.path), 1)


# Logs that are made and damaged here.

METADATA = {
    "id": "t",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": '{"type":"struct","fields":[]}',
    "partitionColumns": [],
    "configuration": {},
}
HEAD = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": METADATA}]
TEXT_MAP = pa.map_(pa.string(), pa.string())
ADD = pa.struct({"path": pa.string(), "partitionValues": TEXT_MAP, "size": pa.int64()})
CHECKPOINT = pa.schema(
    {
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
        "metaData": pa.struct({"id": pa.string(), "schemaString": pa.string(), "configuration": TEXT_MAP}),
        "add": ADD,
        "checkpointMetadata": pa.struct({"version": pa.int64()}),
        "sidecar": pa.struct(
            {"path": pa.string(), "sizeInBytes": pa.int64(), "modificationTime": pa.int64()}
        ),
    }
)


def add(name: str) -> dict[str, Any]:
    return {
        "add": {"path": name, "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    }


def lines(*actions: dict[str, Any]) -> bytes:
    return "".join(json.dumps(action) + "\n" for action in actions).encode()


def parquet(*actions: dict[str, Any]) -> bytes:
    sink = pa.BufferOutputStream()
    rows = [
        {
            kind: {
                key: list(value.items()) if key in {"partitionValues", "configuration"} else value
                for key, value in body.items()
                if key in CHECKPOINT.field(kind).type.names
            }
        }
        for action in actions
        for kind, body in action.items()
    ]
    pq.write_table(pa.Table.from_pylist(rows, CHECKPOINT), sink)
    return bytes(sink.getvalue())


def name(version: int, rest: str = "json") -> str:
    return f"_delta_log/{version:020d}.{rest}"


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A table of four commits, each of which adds a file."""
    root = str(tmp_path) if request.param == "local" else f"memory://{uuid.uuid4().hex}/table"
    storage = open_storage(root)
    storage.put(name(0), lines(*HEAD, add("f0")))
    for version in (1, 2, 3):
        storage.put(name(version), lines(add(f"f{version}")))
    return storage


def paths(state: TableState) -> list[str]:
    return sorted(path for path, _ in state.files)


def test_every_version_is_replayed(storage: Storage) -> None:
    states = [load_state(storage, version) for version in (0, 1, 2, 3, None)]
    assert [(state.version, len(paths(state)), state.notes) for state in states] == [
        (0, 1, ()),
        (1, 2, ()),
        (2, 3, ()),
        (3, 4, ()),
        (3, 4, ()),
    ]


def test_long_logs_are_read_in_order(storage: Storage) -> None:
    for version in range(4, 60):
        storage.put(name(version), lines({"txn": {"appId": "a", "version": version}}))
    state = load_state(storage)
    assert (state.version, state.transactions["a"].version) == (59, 59)


def test_truncated_commit_is_named_with_its_line(storage: Storage) -> None:
    storage.put(name(2), lines(add("f2"), add("g2"))[:-20])
    with pytest.raises(CorruptLog, match=r"00000000000000000002\.json, line 2|line 2 is not JSON"):
        load_state(storage)


def test_truncated_commit_before_a_checkpoint_does_no_harm(storage: Storage) -> None:
    storage.put(name(2), b'{"add":')
    storage.put(name(2, "checkpoint.parquet"), parquet(*HEAD, add("f0"), add("f1"), add("f2")))
    state = load_state(storage)
    assert (paths(state), state.notes) == (["f0", "f1", "f2", "f3"], ())


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"no parquet at all"])
def test_damaged_checkpoint_is_passed_over_and_told_of(storage: Storage, damage: bytes) -> None:
    storage.put(name(2, "checkpoint.parquet"), damage)
    state = load_state(storage)
    assert paths(state) == ["f0", "f1", "f2", "f3"]
    assert len(state.notes) == 1
    assert "00000000000000000002.checkpoint.parquet" in state.notes[0]
    assert "passed over" in state.notes[0]


def test_damaged_checkpoint_without_an_older_start_is_refused(storage: Storage) -> None:
    storage.put(name(2, "checkpoint.parquet"), b"PAR1")
    storage.delete(name(0))
    with pytest.raises(CorruptLog, match=r"00000000000000000002\.checkpoint\.parquet"):
        load_state(storage)


def test_of_two_checkpoints_at_one_version_the_whole_one_is_read(storage: Storage) -> None:
    storage.put(name(2, "checkpoint.parquet"), parquet(*HEAD, add("f0"), add("f1"), add("f2")))
    storage.put(name(2, "checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.parquet"), b"PAR1")
    storage.delete(name(0))
    state = load_state(storage)
    assert (paths(state), len(state.notes)) == (["f0", "f1", "f2", "f3"], 1)


def test_checkpoint_in_parts_is_read_whole(storage: Storage) -> None:
    storage.put(name(2, "checkpoint.0000000001.0000000002.parquet"), parquet(*HEAD, add("f0")))
    storage.put(name(2, "checkpoint.0000000002.0000000002.parquet"), parquet(add("f1"), add("f2")))
    storage.delete(name(0))
    assert paths(load_state(storage)) == ["f0", "f1", "f2", "f3"]


def test_checkpoint_that_lacks_a_part_is_not_used(storage: Storage) -> None:
    storage.put(name(2, "checkpoint.0000000001.0000000002.parquet"), parquet(*HEAD, add("wrong")))
    state = load_state(storage)
    assert (paths(state), state.notes) == (["f0", "f1", "f2", "f3"], ())


def heading(version: int, sidecar: str) -> list[dict[str, Any]]:
    entry = {"path": sidecar, "sizeInBytes": 1, "modificationTime": 0}
    return [{"checkpointMetadata": {"version": version}}, *HEAD, {"sidecar": entry}]


@pytest.mark.parametrize("path", ["s%201.parquet", "file:/where/it/was/_delta_log/_sidecars/s%201.parquet"])
@pytest.mark.parametrize("form", ["json", "parquet"])
def test_v2_checkpoint_is_read_with_its_sidecars(storage: Storage, form: str, path: str) -> None:
    top = heading(2, path)
    storage.put(name(2, f"checkpoint.u.{form}"), lines(*top) if form == "json" else parquet(*top))
    storage.put("_delta_log/_sidecars/s 1.parquet", parquet(add("f0"), add("f1"), add("f2")))
    storage.delete(name(0))
    state = load_state(storage)
    assert (paths(state), state.notes) == (["f0", "f1", "f2", "f3"], ())


def test_v2_checkpoint_without_its_sidecar_is_passed_over(storage: Storage) -> None:
    storage.put(name(2, "checkpoint.u.json"), lines(*heading(2, "gone.parquet")))
    state = load_state(storage)
    assert paths(state) == ["f0", "f1", "f2", "f3"]
    assert [note for note in state.notes if "_sidecars/gone.parquet: this file" in note] == list(state.notes)


@pytest.mark.parametrize("top", [[{"checkpointMetadata": {"version": 7}}, *HEAD], HEAD])
def test_v2_checkpoint_of_another_version_or_without_heading_is_passed_over(
    storage: Storage, top: list[dict[str, Any]]
) -> None:
    storage.put(name(2, "checkpoint.u.json"), lines(*top))
    state = load_state(storage)
    assert (paths(state), len(state.notes)) == (["f0", "f1", "f2", "f3"], 1)


def test_whole_checkpoint_without_protocol_is_refused_although_the_commits_are_there(
    storage: Storage,
) -> None:
    storage.put(name(2, "checkpoint.parquet"), parquet(HEAD[1], add("f0")))
    with pytest.raises(CorruptLog, match=r"no protocol action.*moving the checkpoint away"):
        load_state(storage)


@pytest.mark.parametrize("hint", [b"", b"{", b'{"version": 99, "size": 1}', b'{"version": 1, "size": 1}'])
def test_stale_or_damaged_last_checkpoint_does_not_matter(storage: Storage, hint: bytes) -> None:
    storage.put("_delta_log/_last_checkpoint", hint)
    assert paths(load_state(storage)) == ["f0", "f1", "f2", "f3"]


def test_missing_commits_are_named(storage: Storage) -> None:
    storage.delete(name(1))
    storage.delete(name(2))
    with pytest.raises(CorruptLog, match="versions 1 to 2 are missing between 0 and 3"):
        load_state(storage)


def test_commit_without_actions_is_told_of(storage: Storage) -> None:
    storage.put(name(2), b"")
    state = load_state(storage)
    assert (paths(state), state.notes) == (
        ["f0", "f1", "f3"],
        ("00000000000000000002.json: the commit has no actions.",),
    )


def test_folder_without_log_is_not_a_table(tmp_path: Path) -> None:
    with pytest.raises(NotADeltaTable, match=re.escape(str(tmp_path))):
        load_state(open_storage(tmp_path))


def test_log_that_is_cleaned_up_while_it_is_read_is_read_again(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = read_listing(storage)
    storage.put(name(3, "checkpoint.parquet"), parquet(*HEAD, add("f0"), add("f1"), add("f2"), add("f3")))
    storage.delete(name(0))
    listings = iter([listing, read_listing(storage)])
    monkeypatch.setattr(load, "read_listing", lambda _: next(listings))
    assert paths(load_state(storage)) == ["f0", "f1", "f2", "f3"]


def test_table_deleted_while_it_is_read_is_an_error(storage: Storage) -> None:
    listing = read_listing(storage)
    for version in range(4):
        storage.delete(name(version))
    with pytest.raises(FileVanished, match="was listed and is gone"):
        load_state(storage, listing=listing)
    with pytest.raises(NotADeltaTable):
        load_state(storage)
