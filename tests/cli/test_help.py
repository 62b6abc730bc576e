"""Help, usage errors, shell completion: what the command says about itself."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest
import typer

from deltaplane.cli import app

if TYPE_CHECKING:
    from cli.conftest import Run


def every_command(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command with its path, groups not included."""
    command = typer.main.get_command(app) if command is None else command
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
        return
    for name, child in children.items():
        yield from every_command(child, (*path, name))


COMMANDS = dict(every_command())
NAMES = [" ".join(path) for path in COMMANDS]


def test_all_commands_of_the_design_are_there() -> None:
    assert {("init",), ("demo",), ("plan",), ("apply",), ("drift",), ("pull",)} <= set(COMMANDS)


@pytest.mark.parametrize("path", COMMANDS, ids=NAMES)
def test_help_of_every_command_explains_it_and_has_an_example(run: Run, path: tuple[str, ...]) -> None:
    shown = run(*path, "--help")
    first_sentence = " ".join((COMMANDS[path].help or "").split()).split(". ", maxsplit=1)[0]
    assert (shown.code, shown.err) == (0, "")
    assert first_sentence
    assert first_sentence in " ".join(shown.out.split())
    assert f"Example: deltaplane {' '.join(path)}" in shown.out


@pytest.mark.parametrize("path", COMMANDS, ids=NAMES)
def test_every_option_and_argument_has_help(path: tuple[str, ...]) -> None:
    silent = [p.name for p in COMMANDS[path].params if not (getattr(p, "help", None) or "").strip()]
    assert silent == []


@pytest.mark.parametrize("path", COMMANDS, ids=NAMES)
def test_every_command_writes_text_or_json(path: tuple[str, ...]) -> None:
    options = [option for p in COMMANDS[path].params for option in p.opts]
    assert "--output" in options


def test_help_of_the_whole_lists_every_command(run: Run) -> None:
    shown = run("--help")
    assert shown.code == 0
    assert [name for name in NAMES if name.split()[0] not in shown.out] == []
    assert "Example: deltaplane init" in shown.out


def test_the_short_form_of_help_is_the_same(run: Run) -> None:
    assert run("plan", "-h") == run("plan", "--help")


def test_version_is_the_one_of_the_package(run: Run) -> None:
    shown = run("--version")
    assert (shown.code, shown.out, shown.err) == (0, f"deltaplane {version('deltaplane')}\n", "")


WRONG_USAGE = {
    "unknown command": (["plam"], "No such command 'plam'"),
    "unknown option": (["plan", "--bogus"], "No such option: --bogus"),
    "unknown format": (["plan", "--output", "xml"], "'xml' is not one of 'text', 'json'"),
    "option without value": (["plan", "--save"], "requires an argument"),
    "too many arguments": (["plan", "a:b", "c:d"], "unexpected extra argument"),
    "unknown format in JSON": (["drift", "--output=yaml"], "'yaml' is not one of"),
    "wrong usage in JSON": (["plan", "--output", "json", "--bogus"], "No such option: --bogus"),
}


@pytest.mark.parametrize(("arguments", "said"), WRONG_USAGE.values(), ids=WRONG_USAGE.keys())
def test_wrong_usage_leaves_with_2_and_says_what_was_wrong_on_stderr(
    run: Run, arguments: list[str], said: str
) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_without_arguments_the_help_is_shown(run: Run) -> None:
    ran = run()
    assert ran.code == 2
    assert "Usage: deltaplane" in ran.out + ran.err


def complete(words: str, position: int) -> list[str]:
    """Ask for completions the way bash does."""
    script = os.path.join(os.path.dirname(sys.executable), "deltaplane")
    answer = subprocess.run(
        [script],
        env={
            **os.environ,
            "_DELTAPLANE_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(position),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert answer.stderr == ""
    return answer.stdout.split()


@pytest.mark.parametrize(
    ("words", "position", "expected"),
    [("deltaplane ", 1, set(NAMES)), ("deltaplane p", 1, {"plan", "pull"})],
)
def test_the_shell_completes_commands(words: str, position: int, expected: set[str]) -> None:
    found = complete(words, position)
    assert {name.split()[0] for name in expected} <= set(found)
    assert len(found) == len(set(found))


def test_the_shell_completes_options() -> None:
    assert {"--save", "--rehearse", "--sql", "--markdown", "--waive", "--output"} <= set(
        complete("deltaplane plan --", 2)
    )


def test_the_completion_script_can_be_shown() -> None:
    """Asked for by name, because which shell runs the tests is not known."""
    script = os.path.join(os.path.dirname(sys.executable), "deltaplane")
    environment = {**os.environ, "_DELTAPLANE_COMPLETE": "source_bash"}
    shown = subprocess.run([script], capture_output=True, text=True, check=False, timeout=60, env=environment)
    assert shown.returncode == 0
    assert "_DELTAPLANE_COMPLETE=complete_bash" in shown.stdout


def test_a_reader_that_stops_early_causes_no_trace() -> None:
    script = os.path.join(os.path.dirname(sys.executable), "deltaplane")
    answer = subprocess.run(
        ["bash", "-c", f"{script} --help | true"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (answer.returncode, answer.stderr) == (0, "")
