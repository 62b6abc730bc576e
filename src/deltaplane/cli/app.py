"""The command line: its commands, and what happens to errors."""

from __future__ import annotations

import io
import os
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from deltaplane.cli import demo, init, tables
from deltaplane.cli.ledger import ledger_app
from deltaplane.cli.output import EXIT_CLEAN, EXIT_ERROR, EXIT_INTERRUPTED, Output, OutputFormat
from deltaplane.errors import DeltaplaneError

__all__ = ["app", "main"]

app = typer.Typer(
    name="deltaplane",
    help="The control plane for Delta Lake tables: declare them, see what would change, apply it safely.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    epilog="Example: deltaplane init && deltaplane plan",
)


@app.callback()
def root(
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and stop.", is_eager=True)
    ] = False,
) -> None:
    """The control plane for Delta Lake tables: declare them, see what would change, apply it safely."""


def _register() -> None:
    app.command("init", epilog=init.EXAMPLE)(init.init)
    app.command("demo", epilog=demo.EXAMPLE)(demo.demo)
    app.command("plan", epilog=tables.PLAN_EXAMPLE)(tables.plan)
    app.command("apply", epilog=tables.APPLY_EXAMPLE)(tables.apply)
    app.command("drift", epilog=tables.DRIFT_EXAMPLE)(tables.drift)
    app.command("pull", epilog=tables.PULL_EXAMPLE)(tables.pull)
    app.add_typer(ledger_app, name="ledger")


_register()


def main(arguments: list[str] | None = None) -> None:
    """Run the command and leave with its exit code. Expected errors are one message, never a trace."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["--version"]:
        sys.stdout.write(f"deltaplane {version('deltaplane')}\n")
        raise SystemExit(0)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character of a comment must not end the command half-way.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    code = _run(arguments, Output(_asked_format(arguments)))
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as head, has seen enough; Python would complain when it closes stdout itself.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    raise SystemExit(code)


def _run(arguments: list[str], output: Output) -> int:
    """Return the exit code. Typer itself explains wrong usage and leaves by SystemExit."""
    try:
        app(args=arguments, prog_name="deltaplane")
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except DeltaplaneError as error:
        output.error(type(error).__name__, str(error))
        return EXIT_ERROR
    else:
        return EXIT_CLEAN
    if code == EXIT_INTERRUPTED:
        output.error(
            "interrupted",
            "Stopped. What was applied stays applied; the same command does only what is missing.",
        )
    return code


def _asked_format(arguments: list[str]) -> OutputFormat:
    joined = " ".join(arguments)
    return OutputFormat.json if "--output json" in joined or "--output=json" in joined else OutputFormat.text
