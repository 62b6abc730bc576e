"""Runs the command in this process, in a directory of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deltaplane.cli import main


@dataclass(frozen=True)
class Ran:
    """What one run of the command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout; fails when there is anything else."""
        content = json.loads(self.out)
        assert isinstance(content, dict)
        return content


Run = Callable[..., Ran]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory; modules imported from it are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    # Wide, so that no message is wrapped in the middle of a sentence.
    monkeypatch.setenv("COLUMNS", "300")
    for name in ("CONFIG", "REGISTRY", "AUTHOR", "CATALOGS", "SPARK_CONF", "LEDGER", "ALERT_WEBHOOK"):
        monkeypatch.delenv(f"DELTAPLANE_{name}", raising=False)
    path, modules = list(sys.path), set(sys.modules)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def run(project: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `deltaplane` with these arguments."""

    def run_command(*arguments: str) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as leaving:
            main(list(arguments))
        captured = capsys.readouterr()
        assert isinstance(leaving.value.code, int)
        return Ran(leaving.value.code, captured.out, captured.err)

    return run_command
