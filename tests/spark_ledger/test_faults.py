"""Drivers that die, databases that go away, disks that fill up, and others who write at the same time."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable, write_deltalake

import deltaplane as dp
from crash.proxy import Proxy
from deltaplane import telemetry
from deltaplane.errors import (
    CommitOutcomeUnknown,
    LedgerError,
    LedgerUnavailable,
    StorageError,
    TableFrozen,
    TransactionConflict,
    TransactionDoomed,
)
from deltaplane.ledger import Retries, publish
from deltaplane.ledger.alerts import Thresholds
from deltaplane.ledger.reconcile import Grace, reconcile
from deltaplane.spark.port import LedgerPort
from postgres_server import PostgresServer
from spark_ledger.actors import Actor
from spark_ledger.checker import Read, Recorded
from spark_ledger.conftest import Lake, elsewhere
from spark_ledger.drivers import Driver
from spark_ledger.histories import create_lists, faults_of

pytestmark = pytest.mark.spark
IMPATIENT = Retries(attempts=3, first_wait=0.01, longest_wait=0.02)
BOTH = "SELECT (SELECT collect_list(id) FROM {items}), (SELECT collect_list(id) FROM {notes})"


class Line(Proxy):
    """The line to the database, which can go down."""

    def __init__(self, server: PostgresServer) -> None:
        super().__init__(f"{server.folder}/.s.PGSQL.5432")
        self.database = server.new_database()

    @property
    def uri(self) -> str:
        options = "sslmode=disable&gssencmode=disable"
        return f"deltasql://postgres/postgres@127.0.0.1:{self.port}/{self.database}?{options}"

    @contextmanager
    def down(self) -> Iterator[None]:
        self.closed, self.before = True, lambda _: True
        try:
            yield
        finally:
            self.closed, self.before = False, lambda _: False


@pytest.fixture
def line(postgres: PostgresServer) -> Iterator[Line]:
    opened = Line(postgres)
    yield opened
    opened.stop()


@pytest.fixture
def ledger_uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Through the line where a test has one, on a server where it names that, in a file otherwise."""
    if "line" in request.fixturenames:
        return str(request.getfixturevalue("line").uri)
    if "postgres" in request.fixturenames:
        server = request.getfixturevalue("postgres")
        return str(server.uri(server.new_database()))
    return f"deltasql://sqlite/{tmp_path}/ledger.db"


@pytest.fixture
def shop(lake: Lake) -> Lake:
    """A table with the row 0, and an empty one; the ledger gives up soon."""
    lake.table("items", rows=1)
    lake.table("notes", "id bigint")
    lake.ledger.context.retries = IMPATIENT
    return lake


def write_both(lake: Lake) -> None:
    lake.sql("INSERT INTO {items} VALUES (1, 'tx')")
    lake.sql("INSERT INTO {notes} VALUES (1)")


def seen(lake: Lake) -> tuple[list[int], list[int]]:
    items, notes = lake.rows(BOTH)[0]
    return sorted(items), sorted(notes)


def outside(lake: Lake) -> tuple[list[int], list[int]]:
    items, notes = (DeltaTable(lake.path(name)).to_pyarrow_table() for name in ("items", "notes"))
    return sorted(items["id"].to_pylist()), sorted(notes["id"].to_pylist())


def staged_files(lake: Lake) -> list[str]:
    return [file.name for file in lake.folder.glob("*/_delta_log/_staged_commits/*.json")]


def clear_away(lake: Lake) -> None:
    """The reconciler, some time later."""
    reconcile(lake.ledger.context, Thresholds(), force=True, grace=Grace(0, 0))
    assert staged_files(lake) == []


def at_step(step: str, act: Callable[[], object]) -> Callable[[], None]:
    """Do something once, when the ledger comes to a step."""
    once = threading.Lock()

    def heard(name: str, _: dict[str, Any]) -> None:
        if name == step and once.acquire(blocking=False):
            act()

    return telemetry.listen(heard)


NOTHING, ALL = ([0], []), ([0, 1], [1])


# ---- the database


def test_database_away_at_the_begin_changes_nothing(shop: Lake, line: Line) -> None:
    """Without the database nothing begins; what is published can be read all the same."""
    with line.down():
        with pytest.raises(LedgerUnavailable), dp.transaction(shop.spark):
            pytest.fail("it has begun")
        with pytest.raises(LedgerUnavailable):
            shop.ledger.read_point()
        with pytest.raises(Exception, match=r"cannot be reached|connection"):
            shop.sql("INSERT INTO {items} VALUES (9, 'lost')")
        assert seen(shop) == NOTHING
    with dp.transaction(shop.spark):
        write_both(shop)
    assert seen(shop) == ALL == outside(shop)


def test_database_away_while_statements_run_is_not_noticed(shop: Lake, line: Line) -> None:
    """Staging needs the storage alone, and so does reading what is pinned."""
    with dp.transaction(shop.spark), line.down():
        write_both(shop)
        assert seen(shop) == ALL
    assert seen(shop) == ALL == outside(shop)


def test_database_away_at_the_commit_rolls_back(shop: Lake, line: Line) -> None:
    with Actor(shop) as a:
        a.begins().does(lambda: write_both(shop))
        with line.down(), pytest.raises(LedgerUnavailable, match="Nothing was written"):
            a.commits()
        assert a.transaction is not None
        assert a.does(lambda: seen(shop)) == NOTHING == outside(shop)
        assert len(staged_files(shop)) == 2
        clear_away(shop)
        assert shop.ledger.outcome(a.transaction.transaction_id) is False
    with dp.transaction(shop.spark):
        write_both(shop)
    assert seen(shop) == ALL == outside(shop)


def test_database_away_at_a_rollback_hides_no_exception(shop: Lake, line: Line) -> None:
    """Whoever raises inside hears of that, and not that the outcome of a commit is unknown."""

    def run(stack: ExitStack) -> None:
        with dp.transaction(shop.spark):
            write_both(shop)
            stack.enter_context(line.down())
            raise KeyError("mine")

    with ExitStack() as stack, pytest.raises(KeyError, match="mine"):
        run(stack)
    assert seen(shop) == NOTHING
    clear_away(shop)


_EXECUTE = b"E\0\0\0\x09\0\0\0\0\0"


def test_database_gone_for_good_during_commit_is_an_unknown_outcome_that_can_be_found_out(
    shop: Lake, line: Line
) -> None:
    """The server has heard COMMIT, and the answer never comes."""
    near = threading.Event()
    stop = at_step("commit.before_commit", near.set)

    def cut(data: bytes) -> bool:
        if near.is_set() and (data[:1] == b"Q" or _EXECUTE in data) and b"COMMIT" in data:
            line.closed = True
        return line.closed

    line.after = cut
    try:
        with Actor(shop) as a:
            a.begins().does(lambda: write_both(shop))
            with pytest.raises(CommitOutcomeUnknown) as unknown:
                a.commits()
            assert a.transaction is not None
            assert unknown.value.transaction_id == a.transaction.transaction_id
    finally:
        stop()
        line.closed, line.after = False, lambda _: False
    assert shop.ledger.outcome(unknown.value.transaction_id) is True
    assert seen(shop) == ALL
    clear_away(shop)
    assert outside(shop) == ALL


def test_database_switched_to_reading_only_takes_no_commit_and_can_be_read(
    shop: Lake, line: Line, postgres: PostgresServer
) -> None:
    def switch(to: str) -> None:
        with psycopg.connect(postgres.conninfo(), autocommit=True) as admin:
            admin.execute(f'ALTER DATABASE "{line.database}" SET default_transaction_read_only = {to}')
            ended = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s"
            admin.execute(ended, [line.database])

    switch("on")
    point = shop.ledger.read_point()
    with pytest.raises(LedgerError, match="read-only"):
        dp.run_transaction(shop.spark, lambda: write_both(shop))
    with pytest.raises(Exception, match="read-only"):
        shop.sql("INSERT INTO {items} VALUES (9, 'lost')")
    with dp.reading_at(shop.spark, point):
        assert seen(shop) == NOTHING
    assert seen(shop) == NOTHING == outside(shop)
    switch("off")
    clear_away(shop)
    with dp.transaction(shop.spark):
        write_both(shop)
    assert seen(shop) == ALL == outside(shop)


# ---- the disk


@pytest.fixture
def small(lake: Lake) -> Iterator[Path]:
    """A disk of four megabytes under the folder of the notes."""
    folder = lake.folder / "notes"
    folder.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(folder)], check=False)
    if mounted.returncode:
        pytest.skip("this machine does not let us mount")
    yield folder
    # The fixture of the lake reads the table once more, after this.
    kept = lake.folder / "kept"
    subprocess.run(["cp", "-a", str(folder), str(kept)], check=True)
    subprocess.run(["umount", "-l", str(folder)], check=True)
    folder.rmdir()
    kept.rename(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount a small disk")
@pytest.mark.parametrize("when", ["data is written", "the commit is staged"])
def test_a_full_disk_rolls_back_all_tables(
    small: Path, shop: Lake, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    filler = small / "filler"

    def fill() -> None:
        filler.write_bytes(b"x" * (os.statvfs(small).f_bavail * os.statvfs(small).f_bsize))

    original = LedgerPort._write_staged

    def fill_first(self: Any, view: Any, log: str, root: str, new: Any) -> None:
        if root == str(small):
            fill()
        original(self, view, log, root, new)

    if when == "the commit is staged":
        monkeypatch.setattr(LedgerPort, "_write_staged", fill_first)
    before = shop.log("items"), shop.log("notes")

    def run(caught: type[BaseException]) -> None:
        with dp.transaction(shop.spark):
            if when == "data is written":
                fill()
            try:
                write_both(shop)
            except caught as error:
                said.append(str(error))

    said: list[str] = []
    with pytest.raises(Exception, match=r"No space left|Free some space"):
        run(KeyError)
    assert (seen(shop), shop.log("items"), shop.log("notes")) == (NOTHING, *before)
    filler.unlink()
    if when == "the commit is staged":
        # Whoever goes on after the failure cannot commit half of the work.
        with pytest.raises(TransactionDoomed, match="could not be staged"):
            run(Exception)
        assert len(said) == 1
        filler.unlink()
        monkeypatch.undo()
    clear_away(shop)
    with dp.transaction(shop.spark):
        write_both(shop)
    assert seen(shop) == ALL == outside(shop)


def test_a_commit_whose_publication_fails_leaves_a_log_that_everybody_reads(
    shop: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement has succeeded; a checksum of what the log does not show would stop other readers."""
    with monkeypatch.context() as patch:

        def full(*_: object) -> None:
            raise StorageError("the disk is full")

        patch.setattr(publish, "_put", full)
        shop.sql("INSERT INTO {items} VALUES (1, 'late')")
        assert outside(shop) == NOTHING
    assert seen(shop) == ([0, 1], []) == outside(shop)
    shop.sql("INSERT INTO {items} VALUES (2, 'in time')")
    assert f"{shop.version('items'):020d}.crc" in shop.log("items")


def test_an_interruption_behind_the_commit_harms_nothing_of_it(shop: Lake) -> None:
    """Ctrl-C before the files are published: the tables exist, and one of them is new."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    def create() -> None:
        write_both(shop)
        shop.sql("CREATE TABLE {made} USING delta AS SELECT 5L AS id")

    stop = at_step("commit.ratified", interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            dp.run_transaction(shop.spark, create)
    finally:
        stop()
    assert seen(shop) == ALL == outside(shop)
    assert shop.value("SELECT id FROM {made}") == 5


# ---- others who write


def test_a_foreign_writer_who_takes_a_ratified_version_freezes_that_table_alone(shop: Lake) -> None:
    """Between ratification and publication somebody who knows no ledger writes the same version."""
    rows = shop.spark.createDataFrame([(9,)], "id bigint").toArrow()
    stop = at_step("commit.ratified", lambda: write_deltalake(shop.path("notes"), rows, mode="append"))
    try:
        with dp.transaction(shop.spark) as transaction:
            write_both(shop)
    finally:
        stop()
    assert transaction.result is not None
    assert list(transaction.result.unpublished) == [shop.path("notes")]
    assert outside(shop) == ([0, 1], [9])
    with pytest.raises(TableFrozen, match=r"written by somebody else.* ledger repair"):
        dp.run_transaction(shop.spark, lambda: write_both(shop))
    shop.ledger.repair(shop.path("notes"), "ledger", dry_run=False)
    jvm: Any = shop.spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    assert seen(shop) == ALL == outside(shop)


def test_a_stream_and_a_transaction_write_to_one_table(shop: Lake, tmp_path: Path) -> None:
    """The stream commits while a transaction is open: appends move behind it, an update loses."""
    shop.sql("CREATE TABLE {source} (id bigint, state string) USING delta")

    def next_batch(number: int) -> None:
        shop.sql(f"INSERT INTO {{source}} VALUES ({number}, 'streamed')")
        reader = shop.spark.readStream.format("delta").load(shop.path("source"))
        writer = reader.writeStream.format("delta").option("checkpointLocation", str(tmp_path / "stream"))
        query = writer.trigger(availableNow=True).start(shop.path("items"))
        query.awaitTermination(120)
        assert query.exception() is None

    with Actor(shop) as a:
        a.begins().does(lambda: write_both(shop))
        elsewhere(lambda: next_batch(10))
        assert a.does(lambda: seen(shop)) == ALL
        assert a.commits() == {"items": 3, "notes": 1}
        a.begins().sql("UPDATE {items} SET state = 'updated'", "INSERT INTO {notes} VALUES (2)")
        elsewhere(lambda: next_batch(11))
        with pytest.raises(TransactionConflict, match=r"\(STREAMING UPDATE\).*our UPDATE"):
            a.commits()
    dp.run_transaction(shop.spark, lambda: shop.sql("UPDATE {items} SET state = 'updated'"))
    next_batch(12)
    found = {row.id: row.state for row in shop.rows("SELECT * FROM {items}")}
    assert found == {**dict.fromkeys((0, 1, 10, 11), "updated"), 12: "streamed"}
    assert outside(shop) == ([0, 1, 10, 11, 12], [1])


@pytest.mark.slow
def test_two_drivers_that_race_on_overlapping_groups_are_snapshot_isolated(
    lake: Lake, postgres: PostgresServer, ledger_uri: str, tmp_path: Path
) -> None:
    create_lists(lake)
    go = tmp_path / "go"
    job = {"work": "race", "uri": ledger_uri, "folder": str(lake.folder), "go": str(go), "rounds": 8}
    drivers = [Driver(tmp_path / f"racer-{number}", number=number, **job) for number in range(2)]
    try:
        for driver in drivers:
            driver.wait_for("ready")
        go.touch()
        assert [driver.ended() for driver in drivers] == [0, 0], [driver.output() for driver in drivers]
    finally:
        for driver in drivers:
            driver.clear()
    record = [recorded(one) for driver in drivers for one in driver.said("recorded")]
    assert len(record) == 16
    assert faults_of(lake, record) == []
    lost = [one for one in record if not one.acknowledged]
    print(f"{len(record)} transactions, {len(lost)} lost against the other driver")
    assert 0 < len(lost) < len(record)


def recorded(told: dict[str, Any]) -> Recorded:
    reads = tuple(Read(one["table"], tuple(one["seen"]), one["own"]) for one in told["reads"])
    return Recorded(**{**told, "reads": reads, "appends": frozenset(told["appends"])})
