"""Settings come from deltaplane.toml and the environment, and every error names file, key and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltaplane.config import AlertSettings, Config, LedgerSettings, SparkSettings, load_config
from deltaplane.errors import ConfigError
from deltaplane.schema import Waiver
from deltaplane.schema.frozen import FrozenMap

WHOLE = """
registry = "tables:registry"
author = "nightly"

[spark]
master = "local[4]"
warehouse = "lake"

[spark.conf]
"spark.sql.shuffle.partitions" = 8
spark.sql.ansi.enabled = true
spark.databricks.delta.snapshotPartitions = "1"
spark.memory.fraction = 0.5

[catalogs]
dev = "spark_catalog"

[ledger]
uri = "deltasql://sqlite//lake/ledger.db"

[ledger.alerts]
max_lag_versions = 50
max_lag_seconds = 12.5
max_attempts = false
frozen = false
failed = true
webhook = "https://chat.example/hook"

[[waivers]]
code = "DS102"
table = "silver.customers"
column = "nickname"
reason = "moved to profiles"

[[waivers]]
code = "PR101"
table = "silver.customers"
reason = "all readers are new"
"""
SETTINGS = Config(
    registry="tables:registry",
    author="nightly",
    spark=SparkSettings(
        "local[4]",
        "lake",
        FrozenMap(
            {
                "spark.sql.shuffle.partitions": "8",
                "spark.sql.ansi.enabled": "true",
                "spark.databricks.delta.snapshotPartitions": "1",
                "spark.memory.fraction": "0.5",
            }
        ),
    ),
    catalogs=FrozenMap({"dev": "spark_catalog"}),
    waivers=(
        Waiver("DS102", "silver.customers", "nickname", "moved to profiles"),
        Waiver("PR101", "silver.customers", None, "all readers are new"),
    ),
    ledger=LedgerSettings(
        "deltasql://sqlite//lake/ledger.db",
        AlertSettings(
            (
                ("max_lag_versions", 50),
                ("max_lag_seconds", 12.5),
                ("max_attempts", None),
                ("frozen", False),
                ("failed", True),
            ),
            "https://chat.example/hook",
        ),
    ),
)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, name: str = "deltaplane.toml") -> Path:
    path = Path(name)
    path.write_text(text, encoding="utf-8")
    return path


def settings_of(config: Config) -> tuple[object, ...]:
    return (config.registry, config.author, config.spark, config.catalogs, config.waivers, config.ledger)


def test_every_setting_of_the_file_arrives_with_dotted_keys_quoted_or_not() -> None:
    config = load_config(write(WHOLE), environ={})
    assert settings_of(config) == settings_of(SETTINGS)
    assert config.source == "deltaplane.toml"


def test_the_file_of_the_working_directory_is_found_by_itself() -> None:
    write(WHOLE)
    assert load_config(environ={}) == load_config("deltaplane.toml", environ={})


def test_without_a_file_the_defaults_hold() -> None:
    assert load_config(environ={}) == Config(source="the environment")


def test_the_environment_wins_over_the_file_and_maps_are_merged_key_by_key() -> None:
    write(WHOLE)
    config = load_config(
        environ={
            "DELTAPLANE_REGISTRY": "other:registry",
            "DELTAPLANE_AUTHOR": "me",
            "DELTAPLANE_SPARK_MASTER": "yarn",
            "DELTAPLANE_SPARK_WAREHOUSE": "/lake",
            "DELTAPLANE_SPARK_CONF": '{"spark.sql.shuffle.partitions": 2, "spark.ui.enabled": false}',
            "DELTAPLANE_CATALOGS": '{"prod": "main"}',
            "DELTAPLANE_LEDGER": "deltasql://duckdb/l.duckdb",
            "DELTAPLANE_ALERT_WEBHOOK": "https://other.example",
        }
    )
    assert settings_of(config) == (
        "other:registry",
        "me",
        SparkSettings(
            "yarn",
            "/lake",
            FrozenMap(
                {
                    **SETTINGS.spark.conf,
                    "spark.sql.shuffle.partitions": "2",
                    "spark.ui.enabled": "false",
                }
            ),
        ),
        {"dev": "spark_catalog", "prod": "main"},
        SETTINGS.waivers,
        LedgerSettings(
            "deltasql://duckdb/l.duckdb",
            AlertSettings(SETTINGS.ledger.alerts.limits, "https://other.example"),
        ),
    )


def test_an_empty_variable_is_as_good_as_none() -> None:
    write(WHOLE)
    empty = dict.fromkeys(
        ("DELTAPLANE_REGISTRY", "DELTAPLANE_SPARK_CONF", "DELTAPLANE_CATALOGS", "DELTAPLANE_CONFIG"), ""
    )
    assert load_config(environ=empty) == load_config(environ={})


def test_the_variable_for_the_file_wins_over_the_working_directory(project: Path) -> None:
    write('author = "here"')
    write('author = "there"', "other.toml")
    config = load_config(environ={"DELTAPLANE_CONFIG": str(project / "other.toml")})
    assert (config.author, config.source) == ("there", str(project / "other.toml"))


def test_an_argument_wins_over_the_variable_for_the_file() -> None:
    write('author = "argument"', "a.toml")
    write('author = "variable"', "b.toml")
    assert load_config("a.toml", environ={"DELTAPLANE_CONFIG": "b.toml"}).author == "argument"


def test_a_file_with_a_byte_order_mark_is_read() -> None:
    Path("deltaplane.toml").write_bytes(b'\xef\xbb\xbfauthor = "notepad"\n')
    assert load_config(environ={}).author == "notepad"


BAD_FILES = {
    "unknown key": (
        "registri = 'x'",
        ["registri is not a setting", "author, catalogs, ledger, registry", "Correct"],
    ),
    "unknown spark key": ("[spark]\ncores = 2", ["spark.cores is not a setting", "conf, master, warehouse"]),
    "unknown waiver key": (
        "[[waivers]]\ncode='DS102'\ntable='t'\nwhy='x'",
        ["waivers[1].why is not a setting", "code, column, reason, table"],
    ),
    "registry number": ("registry = 3", ["registry must be text, and is 3", 'registry = "…"']),
    "author list": ("author = ['a']", ["author must be text", 'author = "…"']),
    "master number": ("[spark]\nmaster = 4", ["spark.master must be text, and is 4", 'master = "…"']),
    "warehouse flag": ("[spark]\nwarehouse = true", ["spark.warehouse must be text", 'warehouse = "…"']),
    "spark text": ("spark = 'local'", ["spark must be a table, and is 'local'", "[spark]"]),
    "conf text": ("[spark]\nconf = 'x'", ["spark.conf must be a table", "[spark.conf]"]),
    "conf list": ("[spark.conf]\nspark.jars = ['a', 'b']", ["spark.conf.spark.jars must be text, a number"]),
    "conf date": ("[spark.conf]\n'spark.x' = 2024-01-01", ["spark.conf.spark.x must be text, a number"]),
    "catalogs list": ("catalogs = ['dev']", ["catalogs must be a table", "[catalogs]"]),
    "catalog nested": ("[catalogs]\ndev = {to = 'x'}", ["catalogs.dev must be text"]),
    "waivers table": ("[waivers]\ncode = 'DS102'", ["waivers must be tables", "[[waivers]]"]),
    "waivers text": ("waivers = ['DS102']", ["waivers must be tables", "[[waivers]]"]),
    "waiver without code": ("[[waivers]]\ntable='t'\nreason='r'", ["waivers[1].code is missing", "code ="]),
    "waiver without table": (
        "[[waivers]]\ncode='DS102'\nreason='r'",
        ["waivers[1].table is missing", "table ="],
    ),
    "waiver without reason": (
        "[[waivers]]\ncode='DS102'\ntable='t'\nreason=' '",
        ["waivers[1].reason is missing", "reason ="],
    ),
    "second waiver": (
        "[[waivers]]\ncode='DS102'\ntable='t'\nreason='r'\n[[waivers]]\ncode='ds1'\ntable='t'\nreason='r'",
        ["waivers[2]", "'ds1'", "looks like DS102"],
    ),
    "waiver number": ("[[waivers]]\ncode=102\ntable='t'\nreason='r'", ["waivers[1].code must be text"]),
    "ledger text": ("ledger = 'x'", ["ledger must be a table", "[ledger]"]),
    "unknown ledger key": ("[ledger]\nurl = 'x'", ["ledger.url is not a setting", "alerts, uri"]),
    "ledger number": ("[ledger]\nuri = 3", ["ledger.uri must be text, and is 3", 'uri = "…"']),
    "alerts text": ("[ledger]\nalerts = 'x'", ["ledger.alerts must be a table", "[ledger.alerts]"]),
    "unknown alert": (
        "[ledger.alerts]\nmax_lag = 3",
        ["ledger.alerts.max_lag is not a setting", "max_lag_seconds, max_lag_versions", "webhook_env"],
    ),
    "limit text": (
        "[ledger.alerts]\nmax_attempts = '3'",
        ["ledger.alerts.max_attempts must be a number from 0 on, or false", "and is '3'"],
    ),
    "limit true": ("[ledger.alerts]\nmax_attempts = true", ["max_attempts must be a number", "True"]),
    "limit negative": ("[ledger.alerts]\nmax_lag_seconds = -1", ["max_lag_seconds must be a number", "-1"]),
    "limit infinite": ("[ledger.alerts]\nmax_lag_seconds = inf", ["max_lag_seconds must be a number"]),
    "limit not a number": ("[ledger.alerts]\nmax_lag_seconds = nan", ["max_lag_seconds must be a number"]),
    "switch number": (
        "[ledger.alerts]\nfrozen = 1",
        ["ledger.alerts.frozen must be true or false, and is 1"],
    ),
    "webhook list": ("[ledger.alerts]\nwebhook = ['x']", ["ledger.alerts.webhook must be text"]),
    "webhook variable missing": (
        "[ledger.alerts]\nwebhook_env = 'HOOK'",
        ["ledger.alerts.webhook_env names HOOK", "no such variable", "Set it"],
    ),
    "not TOML": ("registry = tables:registry", ["not TOML", "line 1", "deltaplane init"]),
    "key twice": ("author='a'\nauthor='b'\n", ["not TOML", "line 2"]),
}


@pytest.mark.parametrize(("text", "said"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_bad_file_is_refused_with_file_key_and_remedy(text: str, said: list[str]) -> None:
    write(text)
    with pytest.raises(ConfigError) as caught:
        load_config(environ={})
    message = str(caught.value)
    assert message.startswith("deltaplane.toml: ")
    assert [part for part in said if part not in message] == []


def test_a_file_that_is_not_text_is_refused() -> None:
    Path("deltaplane.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"deltaplane\.toml: it is not TOML.*deltaplane init"):
        load_config(environ={})


@pytest.mark.parametrize("asked", ["missing.toml", "."])
def test_a_named_file_that_does_not_exist_is_refused(asked: str) -> None:
    with pytest.raises(ConfigError, match=r"there is no such file.*deltaplane init"):
        load_config(environ={"DELTAPLANE_CONFIG": asked})


BAD_VARIABLES = {
    "not JSON": ("DELTAPLANE_SPARK_CONF", "spark.x=1", ["JSON object", "Correct the variable"]),
    "JSON list": ("DELTAPLANE_SPARK_CONF", '["a"]', ["JSON object"]),
    "nested": ("DELTAPLANE_SPARK_CONF", '{"spark.x": {"y": 1}}', ["spark.x must be text, a number"]),
    "null": ("DELTAPLANE_CATALOGS", '{"dev": null}', ["dev must be text, a number"]),
    "catalogs text": ("DELTAPLANE_CATALOGS", "dev", ["JSON object"]),
}


@pytest.mark.parametrize(("name", "value", "said"), BAD_VARIABLES.values(), ids=BAD_VARIABLES.keys())
def test_a_bad_variable_is_refused_by_its_name(name: str, value: str, said: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(environ={name: value})
    message = str(caught.value)
    assert message.startswith(f"{name}: ")
    assert [part for part in said if part not in message] == []


def test_settings_cannot_be_changed_afterwards() -> None:
    config = load_config(write(WHOLE), environ={})
    with pytest.raises(TypeError):
        config.spark.conf["spark.x"] = "1"  # type: ignore[index]
    assert settings_of(config) == settings_of(SETTINGS)


def test_the_webhook_may_come_from_a_variable_that_the_file_names() -> None:
    write("[ledger.alerts]\nwebhook_env = 'HOOK'\nwebhook = 'https://file.example'")
    config = load_config(environ={"HOOK": "https://variable.example"})
    assert config.ledger.alerts.webhook == "https://variable.example"


def test_the_webhook_is_in_no_repr() -> None:
    write("[ledger.alerts]\nwebhook = 'https://chat.example/s3cret'")
    assert "s3cret" not in repr(load_config(environ={}))
