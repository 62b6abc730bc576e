"""plan, apply, drift and pull: declared tables on the command line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from deltaplane.cli.loading import load_registry
from deltaplane.cli.output import (
    EXIT_BLOCKED,
    EXIT_CLEAN,
    EXIT_ERROR,
    EXIT_PENDING,
    Output,
    OutputFormat,
)
from deltaplane.config import Config, load_config
from deltaplane.engines import build_databricks_engine, spark_session
from deltaplane.errors import ConfigError, DeclarationError, PlanError, SyncFailedError
from deltaplane.planning import Plan
from deltaplane.planning.render import to_markdown, to_text
from deltaplane.planning.rules.catalogue import RULES
from deltaplane.planning.saved import from_json, to_json
from deltaplane.schema import Registry, Waiver
from deltaplane.schema.python_source import to_python
from deltaplane.sync import Engine, Report

__all__ = ["apply", "drift", "plan", "pull"]

PLAN_EXAMPLE = "Example: deltaplane plan tables:registry --save plan.json"
APPLY_EXAMPLE = "Example: deltaplane apply tables:registry, or deltaplane apply plan.json"
DRIFT_EXAMPLE = "Example: deltaplane drift tables:registry --output json"
PULL_EXAMPLE = "Example: deltaplane pull silver --catalog dev --to tables.py"

RegistryArgument = Annotated[
    str | None,
    typer.Argument(metavar="[MODULE:ATTRIBUTE]", help="The registry; left out, what deltaplane.toml names."),
]
OutputOption = Annotated[OutputFormat, typer.Option("--output", help="For people or for machines.")]
WaiveOption = Annotated[
    list[str] | None,
    typer.Option("--waive", metavar="CODE:TABLE[#COLUMN]:REASON", help="Set a rule aside; may be repeated."),
]


def plan(
    registry: RegistryArgument = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the plan to a file, to apply it later.")
    ] = None,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Try the plan on shallow clones first.")
    ] = False,
    sql: Annotated[bool, typer.Option("--sql", help="Show the statements too.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Write Markdown for a pull request.")] = False,
    waive: WaiveOption = None,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Show what would change, and change nothing. Leaves with 0 (nothing), 3 (changes), 4 (blocked) or 1
    (error).
    """
    out = Output(output)
    config = load_config()
    declared = load_registry(registry, config)
    with out.working():
        engine = _engine(config, out, waive)
        found = engine.plan(declared)
        rehearsal = engine.rehearse(found) if rehearse else None
    content = to_json(found)
    if save is not None:
        _save(save, content)
    out.text(to_markdown(found).rstrip() if markdown else to_text(found))
    if sql:
        out.text(_statements(engine, found))
    if rehearsal is not None:
        out.text("\nRehearsal on shallow clones (now removed):\n" + rehearsal.to_text())
    if save is not None:
        # In Markdown the result is the whole of stdout: it goes into a comment as it is.
        (out.note if markdown else out.text)(_saved_note(found, save))
    extra: dict[str, Any] = {"statements": _statement_map(engine, found)} if sql else {}
    if rehearsal is not None:
        extra["rehearsal"] = rehearsal.to_json()
    if markdown:
        extra["markdown"] = to_markdown(found)
    out.json({**content, **extra})
    failed = rehearsal is not None and rehearsal.counts()["failed"] > 0
    raise typer.Exit(EXIT_ERROR if failed else _plan_code(found))


def apply(
    target: Annotated[
        str | None,
        typer.Argument(metavar="[MODULE:ATTRIBUTE | PLAN.json]", help="A registry or a saved plan."),
    ] = None,
    waive: WaiveOption = None,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Bring tables to their declarations. Leaves with 0 (applied), 4 (blocked by a rule) or 1 (error)."""
    out = Output(output)
    config = load_config()
    saved = _read_plan(target) if target is not None and _is_plan_file(target) else None
    if saved is not None:
        _refuse_late_waivers(waive)
    declared = load_registry(target, config) if saved is None else Registry()
    try:
        with out.working():
            engine = _engine(config, out, waive)
            report = engine.sync(declared) if saved is None else engine.apply(saved)
    except SyncFailedError as failure:
        out.text(failure.report.to_text())
        out.json(failure.report.to_json())
        raise typer.Exit(_report_code(failure.report)) from None
    out.text(report.to_text())
    out.json(report.to_json())


def drift(
    registry: RegistryArgument = None,
    waive: WaiveOption = None,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Tell where tables differ from their declarations. Leaves with 0 (nowhere), 3 or 4 (somewhere) or 1
    (error).
    """
    out = Output(output)
    config = load_config()
    declared = load_registry(registry, config)
    with out.working():
        found = _engine(config, out, waive).plan(declared)
    different = [entry for entry in found.tables if entry.status != "unchanged"]
    if different or found.schemas:
        out.text(to_text(found))
        verb = "differs from its" if len(different) == 1 else "differ from their"
        out.text(f"{len(different)} of {_count(len(found.tables))} {verb} declaration.")
    else:
        verb = "is" if len(found.tables) == 1 else "are"
        out.text(f"No drift: {_count(len(found.tables))} {verb} as declared.")
    out.json({**to_json(found), "drifted": [str(entry.table) for entry in different]})
    raise typer.Exit(_plan_code(found))


def pull(
    schemas: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SCHEMA…]", help="The schemas to read; left out, all of the catalog."),
    ] = None,
    catalog: Annotated[str, typer.Option(help="The catalog to declare the tables in.")] = "spark_catalog",
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file to write; left out, stdout.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that exists.")] = False,
    output: OutputOption = OutputFormat.text,
) -> None:
    """Write the declarations of existing tables as Python. Planning them changes nothing."""
    out = Output(output)
    if to is not None and to.exists() and not force:
        raise ConfigError(
            f"{to} exists and was not touched. Choose another file, or say --force to write over it."
        )
    names = [name.removeprefix(f"{catalog}.") for name in schemas or ()]
    with out.working():
        tables, failures = _engine(load_config(), out, None).pull(catalog, *dict.fromkeys(names))
    source = to_python(tables)
    if to is not None:
        _write(to, source)
        out.text(f"{to}: {_count(len(tables))}. Look at it, then: deltaplane plan {to.stem}:registry")
    else:
        out.text(source)
    for name, reason in failures.items():
        out.note(f"left out {name}: {reason}")
    out.json({"tables": [str(t.qualified_name) for t in tables], "left_out": failures, "python": source})


def _engine(config: Config, out: Output, waive: list[str] | None) -> Engine:
    waivers = (*config.waivers, *(_waiver(text) for text in waive or ()))
    _require_rules(waivers, config)
    out.progress("starting Spark")
    session = spark_session()
    return build_databricks_engine(
        session, catalogs=config.catalogs, author=config.author, waivers=waivers, progress=out.progress
    )


def _waiver(text: str) -> Waiver:
    code, _, rest = text.partition(":")
    place, _, reason = rest.partition(":")
    table, _, column = place.partition("#")
    if not table.strip() or not reason.strip():
        raise ConfigError(f"--waive {text!r}: write CODE:TABLE:REASON, or CODE:TABLE#COLUMN:REASON.")
    try:
        return Waiver(code.strip().upper(), table.strip(), column.strip() or None, reason.strip())
    except DeclarationError as error:
        raise ConfigError(f"--waive {text!r}: {error}") from None


def _require_rules(waivers: Iterable[Waiver], config: Config) -> None:
    """A waiver of a rule that does not exist would be silently without effect."""
    for waiver in waivers:
        if waiver.code not in RULES:
            source = f"{config.source}: waivers" if waiver in config.waivers else "--waive"
            raise ConfigError(
                f"{source}: there is no rule {waiver.code} (on {waiver.table}). "
                f"Rules: {', '.join(sorted(RULES))}."
            )


def _refuse_late_waivers(waive: list[str] | None) -> None:
    """The rules were asked when the plan was made; only its staleness is judged now."""
    for waiver in (_waiver(text) for text in waive or ()):
        if waiver.code != "PL101":
            raise ConfigError(
                f"--waive {waiver.code}: a saved plan carries its waivers. Nothing was applied. "
                f"Make the plan again with this --waive, look at it, and apply that one."
            )


def _is_plan_file(target: str) -> bool:
    return target.endswith(".json") or (":" not in target and Path(target).is_file())


def _save(path: Path, content: dict[str, Any]) -> None:
    try:
        path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise PlanError(
            f"The plan could not be saved to {path}: {error.strerror}. Nothing was applied. "
            "Choose another file."
        ) from None


def _write(path: Path, source: str) -> None:
    try:
        path.write_text(source, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} could not be written: {error.strerror}. Choose another file.") from None


def _count(tables: int) -> str:
    return f"{tables} table{'' if tables == 1 else 's'}"


def _read_plan(target: str) -> Plan:
    try:
        text = Path(target).read_text(encoding="utf-8")
    except OSError as error:
        raise PlanError(
            f"{target} cannot be read: {error.strerror}. Make one with: deltaplane plan --save {target}"
        ) from None
    except UnicodeDecodeError:
        raise PlanError(
            f"{target} is not a plan of deltaplane: it is not text. Nothing was applied. "
            "Make one with: deltaplane plan --save plan.json"
        ) from None
    return from_json(text, target)


def _saved_note(found: Plan, path: Path) -> str:
    if found.is_empty:
        return f"Saved to {path}, with nothing to apply."
    if found.is_blocked:
        return f"Saved to {path}. Blocked tables stay as they are: mend or waive, and plan again."
    return f"Saved. Apply with: deltaplane apply {path}"


def _statement_map(engine: Engine, found: Plan) -> dict[str, list[str]]:
    statements: dict[str, list[str]] = {}
    for change in (*found.schemas, *(change for entry in found.tables for change in entry.changes)):
        statements.setdefault(str(change.table), []).extend(engine.catalog.statements(change))
    return statements


def _statements(engine: Engine, found: Plan) -> str:
    lines = ["", "Statements:"]
    for table, statements in _statement_map(engine, found).items():
        lines += [f"-- {table}", *(f"{statement};" for statement in statements)]
    return "\n".join(lines)


def _plan_code(found: Plan) -> int:
    if found.counts()["read_failed"]:
        return EXIT_ERROR
    if found.is_blocked:
        return EXIT_BLOCKED
    return EXIT_CLEAN if found.is_empty else EXIT_PENDING


def _report_code(report: Report) -> int:
    counts = report.counts()
    broken = counts["failed"] + counts["read_failed"]
    return EXIT_ERROR if broken else EXIT_BLOCKED
