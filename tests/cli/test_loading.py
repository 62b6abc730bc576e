"""MODULE:ATTRIBUTE leads to a registry, or to one message with file, line and remedy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from deltaplane.cli.loading import load_registry
from deltaplane.config import Config
from deltaplane.errors import RegistryLoadError

if TYPE_CHECKING:
    from cli.conftest import Run

GOOD = """
import deltaplane as dp
from deltaplane.schema import Column, DeltaTable, Integer
registry = dp.Registry(DeltaTable("dev", "s", "t", [Column("a", Integer())]))
"""


def write(project: Path, name: str, text: str) -> Path:
    path = project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_registry_of_the_working_directory_is_found(project: Path) -> None:
    write(project, "loading_good.py", GOOD)
    assert len(load_registry("loading_good:registry", Config())) == 1


def test_a_registry_inside_a_package_is_found(project: Path) -> None:
    write(project, "loading_pkg/__init__.py", "")
    write(project, "loading_pkg/inner.py", GOOD)
    assert len(load_registry("loading_pkg.inner:registry", Config())) == 1


def test_left_out_the_configured_registry_is_taken(project: Path) -> None:
    write(project, "loading_named.py", GOOD)
    assert len(load_registry(None, Config(registry="loading_named:registry"))) == 1


def test_what_the_module_prints_does_not_reach_stdout(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project, "loading_prints.py", f"print('hello'){GOOD}")
    load_registry("loading_prints:registry", Config())
    assert capsys.readouterr() == ("", "hello\n")


NOT_A_TARGET = {
    "no colon": ("tables", "'tables' is not MODULE:ATTRIBUTE. Write it like tables:registry."),
    "no module": (":registry", "':registry' is not MODULE:ATTRIBUTE. Write it like tables:registry."),
    "no attribute": ("tables:", "'tables:' is not MODULE:ATTRIBUTE. Write it like tables:registry."),
    "path": ("a/b.py:reg", "'a/b.py:reg' is not MODULE:ATTRIBUTE. Write it like a.b:reg."),
    "relative": (".x:y", "'.x:y' is not MODULE:ATTRIBUTE. Write it like tables:y."),
    "two colons": ("a:b:c", "'a:b:c' is not MODULE:ATTRIBUTE. Write it like a:registry."),
    "dotted attribute": ("a:b.c", "'a:b.c' is not MODULE:ATTRIBUTE. Write it like a:registry."),
}


@pytest.mark.parametrize(("target", "message"), NOT_A_TARGET.values(), ids=NOT_A_TARGET.keys())
@pytest.mark.usefixtures("project")
def test_what_is_not_module_and_attribute_is_corrected(target: str, message: str) -> None:
    with pytest.raises(RegistryLoadError) as caught:
        load_registry(target, Config())
    assert str(caught.value) == message


@pytest.mark.usefixtures("project")
def test_no_registry_at_all_says_both_ways_to_name_one() -> None:
    with pytest.raises(
        RegistryLoadError, match=r"MODULE:ATTRIBUTE, such as tables:registry.*deltaplane init"
    ):
        load_registry(None, Config())


@pytest.mark.parametrize("module", ["nowhere_to_be_found", "nowhere.to.be", "json.nowhere"])
def test_a_module_that_does_not_exist_is_named_with_the_directory(project: Path, module: str) -> None:
    with pytest.raises(RegistryLoadError) as caught:
        load_registry(f"{module}:registry", Config())
    assert str(caught.value) == (
        f"There is no module {module} in {project} or on the Python path. Check the name and the directory, "
        "or write an example with: deltaplane init"
    )


def test_a_file_name_is_turned_into_the_module(project: Path) -> None:
    write(project, "loading_file.py", GOOD)
    with pytest.raises(RegistryLoadError) as caught:
        load_registry("loading_file.py:registry", Config())
    assert (
        str(caught.value) == "loading_file.py is a file, not a module. Write it like loading_file:registry."
    )


def test_the_error_says_that_the_configuration_named_the_registry(project: Path) -> None:
    with pytest.raises(RegistryLoadError, match=r"no module nowhere .* \(deltaplane\.toml names it\)"):
        load_registry(None, Config(source="deltaplane.toml", registry="nowhere:registry"))
    assert list(project.iterdir()) == []


BROKEN = {
    "syntax": ("a = 1\nb = (\n", "line 2: '(' was never closed. Nothing was changed. Correct the line."),
    "indentation": (
        "if True:\nx = 1\n",
        "line 2: expected an indented block after 'if' statement on line 1.",
    ),
    "unknown name": (
        "a = 1\nb = undefined_thing\n",
        "line 2: NameError: name 'undefined_thing' is not defined. Nothing was changed. Correct the line.",
    ),
    "other module": (
        "\nimport not_installed_anywhere\n",
        "line 2: ModuleNotFoundError: No module named 'not_installed_anywhere'. Nothing was changed.",
    ),
    "missing name": (
        "from deltaplane.schema import Intger\n",
        "line 1: ImportError: cannot import name 'Intger' from 'deltaplane.schema'",
    ),
    "inside the standard library": (
        "import json\n\njson.loads('{')\n",
        "line 3: JSONDecodeError: Expecting property name enclosed in double quotes",
    ),
    "no message": ("assert 1 == 2\n", "line 1: AssertionError: no message. Nothing was changed."),
    "declaration": (
        "from deltaplane.schema import Column, Integer, String\n\nColumn('n', String(), identity=True)\n",
        "line 3: column n: an identity must be BIGINT, and this one is string. Declare it as Long(). "
        "Nothing was changed.",
    ),
    "type text": (
        "from deltaplane.schema import Column\nColumn('n', 'strng')\n",
        "line 2: 'strng' is not a type of Spark or Delta: reading stopped at 'strng'. Known types: ",
    ),
    "sys.exit": (
        "import sys\nsys.exit(0)\n",
        "line 2: the module ends the process with sys.exit() while it is imported. Nothing was changed. "
        "Put that under: if __name__ == '__main__':",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_module_that_does_not_import_is_explained_by_file_and_line(
    run: Run, project: Path, case: str
) -> None:
    source, said = BROKEN[case]
    file = write(project, f"broken_{case.replace(' ', '_').replace('.', '_')}.py", source)
    ran = run("plan", f"{file.stem}:registry")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"error: {file}, {said}")
    assert ran.err.count("\n") == 1
    assert "Traceback" not in ran.err


def test_a_module_that_fails_deep_inside_is_explained_by_its_own_last_line(run: Run, project: Path) -> None:
    helper = write(project, "loading_helper.py", "def make():\n    raise ValueError('no such thing')\n")
    write(project, "loading_deep.py", "import loading_helper\n\nregistry = loading_helper.make()\n")
    ran = run("plan", "loading_deep:registry", "--output", "json")
    assert ran.code == 1
    assert ran.err == ""
    assert ran.json == {
        "error": "RegistryLoadError",
        "message": f"{helper}, line 2: ValueError: no such thing. Nothing was changed. Correct the line.",
    }


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_terminal_that_cannot_show_a_character_gets_it_escaped(project: Path, output: str) -> None:
    write(project, "loading_emoji.py", "raise ValueError('😀 \\ud800 ä')\n")
    command = Path(sys.executable).with_name("deltaplane")
    ran = subprocess.run(
        [command, "plan", "loading_emoji:registry", "--output", output],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    shown = json.loads(ran.stdout)["message"] if output == "json" else ran.stderr
    assert ran.returncode == 1
    assert (
        "ValueError: 😀 \ud800 ä." if output == "json" else "ValueError: \\U0001f600 \\ud800 \\xe4."
    ) in shown
    assert "Traceback" not in ran.stderr


def test_a_module_that_was_corrected_imports_afterwards(project: Path) -> None:
    path = write(project, "loading_mended.py", "registry = (\n")
    with pytest.raises(RegistryLoadError):
        load_registry("loading_mended:registry", Config())
    path.write_text(GOOD, encoding="utf-8")
    assert len(load_registry("loading_mended:registry", Config())) == 1


NOT_A_REGISTRY = {
    "missing": ("", "there is no registry in {file}. Define it there with registry = dp.Registry(…)."),
    "another name": (
        "import deltaplane as dp\ngold = dp.Registry()\nsilver = dp.Registry()\n",
        "there is no registry in {file}. Its registries are: gold, silver.",
    ),
    "a list": ("registry = []", "registry is a list, not a Registry, in {file}. Define it there with"),
    "none": ("registry = None", "registry is a NoneType, not a Registry, in {file}."),
    "the class": (
        "import deltaplane as dp\nregistry = dp.Registry",
        "registry is a type, not a Registry, in {file}.",
    ),
}


@pytest.mark.parametrize("case", NOT_A_REGISTRY)
def test_an_attribute_that_is_no_registry_is_explained_with_the_file(
    run: Run, project: Path, case: str
) -> None:
    source, said = NOT_A_REGISTRY[case]
    file = write(project, f"wrong_{case.replace(' ', '_')}.py", source)
    ran = run("drift", f"{file.stem}:registry")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"error: {file.stem}:registry: " + said.format(file=file))
    assert ran.err.count("\n") == 1
