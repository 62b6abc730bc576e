from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from deltaplane.errors import CorruptLog, UnsupportedTable
from deltaplane.log.actions import Action, Metadata, Protocol
from deltaplane.log.features import (
    FEATURES,
    IMPLIED,
    PROPERTY_FEATURES,
    active_features,
    check_readable,
    check_writable,
    protocol_for,
    reader_requirements,
    stored_properties,
    supports,
    writer_requirements,
)
from deltaplane.log.jsonlines import action_from_dict, parse_commit
from deltaplane.planning import features as planning
from golden import GoldenTable, golden_tables, needs_golden


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def column(kind: Any, *, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
    return {"name": "c", "type": kind, "nullable": nullable, "metadata": metadata}


def schema(*fields: dict[str, Any]) -> str:
    return json.dumps(struct(*fields))


PLAIN = schema(column("long"))
LEGACY = Protocol(1, 2)


def metadata(schema_json: str = PLAIN, **properties: str) -> Metadata:
    return Metadata(
        "id", schema_json, configuration={f"delta.{key}": value for key, value in properties.items()}
    )


def named(*features: str, reader: int = 1) -> Protocol:
    readers = tuple(f for f in features if f in FEATURES and FEATURES[f].reader > 1) if reader == 3 else None
    return Protocol(reader, 7, readers, features)


@pytest.mark.parametrize(
    ("protocol", "reader", "writer"),
    [
        (Protocol(1, 1), set(), set()),
        (Protocol(1, 2), set(), {"appendOnly", "invariants"}),
        (Protocol(1, 3), set(), {"appendOnly", "invariants", "checkConstraints"}),
        (
            Protocol(1, 6),
            set(),
            {
                "appendOnly",
                "invariants",
                "checkConstraints",
                "changeDataFeed",
                "generatedColumns",
                "identityColumns",
            },
        ),
        (
            Protocol(2, 5),
            {"columnMapping"},
            {
                "appendOnly",
                "invariants",
                "checkConstraints",
                "changeDataFeed",
                "generatedColumns",
                "columnMapping",
            },
        ),
        (Protocol(1, 7, None, ("rowTracking",)), set(), {"rowTracking"}),
        (Protocol(2, 7, None, ("columnMapping",)), {"columnMapping"}, {"columnMapping"}),
        (Protocol(3, 7, ("a",), ("a", "b")), {"a"}, {"a", "b"}),
    ],
)
def test_what_a_protocol_asks_for(protocol: Protocol, reader: set[str], writer: set[str]) -> None:
    assert (reader_requirements(protocol), writer_requirements(protocol)) == (reader, writer)


@pytest.mark.parametrize(
    ("protocol", "features", "text"),
    [
        (Protocol(99, 7, (), ()), ("99/7",), "needs reader version 99 and writer version 7"),
        (Protocol(0, 2), ("0/2",), "needs reader version 0"),
        (Protocol(3, 7, None, ()), ("3/7",), "readerFeatures is missing and minReaderVersion is 3"),
        (Protocol(1, 2, (), None), ("1/2",), "readerFeatures is present and minReaderVersion is 1"),
        (Protocol(1, 7), ("1/7",), "writerFeatures is missing and minWriterVersion is 7"),
        (Protocol(1, 2, None, ()), ("1/2",), "writerFeatures is present and minWriterVersion is 2"),
        (Protocol(3, 6, (), None), ("3/6",), "reader version 3 needs writer version 7"),
        (
            Protocol(3, 7, ("zeta", "alpha"), ("zeta", "alpha")),
            ("alpha", "zeta"),
            "does not know: alpha, zeta",
        ),
        (Protocol(3, 7, ("collations",), ("collations",)), ("collations",), "reader features"),
        (
            Protocol(3, 7, ("catalogManaged",), ("catalogManaged", "inCommitTimestamp")),
            ("catalogManaged",),
            "a catalog owns the commits",
        ),
        (Protocol(3, 7, ("catalogOwned",), ("catalogOwned",)), ("catalogOwned",), "a catalog owns"),
        (
            Protocol(3, 7, ("catalogOwned-preview",), ("catalogOwned-preview",)),
            ("catalogOwned-preview",),
            "a catalog owns",
        ),
        (Protocol(1, 7, None, ("catalogManaged",)), ("catalogManaged",), "a catalog owns"),
    ],
)
def test_tables_that_nobody_here_can_read(protocol: Protocol, features: tuple[str, ...], text: str) -> None:
    with pytest.raises(UnsupportedTable) as caught:
        check_readable(protocol, metadata(), "sales.orders")

    assert caught.value.features == features
    message = str(caught.value)
    assert message.startswith("sales.orders: ")
    assert text in message
    assert "nothing was written" in message


@pytest.mark.parametrize(
    ("protocol", "features", "text"),
    [
        (Protocol(1, 8, None, ()), ("1/8",), "writer version 8"),
        (Protocol(1, 7, None, ("liquid", "rowTracking", "domainMetadata")), ("liquid",), "writer features"),
        (Protocol(1, 7, None, ("collations",)), ("collations",), "writer features"),
        (
            named("coordinatedCommits-preview", "inCommitTimestamp"),
            ("coordinatedCommits-preview",),
            "a commit coordinator decides",
        ),
        (Protocol(3, 7, ("deletionVectors",), ()), ("deletionVectors",), "writerFeatures does not"),
    ],
)
def test_tables_that_can_be_read_and_not_written(
    protocol: Protocol, features: tuple[str, ...], text: str
) -> None:
    check_readable(protocol, metadata(), "t")

    with pytest.raises(UnsupportedTable, match=text) as caught:
        check_writable(protocol, metadata(), "t")

    assert caught.value.features == features


def test_every_known_feature_can_be_read_and_written() -> None:
    protocol = named(*FEATURES, reader=3)

    check_writable(protocol, metadata(), "t")


@pytest.mark.parametrize(
    ("table", "feature"),
    [
        (metadata(appendOnly="true"), "appendOnly"),
        (metadata(checkpointPolicy="v2"), "v2Checkpoint"),
        (metadata(enableChangeDataFeed="TRUE"), "changeDataFeed"),
        (metadata(enableChangeDataCapture="true"), "changeDataFeed"),
        (metadata(enableDeletionVectors="true"), "deletionVectors"),
        (metadata(enableInCommitTimestamps="true"), "inCommitTimestamp"),
        (metadata(enableRowTracking="true"), "rowTracking"),
        (metadata(enableTypeWidening="true"), "typeWidening"),
        (metadata(enableVariantShredding="true"), "variantShredding"),
        (metadata(enableIcebergCompatV2="true"), "icebergCompatV2"),
        (Metadata("id", PLAIN, configuration={"delta.columnMapping.mode": "id"}), "columnMapping"),
        (Metadata("id", PLAIN, configuration={"delta.constraints.c": "a > 0"}), "checkConstraints"),
        (metadata(schema(column("timestamp_ntz"))), "timestampNtz"),
        (metadata(schema(column("variant"))), "variantType"),
        (metadata(schema(column("geometry(OGC:CRS84)"))), "geospatial"),
        (metadata(schema(column("long", nullable=False))), "invariants"),
        (metadata(schema(column(struct(column("long", nullable=False))))), "invariants"),
        (metadata(schema(column("long", **{"delta.invariants": "{}"}))), "invariants"),
        (metadata(schema(column("long", **{"delta.generationExpression": "1"}))), "generatedColumns"),
        (metadata(schema(column("long", **{"delta.identity.start": 1}))), "identityColumns"),
    ],
)
def test_metadata_may_not_use_a_feature_that_the_protocol_does_not_list(
    table: Metadata, feature: str
) -> None:
    assert active_features(named(), table) == {feature}
    with pytest.raises(UnsupportedTable, match="DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH") as caught:
        check_readable(named(), table, "t")
    listed = frozenset({feature, *IMPLIED.get(feature, ())})
    assert frozenset(caught.value.features) == listed

    check_readable(named(*listed, reader=3), table, "t")
    # Before table features Delta does not compare the two.
    check_readable(Protocol(1, 1), table, "t")


@pytest.mark.parametrize(
    "nested",
    [
        {"type": "array", "elementType": "timestamp_ntz", "containsNull": True},
        {"type": "map", "keyType": "string", "valueType": "timestamp_ntz", "valueContainsNull": True},
        {"type": "map", "keyType": "timestamp_ntz", "valueType": "string", "valueContainsNull": True},
        struct(column(struct(column("timestamp_ntz")))),
        {
            "type": "array",
            "elementType": struct(column("timestamp_ntz", nullable=False)),
            "containsNull": True,
        },
    ],
)
def test_a_feature_of_a_type_is_found_at_any_depth(nested: Any) -> None:
    assert active_features(LEGACY, metadata(schema(column(nested)))) == {"timestampNtz"}


@pytest.mark.parametrize("feature", ["typeWidening", "variantType", "variantShredding"])
def test_a_preview_stands_for_the_feature_it_became(feature: str) -> None:
    used = metadata(
        schema(column("variant")) if feature == "variantType" else PLAIN,
        **{f"enable{feature[0].upper()}{feature[1:]}": "true"},
    )

    check_readable(named(f"{feature}-preview", reader=3), used, "t")


def test_a_feature_that_another_one_needs_must_be_listed_too() -> None:
    with pytest.raises(UnsupportedTable, match="domainMetadata, which its protocol does not list"):
        check_readable(named("clustering"), metadata(), "t")


def test_no_schema_is_no_columns_and_a_broken_one_is_corrupt() -> None:
    check_readable(named(), metadata(""), "t")
    with pytest.raises(CorruptLog, match=r"metaData\.schemaString: the schema is not JSON"):
        check_readable(named(), metadata("{broken"), "t")


BASE = ("appendOnly", "invariants")


@pytest.mark.parametrize(
    ("properties", "fields", "expected"),
    [
        ({}, [column("long")], Protocol(1, 2)),
        ({"delta.appendOnly": "true"}, [column("long", nullable=False)], Protocol(1, 2)),
        ({"delta.enableDeletionVectors": "false"}, [], Protocol(1, 2)),
        ({"delta.constraints.c": "a > 0"}, [], Protocol(1, 3)),
        (
            {"delta.enableDeletionVectors": "true"},
            [],
            Protocol(3, 7, ("deletionVectors",), ("appendOnly", "deletionVectors", "invariants")),
        ),
        (
            {"DELTA.enabledeletionvectors": "True"},
            [],
            Protocol(3, 7, ("deletionVectors",), ("appendOnly", "deletionVectors", "invariants")),
        ),
        (
            {"delta.enableChangeDataFeed": "true"},
            [],
            Protocol(1, 7, None, ("appendOnly", "changeDataFeed", "invariants")),
        ),
        (
            {"delta.columnMapping.mode": "name"},
            [],
            Protocol(2, 7, None, ("appendOnly", "columnMapping", "invariants")),
        ),
        (
            {"delta.columnMapping.mode": "name"},
            [column("timestamp_ntz")],
            Protocol(
                3,
                7,
                ("columnMapping", "timestampNtz"),
                ("appendOnly", "columnMapping", "invariants", "timestampNtz"),
            ),
        ),
        (
            {"delta.enableRowTracking": "true"},
            [],
            Protocol(1, 7, None, ("appendOnly", "domainMetadata", "invariants", "rowTracking")),
        ),
        (
            {"delta.enableInCommitTimestamps": "true"},
            [],
            Protocol(1, 7, None, ("appendOnly", "inCommitTimestamp", "invariants")),
        ),
        (
            {"delta.checkpointPolicy": "v2"},
            [column("variant")],
            Protocol(
                3,
                7,
                ("v2Checkpoint", "variantType"),
                ("appendOnly", "invariants", "v2Checkpoint", "variantType"),
            ),
        ),
        (
            {"delta.feature.vacuumprotocolcheck": "supported"},
            [],
            Protocol(3, 7, ("vacuumProtocolCheck",), ("appendOnly", "invariants", "vacuumProtocolCheck")),
        ),
        (
            {},
            [column("long", CURRENT_DEFAULT="1")],
            Protocol(1, 7, None, ("allowColumnDefaults", "appendOnly", "invariants")),
        ),
    ],
)
def test_the_least_protocol_of_a_new_table(
    properties: dict[str, str], fields: list[dict[str, Any]], expected: Protocol
) -> None:
    made = protocol_for(properties, schema(*fields))

    assert made == expected
    check_writable(made, Metadata("id", schema(*fields), configuration=stored_properties(properties)), "t")


@pytest.mark.parametrize(
    ("properties", "features"),
    [
        ({"delta.feature.teleport": "supported"}, ("teleport",)),
        ({"delta.feature.catalogManaged": "supported"}, ("catalogManaged",)),
        ({"delta.feature.coordinatedCommits-preview": "supported"}, ("coordinatedCommits-preview",)),
        ({"delta.minReaderVersion": "3"}, ("delta.minreaderversion",)),
    ],
)
def test_a_new_table_cannot_ask_for_what_is_not_known(
    properties: dict[str, str], features: tuple[str, ...]
) -> None:
    with pytest.raises(UnsupportedTable, match=r"^lake\.new: ") as caught:
        protocol_for(properties, PLAIN, "lake.new")

    assert caught.value.features == features


def test_properties_that_only_choose_the_protocol_are_not_stored() -> None:
    given = {"delta.feature.clustering": "supported", "delta.APPENDONLY": "true", "mine": "x"}

    assert stored_properties(given) == {"delta.appendOnly": "true", "mine": "x"}


def test_planning_has_the_same_figures() -> None:
    assert {name: (f.reader, f.writer) for name, f in planning.FEATURES.items()} == {
        name: (FEATURES[name].reader, FEATURES[name].writer) for name in planning.FEATURES
    }
    assert {name: IMPLIED[name] for name in planning._IMPLIED} == planning._IMPLIED
    ours = {key.casefold(): trigger for key, trigger in PROPERTY_FEATURES.items()}
    assert {key: ours[key] for key in planning._BY_PROPERTY} == planning._BY_PROPERTY


def test_planning_chooses_the_same_protocol_for_every_two_features() -> None:
    for pair in combinations(sorted(planning.FEATURES), 2):
        made = protocol_for({f"delta.feature.{name}": "supported" for name in pair}, PLAIN)
        # What shredding needs, planning takes from the columns.
        wanted = (*pair, "variantType") if "variantShredding" in pair else pair
        planned = planning.Protocol().with_features(wanted)

        assert (made.min_reader_version, made.min_writer_version) == (planned.reader, planned.writer), pair
        assert all(supports(made, name) for name in planned.features), pair


def golden_state(log: Path) -> tuple[Protocol | None, Metadata | None]:
    """The newest protocol and metadata, read in the simplest way: the files of the log by name."""
    protocol: Protocol | None = None
    found: Metadata | None = None
    for path in sorted(log.iterdir()) if log.is_dir() else ():
        for action in _heads(path):
            protocol = action if isinstance(action, Protocol) else protocol
            found = action if isinstance(action, Metadata) else found
    return protocol, found


def _heads(path: Path) -> Iterator[Action]:
    if not path.name[:20].isdigit():
        return
    if path.suffix == ".json" and ".compacted." not in path.name:
        content = path.read_bytes()
        if len(content) > 5_000_000:
            content = b"\n".join(
                line for line in content.split(b"\n") if line[:7] in (b'{"proto', b'{"metaD')
            )
        yield from parse_commit(content, path.name)
    elif path.suffix == ".parquet":
        names = [name for name in ("protocol", "metaData") if name in pq.read_schema(path).names]
        for row in pq.read_table(path, columns=names).to_pylist(maps_as_pydicts="lossy"):
            heads = {name: body for name, body in row.items() if body is not None}
            if heads:
                yield action_from_dict(heads, path.name)


@needs_golden
@pytest.mark.parametrize("table", golden_tables("readable", "log_only"), ids=lambda table: table.name)
def test_golden_tables_can_be_read(table: GoldenTable, tmp_path: Path) -> None:
    root = table.copy(tmp_path / "t") if table.packed else table.path
    protocol, found = golden_state(root / "_delta_log")
    expected = table.expected()["spark"]

    assert protocol is not None
    assert found is not None
    assert (protocol.min_reader_version, protocol.min_writer_version) == (
        expected["minReaderVersion"],
        expected["minWriterVersion"],
    )
    check_readable(protocol, found, table.name)


CAUSES = {
    "DELTA_INVALID_PROTOCOL_VERSION",
    "DELTA_FEATURES_PROTOCOL_METADATA_MISMATCH",
    "DELTA_UNSUPPORTED_FEATURES_FOR_READ",
}


def refused_for_features() -> list[GoldenTable]:
    return [
        t for t in golden_tables("reject") if t.expected()["spark"]["snapshotError"]["condition"] in CAUSES
    ]


@needs_golden
def test_golden_tables_refused_for_their_features_are_all_here() -> None:
    assert len(refused_for_features()) == 7


@needs_golden
@pytest.mark.parametrize("table", refused_for_features(), ids=lambda table: table.name)
def test_golden_tables_that_spark_refuses_are_refused_with_the_cause(table: GoldenTable) -> None:
    protocol, found = golden_state(table.path / "_delta_log")
    assert protocol is not None
    assert found is not None

    with pytest.raises(UnsupportedTable) as caught:
        check_readable(protocol, found, table.name)

    assert set(caught.value.features) <= {"99/7", "catalogManaged", "catalogOwned"}
    assert str(caught.value).startswith(f"{table.name}: ")


# Spark refuses these for what the rows would be, not for what the log asks of a writer.
ABOUT_ROWS = {"DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED", "UNSUPPORTED_DATATYPE"}


@needs_golden
@pytest.mark.parametrize(
    "table",
    [t for t in golden_tables("readable", "log_only") if t.expected()["spark"].get("writeAttemptOnCopy")],
    ids=lambda table: table.name,
)
def test_golden_tables_are_writable_where_spark_writes_them(table: GoldenTable) -> None:
    attempt = table.expected()["spark"]["writeAttemptOnCopy"]["empty_append"]
    protocol, found = golden_state(table.path / "_delta_log")
    assert protocol is not None
    assert found is not None

    if attempt == "ok" or attempt["condition"] in ABOUT_ROWS:
        check_writable(protocol, found, table.name)
    else:
        with pytest.raises(UnsupportedTable) as caught:
            check_writable(protocol, found, table.name)
        assert all(feature.split("/")[-1] in attempt["msg"] for feature in caught.value.features)
