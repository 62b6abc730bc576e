"""How the command talks: text for people, JSON for machines; results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from rich.console import Console
from rich.status import Status
from rich.text import Text

__all__ = [
    "EXIT_BLOCKED",
    "EXIT_CLEAN",
    "EXIT_ERROR",
    "EXIT_INTERRUPTED",
    "EXIT_PENDING",
    "Output",
    "OutputFormat",
]

EXIT_CLEAN = 0
EXIT_ERROR = 1
EXIT_PENDING = 3
EXIT_BLOCKED = 4
# What shells use for a process that Ctrl-C ended.
EXIT_INTERRUPTED = 130

_COLOURS = {"+": "green", "~": "yellow", "-": "red", "!": "magenta"}


class OutputFormat(StrEnum):
    """The formats every command knows."""

    text = "text"
    json = "json"


class Output:
    """Writes results, errors and progress."""

    def __init__(self, format: OutputFormat) -> None:
        self.format = format
        self._status: Status | None = None

    def text(self, text: str) -> None:
        """Write a result for people; nothing in JSON."""
        if self.format is OutputFormat.text:
            console = Console(soft_wrap=True, highlight=False)
            for line in text.split("\n"):
                console.print(_coloured(line))

    def json(self, content: Any) -> None:
        """Write a result for machines; nothing in text."""
        if self.format is OutputFormat.json:
            _write_json(content)

    def error(self, kind: str, message: str) -> None:
        """Write an expected error: on stderr for people, as an object on stdout for machines."""
        if self.format is OutputFormat.json:
            _write_json({"error": kind, "message": message})
            return
        Console(stderr=True, soft_wrap=True, highlight=False).print(
            Text.assemble(("error: ", "bold red"), message)
        )

    def note(self, sentence: str) -> None:
        """Write something people should know beside the result, on stderr; nothing in JSON."""
        if self.format is OutputFormat.text:
            Console(stderr=True, soft_wrap=True, highlight=False).print(Text(sentence))

    @contextmanager
    def working(self) -> Iterator[None]:
        """Show progress on stderr while the body runs: a spinner in a terminal, lines elsewhere, nothing in
        JSON.
        """
        console = Console(stderr=True, highlight=False)
        if self.format is OutputFormat.json or not console.is_terminal:
            yield
            return
        with console.status("working") as status:
            self._status = status
            try:
                yield
            finally:
                self._status = None

    def progress(self, sentence: str) -> None:
        """Say what is being done."""
        if self.format is OutputFormat.json:
            return
        if self._status is not None:
            self._status.update(f"{sentence} …")
        elif not Console(stderr=True).is_terminal:
            sys.stderr.write(f"{sentence} …\n")


def _write_json(content: Any) -> None:
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    sys.stdout.write(json.dumps(content, indent=2, ensure_ascii=not unicode) + "\n")


def _coloured(line: str) -> Text:
    sign = line[2:3] if line.startswith("  ") else ""
    style = _COLOURS.get(sign, "") if line[3:4] == " " else ""
    if style == "magenta":
        style = "red" if " error" in line[:16] and "waived" not in line[:40] else "yellow"
    return Text(line, style=style)
