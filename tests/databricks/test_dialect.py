"""The SQL that Databricks gets, statement by statement, checked as text."""

from __future__ import annotations

from deltaplane.databricks.dialect import DatabricksDialect
from deltaplane.planning import DATABRICKS, OPEN_SOURCE, plan_table
from deltaplane.planning.simulate import simulate_all
from deltaplane.schema import Column, DeltaTable, ForeignKey, Long, QualifiedName, String, Waiver
from deltaplane.spark.dialect import Dialect

ORDERS = DeltaTable(
    "main",
    "sales",
    "orders",
    [
        Column("id", Long(), nullable=False),
        Column("customer", Long(), tags={"pii": "no"}),
        Column("note", String(), comment="it's"),
    ],
    primary_key="id",
    unique=[("customer", "note")],
    foreign_keys=[ForeignKey("customer", "customers", "id")],
    checks=["id > 0"],
    tags={"tier": "gold"},
    properties={"delta.targetFileSize": "64mb"},
)
EDITED = DeltaTable(
    "main",
    "sales",
    "orders",
    [
        Column("id", Long(), nullable=False),
        Column("customer", Long(), nullable=False),
        Column("note", String(), comment="it's"),
        Column("state", String(), nullable=False, default="'new'"),
    ],
    checks=["id > 0"],
    tags={"tier": "silver"},
    properties={"delta.targetFileSize": "64mb"},
)


def parts(name: QualifiedName) -> tuple[str, ...]:
    return name.parts


def statements(dialect: Dialect, before: DeltaTable | None, after: DeltaTable) -> list[str]:
    caps = DATABRICKS if isinstance(dialect, DatabricksDialect) else OPEN_SOURCE
    state = None
    if before is not None:
        state = simulate_all(None, plan_table(before, None, caps).changes, caps)
    waivers = [Waiver(code, "orders", None, "test") for code in ("NL102", "PP101")]
    plan = plan_table(after, state, caps, waivers=waivers)
    assert not [finding for finding in plan.findings if finding.blocks]
    return [step.sql for change in plan.changes for step in dialect.steps(change)]


def test_a_new_table_gets_keys_and_tags_as_sql() -> None:
    """Keys and tags are statements of their own; properties only Databricks knows are accepted."""
    assert statements(DatabricksDialect(parts), None, ORDERS) == [
        "CREATE TABLE `main`.`sales`.`orders` (`id` BIGINT NOT NULL, `customer` BIGINT, "
        "`note` STRING COMMENT 'it\\'s') USING DELTA TBLPROPERTIES ('delta.targetFileSize' = '64mb', "
        "'deltaplane.owner' = 'deltaplane', 'deltaplane.properties' = '[\"delta.targetFileSize\"]')",
        "ALTER TABLE `main`.`sales`.`orders` ADD CONSTRAINT `ck_orders_id_0_8c9b7ead1e` CHECK (id > 0)",
        "ALTER TABLE `main`.`sales`.`orders` ADD CONSTRAINT "
        "`fk_orders_customer_to_customers_e9c88b2f4e` FOREIGN KEY (`customer`) REFERENCES "
        "`main`.`sales`.`customers` (`id`)",
        "ALTER TABLE `main`.`sales`.`orders` ADD CONSTRAINT `pk_orders_id_0eacd66d9c` PRIMARY KEY (`id`)",
        "ALTER TABLE `main`.`sales`.`orders` ADD CONSTRAINT `uq_orders_customer_note_7e50dfc4cc` "
        "UNIQUE (`customer`, `note`)",
        "ALTER TABLE `main`.`sales`.`orders` SET TAGS ('tier' = 'gold')",
        "ALTER TABLE `main`.`sales`.`orders` ALTER COLUMN `customer` SET TAGS ('pii' = 'no')",
    ]


def test_an_edit_sets_not_null_and_drops_keys_as_sql() -> None:
    """NOT NULL needs no CHECK there, and keys and tags go by statements."""
    assert statements(DatabricksDialect(parts), ORDERS, EDITED) == [
        "ALTER TABLE `main`.`sales`.`orders` SET TBLPROPERTIES ('delta.feature.allowColumnDefaults' = "
        "'supported')",
        "ALTER TABLE `main`.`sales`.`orders` SET TBLPROPERTIES ('deltaplane.pending.backfill.state' = "
        "'true', "
        "'deltaplane.pending.notNull.state' = 'true')",
        "ALTER TABLE `main`.`sales`.`orders` ADD COLUMNS (`state` STRING)",
        "ALTER TABLE `main`.`sales`.`orders` ALTER COLUMN `state` SET DEFAULT 'new'",
        "UPDATE `main`.`sales`.`orders` SET `state` = DEFAULT WHERE `state` IS NULL",
        "ALTER TABLE `main`.`sales`.`orders` ALTER COLUMN `state` SET NOT NULL",
        "ALTER TABLE `main`.`sales`.`orders` UNSET TBLPROPERTIES IF EXISTS "
        "('deltaplane.pending.backfill.state', "
        "'deltaplane.pending.notNull.state')",
        "ALTER TABLE `main`.`sales`.`orders` DROP CONSTRAINT IF EXISTS "
        "`fk_orders_customer_to_customers_e9c88b2f4e`",
        "ALTER TABLE `main`.`sales`.`orders` DROP PRIMARY KEY IF EXISTS",
        "ALTER TABLE `main`.`sales`.`orders` DROP CONSTRAINT IF EXISTS `uq_orders_customer_note_7e50dfc4cc`",
        "ALTER TABLE `main`.`sales`.`orders` ALTER COLUMN `customer` SET NOT NULL",
        "ALTER TABLE `main`.`sales`.`orders` SET TAGS ('tier' = 'silver')",
        "ALTER TABLE `main`.`sales`.`orders` ALTER COLUMN `customer` UNSET TAGS ('pii')",
    ]


def test_open_source_spark_keeps_the_same_things_in_properties() -> None:
    """The same declaration, where there is no SQL for keys and tags."""
    sql = statements(Dialect(parts), None, ORDERS)
    assert len(sql) == 2
    assert '\'deltaplane.key.pk_orders_id_0eacd66d9c\' = \'{"kind": "primary", "columns": ["id"]}\'' in sql[0]
    assert "'deltaplane.tag.tier' = 'gold'" in sql[0]
    assert "'deltaplane.columnTags.customer' = '{\"pii\": \"no\"}'" in sql[0]
    assert "targetFileSize" not in sql[0]
