"""Table features: what a declaration needs, and what that does to the protocol.

The figures come from Delta 4.4: a feature is legacy when a protocol below 7 can hold it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from deltaplane.schema import Array, DataType, DeltaTable, Map, Struct, TimestampNtz, Variant
from deltaplane.schema.types import walk

__all__ = ["FEATURES", "Feature", "Protocol", "property_features", "required_features"]

READER_FEATURES_VERSION = 3
WRITER_FEATURES_VERSION = 7


@dataclass(frozen=True)
class Feature:
    """One table feature: the least protocol that holds it and whether DROP FEATURE can take it back."""

    name: str
    reader: int
    writer: int
    droppable: bool = False

    @property
    def concerns_readers(self) -> bool:
        """Whether a reader that does not know the feature is shut out."""
        return self.reader > 1


FEATURES = {
    feature.name: feature
    for feature in (
        Feature("allowColumnDefaults", 1, 7),
        Feature("appendOnly", 1, 2),
        Feature("changeDataFeed", 1, 4),
        Feature("checkConstraints", 1, 3, droppable=True),
        Feature("checkpointProtection", 1, 7),
        Feature("clustering", 1, 7),
        Feature("columnMapping", 2, 5, droppable=True),
        Feature("deletionVectors", 3, 7, droppable=True),
        Feature("domainMetadata", 1, 7),
        Feature("generatedColumns", 1, 4),
        Feature("icebergCompatV1", 1, 7),
        Feature("icebergCompatV2", 1, 7),
        Feature("icebergCompatV3", 1, 7),
        Feature("identityColumns", 1, 6),
        Feature("inCommitTimestamp", 1, 7, droppable=True),
        Feature("invariants", 1, 2),
        Feature("materializePartitionColumns", 1, 7),
        Feature("rowTracking", 1, 7, droppable=True),
        Feature("timestampNtz", 3, 7),
        Feature("typeWidening", 3, 7, droppable=True),
        Feature("v2Checkpoint", 3, 7, droppable=True),
        Feature("vacuumProtocolCheck", 3, 7),
        Feature("variantShredding", 3, 7),
        Feature("variantType", 3, 7),
    )
}
_IMPLIED = {
    "rowTracking": ("domainMetadata",),
    "clustering": ("domainMetadata",),
    "icebergCompatV1": ("columnMapping",),
    "icebergCompatV2": ("columnMapping",),
    "icebergCompatV3": ("columnMapping", "rowTracking", "domainMetadata"),
}
_BY_TYPE: dict[type[DataType], str] = {TimestampNtz: "timestampNtz", Variant: "variantType"}
_MAY_NEED_FEATURES = (TimestampNtz, Variant, Array, Map, Struct)
_BY_PROPERTY = {
    "delta.enabledeletionvectors": ("true", "deletionVectors"),
    "delta.enabletypewidening": ("true", "typeWidening"),
    "delta.enablechangedatafeed": ("true", "changeDataFeed"),
    "delta.enablerowtracking": ("true", "rowTracking"),
    "delta.enableincommittimestamps": ("true", "inCommitTimestamp"),
    "delta.checkpointpolicy": ("v2", "v2Checkpoint"),
    "delta.appendonly": ("true", "appendOnly"),
    "delta.enableicebergcompatv1": ("true", "icebergCompatV1"),
    "delta.enableicebergcompatv2": ("true", "icebergCompatV2"),
    "delta.enableicebergcompatv3": ("true", "icebergCompatV3"),
    "delta.enablevariantshredding": ("true", "variantShredding"),
}


@dataclass(frozen=True)
class Protocol:
    """The protocol of a table: the least versions a reader and a writer need, and the features."""

    reader: int = 1
    writer: int = 2
    features: frozenset[str] = frozenset({"appendOnly", "invariants"})

    def __str__(self) -> str:
        return f"{self.reader}/{self.writer}"

    def with_features(self, names: Iterable[str]) -> Protocol:
        """Return the protocol after Delta has added these features to it."""
        added = set(names)
        for name in tuple(added):
            added.update(_IMPLIED.get(name, ()))
        added -= self.features
        if not added:
            return self
        needed = [FEATURES.get(name, Feature(name, 1, WRITER_FEATURES_VERSION)) for name in sorted(added)]
        reader = max(self.reader, *(feature.reader for feature in needed))
        writer = self.writer
        # Only CHECK still moves a legacy protocol by a version; everything else goes to named features at
        # once.
        checks_only = added == {"checkConstraints"} and self.writer < WRITER_FEATURES_VERSION
        writer = max(writer, 3) if checks_only else WRITER_FEATURES_VERSION
        if added <= {"appendOnly", "invariants"} and self.writer < WRITER_FEATURES_VERSION:
            writer = self.writer
        return Protocol(reader, writer, self.features | added)


def required_features(table: DeltaTable, *, held_not_null: bool = False) -> frozenset[str]:
    """Return the features a table needs to be what it declares.

    Args:
        table: The declaration.
        held_not_null: Whether a NOT NULL is held by a CHECK.
    """
    needed = set(table.features)
    for column in table.columns:
        if column.default is not None:
            needed.add("allowColumnDefaults")
        if column.generated is not None:
            needed.add("generatedColumns")
        if column.identity is not None:
            needed.add("identityColumns")
        needed |= type_features(column.type)
    if table.checks or held_not_null:
        needed.add("checkConstraints")
    if table.clustered_by:
        needed.add("clustering")
    needed |= property_features(table.properties)
    for name in tuple(needed):
        needed.update(_IMPLIED.get(name, ()))
    return frozenset(needed)


def type_features(data_type: DataType) -> frozenset[str]:
    """Return the features that a type needs, itself or inside."""
    if not isinstance(data_type, _MAY_NEED_FEATURES):
        return frozenset()
    kinds = {type(inner) for inner in walk(data_type)}
    return frozenset(feature for kind, feature in _BY_TYPE.items() if kind in kinds)


def property_features(properties: Mapping[str, str]) -> frozenset[str]:
    """Return the features that these properties switch on."""
    found = set()
    for key, value in properties.items():
        if key.casefold() == "delta.columnmapping.mode" and value.casefold() in ("name", "id"):
            found.add("columnMapping")
        trigger = _BY_PROPERTY.get(key.casefold())
        if trigger and value.casefold() == trigger[0]:
            found.add(trigger[1])
    return frozenset(found)
