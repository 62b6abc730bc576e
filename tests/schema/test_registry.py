"""The registry: one set of tables, whatever the order."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import deltaplane as dp
from deltaplane.errors import RegistryError
from deltaplane.schema import Column, DeltaTable, ForeignKey, Integer, Long, QualifiedName


def table(name: str, catalog: str = "dev", schema: str = "silver", **values: Any) -> DeltaTable:
    columns = [Column("id", Long()), Column("ref", Long()), Column("small", Integer())]
    return DeltaTable(catalog, schema, name, columns, **{"primary_key": "id", **values})


def test_a_name_is_registered_once_whatever_its_case() -> None:
    """Spark ignores case, so the registry does."""
    registry = dp.Registry(table("Orders"))
    with pytest.raises(
        RegistryError,
        match=r"dev.silver.orders is registered already \(as "
        r"dev.silver.Orders",
    ):
        registry.register(table("orders"))


@pytest.mark.parametrize("other", ["s3://lake/x/", "s3://lake/a/../x", "S3://lake/x"])
def test_two_tables_in_one_place_are_refused(other: str) -> None:
    """However the place is written."""
    registry = dp.Registry(table("a", location="s3://lake/x"))
    with pytest.raises(RegistryError, match="one physical table with two declarations"):
        registry.register(table("b", location=other))


def test_a_local_place_has_several_spellings() -> None:
    """file:/x and /x are the same folder."""
    with pytest.raises(RegistryError, match="same location"):
        dp.Registry(table("a", location="file:/lake/x"), table("b", location="/lake/x"))


def test_a_namespace_policy_names_what_is_allowed() -> None:
    """A table elsewhere is refused."""
    registry = dp.Registry(table("a"), namespaces=["dev.silver"])
    with pytest.raises(RegistryError, match=r"dev.gold.b: this registry allows tables only in dev.silver"):
        registry.register(table("b", schema="gold"))


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (ForeignKey("ref", "nowhere"), "points to dev.silver.nowhere, which is not registered"),
        (ForeignKey("ref", "parent", "nope"), "points to column nope, which dev.silver.parent does not have"),
        (ForeignKey("small", "parent"), "small is int and dev.silver.parent.id is bigint"),
        (ForeignKey(("ref", "small"), "parent"), "has 2 columns, and the key of dev.silver.parent has 1"),
        (ForeignKey("ref", "keyless"), "which has no primary key"),
        (ForeignKey("ref", "a.b.c.d"), "is not a table name"),
    ],
)
def test_a_foreign_key_that_points_nowhere_is_refused(key: ForeignKey, message: str) -> None:
    """When the set is used, because the target may be registered later."""
    registry = dp.Registry(
        table("child", foreign_keys=[key]), table("parent"), table("keyless", primary_key=())
    )
    with pytest.raises(RegistryError) as refusal:
        registry.dependencies()
    assert message in str(refusal.value)


def test_a_circle_of_foreign_keys_is_named() -> None:
    """With its whole path; a table that points to itself is fine."""
    registry = dp.Registry(
        table("a", foreign_keys=[ForeignKey("ref", "b")]), table("b", foreign_keys=[ForeignKey("ref", "a")])
    )
    with pytest.raises(
        RegistryError,
        match=r"in a circle: dev.silver.(a|b) -> dev.silver.(a|b) -> "
        r"dev.silver.(a|b)",
    ):
        registry.dependencies()
    own = dp.Registry(table("a", foreign_keys=[ForeignKey("ref", "a")]))
    assert own.dependencies() == {("dev", "silver", "a"): frozenset({("dev", "silver", "a")})}


def test_the_order_of_registration_does_not_matter() -> None:
    """Every permutation gives the same tables and dependencies."""
    tables = [table("c", foreign_keys=[ForeignKey("ref", "a")]), table("a"), table("b")]
    registries = [dp.Registry(*order) for order in itertools.permutations(tables)]
    assert len({registry.tables for registry in registries}) == 1
    assert all(registry.dependencies() == registries[0].dependencies() for registry in registries)


def test_catalogs_that_become_one_must_not_share_a_table() -> None:
    """dev.silver.a and prod.silver.a are one table on open-source Spark."""
    registry = dp.Registry(table("a"), table("a", catalog="prod"))
    with pytest.raises(RegistryError, match="both map to spark_catalog"):
        registry.merged_names({"dev": "spark_catalog", "prod": "spark_catalog"})
    registry.merged_names({"dev": "spark_catalog", "prod": "lake"})
    assert len(registry) == 2


def test_what_is_in_a_registry_can_be_asked() -> None:
    """By declaration, by name and by text."""
    a = table("a")
    registry = dp.Registry(a)
    assert a in registry
    assert QualifiedName("DEV", "silver", "A") in registry
    assert "dev.silver.a" in registry
    assert "dev.silver.b" not in registry
    with pytest.raises(RegistryError, match="is not a DeltaTable"):
        registry.register("a")  # type: ignore[arg-type]
