"""init writes a configuration and an example registry that work as they stand."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from deltaplane.cli.loading import load_registry
from deltaplane.config import Config, load_config
from deltaplane.ledger.alerts import Thresholds

if TYPE_CHECKING:
    from cli.conftest import Run


def test_init_writes_a_configuration_and_a_registry(run: Run, project: Path) -> None:
    ran = run("init")
    assert (ran.code, ran.out, ran.err) == (
        0,
        "wrote deltaplane.toml\nwrote tables.py\nNext: deltaplane plan\n",
        "",
    )
    assert sorted(path.name for path in project.iterdir()) == ["deltaplane.toml", "tables.py"]


def test_init_names_the_files_in_json(run: Run) -> None:
    ran = run("init", "sub/dir", "--output", "json")
    assert ran.code == 0
    assert ran.json == {"written": ["sub/dir/deltaplane.toml", "sub/dir/tables.py"]}
    assert Path("sub/dir/tables.py").is_file()


def test_the_example_registry_is_valid_and_is_the_one_the_configuration_names(run: Run) -> None:
    run("init")
    config = load_config(environ={})
    assert config == Config(source="deltaplane.toml", registry="tables:registry")
    registry = load_registry(None, config)
    assert [str(table.qualified_name) for table in registry] == ["dev.silver.customers", "dev.silver.orders"]
    orders = registry.tables[1].qualified_name.key
    assert registry.dependencies()[orders] == {registry.tables[0].qualified_name.key}


def test_every_commented_setting_of_the_example_is_one_that_exists(run: Run) -> None:
    """Whoever takes the comment signs away has a configuration that is accepted."""
    run("init")
    text = Path("deltaplane.toml").read_text(encoding="utf-8")
    lines = [line.removeprefix("# ") if _is_setting(line) else line for line in text.splitlines()]
    uncommented = "\n".join(lines)
    Path("deltaplane.toml").write_text(uncommented, encoding="utf-8")
    config = load_config(environ={"ALERT_WEBHOOK": "https://chat.example/hook"})
    assert tomllib.loads(uncommented).keys() == {
        "registry",
        "author",
        "spark",
        "catalogs",
        "ledger",
        "waivers",
    }
    assert (config.author, config.spark.master, config.spark.warehouse) == (
        "nightly-deploy",
        "local[*]",
        ".deltaplane/warehouse",
    )
    assert (dict(config.spark.conf), dict(config.catalogs)) == (
        {"spark.sql.shuffle.partitions": "8"},
        {"dev": "spark_catalog"},
    )
    assert [waiver.code for waiver in config.waivers] == ["DS102"]
    assert config.ledger.uri == "deltasql://sqlite/.deltaplane/ledger.db"
    assert config.ledger.alerts.webhook == "https://chat.example/hook"
    assert Thresholds(**dict(config.ledger.alerts.limits)) == Thresholds()  # type: ignore[arg-type]


def _is_setting(line: str) -> bool:
    body = line.removeprefix("# ")
    return body != line and (body.startswith("[[") or " = " in body)


def test_init_refuses_to_overwrite_and_touches_nothing(run: Run, project: Path) -> None:
    (project / "tables.py").write_text("mine")
    ran = run("init")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "error: tables.py exists and was not touched. Say --force to write over it.\n"
    assert (project / "tables.py").read_text() == "mine"
    assert not (project / "deltaplane.toml").exists()


def test_init_names_both_files_when_both_exist(run: Run) -> None:
    run("init")
    ran = run("init")
    assert ran.code == 1
    assert ran.err == (
        "error: deltaplane.toml and tables.py exist and were not touched. Say --force to write over them.\n"
    )


def test_force_writes_over_what_exists(run: Run, project: Path) -> None:
    (project / "tables.py").write_text("mine")
    assert run("init", "--force").code == 0
    assert len(load_registry("tables:registry", Config())) == 2


def test_init_into_a_file_is_one_clear_error(run: Run, project: Path) -> None:
    (project / "taken").write_text("")
    ran = run("init", "taken")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "error: taken: the files could not be written: File exists. Choose another directory.\n"


def test_init_below_a_file_is_one_clear_error(run: Run, project: Path) -> None:
    (project / "taken").write_text("")
    ran = run("init", "taken/sub", "--output", "json")
    assert ran.code == 1
    assert ran.json == {
        "error": "ConfigError",
        "message": "taken/sub: the files could not be written: Not a directory. Choose another directory.",
    }
