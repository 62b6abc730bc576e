"""Table features: what a table asks of a reader and a writer, and what a new table needs.

The figures are those of Delta 4.4. A feature is legacy when a writer version below 7 can hold it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deltaplane.errors import CorruptLog, UnsupportedTable
from deltaplane.log.actions import Metadata, Protocol
from deltaplane.log.jsonlines import parse_json

__all__ = [
    "FEATURES",
    "IMPLIED",
    "PROPERTY_FEATURES",
    "Feature",
    "active_features",
    "check_readable",
    "check_writable",
    "protocol_for",
    "reader_requirements",
    "stored_properties",
    "supports",
    "writer_requirements",
]

READER_FEATURES_VERSION = 3
WRITER_FEATURES_VERSION = 7


@dataclass(frozen=True, slots=True)
class Feature:
    """One table feature and the least protocol versions that hold it."""

    name: str
    reader: int
    writer: int


FEATURES: Mapping[str, Feature] = {
    feature.name: feature
    for feature in (
        Feature("allowColumnDefaults", 1, 7),
        Feature("appendOnly", 1, 2),
        Feature("changeDataFeed", 1, 4),
        Feature("checkConstraints", 1, 3),
        Feature("checkpointProtection", 1, 7),
        Feature("clustering", 1, 7),
        Feature("columnMapping", 2, 5),
        Feature("deletionVectors", 3, 7),
        Feature("domainMetadata", 1, 7),
        Feature("generatedColumns", 1, 4),
        Feature("geospatial", 3, 7),
        Feature("geospatial-dev", 3, 7),
        Feature("icebergCompatV1", 1, 7),
        Feature("icebergCompatV2", 1, 7),
        Feature("icebergCompatV3", 1, 7),
        Feature("identityColumns", 1, 6),
        Feature("inCommitTimestamp", 1, 7),
        Feature("invariants", 1, 2),
        Feature("materializePartitionColumns", 1, 7),
        Feature("rowTracking", 1, 7),
        Feature("timestampNtz", 3, 7),
        Feature("typeWidening", 3, 7),
        Feature("typeWidening-preview", 3, 7),
        Feature("v2Checkpoint", 3, 7),
        Feature("vacuumProtocolCheck", 3, 7),
        Feature("variantShredding", 3, 7),
        Feature("variantShredding-preview", 3, 7),
        Feature("variantType", 3, 7),
        Feature("variantType-preview", 3, 7),
    )
}
IMPLIED: Mapping[str, tuple[str, ...]] = {
    "rowTracking": ("domainMetadata",),
    "clustering": ("domainMetadata",),
    "icebergCompatV1": ("columnMapping",),
    "icebergCompatV2": ("columnMapping",),
    "icebergCompatV3": ("columnMapping", "rowTracking", "domainMetadata"),
    "variantShredding": ("variantType",),
}
PROPERTY_FEATURES: Mapping[str, tuple[str, str]] = {
    "delta.appendOnly": ("true", "appendOnly"),
    "delta.checkpointPolicy": ("v2", "v2Checkpoint"),
    "delta.enableChangeDataFeed": ("true", "changeDataFeed"),
    "delta.enableDeletionVectors": ("true", "deletionVectors"),
    "delta.enableIcebergCompatV1": ("true", "icebergCompatV1"),
    "delta.enableIcebergCompatV2": ("true", "icebergCompatV2"),
    "delta.enableIcebergCompatV3": ("true", "icebergCompatV3"),
    "delta.enableInCommitTimestamps": ("true", "inCommitTimestamp"),
    "delta.enableMaterializePartitionColumnsFeature": ("true", "materializePartitionColumns"),
    "delta.enableRowTracking": ("true", "rowTracking"),
    "delta.enableTypeWidening": ("true", "typeWidening"),
    "delta.enableVariantShredding": ("true", "variantShredding"),
}
"""A property, the value that switches a feature on, and the feature."""

_PREVIEWS = {
    "typeWidening": "typeWidening-preview",
    "variantType": "variantType-preview",
    "variantShredding": "variantShredding-preview",
    "geospatial": "geospatial-dev",
}
_CATALOG = frozenset({"catalogManaged", "catalogOwned", "catalogOwned-preview"})
_COORDINATED = frozenset({"coordinatedCommits-preview"})
_BASE = frozenset({"appendOnly", "invariants"})
_KNOWN = frozenset(FEATURES)
_NOTHING_CHANGED = "Nothing was read into the ledger and nothing was written."


def reader_requirements(protocol: Protocol) -> frozenset[str]:
    """The features a reader must know, named or implied by the reader version."""
    if protocol.min_reader_version >= READER_FEATURES_VERSION:
        return frozenset(protocol.reader_features or ())
    return frozenset({"columnMapping"} if protocol.min_reader_version == 2 else ())


def writer_requirements(protocol: Protocol) -> frozenset[str]:
    """The features a writer must know, named or implied by the versions."""
    if protocol.min_writer_version >= WRITER_FEATURES_VERSION:
        return frozenset(protocol.writer_features or ())
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    return frozenset(f.name for f in FEATURES.values() if f.reader <= reader and f.writer <= writer)


def supports(protocol: Protocol, feature: str) -> bool:
    """Whether the protocol holds the feature, which is not yet to say that it is in use."""
    return feature in writer_requirements(protocol)


def check_readable(protocol: Protocol, metadata: Metadata, table: str) -> None:
    """Make sure that everything the table asks of a reader is known here.

    Raises:
        UnsupportedTable: Names the features, or the versions, and what to do.
    """
    _check_versions(protocol, table)
    required = reader_requirements(protocol)
    _refuse_catalog(required | frozenset(protocol.writer_features or ()), table)
    _refuse_unknown(required - _KNOWN, "reader", table)
    _check_metadata_matches(protocol, metadata, table)


def check_writable(protocol: Protocol, metadata: Metadata, table: str) -> None:
    """Make sure that commits to the table may be accepted here, on top of `check_readable`.

    Somebody else writes the data files; what counts is whether this version knows what the log must say.

    Raises:
        UnsupportedTable: Names the features, or the versions, and what to do.
    """
    check_readable(protocol, metadata, table)
    if not 1 <= protocol.min_writer_version <= WRITER_FEATURES_VERSION:
        raise _unsupported_versions(protocol, table)
    if unlisted := sorted(
        frozenset(protocol.reader_features or ()) - frozenset(protocol.writer_features or ())
    ):
        text = f"readerFeatures names {', '.join(unlisted)}, and writerFeatures does not"
        raise _contradiction(table, text, tuple(unlisted))
    required = writer_requirements(protocol)
    if coordinated := sorted(required & _COORDINATED):
        raise UnsupportedTable(
            f"{table}: a commit coordinator decides on this table's commits ({', '.join(coordinated)}), so "
            f"nobody else may write its log. {_NOTHING_CHANGED} Drop the feature first: "
            f"ALTER TABLE … DROP FEATURE `{coordinated[0]}`.",
            tuple(coordinated),
        )
    _refuse_unknown(required - _KNOWN, "writer", table)


def _check_versions(protocol: Protocol, table: str) -> None:
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if not 1 <= reader <= READER_FEATURES_VERSION:
        raise _unsupported_versions(protocol, table)
    named = [
        ("readerFeatures", protocol.reader_features, reader, READER_FEATURES_VERSION, "minReaderVersion"),
        ("writerFeatures", protocol.writer_features, writer, WRITER_FEATURES_VERSION, "minWriterVersion"),
    ]
    for field, features, version, threshold, name in named:
        if (features is not None) != (version >= threshold):
            raise _contradiction(
                table,
                f"{field} is {'present' if features is not None else 'missing'} and {name} is {version}; "
                f"the field belongs to version {threshold}, and only to it",
                (f"{reader}/{writer}",),
            )
    if reader >= READER_FEATURES_VERSION and writer < WRITER_FEATURES_VERSION:
        text = f"reader version {reader} needs writer version {WRITER_FEATURES_VERSION}, and it is {writer}"
        raise _contradiction(table, text, (f"{reader}/{writer}",))


def _unsupported_versions(protocol: Protocol, table: str) -> UnsupportedTable:
    return UnsupportedTable(
        f"{table}: the table needs reader version {protocol.min_reader_version} and writer version "
        f"{protocol.min_writer_version}; this version of deltaplane knows readers 1 to "
        f"{READER_FEATURES_VERSION} and writers 1 to {WRITER_FEATURES_VERSION}. {_NOTHING_CHANGED} "
        "Upgrade deltaplane.",
        (f"{protocol.min_reader_version}/{protocol.min_writer_version}",),
    )


def _contradiction(table: str, cause: str, features: tuple[str, ...]) -> UnsupportedTable:
    return UnsupportedTable(
        f"{table}: the table's protocol contradicts itself: {cause}. {_NOTHING_CHANGED} "
        "Repair the protocol with the engine that wrote it.",
        features,
    )


def _refuse_catalog(features: frozenset[str], table: str) -> None:
    if owned := sorted(features & _CATALOG):
        raise UnsupportedTable(
            f"{table}: a catalog owns the commits of this table ({', '.join(owned)}), and its _delta_log may "
            f"lack the newest of them. {_NOTHING_CHANGED} Read it through its catalog, or copy it to where "
            "no catalog manages it.",
            tuple(owned),
        )


def _refuse_unknown(unknown: frozenset[str], side: str, table: str) -> None:
    if unknown:
        names = tuple(sorted(unknown))
        raise UnsupportedTable(
            f"{table}: the table needs {side} features that this version of deltaplane does not know: "
            f"{', '.join(names)}. {_NOTHING_CHANGED} Upgrade deltaplane, or drop them with the engine that "
            "added them (ALTER TABLE … DROP FEATURE).",
            names,
        )


def _check_metadata_matches(protocol: Protocol, metadata: Metadata, table: str) -> None:
    if protocol.writer_features is None:
        return
    listed = frozenset(protocol.writer_features)
    missing = tuple(sorted(_closure((listed & _KNOWN) | active_features(protocol, metadata)) - listed))
    if missing:
        raise UnsupportedTable(
            f"{table}: the table's metadata or its other features need {', '.join(missing)}, which its "
            f"protocol does not list (DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH). {_NOTHING_CHANGED} Add it "
            "with the engine that wrote the table: ALTER TABLE … SET TBLPROPERTIES "
            f"('delta.feature.{missing[0]}' = 'supported').",
            missing,
        )


def active_features(protocol: Protocol, metadata: Metadata) -> frozenset[str]:
    """The features that properties and schema put to use, whether or not the protocol lists them."""
    found = _property_features(metadata.configuration) | (
        _schema_features(metadata.schema_string) - _DECLARED
    )
    # A preview does the work of the feature that it became.
    return frozenset(name for name in found if not supports(protocol, _PREVIEWS.get(name, "")))


def _closure(names: Iterable[str]) -> frozenset[str]:
    found = set(names)
    for name in tuple(found):
        found.update(IMPLIED.get(name, ()))
    return frozenset(found)


_BY_PROPERTY = {key.casefold(): trigger for key, trigger in PROPERTY_FEATURES.items()}


def _property_features(properties: Mapping[str, str]) -> frozenset[str]:
    found = set()
    for key, value in properties.items():
        name, text = key.casefold(), (value or "").casefold()
        trigger = _BY_PROPERTY.get(name)
        if trigger and text == trigger[0]:
            found.add(trigger[1])
        elif name == "delta.columnmapping.mode" and text in ("name", "id"):
            found.add("columnMapping")
        elif name == "delta.enablechangedatacapture" and text == "true":
            found.add("changeDataFeed")
        elif name == "delta.coordinatedcommits.commitcoordinator-preview" and text:
            found.update(_COORDINATED)
        elif name.startswith("delta.constraints."):
            found.add("checkConstraints")
    return frozenset(found)


_DECLARED = frozenset({"allowColumnDefaults"})
"""Delta demands these when a table is made and does not look for them when it is read."""

_BY_TYPE = {"timestamp_ntz": "timestampNtz", "variant": "variantType"}
_BY_FIELD_KEY = {
    "delta.invariants": "invariants",
    "delta.generationExpression": "generatedColumns",
    "delta.identity.start": "identityColumns",
    "CURRENT_DEFAULT": "allowColumnDefaults",
}


def _schema_features(schema_json: str) -> frozenset[str]:
    schema = _parsed_schema(schema_json)
    found = {"invariants"} if _has_not_null(schema) else set()
    for data_type in _types(schema):
        if isinstance(data_type, str):
            found.update({_BY_TYPE[data_type]} if data_type in _BY_TYPE else ())
            found.update({"geospatial"} if data_type.startswith(("geometry", "geography")) else ())
        for field in _fields(data_type):
            keys = field.get("metadata") or {}
            found.update(feature for key, feature in _BY_FIELD_KEY.items() if key in keys)
    return frozenset(found)


def _parsed_schema(schema_json: str) -> Any:
    try:
        return parse_json(schema_json) if schema_json else {}
    except ValueError as error:
        raise CorruptLog("metaData.schemaString", f"the schema is not JSON: {error}") from None


def _fields(data_type: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(data_type, Mapping):
        yield from (field for field in data_type.get("fields") or () if isinstance(field, Mapping))


def _types(data_type: Any) -> Iterator[Any]:
    """The type and every type inside it: names as text, the others as objects."""
    yield data_type
    for field in _fields(data_type):
        yield from _types(field.get("type"))
    if isinstance(data_type, Mapping):
        for inner in ("elementType", "keyType", "valueType"):
            if inner in data_type:
                yield from _types(data_type[inner])


def _has_not_null(data_type: Any) -> bool:
    """Whether a column, or a field of a struct, is NOT NULL; like Delta, not looking into arrays and maps."""
    return any(
        field.get("nullable") is False or _has_not_null(field.get("type")) for field in _fields(data_type)
    )


def protocol_for(properties: Mapping[str, str], schema_json: str, table: str = "the new table") -> Protocol:
    """The least protocol for a new table with these properties and columns, as Delta would choose it.

    Args:
        properties: Table properties; `delta.feature.NAME = supported` asks for a feature by name.
        schema_json: The schema as in `metaData.schemaString`.
        table: What to call the table in an error.

    Raises:
        UnsupportedTable: A feature is not known here, or a protocol version is asked for by number.
    """
    lowered = {key.casefold() for key in properties}
    if asked := sorted(lowered & {"delta.minreaderversion", "delta.minwriterversion"}):
        raise UnsupportedTable(
            f"{table}: {', '.join(asked)} cannot be asked for; the protocol follows from the features. "
            "Nothing was created. Ask for features by name: 'delta.feature.NAME' = 'supported'.",
            tuple(asked),
        )
    needed = _property_features(properties) | _schema_features(schema_json) | _named_features(properties)
    _refuse_catalog(needed, table)
    _refuse_unknown(needed - _KNOWN, "writer", table)
    return _least(_closure(needed))


def _named_features(properties: Mapping[str, str]) -> frozenset[str]:
    canonical = {name.casefold(): name for name in (*_KNOWN, *_CATALOG, *_COORDINATED)}
    prefix = "delta.feature."
    names = [key[len(prefix) :] for key in properties if key.casefold().startswith(prefix)]
    return frozenset(canonical.get(name.casefold(), name) for name in names)


def _least(needed: frozenset[str]) -> Protocol:
    added = needed - _BASE
    if not added:
        return Protocol(1, 2)
    # Of the legacy features only CHECK still moves the version by itself in Delta 4.4.
    if added == {"checkConstraints"}:
        return Protocol(1, 3)
    reader = max(FEATURES[name].reader for name in added)
    listed = sorted(name for name in added if FEATURES[name].reader > 1)
    return Protocol(
        reader,
        WRITER_FEATURES_VERSION,
        tuple(listed) if reader >= READER_FEATURES_VERSION else None,
        tuple(sorted(added | _BASE)),
    )


def stored_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties as the metadata keeps them: spelt like Delta's, none that only chooses the protocol."""
    names = {key.casefold(): key for key in (*PROPERTY_FEATURES, "delta.columnMapping.mode")}
    return {
        names.get(key.casefold(), key): value
        for key, value in properties.items()
        if not key.casefold().startswith("delta.feature.")
    }
