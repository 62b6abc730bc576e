"""A small shop: nested types, keys, checks, partitions and clustering.

Try it in this folder: deltaplane plan retail:registry
"""

import deltaplane as dp
from deltaplane.schema import (
    Array,
    Check,
    Column,
    Date,
    Decimal,
    DeltaTable,
    Field,
    ForeignKey,
    Integer,
    Long,
    String,
    Struct,
    Timestamp,
    Unique,
)

address = Struct([Field("street", String()), Field("city", String()), Field("postcode", String())])

customers = DeltaTable(
    catalog="dev",
    schema="shop",
    name="customers",
    columns=[
        Column("id", Long(), nullable=False),
        Column("email", String(), nullable=False, tags={"contains": "personal data"}),
        Column("address", address, comment="where parcels go"),
        Column("since", Date(), default="current_date()"),
    ],
    primary_key="id",
    unique=[Unique("email")],
    comment="People who have bought something.",
    properties={"delta.columnMapping.mode": "name"},
)

orders = DeltaTable(
    catalog="dev",
    schema="shop",
    name="orders",
    columns=[
        Column("id", Long(), nullable=False),
        Column("customer_id", Long(), nullable=False),
        Column("lines", Array(Struct([Field("sku", String()), Field("quantity", Integer())]))),
        Column("total", Decimal(12, 2), nullable=False),
        Column("placed_at", Timestamp(), nullable=False),
    ],
    primary_key="id",
    foreign_keys=[ForeignKey("customer_id", customers)],
    checks=[Check("total >= 0", name="total_not_negative")],
    clustered_by="placed_at",
)

visits = DeltaTable(
    catalog="dev",
    schema="shop",
    name="visits",
    columns=[
        Column("at", Timestamp(), nullable=False),
        Column("day", Date(), generated="CAST(at AS DATE)"),
        Column("page", String()),
    ],
    partitioned_by="day",
    properties={"delta.appendOnly": True},
)

registry = dp.Registry(customers, orders, visits, namespaces=["dev.shop"])
