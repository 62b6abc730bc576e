"""Writes docs/reference from the code: `python -m docs.generate`, or `make docs`.

A test fails when a page differs from what this module would write.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from functools import cached_property
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import typer.main

from deltaplane.cli.app import app
from deltaplane.planning import DATABRICKS, OPEN_SOURCE
from deltaplane.planning.rules.catalogue import RULES

__all__ = ["PUBLIC_MODULES", "commands", "main", "pages"]

REFERENCE = Path(__file__).resolve().parent / "reference"
PUBLIC_MODULES = (
    "deltaplane",
    "deltaplane.schema",
    "deltaplane.planning",
    "deltaplane.sync",
    "deltaplane.ledger",
    "deltaplane.embedded",
    "deltaplane.testing",
    "deltaplane.errors",
)
NOTE = "<!-- Written by docs/generate.py. Change the code, then run: make docs -->"
WIDTH = 110
ENTRY = re.compile(r"[\w*.]+(?:, [\w*.]+)*: ")
SECTIONS = ("Args", "Attributes", "Raises", "Returns", "Yields")
CONSTANTS = {id(DATABRICKS): "DATABRICKS", id(OPEN_SOURCE): "OPEN_SOURCE"}
ON_WAIVER = {
    "proceed": "the change runs",
    "keep": "the change is left out, and the table stays as it is in this point",
}
RULES_TEXT = """
A rule looks at what would be done to one table. An error blocks the table: no statement is run on it until
the cause is mended or the rule is waived. A warning and an info are printed and block nothing. Codes are
stable.
"""
WAIVER_TEXT = """
How to waive: [Waive a rule](../how-to/waive-a-rule.md). A waiver is consent, not force: where Delta itself
refuses a change (rows that violate a CHECK, the last column of a table), the statement fails and the report
says so. Some findings differ from their rule and say so in their own remedy: DP102 for a generated column,
NL102 for a nested field or a rewrite, PR103 for a clustered table and DF101 for an append-only table leave
the table as it is when waived.
"""
PLAN_TEXT = """
The schema is `deltaplane/planning/plan.schema.json` of the installed package (JSON Schema, draft 2020-12).
`format` changes when a reader of the old format could misunderstand the new one.
"""

LEDGER_CODES_TEXT = (
    "What the codes mean for the commands of the ledger that leave with others than 0, 1 and 2:"
)
LEDGER_CODES = (
    ("`ledger reconcile`", "clean, or a watch was stopped", "a table failed", "something waits", "an alert"),
    ("`ledger status --check`", "everything is published", "", "a table is behind", "an alert"),
    ("`ledger verify`", "ledger and log are equal", "", "they differ", ""),
    ("`ledger repair`", "done, or nothing to do", "", "shown, and not applied", ""),
    ("`ledger cleanup`", "done, or nothing to do", "", "shown, and not applied", ""),
)


def pages() -> dict[Path, str]:
    """Return every generated page with its text."""
    return {
        REFERENCE / "cli.md": cli_page(),
        REFERENCE / "api.md": api_page(),
        REFERENCE / "rules.md": rules_page(),
        REFERENCE / "plan-json.md": plan_page(),
    }


def main() -> None:
    """Write the pages and say which ones changed."""
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for path, text in pages().items():
        changed = not path.exists() or path.read_text(encoding="utf-8") != text
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{'wrote' if changed else 'unchanged'} {path.name}\n")


# ---- the command


def commands() -> list[tuple[str, Any]]:
    """Return every command with its full name, alphabetical after the root."""
    return list(_walk("deltaplane", typer.main.get_command(app)))


def _walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    for child in sorted(_children(command)):
        yield from _walk(f"{name} {child}", command.commands[child])


def _children(command: Any) -> dict[str, Any]:
    """Typer brings its own copy of click in some versions, so its classes are not to be relied on."""
    return getattr(command, "commands", {})


def cli_page() -> str:
    """Write the reference of the command."""
    lines = [
        "# The command",
        "",
        NOTE,
        "",
        *_wrapped(
            "Results go to stdout, progress and errors to stderr. With `--output json` the result is one "
            'JSON object on stdout, also for an error: `{"error": …, "message": …}`.'
        ),
        "",
        "| exit code | meaning |",
        "|---|---|",
        "| 0 | nothing to do, or applied |",
        "| 1 | an error; the message says what was not harmed and what to do next |",
        "| 2 | the command was called wrongly |",
        "| 3 | there are changes that were not applied |",
        "| 4 | a rule blocks at least one table, or an alert of the ledger is due |",
        "| 130 | interrupted; the same command does only what is missing |",
        "",
        *_wrapped(LEDGER_CODES_TEXT),
        "",
        "| command | 0 | 1 | 3 | 4 |",
        "|---|---|---|---|---|",
        *(_row(*cells) for cells in LEDGER_CODES),
        "",
    ]
    for name, command in commands():
        lines += _command(name, command)
    return _joined(lines)


def _command(name: str, command: Any) -> Iterator[str]:
    usage = [name]
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not p.hidden]
    usage += ["[OPTIONS]"] if options else []
    usage += [_metavar(argument) for argument in arguments]
    usage += ["COMMAND"] if _children(command) else []
    yield from (f"## {name}", "", f"    {' '.join(usage)}", "")
    yield from (*_wrapped(" ".join((command.help or "").split())), "")
    if arguments or options:
        yield from ("| argument or option | meaning | default |", "|---|---|---|")
        for argument in arguments:
            yield _row(f"`{_metavar(argument)}`", getattr(argument, "help", "") or "", _default(argument))
        for option in options:
            yield _row(_spelling(option), option.help or "", _default(option))
        yield ""
    if command.epilog:
        yield from (*_wrapped(command.epilog), "")


def _metavar(argument: Any) -> str:
    name = (argument.name or "").upper()
    return argument.metavar or (name if argument.required else f"[{name}]")


def _spelling(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return names
    return f"{names} `{option.metavar or '|'.join(_choices(option)) or 'VALUE'}`"


def _choices(option: Any) -> list[str]:
    """Return what an option may be, where that is an enumeration; it need not have a default."""
    kind = getattr(getattr(option, "type_descriptor", None), "annotation", type(option.default))
    return [str(each.value) for each in kind] if inspect.isclass(kind) and issubclass(kind, Enum) else []


def _default(param: Any) -> str:
    value = getattr(param.default, "value", param.default)
    if callable(value) or value in (None, False, ()):
        return ""
    return f"`{value}`"


# ---- the Python interface


def api_page() -> str:
    """Write the reference of the public names."""
    lines = [
        "# The Python interface",
        "",
        NOTE,
        "",
        *_wrapped("These modules and names are public. Everything else may change without notice."),
        "",
        *(f"- [`{name}`](#{name.replace('.', '')})" for name in PUBLIC_MODULES),
        "",
    ]
    for name in PUBLIC_MODULES:
        lines += _module(name)
    return _joined(lines)


def _module(name: str) -> Iterator[str]:
    module = import_module(name)
    yield from (f"## {name}", "", *_docstring(inspect.getdoc(module) or ""), "")
    values = {public: getattr(module, public) for public in module.__all__}
    elsewhere = {public: _home(value) for public, value in values.items()} if name == "deltaplane" else {}
    for public, home in elsewhere.items():
        if home is not None:
            link = f"See [`{home}`](#{home.replace('.', '')})."
            yield from _item(f"`{name}.{public}`: {_first_sentence(values[public])} {link}")
    yield ""
    for public, value in values.items():
        if elsewhere.get(public) is None:
            yield from _name(public, value)


def _home(value: Any) -> str | None:
    """Return the public module that describes a name, other than the package itself."""
    if inspect.ismodule(value):
        return value.__name__
    name = str(getattr(value, "__name__", ""))
    for candidate in PUBLIC_MODULES[1:]:
        module = import_module(candidate)
        if name in module.__all__ and getattr(module, name) is value:
            return candidate
    return None


def _name(name: str, value: Any) -> Iterator[str]:
    yield from (f"### {name}", "")
    if inspect.isclass(value):
        yield from _class(name, value)
    elif callable(value):
        yield from (*_signature(name, value), "", *_docstring(inspect.getdoc(value) or ""), "")
    else:
        yield from (*_wrapped(_value_text(name, value)), "")


def _value_text(name: str, value: Any) -> str:
    if name == "RULES":
        return "The safety rules by code; see [the rules](rules.md)."
    return f"`{value!r}`"


def _class(name: str, cls: type) -> Iterator[str]:
    if not issubclass(cls, Exception) and not getattr(cls, "_is_protocol", False):
        yield from (*_signature(name, cls), "")
    elif issubclass(cls, Exception):
        yield from (f"A kind of `{cls.__mro__[1].__name__}`.", "")
    yield from (*_docstring(inspect.getdoc(cls) or ""), "")
    members = list(_members(cls))
    for member, text in members:
        yield from _item(f"`{member}`: {text}")
    if members:
        yield ""


def _members(cls: type) -> Iterator[tuple[str, str]]:
    for name, value in _attributes(cls).items():
        if name.startswith(("_", "test_")) or _is_field(cls, name):
            continue
        if not getattr(value, "__doc__", None):
            continue  # an override is described where it is declared first
        if isinstance(value, property | cached_property):
            yield name, _first_sentence(value)
        elif isinstance(value, classmethod | staticmethod) or inspect.isfunction(value):
            function = getattr(cls, name)
            yield f"{name}{_parameters(function)}", _first_paragraph(function)


def _attributes(cls: type) -> dict[str, Any]:
    """Return what a class has of its own, and what it has from bases that no page describes."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base is cls or (base.__module__.startswith("deltaplane.") and _home(base) is None):
            found |= vars(base)
    return found


def _is_field(cls: type, name: str) -> bool:
    return dataclasses.is_dataclass(cls) and name in {field.name for field in dataclasses.fields(cls)}


def _signature(name: str, value: Any) -> list[str]:
    one_line = f"    {name}{_parameters(value)}"
    if len(one_line) <= WIDTH:
        return [one_line]
    inner = [f"        {part}," for part in _parts(value)]
    return [f"    {name}(", *inner, f"    ){_returns(value)}"]


def _parameters(value: Any) -> str:
    return f"({', '.join(_parts(value))}){_returns(value)}"


def _parts(value: Any) -> list[str]:
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except ValueError:
        return []
    parts: list[str] = []
    starred = False
    for parameter in parameters:
        if parameter.name.startswith("_") or parameter.name == "self":
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            starred = True
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        parts.append(_parameter(parameter))
    return parts


def _parameter(parameter: inspect.Parameter) -> str:
    text = parameter.name
    if parameter.kind is parameter.VAR_POSITIONAL:
        text = f"*{text}"
    if parameter.kind is parameter.VAR_KEYWORD:
        text = f"**{text}"
    if parameter.annotation is not parameter.empty:
        text += f": {_annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        shown = CONSTANTS.get(id(parameter.default), repr(parameter.default))
        text += f" = {'…' if ' at 0x' in shown or shown == '<factory>' else shown}"
    return text


def _returns(value: Any) -> str:
    if inspect.isclass(value):
        return ""
    returned = inspect.signature(value).return_annotation
    return "" if returned is inspect.Signature.empty else f" -> {_annotation(returned)}"


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))


def _docstring(text: str) -> list[str]:
    """Turn a Google-style docstring into Markdown."""
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        head, _, rest = block.partition("\n")
        if head.rstrip(":") in SECTIONS and head.endswith(":"):
            lines += [f"{head}", "", *_entries(rest), ""]
        elif all(line.startswith(("    ", "|")) or not line.strip() for line in block.splitlines()):
            lines += [*block.splitlines(), ""]
        elif block.rstrip().endswith("::"):
            lines += [*_wrapped(" ".join(block.rstrip()[:-1].split())), ""]
        else:
            lines += [*_wrapped(" ".join(block.split())), ""]
    return lines[:-1]


def _entries(text: str) -> list[str]:
    entries: list[str] = []
    for line in textwrap.dedent(text).splitlines():
        # A line that names nothing goes on with the entry before it, however it is indented.
        if entries and (line.startswith(" ") or not ENTRY.match(line)):
            entries[-1] += " " + line.strip()
        else:
            name, separator, rest = line.partition(": ")
            entries.append(f"`{name}`: {rest}" if separator else line)
    return [line for entry in entries for line in _item(entry)]


def _first_paragraph(value: Any) -> str:
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def _first_sentence(value: Any) -> str:
    text = _first_paragraph(value)
    match = re.match(r".*?[.](?=\s|$)", text)
    return match.group(0) if match else text


# ---- the rules


def rules_page() -> str:
    """Write the reference of the rules."""
    lines = [
        "# The rules",
        "",
        NOTE,
        "",
        *_wrapped(RULES_TEXT),
        "",
        *_wrapped(WAIVER_TEXT),
        "",
        "| code | severity | when | what to do | a waiver means |",
        "|---|---|---|---|---|",
        *(
            _row(rule.code, rule.severity, rule.title, rule.remedy, _on_waiver(rule.severity, rule.on_waiver))
            for rule in RULES.values()
        ),
    ]
    return _joined(lines)


def _on_waiver(severity: str, on_waiver: str) -> str:
    if severity != "error":
        return "nothing; it blocks nothing"
    return ON_WAIVER[on_waiver]


# ---- a plan as JSON


def plan_page() -> str:
    """Write the explanation of plan.schema.json."""
    schema = json.loads(
        resources.files("deltaplane.planning").joinpath("plan.schema.json").read_text(encoding="utf-8")
    )
    lines = [
        "# A plan as JSON",
        "",
        NOTE,
        "",
        *_wrapped(schema["description"]),
        "",
        *_wrapped(PLAN_TEXT),
        "",
        "## The plan",
        "",
        *_fields(schema),
        "",
    ]
    for name, definition in schema["$defs"].items():
        lines += [f"## {name}", "", *_wrapped(definition["description"]), "", *_fields(definition), ""]
    return _joined(lines)


def _fields(definition: dict[str, Any]) -> list[str]:
    if "oneOf" in definition:
        return _wrapped(f"One of: {', '.join(_kind(option) for option in definition['oneOf'])}.")
    if "properties" not in definition:
        return [f"JSON: {_kind(definition)}."]
    required = set(definition.get("required", ()))
    rows = ["| field | JSON | meaning |", "|---|---|---|"]
    for name, content in definition["properties"].items():
        optional = "" if name in required else "Optional. "
        rows.append(_row(f"`{name}`", _kind(content), optional + content.get("description", "")))
    return rows


def _kind(content: dict[str, Any]) -> str:
    if "$ref" in content:
        target = content["$ref"].rsplit("/", 1)[-1]
        return f"[{target}](#{target.lower()})"
    if "const" in content:
        return f"`{json.dumps(content['const'])}`"
    if "enum" in content:
        return ", ".join(f"`{json.dumps(value)}`" for value in content["enum"])
    if "anyOf" in content:
        return " or ".join(_kind(option) for option in content["anyOf"])
    kind = content.get("type", "any")
    if kind == "array":
        items = content.get("items")
        return f"array of {_kind(items)}" if isinstance(items, dict) else "array"
    if kind == "object" and isinstance(content.get("additionalProperties"), dict):
        return f"object of {_kind(content['additionalProperties'])}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


# ---- text

_WRAP: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(" ".join(text.split()), WIDTH, **_WRAP)


def _item(text: str) -> list[str]:
    return textwrap.wrap(f"- {text}", WIDTH, subsequent_indent="  ", **_WRAP)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _joined(lines: list[str]) -> str:
    text = "\n".join(line.rstrip() for line in lines)
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n"


if __name__ == "__main__":
    main()
