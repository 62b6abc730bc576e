"""Adoption: everything that the log can rebuild comes in, nothing in the folder changes, damage is named."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from deltaplane import telemetry
from deltaplane.errors import (
    ConfigError,
    CorruptLog,
    DeltaplaneError,
    NotADeltaTable,
    TableAlreadyManaged,
    TableNotManaged,
    UnsafePath,
    UnsupportedTable,
)
from deltaplane.ledger import Ledger, connect
from deltaplane.ledger.adopt import Adoption
from ledger.conftest import SCHEMA, add
from ledger.independent_replay import published_versions, replay_commits
from ledger.test_stateful import Crash, check_every_version, from_ledger

ROWS = pa.table({"id": [1, 2], "name": ["a", "b"]}, schema=SCHEMA)
STEPS = ["adopt.entered", "adopt.base_chunk", "adopt.base_done", "adopt.commits", "adopt.checked"]


@pytest.fixture
def sqlite(ledger_uri: Callable[[str], str]) -> Iterator[Ledger]:
    """For what does not depend on the database."""
    with connect(ledger_uri("sqlite")) as opened:
        yield opened


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of deltalake: versions 0 to 5, a checkpoint at 3."""
    table = tmp_path_factory.mktemp("source") / "table"
    for number in range(6):
        write_deltalake(table, ROWS, mode="append")
        if number == 3:
            DeltaTable(table).create_checkpoint()
    return table


@pytest.fixture
def table(source: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(source, tmp_path / "table"))


def log_file(table: Path, version: int, kind: str = "json") -> Path:
    return table / "_delta_log" / f"{version:020d}.{kind}"


def checkpoint_of(table: Path, version: int) -> Path:
    return log_file(table, version, "checkpoint.parquet")


def fingerprint(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def rows_left(ledger: Ledger) -> dict[str, int]:
    """How many rows of tables the database holds, by the ledger's own statements."""
    return {table.location: table.head_version for table in ledger.tables()}


def write_plain_table(table: Path, commits: list[list[dict[str, Any]]]) -> Path:
    """A table by a writer that knows no data files."""
    (table / "_delta_log").mkdir(parents=True)
    schema = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
    first = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
                      "partitionColumns": [], "configuration": {}}},
    ]  # fmt: skip
    for version, actions in enumerate([[*first, *commits[0]], *commits[1:]]):
        log_file(table, version).write_text("\n".join(json.dumps(action) for action in actions))
    return table


def drop_from_checkpoint(file: Path, kind: str, count: int = 1) -> None:
    """Make a checkpoint lie: some actions of a kind are missing."""
    content = pq.read_table(file.open("rb"))
    found = [number for number, body in enumerate(content[kind].to_pylist()) if body is not None]
    kept = [number for number in range(content.num_rows) if number not in found[:count]]
    pq.write_table(content.take(kept), file)


def change_in_checkpoint(file: Path, kind: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Make a checkpoint lie: one action says something else."""
    content = pq.read_table(file.open("rb"))
    rows = content[kind].to_pylist()
    change(next(body for body in rows if body is not None))
    place = content.schema.get_field_index(kind)
    pq.write_table(content.set_column(place, kind, pa.array(rows, content.schema.field(kind).type)), file)


def test_every_version_comes_in_and_the_folder_stays_as_it_was(ledger: Ledger, table: Path) -> None:
    before = fingerprint(table)
    adoption = ledger.adopt(table, name="lake.t", author="me")
    states = [replay_commits(table, version) for version in range(6)]
    check_every_version(ledger, table, states)
    assert (adoption.version, adoption.base_version, adoption.num_files, adoption.notes) == (5, 0, 6, ())
    assert fingerprint(table) == before
    assert [(entry.action, entry.author) for entry in ledger.audit_trail()] == [("adopt", "me")]


def test_files_of_the_commit_that_brings_a_column_are_found_by_that_column(
    ledger: Ledger, tmp_path: Path
) -> None:
    """Of the first commit, and of a later one that widens the table."""
    table = write_plain_table(tmp_path / "t", [[add(1)], [add(2)]])
    ledger.adopt(table)
    assert ledger.snapshot(table).files("id = 15")["path"].to_pylist() == ["part-00001.parquet"]
    metadata = json.loads(log_file(table, 0).read_text().splitlines()[1])["metaData"]
    schema = json.loads(metadata["schemaString"])
    schema["fields"].append({"name": "score", "type": "long", "nullable": True, "metadata": {}})
    stats = '{"numRecords":1,"minValues":{"score":5},"maxValues":{"score":6},"nullCount":{"score":0}}'
    with ledger.transaction() as tx:
        tx.commit(
            str(table), [{"metaData": metadata | {"schemaString": json.dumps(schema)}}, add(3, stats=stats)]
        )
    found = ledger.snapshot(table).files("score = 5")["path"].to_pylist()
    assert sorted(found) == [f"part-0000{number}.parquet" for number in (1, 2, 3)], (
        "older files know nothing of it"
    )
    older = ["part-00001.parquet", "part-00002.parquet"]
    assert sorted(ledger.snapshot(table).files("score = 7")["path"].to_pylist()) == older


def test_a_log_without_its_beginning_starts_at_its_checkpoint(ledger: Ledger, table: Path) -> None:
    for version in range(3):
        log_file(table, version).unlink()
    adoption = ledger.adopt(table)
    assert (adoption.version, adoption.base_version, adoption.num_files) == (5, 3, 6)
    assert [ledger.snapshot(table, version).num_files for version in (3, 4, 5)] == [4, 5, 6]
    assert ledger.verify(table, every=True).checked_versions == (3, 4, 5)
    assert ledger.verify(table, every=True).differences == ()


STARTS = {
    "commits": (lambda _: None, {}, 0),
    "a checkpoint": (lambda table: [log_file(table, version).unlink() for version in range(3)], {}, 3),
    "a damaged commit": (lambda table: _cut(log_file(table, 1)), {}, 3),
    "the checkpoint that is trusted": (lambda _: None, {"trust": "checkpoint"}, 0),
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("step", STEPS)
def test_an_interrupted_adoption_goes_on_and_gives_the_same(
    ledger: Ledger, table: Path, step: str, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltaplane.ledger.adopting._CHUNK", 2)
    arrange, wishes, first = STARTS[start]
    arrange(table)
    before = fingerprint(table)

    try:
        adoption = _adopt_until(ledger, table, step, **wishes)
    except Crash:
        with pytest.raises(TableNotManaged, match="not finished"):
            ledger.snapshot(table)
        adoption = ledger.adopt(table, **wishes)
    assert (adoption.version, adoption.base_version, adoption.num_files) == (5, first, 6)
    assert [ledger.snapshot(table, version).num_files for version in range(first, 6)] == list(
        range(first + 1, 7)
    )
    verification = ledger.verify(table, every=True)
    assert (verification.checked_versions, verification.differences) == (tuple(range(first, 6)), ())
    assert fingerprint(table) == before


def test_a_repeated_adoption_takes_the_newer_wishes(sqlite: Ledger, table: Path) -> None:
    with pytest.raises(Crash):
        _adopt_until(sqlite, table, "adopt.commits", name="old")
    sqlite.adopt(table, name="new", foreign_commits="refuse", allow_paths=["/elsewhere"])
    (managed,) = sqlite.tables()
    assert (managed.name, managed.foreign_commits, managed.allowed_paths) == (
        "new",
        "refuse",
        ("/elsewhere",),
    )


def test_a_repeated_adoption_of_another_table_begins_anew(
    sqlite: Ledger, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two somebody replaced the table at this place."""
    monkeypatch.setattr("deltaplane.ledger.adopting._CHUNK", 2)
    with pytest.raises(Crash):
        _adopt_until(sqlite, table, "adopt.commits")
    shutil.rmtree(table)
    for _ in range(3):
        write_deltalake(table, ROWS, mode="append")
    adoption = sqlite.adopt(table)
    assert (adoption.version, adoption.num_files) == (2, 3)
    assert sqlite.verify(table, every=True).differences == ()


def _adopt_until(ledger: Ledger, table: Path, step: str, **wishes: Any) -> Adoption:
    def die(name: str, _: dict[str, Any]) -> None:
        if name == step:
            raise Crash

    stop = telemetry.listen(die)
    try:
        return ledger.adopt(table, **wishes)
    finally:
        stop()


def test_a_table_deleted_during_adoption_leaves_nothing_behind(sqlite: Ledger, table: Path) -> None:
    with pytest.raises(Crash):
        _adopt_until(sqlite, table, "adopt.commits")
    shutil.rmtree(table)
    with pytest.raises(NotADeltaTable):
        sqlite.adopt(table)
    assert rows_left(sqlite) == {}


def test_big_logs_are_read_in_pieces_and_tell_how_far_they_are(
    sqlite: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltaplane.ledger.adopting._CHUNK", 10)
    table = write_plain_table(tmp_path / "t", [[add(10 * n + i) for i in range(8)] for n in range(6)])
    told: list[tuple[str, int, int]] = []
    pieces: list[str] = []
    stop = telemetry.listen(lambda name, _: pieces.append(name) if name == "adopt.commits" else None)
    sqlite.adopt(table, progress=lambda *step: told.append(step))
    stop()
    assert told == [("reading commits", done, 6) for done in (1, 3, 5, 6)]
    assert len(pieces) == 4, "the first commit fills a piece of ten by itself, then two of eight do"
    assert sqlite.snapshot(table).num_files == 48


def test_a_big_checkpoint_is_read_in_pieces_and_tells_how_far_it_is(
    sqlite: Ledger, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltaplane.ledger.adopting._CHUNK", 2)
    for version in range(3):
        log_file(table, version).unlink()
    told: list[tuple[str, int, int]] = []
    sqlite.adopt(table, progress=lambda *step: told.append(step))
    files = [done for what, done, _ in told if what == "reading the checkpoint"]
    assert len(files) == 3, "protocol, metadata and four files, two at a time"
    assert (files[-1], told[-1]) == (4, ("reading commits", 2, 2))


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a truncated commit": (lambda t: _cut(log_file(t, 5)), "00000000000000000005.json"),
    "an empty name in the middle": (
        lambda t: log_file(t, 5).write_bytes(b"\0\0\0"),
        "00000000000000000005.json",
    ),
    "a missing commit": (lambda t: log_file(t, 4).unlink(), "version 4 is missing"),
    "no log": (lambda t: shutil.rmtree(t / "_delta_log"), "not a Delta table"),
}


def _cut(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_log_is_refused_by_name_and_nothing_is_left(
    sqlite: Ledger, table: Path, damage: str
) -> None:
    harm, expected = DAMAGES[damage]
    harm(table)
    before = fingerprint(table)
    with pytest.raises((CorruptLog, NotADeltaTable), match=expected):
        sqlite.adopt(table)
    assert (rows_left(sqlite), fingerprint(table)) == ({}, before)


def test_a_damaged_old_commit_costs_the_versions_before_the_checkpoint_only(
    sqlite: Ledger, table: Path
) -> None:
    _cut(log_file(table, 1))
    adoption = sqlite.adopt(table)
    assert (adoption.version, adoption.base_version, adoption.num_files) == (5, 3, 6)
    assert "00000000000000000001.json" in adoption.notes[0]


def test_a_damaged_checkpoint_is_passed_over_and_told(sqlite: Ledger, table: Path) -> None:
    _cut(checkpoint_of(table, 3))
    adoption = sqlite.adopt(table)
    assert (adoption.version, adoption.base_version, adoption.num_files) == (5, 0, 6)
    assert "a damaged checkpoint was passed over" in adoption.notes[0]


def test_an_action_that_is_there_twice_counts_once(ledger: Ledger, tmp_path: Path) -> None:
    table = write_plain_table(tmp_path / "t", [[add(1)], [add(2), add(2)], [add(1), add(1, size=7)]])
    ledger.adopt(table)
    sizes = [sorted(ledger.snapshot(table, v).files()["size"].to_pylist()) for v in range(3)]
    assert sizes == [[101], [101, 102], [7, 102]]
    assert ledger.verify(table, every=True).differences == ()


def _rename_column(body: dict[str, Any]) -> None:
    body["schemaString"] = body["schemaString"].replace('"id"', '"ident"')


def _demand_more(body: dict[str, Any]) -> None:
    body["minWriterVersion"] = 4


def test_a_checkpoint_that_lies_about_files_is_refused_until_somebody_decides(
    sqlite: Ledger, table: Path
) -> None:
    drop_from_checkpoint(checkpoint_of(table, 3), "add")
    with pytest.raises(CorruptLog, match="has 3 active files, and the commits up to it lead to 4") as caught:
        sqlite.adopt(table)
    assert 'trust="commits" or trust="checkpoint"' in str(caught.value)
    assert rows_left(sqlite) == {}


@pytest.mark.parametrize(("kind", "change"), [("metaData", _rename_column), ("protocol", _demand_more)])
def test_where_a_checkpoint_describes_the_table_otherwise_the_ledger_reads_like_everybody(
    sqlite: Ledger, table: Path, kind: str, change: Callable[[dict[str, Any]], None]
) -> None:
    change_in_checkpoint(checkpoint_of(table, 3), kind, change)
    (note,) = sqlite.adopt(table).notes
    assert f"another {kind} than the commits" in note
    assert sqlite.verify(table, every=True).differences == ()
    assert json.loads(sqlite.snapshot(table).schema_string or "") == json.loads(
        DeltaTable(table).schema().to_json()
    )


def test_the_commits_may_be_trusted_over_a_checkpoint(sqlite: Ledger, table: Path) -> None:
    drop_from_checkpoint(checkpoint_of(table, 3), "add")
    adoption = sqlite.adopt(table, trust="commits")
    assert (adoption.base_version, adoption.num_files) == (0, 6)
    assert "The commits were believed" in adoption.notes[0]


def test_a_checkpoint_may_be_trusted_over_the_commits(sqlite: Ledger, table: Path) -> None:
    drop_from_checkpoint(checkpoint_of(table, 3), "add")
    adoption = sqlite.adopt(table, trust="checkpoint")
    assert adoption.num_files == 5
    assert [sqlite.snapshot(table, version).num_files for version in range(6)] == [1, 2, 3, 3, 4, 5]
    assert sqlite.verify(table, every=True).differences == ()


@pytest.mark.parametrize("path", ["../other/secret.parquet", "a/%2e%2e/%2e%2e/x.parquet"])
def test_a_path_that_climbs_out_is_refused(sqlite: Ledger, tmp_path: Path, path: str) -> None:
    table = write_plain_table(tmp_path / "t", [[add(1, path=path)]])
    with pytest.raises(UnsafePath, match="leaves the table's folder"):
        sqlite.adopt(table)
    assert rows_left(sqlite) == {}


def test_a_file_elsewhere_is_taken_only_where_its_folder_is_allowed(sqlite: Ledger, tmp_path: Path) -> None:
    other = tmp_path / "other" / "f.parquet"
    other.parent.mkdir()
    other.write_bytes(b"data")
    table = write_plain_table(tmp_path / "t", [[add(1, path=str(other))]])
    with pytest.raises(UnsafePath):
        sqlite.adopt(table)
    assert sqlite.adopt(table, allow_paths=[str(other.parent)]).notes == ()


def test_a_place_that_is_gone_is_taken_and_told_of(sqlite: Ledger, tmp_path: Path) -> None:
    table = write_plain_table(tmp_path / "t", [[add(1, path="/no/such/place/f.parquet")]])
    assert "1 actions name files outside" in sqlite.adopt(table).notes[0]


def test_a_folder_that_cannot_be_written_is_adopted_all_the_same(
    sqlite: Ledger, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write anywhere, so every way to write is taken away instead of the permission."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("adoption writes nothing into the table's folder")

    for name in ("put", "put_if_absent", "open_sink", "delete"):
        monkeypatch.setattr(f"deltaplane.ledger.storage_local.LocalStorage.{name}", refuse)
    assert sqlite.adopt(table).version == 5
    assert sqlite.snapshot(table).num_files == 6


def test_a_table_is_adopted_once(ledger: Ledger, table: Path) -> None:
    ledger.adopt(table)
    with pytest.raises(TableAlreadyManaged, match="at version 5"):
        ledger.adopt(table)


def test_a_name_is_given_once(ledger: Ledger, table: Path, tmp_path: Path) -> None:
    ledger.create(tmp_path / "other", SCHEMA, name="sales")
    with pytest.raises(TableAlreadyManaged, match="another table of that name"):
        ledger.adopt(table, name="sales")
    assert rows_left(ledger) == {str(tmp_path / "other"): 0}
    assert ledger.adopt(table, name="sales2").version == 5


@pytest.mark.parametrize("wish", [{"foreign_commits": "sometimes"}, {"trust": "nobody"}])
def test_an_unknown_wish_is_refused(sqlite: Ledger, table: Path, wish: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        sqlite.adopt(table, **wish)
    assert rows_left(sqlite) == {}


def test_a_table_of_an_unknown_feature_is_refused(sqlite: Ledger, tmp_path: Path) -> None:
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["tomorrow"],
        "writerFeatures": ["tomorrow"],
    }
    table = write_plain_table(tmp_path / "t", [[], [{"protocol": protocol}]])
    with pytest.raises(UnsupportedTable, match="tomorrow"):
        sqlite.adopt(table)
    assert rows_left(sqlite) == {}


def test_release_gives_back_an_ordinary_table_that_others_write(ledger: Ledger, table: Path) -> None:
    ledger.adopt(table)
    with ledger.transaction() as tx:
        tx.commit(str(table), [add(77)])
    before = fingerprint(table)
    released = ledger.release(table, author="me")
    assert (released.version, rows_left(ledger), fingerprint(table)) == (6, {}, before)
    write_deltalake(table, ROWS, mode="append")
    assert DeltaTable(table).version() == 7


def test_adopt_commit_release_adopt_keeps_everything(ledger: Ledger, table: Path) -> None:
    ledger.adopt(table)
    for number in range(3):
        with ledger.transaction() as tx:
            tx.commit(str(table), [add(number), {"txn": {"appId": "app", "version": number}}])
    before = [from_ledger(ledger, table, version) for version in range(9)]
    ledger.release(table)
    with pytest.raises(TableNotManaged):
        ledger.snapshot(table)
    ledger.adopt(table)
    assert [from_ledger(ledger, table, version) for version in range(9)] == before
    assert ledger.verify(table, every=True).differences == ()
    assert published_versions(table) == list(range(9))


def test_a_table_deleted_underneath_is_said_and_nothing_is_lost(ledger: Ledger, table: Path) -> None:
    ledger.adopt(table)
    shutil.rmtree(table)
    with pytest.raises(NotADeltaTable, match="folder is gone"), ledger.transaction() as tx:
        tx.commit(str(table), [add(1)])
    assert not table.exists(), "a deleted table does not come back as a torso"
    assert (ledger.latest_version(table), ledger.snapshot(table).num_files) == (5, 6)
    assert not ledger.verify(table).ok
    assert ledger.release(table).version == 5


def test_errors_of_adoption_are_ours(sqlite: Ledger, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(DeltaplaneError):
        sqlite.adopt(tmp_path / "file")
