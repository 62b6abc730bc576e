"""Random pairs of declarations: a table, and the same table after somebody has edited it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from deltaplane.schema import (
    Array,
    Binary,
    Boolean,
    Byte,
    Char,
    Check,
    Column,
    DataType,
    Date,
    Decimal,
    DeltaTable,
    Double,
    Field,
    Float,
    Integer,
    Long,
    Map,
    Short,
    String,
    Struct,
    Timestamp,
    TimestampNtz,
    Unique,
    Varchar,
    Variant,
)

SIMPLE: tuple[DataType, ...] = (
    Boolean(),
    Byte(),
    Short(),
    Integer(),
    Long(),
    Float(),
    Double(),
    Decimal(10, 2),
    String(),
    Varchar(12),
    Char(3),
    Binary(),
    Date(),
    Timestamp(),
    TimestampNtz(),
    Variant(),
)
WIDER: dict[DataType, tuple[DataType, ...]] = {
    Byte(): (Short(), Integer(), Double()),
    Short(): (Integer(), Long(), Decimal(12, 1)),
    Integer(): (Long(), Double(), Decimal(10, 0)),
    Long(): (Decimal(20, 0),),
    Float(): (Double(),),
    Decimal(10, 2): (Decimal(14, 2), Decimal(14, 3)),
    Varchar(12): (Varchar(20), String()),
    Char(3): (Varchar(5), String()),
    Date(): (TimestampNtz(),),
}
COMMENTS = (None, "plain", "it's ${quoted} \\ `tick` 😀", "line\nbreak", 'a "b" -- c')
DEFAULTS: dict[type[DataType], str] = {
    Integer: "7",
    Long: "-1",
    String: "'new; --'",
    Double: "1.5",
    Boolean: "true",
    Date: "current_date()",
}
CLUSTERABLE = (
    Byte,
    Short,
    Integer,
    Long,
    Float,
    Double,
    Decimal,
    String,
    Varchar,
    Char,
    Date,
    Timestamp,
    TimestampNtz,
)
PARTITIONABLE = (Byte, Short, Integer, Long, String, Date, Boolean)
CODES_TO_WAIVE = (
    "DS102",
    "DS103",
    "DS104",
    "DP101",
    "DP102",
    "DP103",
    "TY102",
    "TY104",
    "NL102",
    "PR101",
    "PR103",
    "LY101",
    "FK101",
    "NM101",
    "CK102",
)
NAMES = [
    "id",
    "amount",
    "Name",
    "city",
    "note",
    "state",
    "born",
    "ok",
    "raw",
    "weird.na`me",
    "x y",
    "é😀",
    "seen",
]
MAPPING = {"delta.columnMapping.mode": "name"}
WIDENING = {"delta.enableTypeWidening": "true"}


def make_pair(rnd: Random, name: str) -> tuple[DeltaTable, DeltaTable]:
    """Return a random table and a random edit of it."""
    before = make_table(rnd, name)
    after = before
    # Some edits find nothing to edit; a pair without a difference would test nothing.
    for attempt in range(20):
        if attempt >= 4 and after != before:
            break
        if attempt == 0 or after == before or rnd.random() < 0.5:
            after = rnd.choice(EDITS)(rnd, after)
    return before, after


def make_table(rnd: Random, name: str) -> DeltaTable:
    names = rnd.sample(NAMES, rnd.randint(2, 6))
    columns = [make_column(rnd, column) for column in names]
    properties: dict[str, str] = {}
    if rnd.random() < 0.7 or any(c in n for n in names for c in " ,;"):
        properties |= MAPPING
    if rnd.random() < 0.5:
        properties |= WIDENING
    if rnd.random() < 0.3:
        properties["team"] = rnd.choice(["red", "it's", "${x}"])
    if rnd.random() < 0.2:
        properties["delta.logRetentionDuration"] = "interval 10 days"
    table = DeltaTable(
        "dev",
        "pairs",
        name,
        columns,
        properties=properties,
        comment=rnd.choice(COMMENTS),
        tags={"tier": "gold"} if rnd.random() < 0.2 else {},
    )
    for edit in (edit_keys, edit_checks, edit_layout):
        if rnd.random() < 0.4:
            table = edit(rnd, table)
    return table


def make_column(rnd: Random, name: str) -> Column:
    data_type = make_type(rnd, 0)
    nullable = rnd.random() < 0.75
    default = DEFAULTS.get(type(data_type)) if rnd.random() < 0.25 else None
    generated = None
    tags = {"pii": "yes"} if rnd.random() < 0.1 else {}
    return Column(name, data_type, nullable, rnd.choice(COMMENTS), default, generated, tags=tags)


def make_type(rnd: Random, depth: int) -> DataType:
    kind = rnd.random()
    if depth < 2 and kind < 0.12:
        names = rnd.sample(["a", "b", "C", "d"], rnd.randint(1, 3))
        fields = [Field(n, make_type(rnd, depth + 1), True, rnd.choice(COMMENTS)) for n in names]
        return Struct(fields)
    if depth < 2 and kind < 0.18:
        return Array(make_type(rnd, depth + 1))
    if depth < 2 and kind < 0.24:
        return Map(String(), make_type(rnd, depth + 1))
    simple = rnd.choice(SIMPLE)
    # Nested char and varchar can be made but never altered.
    return String() if depth and isinstance(simple, Char | Varchar) else simple


def _rebuild(table: DeltaTable, columns: list[Column], renamed: dict[str, str] | None = None) -> DeltaTable:
    """Drop or rename what refers to columns that are gone or called something else now."""
    names = renamed or {}
    present = {column.name for column in columns}

    def follow(group: tuple[str, ...]) -> tuple[str, ...]:
        moved = tuple(names.get(column, column) for column in group)
        return moved if all(column in present for column in moved) else ()

    types = {column.name: column.type for column in columns}
    checks = [
        Check(c.expression.replace(f"`{old}`", f"`{new}`"))
        for c in table.checks
        for old, new in [next(((o, n) for o, n in names.items() if f"`{o}`" in c.expression), ("\0", ""))]
    ]
    checks = [
        c for c in checks if any(f"`{column.replace('`', '``')}`" in c.expression for column in present)
    ]
    clustered = tuple(c for c in follow(table.clustered_by) if isinstance(types[c], CLUSTERABLE))
    partitioned = tuple(c for c in follow(table.partitioned_by) if isinstance(types[c], PARTITIONABLE))
    if len(partitioned) == len(columns):
        partitioned = ()
    return replace(
        table,
        columns=columns,
        primary_key=tuple(c for c in follow(table.primary_key) if isinstance(types[c], CLUSTERABLE)),
        unique=[u for u in (Unique(follow(u.columns)) for u in table.unique) if u.columns],
        checks=checks,
        partitioned_by=partitioned,
        clustered_by=clustered,
    )


def edit_add(rnd: Random, table: DeltaTable) -> DeltaTable:
    free = [name for name in NAMES if table.column(name) is None]
    if not free:
        return table
    column = make_column(rnd, rnd.choice(free))
    at = rnd.randint(0, len(table.columns))
    return _rebuild(table, [*table.columns[:at], column, *table.columns[at:]])


def edit_drop(rnd: Random, table: DeltaTable) -> DeltaTable:
    if len(table.columns) < 3:
        return table
    gone = rnd.choice(table.columns)
    return _rebuild(table, [c for c in table.columns if c is not gone])


def edit_rename(rnd: Random, table: DeltaTable) -> DeltaTable:
    free = [name for name in ("renamed", "moved", "Other") if table.column(name) is None]
    if not free:
        return table
    old, new = rnd.choice(table.columns), rnd.choice(free)
    if rnd.random() < 0.15 and old.name.lower() != old.name.upper():
        new = old.name.swapcase()
    origin = old.renamed_from or old.name
    renamed = replace(old, name=new, renamed_from=None if new == origin else origin)
    columns = [renamed if c is old else c for c in table.columns]
    return _rebuild(table, columns, {old.name: new})


def edit_type(rnd: Random, table: DeltaTable) -> DeltaTable:
    at = rnd.randrange(len(table.columns))
    column = table.columns[at]
    wider = WIDER.get(column.type, ())
    if wider and rnd.random() < 0.9:
        new: DataType = rnd.choice(wider)
    elif rnd.random() < 0.2:
        new = make_type(rnd, 0)
    else:
        new = edit_nested(rnd, column.type)
    default = column.default if column.default is None or type(new) is type(column.type) else None
    columns = [replace(c, type=new, default=default) if c is column else c for c in table.columns]
    return _rebuild(table, columns)


def edit_nested(rnd: Random, data_type: DataType) -> DataType:
    if isinstance(data_type, Array):
        return Array(edit_nested(rnd, data_type.element))
    if isinstance(data_type, Map):
        return Map(data_type.key, edit_nested(rnd, data_type.value))
    if not isinstance(data_type, Struct):
        return rnd.choice(WIDER[data_type]) if WIDER.get(data_type) and rnd.random() < 0.5 else data_type
    fields = list(data_type.fields)
    choice = rnd.random()
    if choice < 0.3:
        fields.insert(rnd.randint(0, len(fields)), Field(f"n{rnd.randint(0, 99)}", rnd.choice(SIMPLE[:9])))
    elif choice < 0.5 and len(fields) > 1:
        fields.pop(rnd.randrange(len(fields)))
    elif choice < 0.7:
        at = rnd.randrange(len(fields))
        fields[at] = replace(fields[at], name=f"r{rnd.randint(0, 99)}", renamed_from=fields[at].name)
    elif choice < 0.8:
        rnd.shuffle(fields)
    else:
        at = rnd.randrange(len(fields))
        fields[at] = replace(fields[at], type=edit_nested(rnd, fields[at].type), comment=rnd.choice(COMMENTS))
    names = [f.name.casefold() for f in fields]
    return Struct(fields) if len(set(names)) == len(names) else data_type


def edit_order(rnd: Random, table: DeltaTable) -> DeltaTable:
    columns = list(table.columns)
    rnd.shuffle(columns)
    return _rebuild(table, columns)


def edit_column(rnd: Random, table: DeltaTable) -> DeltaTable:
    at = rnd.randrange(len(table.columns))
    column = table.columns[at]
    choice = rnd.random()
    if choice < 0.3:
        column = replace(column, comment=rnd.choice(COMMENTS))
    elif choice < 0.6:
        column = replace(column, nullable=not column.nullable)
    elif choice < 0.8:
        column = replace(column, default=None if column.default else DEFAULTS.get(type(column.type)))
    else:
        column = replace(column, tags={} if column.tags else {"pii": "no"})
    columns = [column if i == at else c for i, c in enumerate(table.columns)]
    return _rebuild(table, columns)


def edit_checks(rnd: Random, table: DeltaTable) -> DeltaTable:
    if table.checks and rnd.random() < 0.5:
        return replace(table, checks=table.checks[1:])
    numbers = [c.name for c in table.columns if isinstance(c.type, Integer | Long | Double | Decimal)]
    if not numbers:
        return table
    column = rnd.choice(numbers).replace("`", "``")
    expression = rnd.choice([f"`{column}` IS NULL OR `{column}`>=-5", f"coalesce(`{column}`,0) < 1000"])
    if any(c.same_rule(Check(expression)) for c in table.checks):
        return table
    return replace(table, checks=[*table.checks, Check(expression)])


def edit_keys(rnd: Random, table: DeltaTable) -> DeltaTable:
    simple = [c.name for c in table.columns if isinstance(c.type, Integer | Long | String | Date)]
    if not simple:
        return table
    if rnd.random() < 0.5:
        return replace(table, primary_key=() if table.primary_key else (rnd.choice(simple),))
    return replace(table, unique=() if table.unique else (Unique((rnd.choice(simple),)),))


def edit_layout(rnd: Random, table: DeltaTable) -> DeltaTable:
    clusterable = [c.name for c in table.columns if isinstance(c.type, CLUSTERABLE)]
    partitionable = [c.name for c in table.columns if isinstance(c.type, PARTITIONABLE)]
    if rnd.random() < 0.6 and clusterable and not table.partitioned_by:
        keys = rnd.sample(clusterable, min(len(clusterable), rnd.randint(1, 2)))
        return replace(table, clustered_by=() if table.clustered_by and rnd.random() < 0.5 else keys)
    if partitionable and len(table.columns) > 2 and not table.clustered_by:
        return replace(table, partitioned_by=() if table.partitioned_by else (rnd.choice(partitionable),))
    return table


def edit_properties(rnd: Random, table: DeltaTable) -> DeltaTable:
    properties = dict(table.properties)
    choice = rnd.random()
    if choice < 0.3 and "team" in properties:
        del properties["team"]
    elif choice < 0.6:
        properties["team"] = rnd.choice(["blue", "green"])
    elif choice < 0.8:
        properties |= WIDENING
    else:
        properties["delta.enableChangeDataFeed"] = "true"
    return replace(table, properties=properties)


def edit_words(rnd: Random, table: DeltaTable) -> DeltaTable:
    if rnd.random() < 0.5:
        return replace(table, comment=rnd.choice(COMMENTS))
    return replace(table, tags={} if table.tags else {"tier": "silver", "it's": "${v}"})


EDITS: tuple[Callable[[Random, DeltaTable], DeltaTable], ...] = (
    edit_add,
    edit_add,
    edit_drop,
    edit_rename,
    edit_type,
    edit_type,
    edit_order,
    edit_column,
    edit_column,
    edit_checks,
    edit_keys,
    edit_layout,
    edit_properties,
    edit_words,
)
