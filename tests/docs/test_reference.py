"""The reference pages say what the code says."""

from __future__ import annotations

import importlib.util
import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from deltaplane.planning.rules.catalogue import RULES

ROOT = Path(__file__).resolve().parents[2]
CONSTANTS = {"DATABRICKS", "OPEN_SOURCE", "RULES"}


def load_generator() -> ModuleType:
    """Load docs/generate.py by its path: tests/docs is a folder of the same name."""
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATE = load_generator()
PUBLIC = [(module, name) for module in GENERATE.PUBLIC_MODULES for name in import_module(module).__all__]


@pytest.mark.parametrize("page", sorted(GENERATE.pages()), ids=lambda path: path.name)
def test_a_reference_page_is_what_the_generator_writes(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == GENERATE.pages()[page], "run: make docs"


@pytest.mark.parametrize(("module", "name"), PUBLIC, ids=str)
def test_a_public_name_has_a_docstring_of_its_own(module: str, name: str) -> None:
    value = getattr(import_module(module), name)
    if name in CONSTANTS:
        assert not inspect.isroutine(value)
        return
    assert (value.__doc__ or "").strip()
    # A dataclass without one gets its signature for a docstring.
    assert not value.__doc__.startswith(f"{name}(")


@pytest.mark.parametrize(("name", "command"), GENERATE.commands(), ids=[n for n, _ in GENERATE.commands()])
def test_a_command_has_help_and_an_example(name: str, command: Any) -> None:
    assert (command.help or "").strip()
    assert "Example" in (command.epilog or "")


def test_every_command_and_every_option_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    names = [f"## {name}\n" for name, _ in GENERATE.commands()]
    parameters = [parameter for _, command in GENERATE.commands() for parameter in command.params]
    options = [f"`{name}`" for each in parameters for name in each.opts if name.startswith("--")]
    assert len(names) > 6
    assert [word for word in (*names, *options) if word not in page] == []


def test_every_rule_is_in_the_reference() -> None:
    page = (ROOT / "docs" / "reference" / "rules.md").read_text(encoding="utf-8")
    assert [code for code in RULES if f"| {code} |" not in page] == []
