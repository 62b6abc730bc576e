"""Every example of the documentation runs, and prints what the page says it prints.

A page is one story: its blocks run in order, in a directory of their own, on the suite's Spark session.

    ```python                runs; names are shared by the blocks of a page
    ```python file=tables.py is written to that file, for the commands that follow
    ```console               each line that begins with `$ ` is a command
    ```bash, ```sh           each line is a command
    ```toml                  must be a configuration that deltaplane accepts
    ```text                  is what the block before it printed

`no-run` in the info string keeps a block from running; it has to be listed here, with the reason.
With DELTAPLANE_UPDATE_DOCS=1 the ```text blocks are written anew from what was printed.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

import deltaplane as dp
from deltaplane.cli import main
from deltaplane.config import load_config
from deltaplane.errors import SparkStartError
from deltaplane.spark.attaching import detach
from postgres_server import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
UPDATE = bool(os.environ.get("DELTAPLANE_UPDATE_DOCS"))
SHELLS = ("bash", "console", "sh")
EXPECTED_CODES = (0, 3, 4)

# (page, first line of the block): why it cannot run here.
NOT_RUN = {
    ("README.md", "make demo"): "builds an environment and starts a Spark of its own",
    ("docs/tutorial.md", "pip install 'deltaplane[spark]'"): "installs packages",
    ("docs/how-to/run-on-databricks.md", "import deltaplane as dp"): "needs a Databricks cluster",
    ("docs/how-to/run-on-databricks.md", "plan = engine.plan(registry)"): "needs a Databricks cluster",
    ("docs/how-to/use-your-own-metastore-or-cluster.md", "import deltaplane as dp"): "needs a cluster",
    (
        "docs/how-to/use-your-own-metastore-or-cluster.md",
        "export DELTAPLANE_SPARK_MASTER=spark://spark.example.org:7077",
    ): "needs a cluster",
    (
        "docs/how-to/plans-in-a-pull-request.md",
        "gh pr comment --body-file plan.md",
    ): "needs a pull request",
}


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    language: str
    options: frozenset[str]
    lines: tuple[str, ...]
    number: int

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def file(self) -> str | None:
        return next((o.removeprefix("file=") for o in self.options if o.startswith("file=")), None)

    @property
    def runs(self) -> bool:
        return "no-run" not in self.options and self.language in ("python", "toml", *SHELLS)


def blocks_of(page: Path) -> list[Block]:
    found: list[Block] = []
    opened: tuple[str, list[str], int] | None = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if opened is None and line.startswith("```"):
            opened = (line.removeprefix("```").strip(), [], number)
        elif opened is not None and line == "```":
            language, *options = opened[0].split() or [""]
            found.append(Block(language, frozenset(options), tuple(opened[1]), opened[2]))
            opened = None
        elif opened is not None:
            opened[1].append(line)
    assert opened is None, f"{page}: the block of line {opened[2] if opened else 0} is never closed"
    return found


@dataclass
class Story:
    """Runs the blocks of one page and remembers what they printed."""

    folder: Path
    names: dict[str, Any] = field(default_factory=dict)
    last_code: int = 0

    def run(self, block: Block) -> str:
        if block.file is not None:
            (self.folder / block.file).write_text(block.text + "\n", encoding="utf-8")
            if block.language == "python":
                compile(block.text, block.file, "exec")
            return ""
        if block.language == "toml":
            (self.folder / "checked.toml").write_text(block.text, encoding="utf-8")
            assert load_config(self.folder / "checked.toml").source.endswith("checked.toml")
            return ""
        printed, said = io.StringIO(), io.StringIO()
        with redirect_stdout(printed), redirect_stderr(said):
            if block.language == "python":
                exec(compile(block.text, f"line {block.number}", "exec"), self.names)
            else:
                for command in commands_of(block):
                    self.shell(command)
        if self.last_code not in EXPECTED_CODES and f"exit={self.last_code}" not in block.options:
            raise AssertionError(f"exit code {self.last_code}: {printed.getvalue()}{said.getvalue()}")
        return self.readable(printed.getvalue())

    def shell(self, command: str) -> None:
        if command == "echo $?":
            sys.stdout.write(f"{self.last_code}\n")
            return
        command, _, target = command.partition(" > ")
        errors = ""
        words = shlex.split(command)
        if words[0] != "deltaplane":
            done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=False)
            self.last_code, output = done.returncode, done.stdout + done.stderr
        else:
            self.last_code, output, errors = self.deltaplane(words[1:])
        if target:
            (self.folder / target).write_text(output, encoding="utf-8")
            output = ""
        sys.stdout.write(output + errors)

    def deltaplane(self, arguments: list[str]) -> tuple[int, str, str]:
        """Run the command in this process; return its code, its output and its errors without progress."""
        forget_modules(self.folder)
        printed, said = io.StringIO(), io.StringIO()
        with redirect_stdout(printed), redirect_stderr(said), pytest.raises(SystemExit) as leaving:
            main(arguments)
        errors = [line for line in said.getvalue().splitlines(keepends=True) if not line.endswith(" …\n")]
        return int(leaving.value.code or 0), printed.getvalue(), "".join(errors)

    def readable(self, text: str) -> str:
        """Takes out what no reader has: this machine's folders."""
        return text.replace(str(self.folder), "…")


def commands_of(block: Block) -> list[str]:
    joined = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":
        return [line.removeprefix("$ ") for line in joined if line.startswith("$ ")]
    return [line for line in joined if line.strip() and not line.startswith("#")]


def forget_modules(folder: Path) -> None:
    """Import the page's files anew, as a new process would."""
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


def normal(text: str) -> str:
    """Leave out what differs from run to run: ids, sizes, times and trailing blanks."""
    text = re.sub(r"\b[0-9a-f]{16}\b", "<id>", text)
    text = re.sub(r"\b\d+(\.\d)? (B|KB|MB|bytes|kB)\b", "<size>", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "<time>", text)
    text = re.sub(r"\b\d+ s\b *", "<seconds> ", text)
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def write_output(page: Path, block: Block, output: str) -> None:
    """Replace what a ```text block says, found by its opening line number in the page as it was read."""
    lines = page.read_text(encoding="utf-8").splitlines()
    end = block.number + len(block.lines)
    lines[block.number : end] = [line.rstrip() for line in output.strip("\n").splitlines()]
    page.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def story(
    tmp_path: Path, spark: SparkSession, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Story]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for variable in [name for name in os.environ if name.startswith("DELTAPLANE_")]:
        monkeypatch.delenv(variable)
    # A page's schemas are its own: what an earlier page or test left under these names is not part of it.
    for schema in ("gold", "shop", "silver"):
        spark.sql(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    before = {row[0] for row in spark.sql("SHOW SCHEMAS").collect()}
    tables = {row.name for row in spark.catalog.listTables()}
    yield Story(tmp_path)
    for table in spark.catalog.listTables():
        if table.name not in tables:
            spark.sql(f"DROP TABLE IF EXISTS `{table.name}`")
    with suppress(SparkStartError):
        detach(spark)
    for row in spark.sql("SHOW SCHEMAS").collect():
        if row[0] not in before:
            spark.sql(f"DROP SCHEMA IF EXISTS `{row[0].strip('`')}` CASCADE")
    forget_modules(tmp_path)


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.spark
@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(block.runs for block in blocks_of(page))], ids=page_name
)
def test_the_examples_of_a_page_run_and_print_what_it_says(page: Path, story: Story) -> None:
    blocks = blocks_of(page)
    wrong: list[tuple[Block, str]] = []
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if not block.runs:
            continue
        output = story.run(block)
        if following is None or following.language != "text":
            continue
        if normal(output) != normal(following.text):
            wrong.append((following, output))
    if UPDATE:
        for block, output in reversed(wrong):
            write_output(page, block, output)
        return
    assert [(block.number, normal(block.text)) for block, _ in wrong] == [
        (block.number, normal(output)) for block, output in wrong
    ]


@pytest.mark.spark
def test_the_transaction_of_the_readme_runs_on_postgresql(story: Story) -> None:
    blocks = blocks_of(ROOT / "README.md")
    at = next(n for n, block in enumerate(blocks) if "dp.transaction(" in block.text)
    server = PostgresServer()
    try:
        address = server.uri(server.new_database())
        text = blocks[at].text.replace("deltasql://sqlite/.deltaplane/ledger.db", address)
        assert address in text
        story.names |= {"dp": dp, "DeltaTable": DeltaTable}
        changed = replace(blocks[at], lines=tuple(text.splitlines()))
        assert normal(story.run(changed)) == normal(blocks[at + 1].text)
    finally:
        detach(story.names["spark"])
        server.stop()


@pytest.mark.spark
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_file_plans_and_applies(example: Path, story: Story) -> None:
    """Each declares a registry that the command can take; after applying it, nothing is left to do."""
    (story.folder / example.name).write_text(example.read_text(encoding="utf-8"), encoding="utf-8")
    target = f"{example.stem}:registry"
    assert story.deltaplane(["plan", target])[0] == 3
    assert story.deltaplane(["apply", target])[0] == 0
    assert story.deltaplane(["drift", target])[0] == 0


def test_blocks_that_do_not_run_are_listed_with_a_reason() -> None:
    """Nobody skips an example silently."""
    skipped = {
        (page_name(page), block.lines[0])
        for page in PAGES
        for block in blocks_of(page)
        if "no-run" in block.options
    }
    assert skipped == set(NOT_RUN)


def test_every_block_is_of_a_kind_that_is_checked() -> None:
    """A block without a language would be an example that no test reads."""
    known = {"python", "toml", "text", "json", "sql", "markdown", *SHELLS}
    strange = [
        (page_name(page), block.number, block.language)
        for page in PAGES
        for block in blocks_of(page)
        if block.language not in known
    ]
    assert strange == []


def test_links_between_pages_lead_somewhere() -> None:
    """Every relative link names a file of the repository."""
    pages = [*PAGES, *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
    broken = [
        (page_name(page), target)
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


def test_prose_keeps_to_120_columns() -> None:
    """Tables, code and real output may be wider."""
    wide = []
    for page in [*PAGES, *(ROOT / name for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"))]:
        inside = False
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            inside ^= line.startswith("```")
            if not inside and not line.startswith(("|", "```")) and len(line) > 120:
                wide.append((page_name(page), number))
    assert wide == []
