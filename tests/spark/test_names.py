"""Names of schemas and Delta tables are found by every process that uses the warehouse.

Two processes with a Spark session each, `one` and `two`, stay up for the whole module.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Several processes, each with a Spark of its own.
pytestmark = [pytest.mark.spark, pytest.mark.slow]

WORKER = """
import json, sys, traceback
from deltaplane.spark.session import open_session
spark = open_session(warehouse=sys.argv[1], master="local[1]")
sql = lambda text: [list(row) for row in spark.sql(text).collect()]
for line in sys.stdin:
    names = {"spark": spark, "sql": sql}
    try:
        exec(json.loads(line), names)
        answer = {"result": names.get("result")}
    except Exception as error:
        answer = {"error": str(error) or repr(error), "trace": traceback.format_exc()}
    print("\\x01" + json.dumps(answer, default=str), flush=True)
"""


class Worker:
    """Another process with a Spark session of its own."""

    def __init__(self, warehouse: Path, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(warehouse)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
        )

    def send(self, code: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("\x01"):
                answer: dict[str, Any] = json.loads(line[1:])
                return answer
        raise AssertionError(f"the process ended with {self.process.wait()}")

    def run(self, code: str) -> Any:
        """Runs code that may leave something in `result`."""
        self.send(code)
        answer = self.answer()
        assert "error" not in answer, answer["trace"]
        return answer["result"]

    def sql(self, *statements: str) -> list[list[Any]]:
        """Runs statements and returns the rows of the last one."""
        rows: list[list[Any]] = []
        for statement in statements:
            rows = self.run(f"result = sql({statement!r})")
        return rows

    def error(self, statement: str) -> str:
        self.send(f"sql({statement!r})")
        return str(self.answer().get("error", ""))

    def tables(self, schema: str = "default") -> list[str]:
        return [row[1] for row in self.sql(f"SHOW TABLES IN {schema}")]

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("names") / "ware house"


@pytest.fixture(scope="module")
def one(warehouse: Path) -> Iterator[Worker]:
    worker = Worker(warehouse, warehouse.parent)
    worker.sql("SELECT 1")
    yield worker
    worker.stop()


@pytest.fixture(scope="module")
def two(warehouse: Path, one: Worker) -> Iterator[Worker]:
    worker = Worker(warehouse, warehouse.parent)
    worker.sql("SELECT 1")
    yield worker
    worker.stop()


@pytest.fixture(scope="module")
def orders(one: Worker) -> str:
    """A table with two versions that process one created before process two looked at anything."""
    one.sql("CREATE TABLE orders (id INT, state STRING) USING DELTA", "INSERT INTO orders VALUES (1, 'new')")
    return "orders"


READERS = {
    "select": "result = sql('SELECT id FROM orders VERSION AS OF 1')",
    "spark.table": "table = spark.read.option('versionAsOf', 1).table('orders')\n"
    "result = [list(row) for row in table.select('id').collect()]",
    "qualified": "result = sql('SELECT id FROM spark_catalog.default.ORDERS VERSION AS OF 1')",
    "forName": "from delta.tables import DeltaTable\n"
    "history = DeltaTable.forName(spark, 'orders').history().collect()\n"
    "result = [[row['version']] for row in history if row['version'] == 1]",
    "history": "result = [r[:1] for r in sql('DESCRIBE HISTORY orders') if r[0] == 1]",
    "detail": "result = [[1]] if sql('DESCRIBE DETAIL orders')[0][0] == 'delta' else []",
    "extended": "result = [[1]] if ['Type', 'MANAGED', ''] in sql('DESCRIBE EXTENDED orders') else []",
    "tableExists": "result = [[int(spark.catalog.tableExists('orders'))]]",
    "listTables": "result = [[1] for t in spark.catalog.listTables() if t.name == 'orders']",
    "getTable": "result = [[1]] if spark.catalog.getTable('orders').tableType == 'MANAGED' else []",
    "show tables": "result = [[1] for r in sql('SHOW TABLES') if r[1] == 'orders']",
    "show columns": "result = [[1]] if sql('SHOW COLUMNS IN orders')[0] == ['id'] else []",
}


@pytest.mark.parametrize("way", READERS)
def test_another_process_reads_the_table(two: Worker, orders: str, way: str) -> None:
    assert two.run(READERS[way]) == [[1]]


WRITERS = {
    "insert": "sql('INSERT INTO {t} VALUES (2, \"x\")')",
    "update": "sql('UPDATE {t} SET id = 2')",
    "merge": "sql('MERGE INTO {t} t USING (SELECT 2 id) s ON t.id = s.id '"
    "'WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)')",
    "alter": "sql('ALTER TABLE {t} ADD COLUMN c INT'); sql('INSERT INTO {t} VALUES (2, \"x\", 3)')",
    "saveAsTable": "rows = spark.sql('SELECT 2 id, \"x\" state')\n"
    "rows.write.format('delta').mode('append').saveAsTable('{t}')",
    "writeTo": "spark.sql('SELECT 2 id, \"x\" state').writeTo('{t}').append()",
    "insertInto": "spark.sql('SELECT 2 id, \"x\" state').write.insertInto('{t}')",
    "replace": "sql('CREATE OR REPLACE TABLE {t} USING DELTA AS SELECT 2 id')",
    "forName": "from delta.tables import DeltaTable\n"
    "DeltaTable.forName(spark, '{t}').update(set={{'id': '2'}})",
}


@pytest.mark.parametrize("way", WRITERS)
def test_another_process_writes_the_table(one: Worker, two: Worker, way: str) -> None:
    table = f"w_{way.lower()}"
    one.sql(
        f"CREATE TABLE {table} (id INT, state STRING) USING DELTA", f"INSERT INTO {table} VALUES (1, 'new')"
    )
    two.run(WRITERS[way].format(t=table))
    assert [2] in one.sql(f"SELECT id FROM {table}")


def test_streams_read_and_write_by_name(one: Worker, two: Worker, tmp_path: Path) -> None:
    one.sql("CREATE TABLE stream_in USING DELTA AS SELECT 7 id")
    two.run(
        "spark.readStream.table('stream_in').writeStream.format('delta').trigger(availableNow=True)"
        f".option('checkpointLocation', {str(tmp_path / 'c')!r}).toTable('stream_out').awaitTermination()"
    )
    assert one.sql("SELECT * FROM stream_out") == [[7]]


def test_ctas_and_shallow_clone_of_a_table_of_another_process(one: Worker, two: Worker, orders: str) -> None:
    two.sql("CREATE TABLE copied USING DELTA AS SELECT * FROM orders VERSION AS OF 1")
    two.sql("CREATE TABLE cloned SHALLOW CLONE orders VERSION AS OF 1")
    assert one.sql("SELECT * FROM copied") == one.sql("SELECT * FROM cloned") == [[1, "new"]]


def test_a_name_created_meanwhile_is_found_at_the_next_look_up(one: Worker, two: Worker) -> None:
    assert "TABLE_OR_VIEW_NOT_FOUND" in two.error("SELECT * FROM later")
    one.sql("CREATE TABLE later USING DELTA AS SELECT 1 id")
    assert two.sql("SELECT * FROM later") == [[1]]


def test_a_name_dropped_meanwhile_is_gone_at_the_next_look_up(
    one: Worker, two: Worker, warehouse: Path
) -> None:
    one.sql("CREATE TABLE doomed USING DELTA AS SELECT 1 id")
    assert two.sql("SELECT * FROM doomed") == [[1]]
    one.sql("DROP TABLE doomed")
    assert "TABLE_OR_VIEW_NOT_FOUND" in two.error("SELECT * FROM doomed")
    assert "doomed" not in two.tables()
    assert not (warehouse / "doomed").exists()


@pytest.mark.parametrize("commits", [1, 3])
def test_a_table_recreated_with_another_schema_is_seen_right(one: Worker, two: Worker, commits: int) -> None:
    table = f"reborn_{commits}"
    one.sql(f"CREATE TABLE {table} USING DELTA AS SELECT 1 id", f"INSERT INTO {table} VALUES (2)")
    assert len(two.sql(f"SELECT * FROM {table}")) == 2
    one.sql(f"DROP TABLE {table}", f"CREATE TABLE {table} (name STRING, n INT) USING DELTA")
    for n in range(commits):
        one.sql(f"INSERT INTO {table} VALUES ('row', {n})")
    assert sorted(two.sql(f"SELECT * FROM {table}")) == [["row", n] for n in range(commits)]
    two.sql(f"INSERT INTO {table} VALUES ('two', 9)")
    assert one.sql(f"SELECT count(*) FROM {table}") == [[commits + 1]]


def test_creating_a_name_of_another_process_is_refused(one: Worker, two: Worker) -> None:
    one.sql("CREATE TABLE taken (id INT) USING DELTA")
    assert "TABLE_OR_VIEW_ALREADY_EXISTS" in two.error("CREATE TABLE taken (other STRING) USING DELTA")
    assert "TABLE_OR_VIEW_ALREADY_EXISTS" in two.error("CREATE TABLE taken (other STRING) USING PARQUET")
    two.sql("CREATE TABLE IF NOT EXISTS taken (other STRING) USING DELTA")
    assert one.sql("SHOW COLUMNS IN taken") == [["id"]]


def test_two_processes_create_tables_at_once(one: Worker, two: Worker) -> None:
    code = "[sql(f'CREATE TABLE both_{{n}}_{who} USING DELTA AS SELECT {{n}} id') for n in range(5)]"
    one.send(code.format(who="one"))
    two.send(code.format(who="two"))
    assert "error" not in one.answer() | two.answer()
    expected = sorted(f"both_{n}_{who}" for n in range(5) for who in ("one", "two"))
    for worker in (one, two):
        assert [name for name in worker.tables() if name.startswith("both_")] == expected
    assert one.sql("SELECT * FROM both_3_two") == two.sql("SELECT * FROM both_3_one") == [[3]]


def test_renaming_moves_the_name_for_all(one: Worker, two: Worker) -> None:
    one.sql("CREATE TABLE before_rename USING DELTA AS SELECT 1 id")
    two.sql("SELECT * FROM before_rename", "ALTER TABLE before_rename RENAME TO after_rename")
    assert one.sql("SELECT * FROM after_rename") == [[1]]
    assert "TABLE_OR_VIEW_NOT_FOUND" in one.error("SELECT * FROM before_rename")
    two.sql("CREATE TABLE before_rename USING DELTA AS SELECT 2 n")
    assert one.sql("SELECT n FROM before_rename") == [[2]]


def test_a_location_elsewhere_is_found_and_survives_a_drop(
    one: Worker, two: Worker, warehouse: Path, tmp_path: Path
) -> None:
    place, record = (tmp_path / "else where", Path(f"{warehouse}.names", "default", "outside.json"))
    one.sql(f"CREATE TABLE outside (id INT) USING DELTA LOCATION '{place}'", "INSERT INTO outside VALUES (1)")
    assert two.sql("SELECT * FROM outside") == [[1]]
    assert "outside" in two.tables()
    assert json.loads(record.read_text())["type"] == "EXTERNAL"
    two.sql("DROP TABLE outside")
    assert "outside" not in one.tables()
    assert "TABLE_OR_VIEW_NOT_FOUND" in one.error("SELECT * FROM outside")
    assert not record.exists()
    assert one.sql(f"SELECT * FROM delta.`{place}`") == [[1]]


def test_a_table_saved_with_a_path_is_found_and_can_be_renamed(
    one: Worker, two: Worker, tmp_path: Path
) -> None:
    one.run(
        f"spark.range(2).write.format('delta').option('path', {str(tmp_path / 'p')!r}).saveAsTable('pathed')"
    )
    assert len(two.sql("SELECT * FROM pathed")) == 2
    two.sql("ALTER TABLE pathed RENAME TO pathed_too")
    assert len(one.sql("SELECT * FROM pathed_too")) == 2
    assert "pathed" not in one.tables()


def test_an_external_table_in_the_place_of_a_managed_one_stays_dropped(
    one: Worker, two: Worker, warehouse: Path
) -> None:
    one.sql(f"CREATE TABLE disguised (id INT) USING DELTA LOCATION '{warehouse / 'disguised'}'")
    two.sql("DROP TABLE disguised")
    assert "disguised" not in one.tables()
    assert (warehouse / "disguised" / "_delta_log").is_dir()
    one.sql(f"CREATE TABLE disguised USING DELTA LOCATION '{warehouse / 'disguised'}'")
    assert "disguised" in two.tables()


def test_a_schema_survives_with_its_comment_and_place(one: Worker, two: Worker, tmp_path: Path) -> None:
    one.sql("CREATE SCHEMA plain", "CREATE TABLE plain.t USING DELTA AS SELECT 1 id")
    one.sql(
        f"CREATE SCHEMA placed COMMENT 'its comment' LOCATION '{tmp_path / 'sc'}' "
        "WITH DBPROPERTIES (team = 'a')"
    )
    one.sql("CREATE TABLE placed.t USING DELTA AS SELECT 2 id")
    assert {"default", "plain", "placed"} <= {row[0] for row in two.sql("SHOW SCHEMAS")}
    assert two.sql("SELECT * FROM plain.t UNION ALL SELECT * FROM placed.t") == [[1], [2]]
    described = dict(two.sql("DESCRIBE SCHEMA EXTENDED placed"))
    assert described["Comment"] == "its comment"
    assert described["Location"] == f"file:{tmp_path / 'sc'}"
    assert described["Properties"] == "((team,a))"
    assert (tmp_path / "sc" / "t" / "_delta_log").is_dir()


def test_dropping_a_schema_takes_cascade_and_is_seen_by_all(
    one: Worker, two: Worker, warehouse: Path, tmp_path: Path
) -> None:
    one.sql("CREATE SCHEMA gone", "CREATE TABLE gone.t USING DELTA AS SELECT 1 id")
    one.sql(f"CREATE TABLE gone.kept USING DELTA LOCATION '{tmp_path / 'kept'}' AS SELECT 1 id")
    assert "SCHEMA_NOT_EMPTY" in two.error("DROP SCHEMA gone")
    two.sql("DROP SCHEMA gone CASCADE")
    assert "gone" not in {row[0] for row in one.sql("SHOW SCHEMAS")}
    assert "NOT_FOUND" in one.error("SELECT * FROM gone.t")
    assert not (warehouse / "gone.db").exists()
    assert (tmp_path / "kept" / "_delta_log").is_dir()
    one.sql("CREATE SCHEMA gone")
    assert two.tables("gone") == []


def test_dropping_a_schema_leaves_files_that_are_not_its_tables(
    one: Worker, two: Worker, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    one.sql(f"CREATE SCHEMA shared_place LOCATION '{tmp_path}'")
    one.sql("CREATE TABLE shared_place.t USING DELTA AS SELECT 1 id")
    two.sql("DROP SCHEMA shared_place CASCADE")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    assert "shared_place" not in {row[0] for row in one.sql("SHOW SCHEMAS")}


def test_views_and_other_formats_stay_in_their_process(one: Worker, two: Worker) -> None:
    one.sql("CREATE VIEW a_view AS SELECT 1 id", "CREATE TABLE a_parquet USING PARQUET AS SELECT 1 id")
    assert {"a_view", "a_parquet"} <= set(one.tables())
    assert one.sql("SELECT * FROM a_view, a_parquet") == [[1, 1]]
    assert {"a_view", "a_parquet"}.isdisjoint(two.tables())
    one.sql("CONVERT TO DELTA a_parquet")
    assert two.sql("SELECT * FROM a_parquet") == one.sql("SELECT * FROM a_parquet") == [[1]]


@pytest.mark.parametrize("name", ["two words", "größe", "a.b", "..", "😀", "tick``s", "a/b"])
def test_a_name_that_spark_refuses_does_not_resolve(one: Worker, two: Worker, name: str) -> None:
    assert one.error(f"CREATE TABLE `{name}` (id INT) USING DELTA") != ""
    assert "NOT_FOUND" in two.error(f"SELECT * FROM `{name}`")
    assert name not in two.tables()


def test_names_are_found_in_any_case(one: Worker, two: Worker, warehouse: Path) -> None:
    one.sql("CREATE TABLE MixedCase USING DELTA AS SELECT 1 id")
    assert two.sql("SELECT * FROM mIXEDcASE") == [[1]]
    assert (warehouse / "mixedcase").is_dir()


def test_a_folder_without_a_commit_is_no_table(one: Worker, warehouse: Path) -> None:
    (warehouse / "half_made" / "_delta_log").mkdir(parents=True)
    assert "half_made" not in one.tables()
    assert "TABLE_OR_VIEW_NOT_FOUND" in one.error("SELECT * FROM half_made")


def test_a_table_whose_first_commits_were_cleaned_up_is_found(
    one: Worker, two: Worker, warehouse: Path
) -> None:
    one.sql("CREATE TABLE aged (id INT) USING DELTA TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    for n in range(4):
        one.sql(f"INSERT INTO aged VALUES ({n})")
    for version in (0, 1):
        (warehouse / "aged" / "_delta_log" / f"{version:020d}.json").unlink()
    assert sorted(two.sql("SELECT * FROM aged")) == [[0], [1], [2], [3]]


def test_attaching_twice_changes_nothing_and_another_warehouse_is_refused(
    one: Worker, warehouse: Path
) -> None:
    attach = "from deltaplane.spark.names import attach_names\nattach_names(spark, {!r})"
    before = one.tables()
    one.run(attach.format(str(warehouse)))
    assert one.tables() == before
    one.send(attach.format("/another/place"))
    assert "the session's warehouse is" in one.answer()["error"]


def test_attaching_to_a_running_session_keeps_what_it_has(tmp_path: Path) -> None:
    code = """
import sys
from pyspark.sql import SparkSession
from deltaplane.spark.names import attach_names
from deltaplane.spark import session
session.attach_names = lambda *_: None
spark = session.open_session(warehouse=sys.argv[1] + "/w", master="local[1]")
spark.sql(f"CREATE TABLE ext (id INT) USING DELTA LOCATION '{sys.argv[1]}/ext'")
spark.sql("CREATE TABLE managed (id INT) USING DELTA")
spark.sql("CREATE TABLE parts USING PARQUET PARTITIONED BY (p) AS SELECT 1 id, 2 p")
spark.sql("CREATE VIEW v AS SELECT 1 id")
spark.sql("CREATE SCHEMA s COMMENT 'c'")
attach_names(spark, sys.argv[1] + "/w")
print([row.tableName for row in spark.sql("SHOW TABLES").collect()])
print([tuple(row) for row in spark.table("parts").collect()], spark.catalog.databaseExists("s"))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.stdout.splitlines() == ["['ext', 'managed', 'parts', 'v']", "[(1, 2)] True"], done.stderr
    assert (tmp_path / "w.names" / "default" / "ext.json").exists()


def test_opening_a_session_does_not_look_at_the_tables(tmp_path: Path) -> None:
    """Attaching is timed inside one process: with many tables it must stay far below one listing of them."""
    many = tmp_path / "many"
    for n in range(2000):
        log = many / f"t{n}" / "_delta_log"
        log.mkdir(parents=True)
        (log / f"{0:020d}.json").write_text("{}")
    (tmp_path / "few").mkdir()
    code = """
import sys, time
from deltaplane.spark import session
def timed(*args, attach=session.attach_names):
    started = time.perf_counter()
    attach(*args)
    took.append(time.perf_counter() - started)
session.attach_names = timed
took = []
for name in ("few", "few", "many", "few", "many"):
    spark = session.open_session(warehouse=f"{sys.argv[1]}/{name}", master="local[1]")
    found = spark._jsparkSession.sharedState().externalCatalog().tableExists("default", "t1999")
    assert found == (name == "many"), name
    spark.stop()
print(min(took[1], took[3]), min(took[2], took[4]))
"""
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    few, many_took = (float(text) for text in done.stdout.split())
    assert many_took < 3 * few + 0.2, (few, many_took, time.monotonic() - started)
