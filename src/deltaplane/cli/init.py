"""init: a commented configuration and an example registry that works as it stands."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from deltaplane.cli.output import Output, OutputFormat
from deltaplane.config import CONFIG_FILE
from deltaplane.errors import ConfigError

__all__ = ["EXAMPLE", "init"]

EXAMPLE = "Example: deltaplane init, then deltaplane plan"
REGISTRY_FILE = "tables.py"


def init(
    directory: Annotated[Path, typer.Argument(help="Where to write the files.")] = Path(),
    force: Annotated[bool, typer.Option("--force", help="Write over files that exist.")] = False,
    output: Annotated[
        OutputFormat, typer.Option("--output", help="For people or for machines.")
    ] = OutputFormat.text,
) -> None:
    """Write deltaplane.toml and an example registry, tables.py."""
    out = Output(output)
    files = {directory / name: _template(name) for name in (CONFIG_FILE, REGISTRY_FILE)}
    taken = [str(path) for path in files if path.exists()]
    if taken and not force:
        verb, them = ("exists and was", "it") if len(taken) == 1 else ("exist and were", "them")
        raise ConfigError(f"{' and '.join(taken)} {verb} not touched. Say --force to write over {them}.")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{directory}: the files could not be written: {error.strerror}. Choose another directory."
        ) from None
    for path in files:
        out.text(f"wrote {path}")
    out.text("Next: deltaplane plan")
    out.json({"written": [str(path) for path in files]})


def _template(name: str) -> str:
    return resources.files("deltaplane.cli").joinpath("templates", f"{name}.txt").read_text(encoding="utf-8")
