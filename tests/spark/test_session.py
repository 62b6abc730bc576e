"""Opening a session: what it is started with, how quiet it is, and how each failure reads."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deltaplane.errors import SparkStartError
from deltaplane.spark.java_version import major_version, require_java
from deltaplane.spark.names import attach_names
from deltaplane.spark.session import open_session
from deltaplane.spark.settings import plan_session

pytestmark = pytest.mark.spark

DELTA = f"io.delta:delta-spark_4.2_2.13:{importlib.metadata.version('delta-spark')}"


def run(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a new Python process, because a process has one Java process for all its life."""
    header = (
        "from deltaplane.errors import SparkStartError\nfrom deltaplane.spark.session import open_session\n"
    )
    env = {**os.environ, **environment}
    return subprocess.run(
        [sys.executable, "-c", header + code],
        capture_output=True,
        text=True,
        cwd=folder,
        env=env,
        check=False,
    )


def failure(code: str, folder: Path, **environment: str) -> str:
    """The message of the SparkStartError that the code ends in, which must be one line and all there is."""
    attempt = f"try:\n    {code}\nexcept SparkStartError as error:\n    print(error)"
    done = run(attempt, folder, **environment)
    assert done.returncode == 0, done.stderr
    message = done.stdout.strip()
    assert "Nothing was changed." in message
    assert "\n" not in message
    assert "Py4J" not in message
    return message + done.stderr


# ---- what a session is started with


def test_a_local_session_has_delta_stays_on_this_machine_and_fits_it() -> None:
    plan = plan_session("app", {"spark.master": "local[3]"})
    assert plan.settings == {
        "spark.app.name": "app",
        "spark.master": "local[3]",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.jars.packages": DELTA,
        "spark.sql.warehouse.dir": os.path.abspath(".deltaplane/warehouse"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "3",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.sources.default": "delta",
    }
    assert plan.keeps_names


def test_every_setting_gives_way_to_the_callers() -> None:
    own = plan_session("app", {}).settings
    asked = dict.fromkeys(
        own.keys() - {"spark.sql.extensions", "spark.jars.packages", "spark.master"}, "mine"
    )
    assert asked.items() <= plan_session("app", asked).settings.items()


def test_lists_of_extensions_and_packages_are_joined() -> None:
    settings = plan_session(
        "app", {"spark.sql.extensions": "a.B, c.D", "spark.jars.packages": "g:a:1"}
    ).settings
    assert settings["spark.sql.extensions"] == "a.B,c.D,io.delta.sql.DeltaSparkSessionExtension"
    assert settings["spark.jars.packages"] == f"g:a:1,{DELTA}"


@pytest.mark.parametrize("key", ["spark.jars", "spark.driver.extraClassPath", "spark.jars.packages"])
def test_a_delta_jar_of_the_callers_is_the_only_one(key: str) -> None:
    jar = "/opt/jars/delta-spark_4.2_2.13-4.4.0.jar"
    plan = plan_session("app", {key: jar})
    assert plan.delta_package is None
    assert plan.settings.get("spark.jars.packages", jar) == jar


@pytest.mark.parametrize(
    "conf",
    [
        {"spark.sql.catalogImplementation": "hive"},
        {"spark.sql.catalog.spark_catalog": "some.other.Catalog"},
        {"spark.hadoop.hive.metastore.uris": "thrift://somewhere:9083"},
    ],
)
def test_a_metastore_is_used_as_it_is(conf: dict[str, str]) -> None:
    plan = plan_session("app", conf)
    assert conf.items() <= plan.settings.items()
    assert plan.warehouse is None
    assert not plan.keeps_names


def test_on_a_cluster_names_are_kept_only_in_a_warehouse_that_is_given() -> None:
    bare = plan_session("app", {"spark.master": "yarn"})
    given = plan_session("app", {"spark.master": "yarn", "spark.sql.warehouse.dir": "hdfs:///w"})
    assert (bare.warehouse, bare.keeps_names) == (None, False)
    assert (given.warehouse, given.keeps_names) == ("hdfs:///w", True)
    assert "spark.driver.host" not in given.settings


# ---- a session that works


@pytest.mark.slow
def test_a_first_session_is_silent_and_leaves_only_its_warehouse(tmp_path: Path) -> None:
    code = """
spark = open_session()
spark.sql("CREATE TABLE t USING DELTA AS SELECT 1 id")
try:
    spark.sql("SELECT * FROM missing")
except Exception as error:
    print(error.getCondition())
print(spark.table("t").count())
import os
java = f"/proc/{spark.sparkContext._gateway.proc.pid}"
sockets = set()
for name in os.listdir(f"{java}/fd"):
    if os.path.islink(f"{java}/fd/{name}"):
        sockets.add(os.readlink(f"{java}/fd/{name}"))
lines = [line.split() for name in ("tcp", "tcp6") for line in open(f"{java}/net/{name}")]
listening = {line[1].split(":")[0] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in sockets}
print(sorted(address[-8:] for address in listening))
"""
    done = run(code, tmp_path)
    assert done.stdout.splitlines() == ["TABLE_OR_VIEW_NOT_FOUND", "1", "['0100007F']"], done.stderr
    assert done.stderr == ""
    assert [path.name for path in tmp_path.iterdir()] == [".deltaplane"]
    assert [path.name for path in (tmp_path / ".deltaplane").iterdir()] == ["warehouse"]


@pytest.mark.slow
def test_one_process_opens_reuses_stops_and_opens_again(tmp_path: Path) -> None:
    code = """
import sys, time

def refused(**arguments):
    try:
        open_session(**arguments)
    except SparkStartError as error:
        assert "Nothing was changed" in str(error)
        return str(error)
    return "accepted"

spark = open_session(warehouse="w", master="local[1]")
spark.sql("CREATE TABLE t USING DELTA AS SELECT 1 id")
assert open_session() is spark
assert open_session(warehouse="w", conf={"spark.sql.shuffle.partitions": "5"}) is spark
assert spark.conf.get("spark.sql.shuffle.partitions") == "5"
assert "spark.sql.warehouse.dir=file:" in refused(warehouse="elsewhere")
assert "spark.master=local[1]" in refused(master="local[2]")
assert "spark.ui.enabled=false" in refused(conf={"spark.ui.enabled": "true"})
assert "g:a:1 was asked for" in refused(conf={"spark.jars.packages": "g:a:1"})
spark.stop()
assert "only when the Java process starts" in refused(conf={"spark.jars.packages": "g:a:1"})
again = open_session(warehouse="w", master="local[1]")
assert again.table("t").count() == 1
again.stop()
other = open_session(warehouse="another", master="local[1]")
assert other.sql("SHOW TABLES").count() == 0
other._jvm.java.lang.System.out.println("java says")
other._jvm.java.lang.System.err.println("java warns")
time.sleep(1)
other.stop()
from pyspark.sql import SparkSession
plain = SparkSession.builder.master("local[1]").config("spark.sql.extensions", "").getOrCreate()
assert "without Delta is already running" in refused()
"""
    done = run(code, tmp_path)
    assert (done.returncode, done.stdout) == (0, "java says\n"), done.stderr
    # Only the session that was not opened by us says anything else.
    assert done.stderr.splitlines()[0] == "java warns"


# ---- failures


def test_a_missing_package_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    with pytest.raises(SparkStartError, match=r"pyspark is not installed.*pip install 'deltaplane\[spark\]'"):
        open_session()


def fake_java(folder: Path, says: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    return folder


def test_no_java_at_all(tmp_path: Path) -> None:
    with pytest.raises(
        SparkStartError, match=r"none was found.*Nothing was changed.*Install Java 17, 21 or 25"
    ):
        require_java({"PATH": str(tmp_path)})


def test_java_home_that_leads_nowhere(tmp_path: Path) -> None:
    assert f"JAVA_HOME is {tmp_path}/no" in failure("open_session()", tmp_path, JAVA_HOME=f"{tmp_path}/no")


@pytest.mark.parametrize(("says", "version"), [("1.8.0_402", 8), ("11.0.2", 11), ("26", 26)])
def test_java_of_a_version_that_spark_does_not_run_on(tmp_path: Path, says: str, version: int) -> None:
    home = fake_java(tmp_path, f'openjdk version "{says}" 2030-01-01')
    with pytest.raises(SparkStartError, match=rf"is Java {version}, and Spark 4\.2 runs on Java 17 to 25"):
        require_java({"JAVA_HOME": str(home)})


@pytest.mark.parametrize("says", ["17", "17.0.15", "21.0.1", "25-ea"])
def test_java_of_a_version_that_spark_runs_on(tmp_path: Path, says: str) -> None:
    home = fake_java(tmp_path, f'openjdk version "{says}" 2030-01-01')
    require_java({"JAVA_HOME": str(home)})
    assert major_version(f'openjdk version "{says}"') == int(says[:2])


def test_java_that_says_nothing_of_use(tmp_path: Path) -> None:
    with pytest.raises(SparkStartError, match=r"does not say which Java it is \(hello\)"):
        require_java({"JAVA_HOME": str(fake_java(tmp_path, "hello"))})


def test_a_repository_out_of_reach_is_named(tmp_path: Path) -> None:
    (tmp_path / "ivysettings.xml").write_text(
        '<ivysettings><settings defaultResolver="far"/><resolvers>'
        '<ibiblio name="far" m2compatible="true" root="http://127.0.0.1:9/"/></resolvers></ivysettings>'
    )
    settings = {"spark.jars.ivy": f"{tmp_path}/ivy", "spark.jars.ivySettings": f"{tmp_path}/ivysettings.xml"}
    message = failure(f"open_session(conf={settings!r})", tmp_path)
    assert "Spark 4.2 needs for Delta 4.4.0 could not be fetched: Server access error" in message
    assert "Connection refused" in message
    assert "spark.jars.ivySettings" in message
    assert message.endswith("Fetching the Delta 4.4.0 jars for Spark 4.2 (first start only) … failed\n")
    assert not (tmp_path / ".deltaplane").exists()


def test_a_warehouse_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    message = failure("open_session(warehouse='file/w')", tmp_path)
    assert f"The warehouse {tmp_path}/file/w cannot be used: {tmp_path}/file is not a folder" in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("master='nonsense'", "Master must either be yarn or start with spark, k8s, or local"),
        ("conf={'spark.driver.memory': 'banana'}", "Invalid maximum heap size: -Xmxbanana"),
        ("conf={'spark.sql.shuffle.partitions': 'banana'}", "The value 'banana' in the config"),
        ("conf={'spark.sql.extensions': 'no.such.Extension'}", "without the jar of no.such.Extension"),
        (
            "conf={'spark.jars': '/nowhere/delta-spark.jar'}",
            "without the jar of io.delta.sql.DeltaSparkSession",
        ),
        (
            "warehouse='a', conf={'spark.sql.warehouse.dir': 'b'}",
            "spark.sql.warehouse.dir is asked for twice",
        ),
    ],
)
def test_a_setting_that_spark_refuses_is_told_in_one_line(
    tmp_path: Path, arguments: str, reason: str
) -> None:
    assert reason in failure(f"open_session({arguments})", tmp_path)


def test_names_refuse_a_session_with_a_catalog_of_its_own() -> None:
    class Held:
        """Stands for a session on a Hive metastore, which takes a server or Derby to have."""

        class conf:
            @staticmethod
            def get(key: str) -> str:
                return "file:/w"

        def __getattr__(self, name: str) -> Held:
            return self

        def __call__(self, *args: object) -> Held:
            return self

        def __str__(self) -> str:
            return "org.apache.spark.sql.hive.HiveExternalCatalog"

    with pytest.raises(SparkStartError, match="has a catalog of its own"):
        attach_names(Held(), "/w")  # type: ignore[arg-type]
