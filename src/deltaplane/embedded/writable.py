"""Which tables the embedded writer may write.

It stores values as they are given. Tables that ask a writer to compute values, to check expressions or to
number rows are refused by name: a file that silently breaks such a promise is worse than no file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from deltaplane.errors import UnsupportedTable
from deltaplane.log.actions import Metadata, Protocol
from deltaplane.log.features import writer_requirements
from deltaplane.log.schema_json import every_field, is_known_type

__all__ = ["check_embedded_writable"]

# Features that ask nothing of the data files, or nothing that is not done here.
_SUPPORTED = frozenset(
    {
        "allowColumnDefaults",
        "appendOnly",
        "changeDataFeed",
        "checkpointProtection",
        "clustering",
        "columnMapping",
        "deletionVectors",
        "domainMetadata",
        "inCommitTimestamp",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    }
)
# Features that matter only where the metadata uses them, which `_uses` looks for.
_IF_USED = frozenset(
    {
        "checkConstraints",
        "generatedColumns",
        "geospatial",
        "geospatial-dev",
        "icebergCompatV1",
        "icebergCompatV2",
        "icebergCompatV3",
        "identityColumns",
        "invariants",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)
_LENGTH = re.compile(r"(?:var)?char\(\d+\)")


def check_embedded_writable(protocol: Protocol, metadata: Metadata, table: str | None = None) -> None:
    """Make sure that files written here keep every promise of the table.

    Raises:
        UnsupportedTable: Names what the writer cannot do and what to use instead.
    """
    unknown = writer_requirements(protocol) - _SUPPORTED - _IF_USED
    found = [(name, f"the table feature {name}") for name in sorted(unknown)]
    found.extend(_uses(metadata))
    if not found:
        return
    name = table or metadata.name or f"The table with id {metadata.id}"
    reasons = "; ".join(text for _, text in found)
    raise UnsupportedTable(
        f"{name}: the embedded writer cannot write this table, because of {reasons}. Nothing was written. "
        "Write it with Spark, which does what the table asks for.",
        tuple(dict.fromkeys(feature for feature, _ in found)),
    )


def _uses(metadata: Metadata) -> Iterator[tuple[str, str]]:
    for key, value in sorted(metadata.configuration.items()):
        if key.lower().startswith("delta.constraints."):
            yield "checkConstraints", f"the CHECK constraint {key.split('.', 2)[2]} ({value})"
        iceberg = re.fullmatch(r"delta\.enable(IcebergCompatV\d)", key, re.IGNORECASE)
        if iceberg and value.lower() == "true":
            yield "i" + iceberg[1][1:], f"the property {key}, which asks for files as Iceberg wants them"
    for place, field in every_field(metadata.schema_string):
        keys = field.get("metadata") or {}
        if "delta.invariants" in keys:
            yield "invariants", f"the invariant of column {place}"
        if "delta.generationExpression" in keys:
            yield "generatedColumns", f"the generated column {place} ({keys['delta.generationExpression']})"
        if any(str(key).startswith("delta.identity.") for key in keys):
            yield "identityColumns", f"the identity column {place}"
        if "__COLLATIONS" in keys:
            yield "collations", f"the collation of column {place}"
        length = keys.get("__CHAR_VARCHAR_TYPE_STRING")
        if length and not _LENGTH.fullmatch(str(length)):
            yield "charVarchar", f"the length limits inside column {place} ({length})"
        if isinstance(field["type"], str) and not is_known_type(field["type"]):
            yield _TYPE_FEATURES.get(field["type"], field["type"]), f"column {place} of type {field['type']}"


_TYPE_FEATURES = {"variant": "variantType"}
