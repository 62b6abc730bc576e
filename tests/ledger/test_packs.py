"""Packs: they change how files are read, never what is read."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltaplane import telemetry
from deltaplane.errors import TableFrozen
from deltaplane.ledger import Ledger, activefiles, connect, packs
from deltaplane.ledger.model import ManagedTable
from deltaplane.ledger.packs import (
    FOREVER,
    Pack,
    Packing,
    disjoint,
    pack_files,
    plan_packing,
    runs,
    uncovered,
)
from deltaplane.ledger.roles import roles_script
from ledger import test_stateful
from ledger.conftest import SCHEMA, add, remove
from ledger.test_foreign import outside_commit
from ledger.unpublished import delayed
from postgres_server import PostgresServer

VECTORS = {"delta.enableDeletionVectors": "true"}
NEVER_DUE = {"delta.checkpointInterval": "100000"}


class Seen:
    """What happened: packs that were opened, answers that were thrown away."""

    def __init__(self) -> None:
        self.opened: list[Pack] = []
        self.mismatches = 0

    def count(self, name: str, amount: float, labels: Mapping[str, str]) -> None:
        assert not labels or set(labels) == set(telemetry.METRICS[name].labels)
        self.mismatches += int(amount) * (name == "ledger_pack_mismatches_total")

    def observe(self, name: str, value: float, labels: Mapping[str, str]) -> None:
        """Nobody asks how long it took."""


@pytest.fixture(autouse=True)
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    """Stretches of ten files, and somebody who watches."""
    watching, real = Seen(), activefiles.opened

    def opened(pack: Pack, *rest: Any) -> pa.RecordBatch:
        watching.opened.append(pack)
        return real(pack, *rest)

    monkeypatch.setattr(packs, "STRETCH", 10)
    monkeypatch.setattr(activefiles, "opened", opened)
    stop = telemetry.record(watching)
    yield watching
    stop()


def commit(ledger: Ledger, table: Path, *actions: dict[str, Any]) -> None:
    with ledger.transaction() as tx:
        tx.commit(str(table), list(actions))


def managed(ledger: Ledger, table: Path) -> ManagedTable:
    return ledger._ctx.table(str(table))


def packed(ledger: Ledger, table: Path) -> int:
    return pack_files(ledger._ctx, managed(ledger, table))


def ranges(ledger: Ledger, table: Path) -> list[tuple[int, int]]:
    with ledger._ctx.store.reading() as session:
        rows = session.rows("pack_ranges", table_id=managed(ledger, table).table_id)
    return [(row[0], row[1]) for row in rows]


def listed(files: pa.Table) -> list[tuple[Any, ...]]:
    files.validate(full=True)
    return sorted((tuple(row.values()) for row in files.to_pylist()), key=repr)


def assert_as_without_packs(ledger: Ledger, table: Path, *predicates: str) -> None:
    """Every version, whole and by predicates, compared with what the rows alone give."""
    now = managed(ledger, table)
    for version in range(now.base_version, now.head_version + 1):
        for predicate in (None, *predicates):
            found = ledger.snapshot(table, version=version).files(predicate)
            with patch.object(packs, "STRETCH", FOREVER):
                plain = ledger.snapshot(table, version=version).files(predicate)
            assert found.schema == plain.schema
            assert listed(found) == listed(plain), (version, predicate)


@pytest.fixture
def table(ledger: Ledger, tmp_path: Path) -> Path:
    """Thirty-five files in versions 1 to 7, and three packs."""
    place = tmp_path / "t"
    ledger.create(place, SCHEMA, properties=NEVER_DUE)
    for first in range(0, 35, 5):
        commit(ledger, place, *(add(number) for number in range(first, first + 5)))
    assert packed(ledger, place) == 3
    return place


# --- what is read


def test_packs_cover_complete_stretches_and_rows_the_rest(ledger: Ledger, table: Path, seen: Seen) -> None:
    assert ranges(ledger, table) == [(0, 10), (10, 20), (20, 30)]
    files = ledger.snapshot(table).files()
    assert sorted(files["path"].to_pylist()) == [f"part-{number:05d}.parquet" for number in range(35)]
    assert seen.opened == [Pack(0, 10, 1, 2, 10), Pack(10, 20, 3, 4, 10), Pack(20, 30, 5, 6, 10)]
    assert packed(ledger, table) == 0, "what is packed stays packed"


def test_an_older_version_opens_only_the_packs_it_needs(ledger: Ledger, table: Path, seen: Seen) -> None:
    assert_as_without_packs(ledger, table)
    seen.opened.clear()
    assert ledger.snapshot(table, version=3).files().num_rows == 15
    assert [pack.first_file for pack in seen.opened] == [0, 10]
    assert seen.mismatches == 0


def test_a_pack_of_files_that_all_came_later_is_not_read_as_rows(
    ledger: Ledger, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans: list[Any] = []
    real = activefiles._rows
    monkeypatch.setattr(activefiles, "_rows", lambda *values: (spans.append(values[2]), real(*values))[1])
    assert ledger.snapshot(table, version=1).files().num_rows == 5
    assert spans == [(30, FOREVER)]


def vector(cardinality: int) -> dict[str, Any]:
    place = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4 * cardinality}
    return place | {"sizeInBytes": 40, "cardinality": cardinality}


@pytest.mark.parametrize("packing", ["always", "at the end"])
def test_everything_that_a_file_can_have_and_undergo(
    ledger: Ledger, tmp_path: Path, packing: str, seen: Seen
) -> None:
    """Partitions, missing statistics, removes, files that come back, replaced ones, deletion vectors."""
    table = tmp_path / "t"
    ledger.create(table, SCHEMA, ["name"], VECTORS | NEVER_DUE)
    values = ["a", None, "", "q\"u'o\\te", "ü / %20"]

    def file(number: int, **fields: Any) -> dict[str, Any]:
        return add(number, partitionValues={"name": values[number % 5]}, **fields)

    def marked(number: int, cardinality: int) -> dict[str, Any]:
        return file(number, deletionVector=vector(cardinality))

    history = [
        [file(number) for number in range(8)],
        [file(number, stats=None) for number in range(8, 16)],
        [remove(2), remove(9), file(16)],
        [file(2, size=7777), file(17)],
        [remove(3), marked(3, 1), *(file(number) for number in range(18, 24))],
        [remove(3, deletionVector=vector(1)), marked(3, 2)],
        [file(5, size=5555, stats=None)],
        [remove(number) for number in range(10, 16)],
        [file(number) for number in range(10, 16)],
        [{"txn": {"appId": "a", "version": 1}}],
        [remove(2), file(30), file(31)],
    ]
    for actions in history:
        commit(ledger, table, *actions)
        if packing == "always":
            packed(ledger, table)
    packed(ledger, table)
    assert ranges(ledger, table)
    assert_as_without_packs(ledger, table, "id = 25", "name = 'a'", "name IS NULL", "id > 0")
    assert seen.opened
    assert seen.mismatches == 0


@pytest.mark.parametrize("partitions", [[], ["name"]])
def test_columns_that_a_table_has_not_are_empty(
    ledger: Ledger, tmp_path: Path, partitions: list[str]
) -> None:
    table = tmp_path / "t"
    values = dict.fromkeys(partitions, "x")
    ledger.create(table, SCHEMA, partitions, NEVER_DUE)
    commit(ledger, table, *(add(number, partitionValues=values) for number in range(10)))
    assert packed(ledger, table) == 1
    files = ledger.snapshot(table).files()
    assert files["partition_values"].to_pylist() == [list(values.items())] * 10
    assert files["deletion_vector"].null_count == 10
    assert_as_without_packs(ledger, table)


def test_any_history_reads_the_same_with_packs(
    engine: str, ledger_uri: Callable[[str], str], seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The random histories of `test_stateful`, and crashes while packing."""
    monkeypatch.setattr(packs, "STRETCH", 3)
    steps = [*test_stateful.STEPS, *["pack.written", "pack.dropped"] * 3]
    monkeypatch.setattr(test_stateful, "STEPS", steps)
    test_stateful.explore(ledger_uri(engine), examples=6 if engine == "sqlite" else 2, steps=15)
    assert seen.opened
    assert seen.mismatches == 0


# --- when packs are made and go


def test_a_checkpoint_packs(ledger: Ledger, tmp_path: Path, seen: Seen) -> None:
    table = tmp_path / "t"
    ledger.create(table, SCHEMA, properties={"delta.checkpointInterval": "2"})
    commit(ledger, table, *(add(number) for number in range(25)))
    assert ranges(ledger, table) == []
    commit(ledger, table, add(25))
    assert ranges(ledger, table) == [(0, 10), (10, 20)]
    assert_as_without_packs(ledger, table)
    assert (len(seen.opened), seen.mismatches) == (4, 0)


def test_adoption_packs_and_release_forgets(ledger: Ledger, table: Path, seen: Seen) -> None:
    before = managed(ledger, table).table_id
    ledger.release(table)
    with ledger._ctx.store.reading() as session:
        assert session.rows("pack_ranges", table_id=before) == []
    ledger.adopt(table)
    assert ranges(ledger, table) == [(0, 10), (10, 20), (20, 30)]
    assert_as_without_packs(ledger, table)
    assert seen.mismatches == 0


def test_a_table_of_few_files_is_asked_nothing_about_packs(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.create(tmp_path / "t", SCHEMA)
    commit(ledger, tmp_path / "t", add(1))
    monkeypatch.setattr(activefiles, "listed_packs", None)
    monkeypatch.setattr(packs, "listed_packs", None)
    assert ledger.snapshot(tmp_path / "t").files().num_rows == 1
    assert packed(ledger, tmp_path / "t") == 0


def test_a_pack_of_which_most_files_are_gone_is_dropped_for_good(
    ledger: Ledger, table: Path, seen: Seen
) -> None:
    commit(ledger, table, *(remove(number) for number in range(5)))
    packed(ledger, table)
    assert ranges(ledger, table) == [(0, 10), (10, 20), (20, 30)], "half of them are there"
    assert_as_without_packs(ledger, table)
    commit(ledger, table, remove(5))
    assert_as_without_packs(ledger, table)
    assert packed(ledger, table) == 0
    assert ranges(ledger, table) == [(10, 20), (20, 30)]
    assert packed(ledger, table) == 0
    assert_as_without_packs(ledger, table)
    assert seen.mismatches == 0


def test_rows_with_long_statistics_make_narrower_packs(
    ledger: Ledger, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ledger._ctx.store.writing() as session:
        session.run("delete_packs", table_id=managed(ledger, table).table_id)
    monkeypatch.setattr(packs, "_PIECE", 3)
    monkeypatch.setattr(packs, "_MOST_BYTES", 1000)
    assert packed(ledger, table) == 6
    assert ranges(ledger, table) == [(0, 6), (6, 10), (10, 16), (16, 20), (20, 26), (26, 30)]
    assert_as_without_packs(ledger, table)


def test_what_a_packer_left_half_done_is_finished(ledger: Ledger, table: Path) -> None:
    with ledger._ctx.store.writing() as session:
        session.run("delete_packs", table_id=managed(ledger, table).table_id)
    with patch.object(packs, "STRETCH", 5):
        packed(ledger, table)
    with ledger._ctx.store.writing() as session:
        for first in (5, 10, 25):
            session.run("delete_pack", table_id=managed(ledger, table).table_id, first_file=first)
    assert packed(ledger, table) == 3
    assert ranges(ledger, table)[:6] == [(0, 5), (5, 10), (10, 15), (15, 20), (20, 25), (25, 30)]
    assert_as_without_packs(ledger, table)


def test_two_who_pack_at_once_make_each_pack_once(uri: str, table: Path, ledger: Ledger, seen: Seen) -> None:
    now = managed(ledger, table)
    with ledger._ctx.store.writing() as session:
        session.run("delete_packs", table_id=now.table_id)
    ready, made = threading.Barrier(4), []

    def work() -> None:
        ready.wait()
        made.append(pack_files(ledger._ctx, now))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(made), sum(made)) == (4, 3)
    assert ranges(ledger, table) == [(0, 10), (10, 20), (20, 30)]
    assert_as_without_packs(ledger, table)
    assert seen.mismatches == 0


def test_packing_that_fails_disturbs_nobody(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: Any) -> bytes:
        raise RuntimeError("no room")

    monkeypatch.setattr(packs, "encoded", fails)
    table = tmp_path / "t"
    ledger.create(table, SCHEMA, properties={"delta.checkpointInterval": "1"})
    with caplog.at_level(logging.WARNING, "deltaplane"):
        commit(ledger, table, *(add(number) for number in range(20)))
    assert [record.message for record in caplog.records] == [
        f"{table}: its files could not be packed: no room"
    ]
    assert managed(ledger, table).checkpoint_version == 1
    assert ledger.snapshot(table).files().num_rows == 20
    ledger.release(table)
    assert ledger.adopt(table).num_files == 20


# --- repair, and packs that are wrong


def diverge(ledger: Ledger, table: Path) -> None:
    """The ledger ratified a version 8 that is not published, and somebody else published another."""
    with delayed():
        commit(ledger, table, *(add(number) for number in range(35, 45)), remove(1))
    outside_commit(table, 8, [remove(2), *(add(number) for number in range(50, 60))])
    with pytest.raises(TableFrozen):
        ledger.refresh(table)


@pytest.mark.parametrize("keep", ["ledger", "log"])
def test_a_repair_takes_the_packs_out_with_the_rows(
    ledger: Ledger, table: Path, keep: str, seen: Seen
) -> None:
    diverge(ledger, table)
    packed(ledger, table)
    assert ranges(ledger, table)[-1] == (30, 40)
    ledger.repair(table, keep, dry_run=False)
    if keep == "log":
        assert ranges(ledger, table) == []
    assert_as_without_packs(ledger, table)
    packed(ledger, table)
    assert (0, 10) in ranges(ledger, table)
    assert_as_without_packs(ledger, table)
    assert seen.mismatches == 0


def test_rows_that_a_repair_took_out_do_not_come_back_in_a_pack(
    ledger: Ledger, table: Path, monkeypatch: pytest.MonkeyPatch, seen: Seen
) -> None:
    """The packer has read the rows, and before it writes somebody repairs the table."""
    diverge(ledger, table)
    now, real = managed(ledger, table), packs.encoded

    def encoded(batches: Any) -> bytes:
        monkeypatch.setattr(packs, "encoded", real)
        ledger.repair(table, "log", dry_run=False)
        return real(batches)

    monkeypatch.setattr(packs, "encoded", encoded)
    assert pack_files(ledger._ctx, now) == 0
    assert ranges(ledger, table) == []
    assert_as_without_packs(ledger, table)
    assert seen.mismatches == 0


def test_a_packer_leaves_nothing_behind_a_released_table(ledger: Ledger, table: Path) -> None:
    now = managed(ledger, table)
    ledger.release(table)
    assert pack_files(ledger._ctx, now) == 0
    with ledger._ctx.store.reading() as session:
        assert session.rows("pack_ranges", table_id=now.table_id) == []


def contents(ledger: Ledger, table: Path) -> dict[int, Any]:
    values = {"table_id": managed(ledger, table).table_id, "version": FOREVER}
    batches = list(ledger._ctx.store.arrow("pack_contents", optional="", **values))
    found = pa.Table.from_batches(batches).to_pylist()
    return {row["first_file"]: row for row in found}


def replace_pack(ledger: Ledger, table: Path, first: int, **changed: Any) -> None:
    row = contents(ledger, table)[first] | changed
    table_id = managed(ledger, table).table_id
    with ledger._ctx.store.writing() as session:
        session.run("delete_pack", table_id=table_id, first_file=first)
    with ledger._ctx.store.writing() as session:
        session.run("insert_pack", table_id=table_id, **row)


@pytest.mark.parametrize("lie", ["another", "cut off", "noise", "empty", "other columns", "fewer rows"])
def test_a_pack_that_lies_is_noticed_and_rows_are_read(
    ledger: Ledger, table: Path, lie: str, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    other = contents(ledger, table)[10]["content"]
    columns = pa.BufferOutputStream()
    with pa.ipc.new_stream(columns, pa.schema([("path", pa.int64())])):
        pass
    given = {
        "another": other,
        "cut off": other[: len(other) // 2],
        "noise": b"\xff" * 1000,
        "empty": packs.encoded([]),
        "other columns": columns.getvalue().to_pybytes(),
        "fewer rows": packs.encoded([]),
    }
    replace_pack(ledger, table, 0, content=given[lie])
    with caplog.at_level(logging.WARNING, "deltaplane"):
        files = ledger.snapshot(table).files()
    assert sorted(files["path"].to_pylist()) == [f"part-{number:05d}.parquet" for number in range(35)]
    assert seen.mismatches == 1
    assert f"{table}: the packs do not give version 7, and its rows are read instead" in caplog.text
    assert_as_without_packs(ledger, table)


def test_a_pack_that_vanishes_while_it_is_read_is_read_from_the_rows(
    ledger: Ledger, table: Path, monkeypatch: pytest.MonkeyPatch, seen: Seen
) -> None:
    real, table_id = activefiles._gone, managed(ledger, table).table_id

    def gone(*values: Any) -> pa.Array:
        with ledger._ctx.store.writing() as session:
            session.run("delete_pack", table_id=table_id, first_file=10)
        return real(*values)

    monkeypatch.setattr(activefiles, "_gone", gone)
    assert ledger.snapshot(table).files().num_rows == 35
    assert [pack.first_file for pack in seen.opened] == [0, 20]
    assert seen.mismatches == 0


# --- roles


@pytest.fixture
def roles(postgres: PostgresServer) -> Iterator[Callable[[str], str]]:
    """The address of a ledger for a user of a role."""
    database = postgres.new_database()
    connect(postgres.uri(database)).close()
    users: list[str] = []

    def admin(statement: str) -> None:
        with psycopg.connect(postgres.conninfo(database), autocommit=True) as connection:
            connection.execute(statement)

    def uri(role: str) -> str:
        user = f"packs_{role}_{database}"
        if user not in users:
            admin(f"CREATE ROLE {user} LOGIN; GRANT deltaplane_{role} TO {user}")
            users.append(user)
        return postgres.uri(database, user)

    admin(roles_script())
    yield uri
    for user in users:
        admin(f"DROP OWNED BY {user}; DROP ROLE {user}")


def test_a_writer_and_a_reconciler_pack_and_a_reader_reads(
    roles: Callable[[str], str], tmp_path: Path, seen: Seen
) -> None:
    table = tmp_path / "t"
    with connect(roles("writer"), create=False) as ledger:
        ledger.create(table, SCHEMA, properties=NEVER_DUE)
        commit(ledger, table, *(add(number) for number in range(10)))
        assert packed(ledger, table) == 1
        commit(ledger, table, *(add(number) for number in range(10, 20)))
        commit(ledger, table, *(remove(number) for number in range(6)))
    with connect(roles("reconciler"), create=False) as ledger:
        assert packed(ledger, table) == 1
        assert ranges(ledger, table) == [(10, 20)]
    with connect(roles("reader"), create=False) as ledger:
        assert ledger.snapshot(table).files().num_rows == 14
    assert [pack.first_file for pack in seen.opened] == [10]
    assert seen.mismatches == 0


# --- deciding


def pack(first: int, beyond: int) -> Pack:
    return Pack(first, beyond, 0, 1, beyond - first)


def test_gaps_and_runs_of_packs() -> None:
    assert uncovered([]) == [(0, FOREVER)]
    assert runs([]) == []
    some = [pack(30, 40), pack(10, 20), pack(20, 30), pack(50, 60)]
    assert uncovered(some) == [(0, 10), (40, 50), (60, FOREVER)]
    assert runs(some) == [(10, 40), (50, 60)]


def test_a_pack_that_overlaps_an_earlier_one_is_not_counted() -> None:
    assert disjoint([pack(5, 15), pack(0, 10), pack(15, 20), pack(10, 15)]) == [
        pack(0, 10),
        pack(10, 15),
        pack(15, 20),
    ]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20))))
def test_every_id_is_in_one_run_or_one_gap(spans: list[tuple[int, int]]) -> None:
    some = [pack(first, first + width) for first, width in spans]
    parts = sorted([*runs(some), *uncovered(some)])
    assert parts[0][0] == 0
    assert parts[-1][1] == FOREVER
    assert all(before[1] == after[0] for before, after in pairwise(parts))


def test_the_ids_within_a_span() -> None:
    ids = pa.array([3, 5, 5, 9], pa.int64())
    assert packs.within(ids, 4, 9).to_pylist() == [5, 5]
    assert packs.within(ids, 0, 100) == ids
    assert packs.within(ids, 10, 20).to_pylist() == []
    assert packs.within(ids[:0], 0, 1).to_pylist() == []


@pytest.mark.parametrize(
    ("present", "gone", "ids", "expected"),
    [
        ([], {}, 9, Packing((), ())),
        ([], {}, 10, Packing((), ((0, 10),))),
        ([], {}, 29, Packing((), ((0, 10), (10, 20)))),
        ([pack(0, 10)], {}, 29, Packing((), ((10, 20),))),
        ([], {0: 5, 1: 1}, 29, Packing((), ((10, 20),))),
        ([pack(0, 10)], {0: 5}, 19, Packing((), ())),
        ([pack(0, 10)], {0: 5, 1: 1}, 19, Packing((pack(0, 10),), ())),
        ([pack(0, 5)], {0: 3}, 10, Packing((pack(0, 5),), ((5, 10),))),
        ([pack(5, 15)], {}, 30, Packing((), ((0, 5), (15, 20), (20, 30)))),
    ],
)
def test_what_there_is_to_pack(
    present: list[Pack], gone: dict[int, int], ids: int, expected: Packing
) -> None:
    assert plan_packing(present, gone, ids, stretch=10, piece=5) == expected
