"""deltaplane ledger: tables come in, are looked at, compared, repaired and leave again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltaplane.cli import ledger_running
from deltaplane.cli.ledger_opening import (
    LedgerOption,
    OutputOption,
    TableArgument,
    open_ledger,
    open_store_only,
)
from deltaplane.cli.ledger_output import (
    audit_text,
    counted,
    history_text,
    size_text,
    snapshot_json,
    snapshot_text,
    tables_text,
)
from deltaplane.cli.output import EXIT_CLEAN, EXIT_PENDING, Output, OutputFormat
from deltaplane.config import load_config

if TYPE_CHECKING:
    from deltaplane.ledger.verify import Verification

__all__ = ["ledger_app"]

ledger_app = typer.Typer(
    help="The ledger: Delta's transaction log in a database, published to _delta_log for every reader.",
    no_args_is_help=True,
    epilog="Example: deltaplane ledger init --ledger deltasql://sqlite//data/ledger.db",
)
_PROGRESS_EVERY = 1.0

LimitOption = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many; left out, all.")]
ApplyOption = Annotated[bool, typer.Option("--apply", help="Do it. Without this it is only shown.")]
OptionalTable = Annotated[
    str | None,
    typer.Argument(
        metavar="[TABLE]", help="The table: its path, its name, or deltasql://…#NAME; left out, all."
    ),
]


class ForeignCommits(StrEnum):
    """What to do with commits of outside writers."""

    imported = "import"
    refused = "refuse"


class Keep(StrEnum):
    """Whose version of a table is kept."""

    ledger = "ledger"
    log = "log"


class Trust(StrEnum):
    """Whom to believe when a checkpoint contradicts the commits."""

    commits = "commits"
    checkpoint = "checkpoint"


@ledger_app.command(epilog="Example: deltaplane ledger init --ledger deltasql://sqlite//data/ledger.db")
def init(ledger: LedgerOption = None, output: OutputOption = OutputFormat.text) -> None:
    """Make a ledger in a database. A ledger that is there already is not touched."""
    out = Output(output)
    with open_store_only(ledger) as store:
        from deltaplane.ledger.migrations import install, newest_version

        made = install(store)
        version = newest_version(store.engine)
    said = "The ledger is made" if made else "The ledger was there already, and nothing was changed"
    out.text(f"{said} (schema version {version}). Bring a table in with: deltaplane ledger adopt PATH")
    out.json({"made": made, "schema_version": version})


@ledger_app.command(epilog="Example: deltaplane ledger migrate --to 2")
def migrate(
    to: Annotated[int | None, typer.Option(help="The schema version; left out, the newest.")] = None,
    ledger: LedgerOption = None,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Bring the ledger's own schema to another version, up or down. Back the database up first."""
    out = Output(output)
    with open_store_only(ledger) as store:
        from deltaplane.ledger.migrations import migrate as migrate_schema

        before, after = migrate_schema(store, to, load_config().author)
    changed = (
        f"went from version {before} to {after}" if before != after else f"is at version {after} already"
    )
    out.text(f"The ledger's schema {changed}.")
    out.json({"before": before, "after": after})


@ledger_app.command(epilog="Example: deltaplane ledger adopt /lake/orders --name sales.orders")
def adopt(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Where the table lies.")],
    name: Annotated[str | None, typer.Option(help="What to call it, such as sales.orders.")] = None,
    foreign_commits: Annotated[
        ForeignCommits, typer.Option(help="What to do when an outside writer commits later.")
    ] = ForeignCommits.imported,
    allow_path: Annotated[
        list[str] | None,
        typer.Option(help="A folder outside the table in which its files may lie; may be repeated."),
    ] = None,
    trust: Annotated[
        Trust | None, typer.Option(help="Whom to believe when a checkpoint contradicts the commits.")
    ] = None,
    ledger: LedgerOption = None,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Bring an existing table into the ledger. Its folder is not changed; an interrupted adoption goes on
    where it stopped.
    """
    out = Output(output)
    with open_ledger(ledger) as opened, out.working():
        found = opened.adopt(
            path,
            name=name,
            foreign_commits=str(foreign_commits),
            allow_paths=allow_path or (),
            trust=str(trust) if trust else None,
            progress=_progress(out),
        )
    out.text(
        f"{name or found.location} is managed from now on: version {found.version}, "
        f"{counted(found.num_files, 'file')}, readable from version {found.base_version} on."
    )
    for note in found.notes:
        out.text(f"  ! {note}")
    out.json({**asdict(found), "notes": list(found.notes)})


def _progress(out: Output) -> Callable[[str, int, int], None]:
    """At most once a second: a large table has thousands of steps."""
    shown = 0.0

    def show(what: str, done: int, all_of_it: int) -> None:
        nonlocal shown
        if time.monotonic() - shown >= _PROGRESS_EVERY:
            shown = time.monotonic()
            out.progress(f"{what}: {done:,}" + (f" of {all_of_it:,}" if all_of_it else ""))

    return show


@ledger_app.command(epilog="Example: deltaplane ledger release sales.orders")
def release(
    table: TableArgument,
    discard_unpublished: Annotated[
        bool,
        typer.Option(
            "--discard-unpublished",
            help="Forget the table as it is, with what is not published: for one whose folder is gone.",
        ),
    ] = False,
    ledger: LedgerOption = None,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Publish what is pending and let a table go: it is an ordinary Delta table again."""
    out = Output(output)
    with open_ledger(ledger, table) as opened:
        left = opened.release(table, discard_unpublished=discard_unpublished)
    out.text(f"{left.location} has left the ledger at version {left.version}. Its files are as they were.")
    out.json(asdict(left))


@ledger_app.command(epilog="Example: deltaplane ledger refresh sales.orders")
def refresh(
    table: TableArgument, ledger: LedgerOption = None, output: OutputOption = OutputFormat.text
) -> None:
    """Take in what outside writers committed, whatever the table's policy is."""
    out = Output(output)
    with open_ledger(ledger, table) as opened:
        imported = opened.refresh(table)
        version = opened.snapshot(table).version
    said = f"{counted(imported, 'foreign commit')} imported" if imported else "nothing to import"
    out.text(f"{table}: {said}; the newest version is {version}.")
    out.json({"imported": imported, "version": version})


@ledger_app.command(epilog="Example: deltaplane ledger tables --output json")
def tables(ledger: LedgerOption = None, output: OutputOption = OutputFormat.text) -> None:
    """List the tables that the ledger manages."""
    out = Output(output)
    with open_ledger(ledger) as opened:
        found = opened.tables()
    out.text(tables_text(found))
    out.json({"tables": [{**asdict(t), "allowed_paths": list(t.allowed_paths)} for t in found]})


@ledger_app.command(epilog="Example: deltaplane ledger snapshot sales.orders --version 7 --output json")
def snapshot(
    table: TableArgument,
    version: Annotated[int | None, typer.Option(help="The version; left out, the newest.")] = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="TIME", help="The table as it was then, such as 2026-01-31T08:00.")
    ] = None,
    ledger: LedgerOption = None,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Show a table at a version or a moment. In JSON with all its files."""
    out = Output(output)
    with open_ledger(ledger, table) as opened:
        found = opened.snapshot(table, version, _moment(timestamp))
        if output is OutputFormat.json:
            out.json(snapshot_json(found))
        else:
            out.text(snapshot_text(found))


def _moment(text: str | None) -> str | int | None:
    """Milliseconds are a moment as well."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else text


@ledger_app.command(epilog="Example: deltaplane ledger history sales.orders --limit 10")
def history(
    table: TableArgument,
    limit: LimitOption = None,
    ledger: LedgerOption = None,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Show the commits of a table, newest first: who, when, what and why."""
    out = Output(output)
    with open_ledger(ledger, table) as opened:
        entries = opened.history(table, limit)
    out.text(history_text(entries))
    out.json({"commits": [asdict(entry) for entry in entries]})


@ledger_app.command(epilog="Example: deltaplane ledger audit --limit 20")
def audit(
    limit: LimitOption = None, ledger: LedgerOption = None, output: OutputOption = OutputFormat.text
) -> None:
    """Show what was done to the ledger besides commits, newest first: who, from where, what and why."""
    out = Output(output)
    with open_ledger(ledger) as opened:
        entries = opened.audit_trail(limit)
    out.text(audit_text(entries))
    out.json({"entries": [asdict(entry) for entry in entries]})


@ledger_app.command(epilog="Example: deltaplane ledger verify sales.orders --every")
def verify(
    table: OptionalTable = None,
    version: Annotated[
        int | None, typer.Option(help="The version whose state is compared; left out, the newest.")
    ] = None,
    every: Annotated[bool, typer.Option("--every", help="Compare the state at every version.")] = False,
    ledger: LedgerOption = None,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Compare the published log with the ledger. Leaves with 0 (equal), 3 (different) or 1 (error)."""
    out = Output(output)
    if table is None and version is not None:
        raise typer.BadParameter("--version goes with one TABLE.")
    with open_ledger(ledger, table) as opened, out.working():
        names = [table] if table else [t.location for t in opened.tables() if t.state != "adopting"]
        found = []
        for name in names:
            out.progress(f"comparing {name}")
            found.append(opened.verify(name, version, every=every))
    for each in found:
        out.text(_verified(each))
    out.json({"ok": all(each.ok for each in found), "tables": [{**asdict(e), "ok": e.ok} for e in found]})
    raise typer.Exit(EXIT_CLEAN if all(each.ok for each in found) else EXIT_PENDING)


def _verified(found: Verification) -> str:
    location, differences = found.location, found.differences
    versions = counted(len(found.checked_versions), "version")
    compared = f"{counted(found.checked_commits, 'commit')} and the state at {versions} compared"
    if found.pending:
        compared += f", {counted(found.pending, 'version')} not published yet"
    if not differences:
        return f"{location}: ledger and log are equal ({compared})."
    lines = [f"{location}: {counted(len(differences), 'difference')} ({compared}).", *_marked(differences)]
    from deltaplane.ledger.verify import OUTSIDE_WRITER

    if all(OUTSIDE_WRITER in difference for difference in differences):
        return "\n".join([*lines, f"Take it in with: deltaplane ledger refresh {location}"])
    return "\n".join([*lines, f"Decide with: deltaplane ledger repair {location} --keep ledger|log"])


def _marked(lines: tuple[str, ...]) -> list[str]:
    return [f"  ~ {line}" for line in lines]


@ledger_app.command(epilog="Example: deltaplane ledger repair sales.orders --keep ledger --apply")
def repair(
    table: TableArgument,
    keep: Annotated[Keep, typer.Option(help="Whose version of the table is kept.")],
    apply: ApplyOption = False,
    ledger: LedgerOption = None,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Make log and ledger agree again. Shows what would be done; leaves with 3 while it is not done."""
    out = Output(output)
    with open_ledger(ledger, table) as opened:
        found = opened.repair(table, str(keep), dry_run=not apply)
    if not found.actions:
        out.text(f"{table}: ledger and log agree, and there is nothing to repair.")
    else:
        done = "done" if found.done else "would be done; nothing was changed. Do it with --apply"
        steps = counted(len(found.actions), "step")
        out.text("\n".join([*_marked(found.actions), f"{table}: {steps} {done}."]))
    out.json({**asdict(found), "actions": list(found.actions)})
    raise typer.Exit(EXIT_PENDING if found.actions and not found.done else EXIT_CLEAN)


@ledger_app.command(epilog="Example: deltaplane ledger cleanup sales.orders --apply")
def cleanup(
    table: OptionalTable = None,
    apply: ApplyOption = False,
    ledger: LedgerOption = None,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Delete expired files of the log, by each table's retention. Shows what would go; leaves with 3 while
    it is not done.
    """
    out = Output(output)
    with open_ledger(ledger, table) as opened:
        found = opened.cleanup(table, dry_run=not apply)
    for each in found:
        out.text(_cleaned(each.location, each.files, each.reason))
    files, size = sum(len(each.files) for each in found), sum(each.bytes for each in found)
    done = "deleted" if apply else "would be deleted; nothing was changed. Do it with --apply"
    out.text(f"{counted(files, 'file')}, {size_text(size)} {done if files else 'to delete'}.")
    content: list[dict[str, Any]] = [{**asdict(each), "files": list(each.files)} for each in found]
    out.json({"done": apply, "bytes": size, "tables": content})
    raise typer.Exit(EXIT_PENDING if files and not apply else EXIT_CLEAN)


def _cleaned(location: str, files: tuple[str, ...], reason: str | None) -> str:
    said = reason or ("nothing is expired" if not files else f"{counted(len(files), 'file')} expired")
    return "\n".join([f"{location}: {said}.", *(f"  - {file}" for file in files)])


ledger_running.register(ledger_app)
