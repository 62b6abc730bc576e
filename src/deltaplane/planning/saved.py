"""A plan as JSON: for machines, for review, and to be applied later. `plan.schema.json` describes it."""

from __future__ import annotations

import json
from typing import Any

from deltaplane import schema as schema_module
from deltaplane.errors import DeltaplaneError, PlanError
from deltaplane.planning import changes as change_module
from deltaplane.planning.changes import Change
from deltaplane.planning.codec import decode, encode
from deltaplane.planning.features import Protocol
from deltaplane.planning.observed import Key, Pending
from deltaplane.planning.plan import Plan, TablePlan
from deltaplane.planning.render import one_line
from deltaplane.planning.rules import Finding
from deltaplane.schema import QualifiedName

__all__ = ["FORMAT", "from_json", "to_json"]

FORMAT = 1
_CLASSES: dict[str, type] = {
    name: value
    for module in (schema_module, change_module)
    for name, value in vars(module).items()
    if isinstance(value, type)
}
_CLASSES |= {"Key": Key, "Pending": Pending, "Protocol": Protocol}


def to_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain JSON types."""
    return {
        "format": FORMAT,
        "plan_id": plan.plan_id,
        "engine": plan.engine,
        "summary": one_line(plan),
        "is_empty": plan.is_empty,
        "is_blocked": plan.is_blocked,
        "schemas": [_change(change) for change in plan.schemas],
        "tables": [_table(entry) for entry in plan.tables],
    }


def from_json(text: str, source: str = "the saved plan") -> Plan:
    """Read a saved plan.

    Raises:
        PlanError: It is not a plan, is of another format, or was edited by hand.
    """
    try:
        content = json.loads(text)
        if content["format"] != FORMAT:
            raise PlanError(
                f"{source} has format {content['format']}, and this version reads {FORMAT}. Make the "
                f"plan again."
            )
        plan = Plan(
            tables=tuple(_read_table(entry) for entry in content["tables"]),
            schemas=tuple(decode(change["value"], _CLASSES) for change in content["schemas"]),
            engine=content["engine"],
        )
        saved_id = content["plan_id"]
    except DeltaplaneError as error:
        raise PlanError(f"{source} cannot be used: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PlanError(
            f"{source} is not a plan of deltaplane: {_lacking(error)}. Nothing was applied. "
            "Make one with: deltaplane plan --save plan.json"
        ) from None
    if plan.plan_id != saved_id:
        raise PlanError(
            f"{source} was changed after it was made: its content no longer matches its id {saved_id}. "
            "Nothing was applied. Make the plan again."
        )
    return plan


def _lacking(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else "it cannot be read as one"


def _table(entry: TablePlan) -> dict[str, Any]:
    return {
        "table": str(entry.table),
        "name": list(entry.table.parts),
        "status": entry.status,
        "protocol": {"before": _protocol(entry.before), "after": _protocol(entry.after)},
        "version": entry.version,
        "num_files": entry.num_files,
        "size_bytes": entry.size_bytes,
        "fingerprint": entry.fingerprint,
        "depends_on": [list(name.parts) for name in entry.depends_on],
        "error": entry.error,
        "changes": [_change(change) for change in entry.changes],
        "findings": [_finding(finding) for finding in entry.findings],
    }


def _change(change: Change) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "subject": change.subject,
        "cost": change.cost,
        "summary": change.summary,
        "consequence": change.consequence,
        "value": encode(change),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity,
        "column": finding.column,
        "text": finding.text,
        "remedy": finding.remedy,
        "waived": finding.waived,
        "left_as_it_is": finding.keep and finding.waived is not None,
    }


def _protocol(protocol: Protocol | None) -> dict[str, Any] | None:
    if protocol is None:
        return None
    return {"reader": protocol.reader, "writer": protocol.writer, "features": sorted(protocol.features)}


def _read_protocol(content: dict[str, Any] | None) -> Protocol | None:
    if content is None:
        return None
    return Protocol(content["reader"], content["writer"], frozenset(content["features"]))


def _read_table(content: dict[str, Any]) -> TablePlan:
    name = QualifiedName(*content["name"])
    return TablePlan(
        table=name,
        changes=tuple(decode(change["value"], _CLASSES) for change in content["changes"]),
        findings=tuple(
            Finding(
                f["code"],
                f["severity"],
                name,
                f["column"],
                f["text"],
                f["remedy"],
                f["waived"],
                f["left_as_it_is"],
            )
            for f in content["findings"]
        ),
        before=_read_protocol(content["protocol"]["before"]),
        after=_read_protocol(content["protocol"]["after"]),
        version=content["version"],
        num_files=content["num_files"],
        size_bytes=content["size_bytes"],
        state=content["fingerprint"],
        depends_on=tuple(QualifiedName(*parts) for parts in content["depends_on"]),
        error=content["error"],
    )
