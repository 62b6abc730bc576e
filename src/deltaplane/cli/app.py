"""The command line: its commands, and what happens to errors."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import click
import typer

from deltaplane.cli import demo, init, tables
from deltaplane.cli.output import EXIT_ERROR, Output, OutputFormat
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


_register()


def main(arguments: list[str] | None = None) -> None:
    """Run the command and leave with its exit code. Expected errors are one message, never a trace."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["--version"]:
        sys.stdout.write(f"deltaplane {version('deltaplane')}\n")
        raise SystemExit(0)
    output = Output(_asked_format(arguments))
    try:
        code = app(args=arguments, standalone_mode=False)
    except click.exceptions.Exit as leaving:
        code = leaving.exit_code
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        output.error(
            "interrupted",
            "Stopped. What was applied stays applied; the same command does only what is missing.",
        )
        code = 130
    except DeltaplaneError as error:
        output.error(type(error).__name__, str(error))
        code = EXIT_ERROR
    raise SystemExit(code or 0)


def _asked_format(arguments: list[str]) -> OutputFormat:
    joined = " ".join(arguments)
    return OutputFormat.json if "--output json" in joined or "--output=json" in joined else OutputFormat.text
