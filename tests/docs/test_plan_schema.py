"""plan.schema.json describes every plan that is saved."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from deltaplane import schema as schema_module
from deltaplane.planning import Plan
from deltaplane.planning import changes as change_module
from deltaplane.planning.changes import Change
from deltaplane.planning.observed import Key, Pending
from deltaplane.planning.saved import from_json, to_json
from deltaplane.schema import (
    Array,
    Char,
    Check,
    Column,
    Decimal,
    DeltaTable,
    Field,
    ForeignKey,
    Identity,
    Integer,
    Long,
    Map,
    Registry,
    String,
    Struct,
    TimestampNtz,
    Unique,
    Varchar,
    Variant,
)
from deltaplane.sync import Engine
from deltaplane.testing import InMemoryCatalog

SCHEMA: dict[str, Any] = json.loads(
    resources.files("deltaplane.planning").joinpath("plan.schema.json").read_text(encoding="utf-8")
)
VALIDATOR = Draft202012Validator(SCHEMA)
MAPPED = {"delta.columnMapping.mode": "name"}

EVERYTHING = DeltaTable(
    "dev",
    "shop",
    "everything",
    [
        Column("id", Long(), nullable=False, identity=Identity(5, 2)),
        Column("a", Array(Map(String(), Struct([Field("x", Integer(), comment="inner")])))),
        Column("d", Decimal(10, 2), default="0"),
        Column("v", Varchar(10), tags={"kind": "short"}),
        Column("c", Char(2)),
        Column("n", TimestampNtz()),
        Column("j", Variant()),
        Column("day", String(), generated="substring(v, 1, 2)"),
    ],
    primary_key="id",
    unique=[Unique("v")],
    checks=[Check("d >= 0", name="positive")],
    clustered_by="id",
    properties=MAPPED,
    features=["deletionVectors"],
    comment="all of it",
    location="/lake/everything",
    tags={"team": "a"},
)
BEFORE = DeltaTable(
    "dev",
    "shop",
    "orders",
    [
        Column("id", Long(), nullable=False),
        Column("nick", String(), comment="old"),
        Column("gone", String(), tags={"a": "b"}),
        Column("s", Struct([Field("x", Integer()), Field("y", Integer())])),
        Column("free", Integer(), default="1"),
    ],
    primary_key="id",
    checks=["id > 0"],
    properties={**MAPPED, "my.own": "1"},
    comment="before",
)
AFTER = replace(
    BEFORE,
    columns=(
        Column("nickname", String(), renamed_from="nick", comment="new"),
        Column("id", Long(), nullable=True),
        Column("s", Struct([Field("y", Long()), Field("z", String())])),
        Column("free", Long(), tags={"c": "d"}),
        Column("state", String(), nullable=False, default="'new'"),
    ),
    primary_key=(),
    unique=(Unique("nickname"),),
    checks=(Check("id > 1", name="larger"),),
    properties=MAPPED,
    clustered_by=("id",),
    comment=None,
    tags={"team": "b"},
)


def plan_to_create() -> Plan:
    child = DeltaTable(
        "dev", "shop", "child", [Column("id", Long())], foreign_keys=[ForeignKey("id", EVERYTHING)]
    )
    return Engine(InMemoryCatalog()).plan(Registry(EVERYTHING, child))


def plan_to_change() -> Plan:
    engine = Engine(InMemoryCatalog())
    engine.sync(Registry(BEFORE))
    return engine.plan(Registry(AFTER))


def plan_to_repartition() -> Plan:
    engine = Engine(InMemoryCatalog())
    engine.sync(Registry(BEFORE))
    registry = Registry(replace(BEFORE, partitioned_by=("nick",)))
    registry.waive("LY101", "orders", reason="agreed")
    return engine.plan(registry)


def plan_to_drop() -> Plan:
    engine = Engine(InMemoryCatalog())
    engine.sync(Registry(BEFORE, EVERYTHING, owner="us"))
    return engine.plan(Registry(EVERYTHING, owner="us"))


def plan_of_what_cannot_be_read() -> Plan:
    catalog = InMemoryCatalog()
    engine = Engine(catalog)
    engine.sync(Registry(BEFORE))
    catalog.unreadable["dev.shop.orders"] = "no permission"
    return engine.plan(Registry(BEFORE))


def plan_of_nothing() -> Plan:
    engine = Engine(InMemoryCatalog())
    engine.sync(Registry(BEFORE))
    return engine.plan(Registry(BEFORE))


PLANS = [
    plan_to_create,
    plan_to_change,
    plan_to_repartition,
    plan_to_drop,
    plan_of_what_cannot_be_read,
    plan_of_nothing,
]


def errors_of(content: Any) -> list[str]:
    return [f"{error.json_path}: {error.message[:200]}" for error in VALIDATOR.iter_errors(content)]


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["properties"]["format"]["const"] == 1


@pytest.mark.parametrize("make", PLANS, ids=lambda make: make.__name__)
def test_a_plan_fits_the_schema_and_comes_back_as_it_was(make: Any) -> None:
    content = to_json(make())
    text = json.dumps(content)
    assert errors_of(json.loads(text)) == []
    assert to_json(from_json(text)) == content


def test_the_plans_above_are_of_many_kinds() -> None:
    """So that the schema is tried on more than a creation."""
    kinds = {change.kind for make in PLANS for change in make().changes}
    assert len(kinds) >= 18
    statuses = {entry.status for make in PLANS for entry in make().tables}
    assert statuses == {"unchanged", "pending", "blocked", "read_failed"}


def test_something_else_does_not_fit() -> None:
    """A field nobody described, or a change of an unknown kind."""
    content = to_json(plan_to_create())
    assert errors_of({**content, "surprise": 1}) != []
    content["schemas"][0]["kind"] = "explode"
    assert errors_of(content) != []


def described_classes() -> list[type]:
    classes = [value for value in vars(change_module).values() if isinstance(value, type)]
    changes = [c for c in classes if issubclass(c, Change) and c.kind]
    declared = [getattr(schema_module, name) for name in schema_module.__all__ if name in SCHEMA["$defs"]]
    return [*changes, *declared, Key, Pending]


@pytest.mark.parametrize("cls", described_classes(), ids=lambda cls: cls.__name__)
def test_a_class_has_the_fields_that_the_schema_describes(cls: Any) -> None:
    properties = SCHEMA["$defs"][cls.__name__]["properties"]
    assert set(properties) == {"__class__", *(field.name for field in dataclasses.fields(cls))}


def test_every_kind_of_change_is_in_the_schema() -> None:
    kinds = sorted(cls.kind for cls in described_classes() if issubclass(cls, Change))
    assert SCHEMA["$defs"]["change"]["properties"]["kind"]["enum"] == kinds


def test_every_field_is_described() -> None:
    places = {"the plan": SCHEMA, **SCHEMA["$defs"]}
    silent = [
        f"{place}.{name}"
        for place, definition in places.items()
        for name, content in definition.get("properties", {}).items()
        if not content.get("description")
    ]
    assert silent == []


def test_the_schema_ships_with_the_package() -> None:
    assert Path(str(resources.files("deltaplane.planning"))).joinpath("plan.schema.json").is_file()
