"""deltaplane ledger: what people and machines read, exit codes, dry runs, and the watch."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from deltaplane.ledger import Ledger, connect
from deltaplane.log.jsonlines import dump_json
from ledger.conftest import SCHEMA, add
from ledger.unpublished import block, commit, delayed, log_of, table_behind

if TYPE_CHECKING:
    from cli.conftest import Run

NEWEST = 7


@pytest.fixture
def uri(project: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a ledger that is not made yet; the environment names it."""
    address = f"deltasql://sqlite/{project}/ledger.db"
    monkeypatch.setenv("DELTAPLANE_LEDGER", address)
    return address


@pytest.fixture
def ledger(uri: str) -> Iterator[Ledger]:
    with connect(uri, author="tester") as opened:
        yield opened


def settings(text: str) -> None:
    Path("deltaplane.toml").write_text(text, encoding="utf-8")


def write_foreign(table: Path, version: int, number: int = 90) -> None:
    lines = "".join(
        dump_json(action) + "\n" for action in ({"commitInfo": {"operation": "WRITE"}}, add(number))
    )
    (table / "_delta_log" / f"{version:020d}.json").write_text(lines)


# ---- making and opening


def test_init_makes_a_ledger_once(run: Run, uri: str) -> None:
    first, second = run("ledger", "init"), run("ledger", "init", "--output", "json")
    assert (first.code, first.err) == (0, "")
    assert first.out == (
        f"The ledger is made (schema version {NEWEST}). Bring a table in with: deltaplane ledger adopt PATH\n"
    )
    assert (second.code, second.json) == (0, {"made": False, "schema_version": NEWEST})


def test_a_command_without_a_ledger_says_where_to_name_one(run: Run) -> None:
    ran = run("ledger", "status")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == (
        "error: No ledger was named. Give --ledger deltasql://sqlite//data/ledger.db, set DELTAPLANE_LEDGER, "
        "or set uri under [ledger] in deltaplane.toml.\n"
    )


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
def test_a_mistyped_address_leaves_nothing_behind(run: Run, project: Path, engine: str) -> None:
    ran = run("ledger", "tables", "--ledger", f"deltasql://{engine}/{project}/typo/l.db")
    assert (ran.code, ran.out) == (1, "")
    assert "there is no such file, so there is no ledger. Nothing was made." in ran.err
    assert list(project.iterdir()) == []


def test_the_option_wins_over_the_variable_and_that_over_the_file(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("option", "variable", "file"):
        with connect(f"deltasql://sqlite/{project}/{name}.db") as opened:
            opened.create(project / name, SCHEMA, name=name)
    settings('[ledger]\nuri = "deltasql://sqlite/file.db"')
    names = [run("ledger", "tables", "--output", "json").json["tables"][0]["name"]]
    monkeypatch.setenv("DELTAPLANE_LEDGER", "deltasql://sqlite/variable.db")
    names.append(run("ledger", "tables", "--output", "json").json["tables"][0]["name"])
    asked = ("--ledger", "deltasql://sqlite/option.db")
    names.append(run("ledger", "tables", "--output", "json", *asked).json["tables"][0]["name"])
    assert names == ["file", "variable", "option"]


def test_an_address_with_a_table_names_the_ledger_as_well(
    run: Run, ledger: Ledger, uri: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.create(project / "t", SCHEMA, name="s.t")
    monkeypatch.delenv("DELTAPLANE_LEDGER")
    assert run("ledger", "snapshot", f"{uri}#s.t", "--output", "json").json["version"] == 0


def test_a_password_in_an_address_is_refused_and_not_repeated(run: Run) -> None:
    ran = run("ledger", "status", "--ledger", "deltasql://postgres/me:s3cret@db/ledger")
    assert (ran.code, "carries a password" in ran.err, "s3cret" in ran.err + ran.out) == (1, True, False)


def test_migrate_goes_down_and_up_and_other_commands_are_refused_meanwhile(run: Run, uri: str) -> None:
    run("ledger", "init")
    down = run("ledger", "migrate", "--to", "2", "--output", "json")
    between = run("ledger", "tables")
    up, again = run("ledger", "migrate"), run("ledger", "migrate")
    assert (down.code, down.json) == (0, {"before": NEWEST, "after": 2})
    assert (between.code, "run: deltaplane ledger migrate" in between.err) == (1, True)
    assert up.out == f"The ledger's schema went from version 2 to {NEWEST}.\n"
    assert again.out == f"The ledger's schema is at version {NEWEST} already.\n"


# ---- tables come in, are looked at, and leave


@pytest.fixture
def plain_table(project: Path) -> Path:
    """A Delta table that the ledger under test does not know."""
    with connect(f"deltasql://sqlite/{project}/other.db") as other:
        other.create(project / "orders", SCHEMA, name="x")
        commit(other, "x", 1, 2)
    return project / "orders"


def test_adopt_and_release_in_the_words_of_people(run: Run, uri: str, plain_table: Path) -> None:
    run("ledger", "init")
    before = log_of(plain_table)
    adopted = run("ledger", "adopt", "orders", "--name", "sales.orders")
    again = run("ledger", "adopt", "orders")
    released = run("ledger", "release", "sales.orders")
    assert (adopted.code, adopted.out) == (
        0,
        "sales.orders is managed from now on: version 2, 2 files, readable from version 0 on.\n",
    )
    assert (again.code, again.out) == (1, "")
    assert "the ledger manages this table already" in again.err
    assert (released.code, released.out) == (
        0,
        f"{plain_table} has left the ledger at version 2. Its files are as they were.\n",
    )
    assert log_of(plain_table) == before
    assert run("ledger", "tables").out == "No tables yet. Bring one in with: deltaplane ledger adopt PATH\n"


def test_adopt_and_release_in_json_are_one_object_and_quiet(run: Run, uri: str, plain_table: Path) -> None:
    run("ledger", "init")
    arguments = ("--foreign-commits", "refuse", "--output", "json")
    adopted = run("ledger", "adopt", "orders", *arguments)
    assert (adopted.code, adopted.err) == (0, "")
    assert adopted.json == {
        "location": str(plain_table),
        "version": 2,
        "base_version": 0,
        "num_files": 2,
        "notes": [],
    }
    assert run("ledger", "tables", "--output", "json").json["tables"][0]["foreign_commits"] == "refuse"
    released = run("ledger", "release", "orders", "--output", "json")
    assert (released.json, released.err) == ({"location": str(plain_table), "version": 2}, "")


def test_a_place_without_a_table_is_one_clear_error(run: Run, uri: str) -> None:
    run("ledger", "init")
    ran = run("ledger", "adopt", "nowhere", "--output", "json")
    assert (ran.code, ran.json["error"]) == (1, "NotADeltaTable")
    assert "nowhere is not a Delta table" in ran.json["message"]


def test_tables_are_listed_in_columns(run: Run, ledger: Ledger, project: Path) -> None:
    ledger.create(project / "a", SCHEMA, name="sales.a")
    ledger.create(project / "b", SCHEMA, foreign_commits="refuse")
    with delayed():
        commit(ledger, "sales.a", *range(12))
    ran = run("ledger", "tables")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "name     version  published  oldest  state    foreign commits  location\n"
        f"sales.a       12          0       0  managed  import           {project}/a\n"
        f"-              0          0       0  managed  refuse           {project}/b\n"
        "2 tables.\n"
    )


VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA",
    "offset": 1,
    "sizeInBytes": 36,
    "cardinality": 2,
}
INLINE = {
    "storageType": "i",
    "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    "sizeInBytes": 40,
}


@pytest.fixture
def with_vectors(ledger: Ledger, project: Path) -> Path:
    table = project / "t"
    ledger.create(table, SCHEMA, name="s.t", properties={"delta.enableDeletionVectors": "true"})
    with ledger.transaction() as tx:
        tx.commit("s.t", [add(1), add(2)])
    with ledger.transaction() as tx:
        vectors = (VECTOR, INLINE | {"cardinality": 6})
        removes = [{"remove": {"path": add(n)["add"]["path"], "dataChange": True}} for n in (1, 2)]
        tx.commit(
            "s.t", [*removes, *(add(n, deletionVector=v) for n, v in zip((1, 2), vectors, strict=True))]
        )
    return table


def test_a_snapshot_in_json_has_exactly_the_documented_keys(
    run: Run, ledger: Ledger, with_vectors: Path
) -> None:
    ran = run("ledger", "snapshot", "s.t", "--output", "json")
    snapshot = ledger.snapshot("s.t")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json == {
        "version": 2,
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": list(snapshot.protocol.reader_features or ()),
        "writerFeatures": list(snapshot.protocol.writer_features or ()),
        "schemaString": snapshot.schema_string,
        "partitionColumns": [],
        "numFiles": 2,
        "sizeInBytes": 203,
        "numRecords": 20,
        "files": [
            {"path": "part-00001.parquet", "size": 101, "deletionVector": VECTOR},
            {
                "path": "part-00002.parquet",
                "size": 102,
                "deletionVector": {**INLINE, "offset": None, "cardinality": 6},
            },
        ],
    }
    assert "deletionVectors" in ran.json["readerFeatures"]


def test_features_are_null_where_the_protocol_has_none(run: Run, ledger: Ledger, project: Path) -> None:
    ledger.create(project / "t", SCHEMA)
    content = run("ledger", "snapshot", "t", "--output", "json").json
    assert [content[key] for key in ("readerFeatures", "writerFeatures", "files", "numRecords")] == [
        None,
        None,
        [],
        0,
    ]


def test_a_snapshot_at_a_version_or_a_moment(run: Run, ledger: Ledger, with_vectors: Path) -> None:
    first = ledger.snapshot("s.t", 0).timestamp
    at = [
        run("ledger", "snapshot", "s.t", *arguments, "--output", "json").json["version"]
        for arguments in (("--version", "1"), ("--timestamp", str(first)), ("--timestamp", "2999-01-01"))
    ]
    assert at == [1, 0, 2]
    missing = run("ledger", "snapshot", "s.t", "--version", "9")
    assert (missing.code, missing.err) == (
        1,
        "error: s.t: the ledger holds versions 0 to 2, and 9 was asked for.\n",
    )


def test_a_snapshot_for_people_is_a_glance(run: Run, ledger: Ledger, project: Path) -> None:
    ledger.create(project / "t", SCHEMA, partition_by=["name"], properties={"delta.appendOnly": "true"})
    ran = run("ledger", "snapshot", "t")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert re.fullmatch(rf"{project}/t, version 0, \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC", lines[0])
    assert lines[1:] == [
        "files         0 files, 0 bytes, 0 rows in them",
        "protocol      1/2",
        "columns       id long, name string",
        "partitioned   by name",
        "property      delta.appendOnly = true",
    ]


def test_history_tells_who_when_what_and_why(run: Run, ledger: Ledger, project: Path) -> None:
    ledger.create(project / "t", SCHEMA, name="s.t")
    with delayed():
        commit(ledger, "s.t", 1)
    ran = run("ledger", "history", "s.t")
    rows = [re.split(r"\s{2,}", line.strip()) for line in ran.out.splitlines()]
    assert rows[0] == ["version", "committed", "who", "operation", "files", "published", "why"]
    assert [[row[0], *row[2:3], *row[4:]] for row in rows[1:]] == [
        ["1", "tester", "+1 -0", "no", "load 1"],
        ["0", "tester", "+0 -0", "yes"],
    ]
    machine = run("ledger", "history", "s.t", "--limit", "1", "--output", "json").json["commits"]
    assert [(entry["version"], entry["message"], entry["published_at"]) for entry in machine] == [
        (1, "load 1", None)
    ]


def test_history_tells_which_commits_belong_together(run: Run, ledger: Ledger, project: Path) -> None:
    for name in ("s.t", "s.u"):
        ledger.create(project / name, SCHEMA, name=name)
    with ledger.transaction() as transaction:
        transaction.commit("s.t", [add(1)])
        transaction.commit("s.u", [add(1)])
    lines = run("ledger", "history", "s.t").out.splitlines()
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines]
    assert [row[6:] for row in rows] == [["group", "why"], [f"{transaction.transaction_id} (2 tables)"], []]


def test_audit_tells_what_was_done_to_the_ledger(run: Run, uri: str, plain_table: Path) -> None:
    run("ledger", "init")
    settings('author = "ops"')
    run("ledger", "adopt", "orders")
    run("ledger", "release", "orders")
    entries = run("ledger", "audit", "--output", "json").json["entries"]
    assert [(entry["action"], entry["author"], entry["location"]) for entry in entries] == [
        ("release", "ops", str(plain_table)),
        ("adopt", "ops", str(plain_table)),
    ]
    shown = run("ledger", "audit", "--limit", "1").out.splitlines()
    assert (len(shown), shown[0].split()) == (2, ["when", "what", "who", "from", "table", "detail"])


def test_refresh_takes_foreign_commits_in(run: Run, ledger: Ledger, project: Path) -> None:
    ledger.create(project / "t", SCHEMA, name="s.t", foreign_commits="refuse")
    write_foreign(project / "t", 1)
    first, second = run("ledger", "refresh", "s.t"), run("ledger", "refresh", "s.t", "--output", "json")
    assert first.out == "s.t: 1 foreign commit imported; the newest version is 1.\n"
    assert second.json == {"imported": 0, "version": 1}


# ---- lag, publication, reconciliation


def test_status_at_a_glance(run: Run, ledger: Ledger, project: Path) -> None:
    ledger.create(project / "a", SCHEMA, name="s.a")
    table_behind(ledger, project, "b", 2)
    ran = run("ledger", "status")
    assert (ran.code, ran.err) == (0, "")
    assert re.fullmatch(
        r"table  version  published  behind  waiting  failed  state\n"
        r"b            2          0       2  \d s      -       managed\n\n"
        r"1 of 2 tables is behind: 2 versions, the oldest for \d s \(b\)\. "
        r"Publish with: deltaplane ledger reconcile\.\n",
        ran.out,
    )
    ledger.publish()
    assert run("ledger", "status").out == "2 tables, everything is published.\n"


def test_status_check_leaves_with_0_then_3_then_4(run: Run, ledger: Ledger, project: Path) -> None:
    ledger.create(project / "t", SCHEMA, name="t")
    codes = [run("ledger", "status", "--check").code]
    with delayed():
        commit(ledger, "t", 1, 2, 3)
    codes.append(run("ledger", "status", "--check").code)
    settings("[ledger.alerts]\nmax_lag_versions = 2")
    alarmed = run("ledger", "status", "--check")
    codes += [alarmed.code, run("ledger", "status").code]
    assert codes == [0, 3, 4, 0]
    assert "  ! alert lag_versions: t: 3 versions are not published, more than 2." in alarmed.out


def test_status_in_json_has_every_table_and_the_alerts(run: Run, ledger: Ledger, project: Path) -> None:
    settings("[ledger.alerts]\nmax_attempts = 0")
    block(table_behind(ledger, project, "t", 0), 1)
    commit(ledger, "t", 1)
    content = run("ledger", "status", "--output", "json").json
    assert (content["tables_behind"], content["versions_behind"], content["worst"]) == (1, 1, "t")
    assert content["tables"][0]["attempts"] == 1
    assert [(alert["kind"], alert["value"], alert["limit"]) for alert in content["alerts"]] == [
        ("attempts", 1, 0)
    ]


def test_publish_one_table_or_all(run: Run, ledger: Ledger, project: Path) -> None:
    first, second = table_behind(ledger, project, "a", 2), table_behind(ledger, project, "b", 1)
    one = run("ledger", "publish", "a")
    rest = run("ledger", "publish")
    assert one.out == f"{first}: 2 versions published; the log is at version 2.\n"
    assert rest.out == (
        f"{second}: 1 version published; the log is at version 1.\n2 tables: 1 version published.\n"
    )
    assert run("ledger", "publish", "a").out == f"{first}: nothing was pending; the log is at version 2.\n"


def test_publish_goes_on_after_a_failure_and_leaves_with_1(run: Run, ledger: Ledger, project: Path) -> None:
    block(table_behind(ledger, project, "a", 1), 1)
    second = table_behind(ledger, project, "b", 1)
    ran = run("ledger", "publish", "--output", "json")
    assert (ran.code, ran.json["published"]) == (1, {str(second): 1})
    assert list(ran.json["failed"]) == [str(project / "a")]


def test_reconcile_leaves_with_0_3_1_and_4(run: Run, ledger: Ledger, project: Path) -> None:
    table = table_behind(ledger, project, "t", 1)
    place = block(table, 1)
    failed, waiting = run("ledger", "reconcile"), run("ledger", "reconcile")
    settings("[ledger.alerts]\nmax_attempts = 1")
    alarmed = run("ledger", "reconcile", "--force")
    place.rmdir()
    done = run("ledger", "reconcile", "--force")
    clean = run("ledger", "reconcile")
    assert [ran.code for ran in (failed, waiting, alarmed, done, clean)] == [1, 3, 4, 0, 0]
    assert failed.out.startswith("t: failed: Could not write ")
    assert failed.out.endswith("\n1 table could not be reconciled.\n")
    assert waiting.out.startswith("t: failed before, and waits for its next attempt (--force tries now)\n")
    assert "alert attempts: t: publication failed 2 times, more than 1." in alarmed.err
    assert (done.out, done.err) == ("t: 1 version published\n1 table, everything is published.\n", "")
    assert (clean.out, clean.err) == ("1 table, everything is published.\n", "")


def test_reconcile_in_json_is_the_whole_report(run: Run, ledger: Ledger, project: Path) -> None:
    table = table_behind(ledger, project, "t", 2)
    ran = run("ledger", "reconcile", "--output", "json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json["tables"] == [
        {
            "location": str(table),
            "name": "t",
            "outcome": "done",
            "published": 2,
            "imported": 0,
            "checkpoint": None,
            "removed": [],
            "error": None,
            "completed": False,
        }
    ]
    assert (ran.json["alerts"], ran.json["status"]["versions_behind"]) == ([], 0)


def test_a_table_deleted_underneath_is_an_alert(run: Run, ledger: Ledger, project: Path) -> None:
    shutil.rmtree(table_behind(ledger, project, "t", 0))
    ran = run("ledger", "reconcile")
    assert (ran.code, "the table's folder is gone" in ran.out, (project / "t").exists()) == (4, True, False)


def test_metrics_without_a_watch_are_a_wrong_usage(run: Run, uri: str) -> None:
    ran = run("ledger", "reconcile", "--metrics-port", "0")
    assert (ran.code, "--metrics-port goes with --watch" in ran.err) == (2, True)


def test_a_webhook_that_is_no_address_is_refused(run: Run, ledger: Ledger) -> None:
    settings('[ledger.alerts]\nwebhook = "s3cret"')
    ran = run("ledger", "reconcile")
    assert (ran.code, "ledger.alerts.webhook" in ran.err, "s3cret" in ran.err) == (1, True, False)


# ---- comparing, repairing, cleaning up


@pytest.fixture
def diverged(ledger: Ledger, project: Path) -> Path:
    """A table whose version 1 was written by somebody else as well."""
    table = table_behind(ledger, project, "t", 1)
    write_foreign(table, 1)
    return table


def test_verify_repair_and_verify_again(run: Run, ledger: Ledger, diverged: Path) -> None:
    frozen = run("ledger", "reconcile")
    found = run("ledger", "verify", "t")
    planned = run("ledger", "repair", "t", "--keep", "ledger")
    untouched = run("ledger", "verify", "t").code
    applied = run("ledger", "repair", "t", "--keep", "ledger", "--apply")
    equal, all_equal = run("ledger", "verify", "t", "--every"), run("ledger", "verify", "--output", "json")
    nothing = run("ledger", "repair", "t", "--keep", "log")
    codes = [ran.code for ran in (frozen, found, planned, applied, equal, all_equal, nothing)]
    assert ([*codes, untouched]) == [4, 3, 3, 0, 0, 0, 0, 3]
    assert f"Decide with: deltaplane ledger repair {diverged} --keep ledger|log" in found.out
    assert "would be done; nothing was changed. Do it with --apply." in planned.out
    assert re.search(r"t: \d steps? done\.", applied.out)
    assert "ledger and log are equal" in equal.out
    assert (all_equal.json["ok"], all_equal.json["tables"][0]["differences"]) == (True, [])
    assert nothing.out == "t: ledger and log agree, and there is nothing to repair.\n"


def test_repair_needs_to_be_told_whom_to_keep(run: Run, ledger: Ledger, diverged: Path) -> None:
    ran = run("ledger", "repair", "t")
    assert (ran.code, "--keep" in ran.err) == (2, True)


def test_a_version_to_verify_goes_with_a_table(run: Run, ledger: Ledger) -> None:
    assert run("ledger", "verify", "--version", "1").code == 2


def test_cleanup_shows_first_and_deletes_when_told(
    run: Run, ledger: Ledger, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {"delta.checkpointInterval": "3", "delta.logRetentionDuration": "interval 1 days"}
    ledger._ctx.clock = lambda: time.time_ns() // 1_000_000 - 3 * 86_400_000
    ledger.create(project / "t", SCHEMA, name="t", properties=properties)
    commit(ledger, "t", 1, 2, 3, 4)
    before = log_of(project / "t")
    shown, machine = run("ledger", "cleanup"), run("ledger", "cleanup", "t", "--output", "json")
    assert (shown.code, machine.code, log_of(project / "t")) == (3, 3, before)
    expected = [f"_delta_log/{version:020d}.json" for version in range(3)]
    assert machine.json["tables"][0]["files"] == expected
    assert (machine.json["done"], machine.json["bytes"] > 0) == (False, True)
    assert f"  - {expected[0]}" in shown.out
    assert "would be deleted; nothing was changed. Do it with --apply." in shown.out
    applied = run("ledger", "cleanup", "--apply")
    assert (applied.code, run("ledger", "cleanup").code) == (0, 0)
    assert log_of(project / "t") == [name for name in before if f"_delta_log/{name}" not in expected]


# ---- the watch, as a process of its own


@pytest.fixture
def received() -> Iterator[tuple[str, list[Any]]]:
    """A webhook on loopback, and what it got."""
    bodies: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Silent."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/s3cret", bodies
    server.shutdown()
    server.server_close()
    thread.join()


class Watch:
    """`deltaplane ledger reconcile --watch` in the background."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        script = os.path.join(os.path.dirname(sys.executable), "deltaplane")
        with Path("out.txt").open("w") as out, Path("err.txt").open("w") as err:
            self.process = subprocess.Popen(
                [script, "ledger", "reconcile", "--watch", "--interval", "0.1", *arguments],
                env={**os.environ, **environment},
                stdout=out,
                stderr=err,
            )

    @property
    def out(self) -> str:
        return Path("out.txt").read_text()

    @property
    def err(self) -> str:
        return Path("err.txt").read_text()

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str, str]:
        self.process.send_signal(number)
        return self.process.wait(timeout=60), self.out, self.err

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def until(condition: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.05)


def scraped(watch: Watch) -> str:
    """Read the endpoint that the watch names on stderr."""
    address = watch.err.splitlines()[0].removeprefix("metrics: ")
    with urllib.request.urlopen(address, timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_watch_publishes_what_comes_and_stops_cleanly(
    ledger: Ledger, project: Path, number: signal.Signals
) -> None:
    table = table_behind(ledger, project, "t", 1)
    with Watch() as watch:
        until(lambda: watch.out.count("\n") == 2)
        with delayed():
            commit(ledger, "t", 2, 3)
        until(lambda: len(log_of(table)) == 4 and ledger.status().versions == 0)
        code, out, err = watch.stop(number)
    assert (code, err) == (0, "")
    assert out.startswith("t: 1 version published\n1 table, everything is published.\n")
    assert re.search(r"\nStopped after \d+ rounds?\. Nothing is left half-done\.\n$", out)
    with ledger._ctx.store.reading() as session:
        assert session.rows("leases") == []


def test_a_watch_serves_metrics_on_loopback(ledger: Ledger, project: Path) -> None:
    table_behind(ledger, project, "t", 2)
    with Watch("--metrics-port", "0", "--output", "json") as watch:
        until(lambda: "\n" in watch.out)
        first = json.loads(watch.out.splitlines()[0])
        text = scraped(watch)
        code, _, _ = watch.stop()
    assert (code, first["tables"][0]["published"]) == (0, 2)
    assert 'deltaplane_ledger_publications_total{table="t"} 2.0' in text
    assert 'deltaplane_ledger_lag_versions{table="t"} 0.0' in text
    assert "deltaplane_ledger_up 1.0" in text


def test_a_watch_tells_of_an_alert_once_and_of_its_end(
    ledger: Ledger, project: Path, received: tuple[str, list[Any]]
) -> None:
    url, bodies = received
    settings("[ledger.alerts]\nmax_attempts = 0\nwebhook_env = 'HOOK'")
    place = block(table_behind(ledger, project, "t", 1), 1)
    with Watch("--force", HOOK=url) as watch:
        until(lambda: ledger.status().tables[0].attempts > 3)
        place.rmdir()
        until(lambda: len(bodies) == 2)
        code, _, err = watch.stop()
    assert (code, [body["event"] for body in bodies]) == (0, ["alert.started", "alert.ended"])
    assert [body["alerts"][0]["kind"] for body in bodies] == ["attempts"] * 2
    assert (err.count("alert attempts: t"), err.count("alert attempts is over: t"), "s3cret" in err) == (
        1,
        1,
        False,
    )


def test_leftovers_are_told_of(run: Run, ledger: Ledger, project: Path) -> None:
    log = table_behind(ledger, project, "t", 0) / "_delta_log"
    stale = log / f".x.json.{uuid.uuid4().hex}.tmp"
    stale.write_text("")
    os.utime(stale, (1, 1))
    assert run("ledger", "reconcile").out == "t: 1 leftover removed\n1 table, everything is published.\n"
