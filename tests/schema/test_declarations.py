"""Declarations check themselves: the message names the table, the column and the fix."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from deltaplane.errors import DeclarationError, TypeTextError
from deltaplane.schema import (
    Array,
    Boolean,
    Char,
    Check,
    Column,
    Date,
    Decimal,
    DeltaTable,
    Field,
    ForeignKey,
    Identity,
    Integer,
    Long,
    Map,
    String,
    Struct,
    Unique,
    Varchar,
    Variant,
    Waiver,
    parse_type,
)
from deltaplane.schema.names import MAX_CONSTRAINT_NAME, constraint_name
from deltaplane.schema.typetext import render_type

ID = Column("id", Long())


def table(*columns: Column, **values: Any) -> DeltaTable:
    return DeltaTable("dev", "silver", "t", columns or (ID,), **values)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: table(ID, Column("ID", String())),
            "dev.silver.t: column ID is declared twice (Spark ignores",
        ),
        (lambda: DeltaTable("dev", "silver", "t", []), "dev.silver.t: a table needs at least one column"),
        (lambda: table(primary_key="nope"), "primary_key names column nope, which is not declared"),
        (lambda: table(partitioned_by="nope"), "partitioned_by names column nope, which is not declared"),
        (lambda: table(clustered_by="nope"), "clustered_by names column nope, which is not declared"),
        (lambda: table(unique=[("nope",)]), "names column nope, which is not declared"),
        (lambda: table(checks=["nope > 0"]), "uses column nope, which is not declared"),
        (
            lambda: table(ID, Column("g", Long(), generated="nope+1")),
            "generated column g (nope+1) uses column nope",
        ),
        (lambda: table(foreign_keys=[ForeignKey("nope", "x")]), "names column nope, which is not declared"),
        (
            lambda: table(
                ID, Column("b", String()), Column("c", String()), partitioned_by="b", clustered_by="c"
            ),
            "either partitioned (b) or clustered (c), not both",
        ),
        (
            lambda: table(ID, Column("a", Array(Long())), clustered_by="a"),
            "column a is array<bigint>, and a table",
        ),
        (lambda: table(ID, Column("f", Boolean()), clustered_by="f"), "cannot be clustered by that type"),
        (lambda: table(ID, Column("v", Variant()), partitioned_by="v"), "cannot be partitioned by that type"),
        (lambda: table(partitioned_by="id"), "every column is a partition column"),
        (
            lambda: Column("i", Integer(), identity=True),
            "column i: an identity must be BIGINT, and this one is int",
        ),
        (lambda: Column("i", Long(), default="1", generated="2"), "exclude each other"),
        (lambda: Column("i", Long(), renamed_from="i"), "renamed_from is its own name"),
        (lambda: Column("", Long()), "is not a name"),
        (lambda: Column("a", Long(), default="1, b INT"), "is not one SQL expression: it contains a comma"),
        (lambda: Column("a", Long(), default="1 -- x"), "it contains a comment"),
        (lambda: Column("a", String(), default="'x"), "is never closed"),
        (lambda: Check("a > 0) OR (1=1"), "a parenthesis is closed that was never opened"),
        (lambda: Check("a > 0; DROP TABLE x"), "it contains a semicolon"),
        (lambda: Check(" "), "A CHECK needs an expression"),
        (lambda: table(properties={"deltaplane.owner": "me"}), "property deltaplane.owner is reserved"),
        (lambda: table(properties={"delta.constraints.x": "a > 0"}), "declare it in checks="),
        (lambda: table(properties={"delta.feature.x": "supported"}), "declare it in features="),
        (lambda: DeltaTable("dev", "delta", "t", [ID]), "Spark reads `delta`.… as a path"),
        (lambda: table(checks=[Check("id > 0", "a"), Check("id > 1", "A")]), "two constraints are called a"),
        (
            lambda: table(checks=[Check("id > 0", "deltaplane_x")]),
            "names that begin with deltaplane_ are reserved",
        ),
        (
            lambda: table(ID, Column("a", Long(), renamed_from="x"), Column("b", Long(), renamed_from="X")),
            "say renamed_from=",
        ),
        (lambda: Struct([]), "A struct needs at least one field"),
        (lambda: Struct([Field("a", Long()), Field("A", Long())]), "struct field A is declared twice"),
        (lambda: Decimal(39, 0), "the precision must lie between 1 and 38"),
        (lambda: Decimal(5, 6), "the scale must lie between 0 and the precision"),
        (lambda: Varchar(0), "the length must be a whole number of at least 1"),
        (lambda: Column("a", "itn"), "'itn' is not a type of Spark or Delta: reading stopped at 'itn'"),
        (lambda: Column("a", Varchar), "Varchar needs arguments, for example Varchar(20)"),
        (lambda: Column("a", 7), "7 is not a type"),
        (lambda: Identity(step=0), "the step cannot be 0"),
        (lambda: Identity(start="x"), "identity: the start 'x' is not a BIGINT"),
        (lambda: Identity(start=2**70), "is not a BIGINT"),
        (lambda: Column("a", String(), comment=3), "comment of column a: 3 is not text"),
        (lambda: Column("a", String(), tags={"x": 1}), "tags of column a, x: 1 is not text"),
        (lambda: Column("a", String(), tags=["x"]), "is not a mapping"),
        (lambda: Column("a", Long(), generated=3), "generation expression of column a: 3 is not text"),
        (lambda: Column("a", Long(), generated=" "), "is not one SQL expression: it is empty"),
        (lambda: Column("a", "double", default=float("nan")), "has no SQL literal"),
        (lambda: Column("a", String(), comment="\ud800"), "half a character"),
        (lambda: Column("\ud800", String()), "half a character"),
        (
            lambda: Column("b", String(), default="r'\\') , evil STRING DEFAULT ('\\''"),
            "is not one SQL expression",
        ),
        (lambda: table(properties={"k": None}), "k has no value"),
        (lambda: table(properties={1: "x"}), "1 is not text"),
        (lambda: table(primary_key=[1]), "1 is not a name"),
        (lambda: table(properties={"comment": "x"}), "declare it in comment="),
        (lambda: table(properties={"option.x": "x"}), "Spark keeps its own notes there"),
        (lambda: table(properties={"delta.dataSkippingStatsColumns": "id, nope"}), "names column nope"),
        (lambda: table(location="some/where"), "location 'some/where' depends on where the program runs"),
        (lambda: DeltaTable("dev", "silver", "t", None), "columns=None is not a list"),
        (lambda: Decimal("10", 2), "precision and scale are whole numbers"),
        (lambda: Check(3), "A CHECK: 3 is not text"),
        (lambda: Struct(["a"]), "struct: 'a' is not a Field"),
        (lambda: ForeignKey("a", 3), "neither a table name nor a DeltaTable"),
        (lambda: Waiver("DS102", "t", None, None), "is not text"),
        (lambda: parse_type("struct<a:int comment x>"), "reading stopped at 'x'"),
        (lambda: parse_type("struct<:int>"), "reading stopped at ':'"),
        (lambda: parse_type("array<" * 3000 + "int" + ">" * 3000), "nested too deeply"),
        (lambda: Waiver("DS102", "t"), "A waiver without a reason is not accepted"),
        (lambda: Waiver("nonsense", "t", None, "x"), "a rule code looks like DS102"),
    ],
)
def test_a_wrong_declaration_is_refused_at_once(make: Callable[[], object], message: str) -> None:
    """What is wrong, where, and what to do, before anything runs."""
    with pytest.raises(DeclarationError) as refusal:
        make()
    assert message in str(refusal.value)


TYPES = [
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "decimal(10,2)",
    "string",
    "varchar(10)",
    "char(3)",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "variant",
    "array<int>",
    "map<string,array<decimal(3,1)>>",
    "struct<a:int,b:struct<c:array<date>>>",
]


@pytest.mark.parametrize("text", TYPES)
def test_a_type_is_read_from_its_own_text(text: str) -> None:
    """parse(text) writes the same text, and the SQL of it is read back as the same type."""
    assert parse_type(text).text == text
    assert parse_type(render_type(parse_type(text))) == parse_type(text)


def test_names_quotes_and_comments_inside_structs_survive_sql() -> None:
    """Backticks, quotes, ${…} and emoji inside a struct come back as they were."""
    odd = Struct(
        [Field("a`b.c", Long(), nullable=False, comment="it's ${x} \\ 😀\n"), Field("d e", String())]
    )
    assert parse_type(render_type(odd)) == odd


@pytest.mark.parametrize(
    "text", ["", "array<", "map<int>", "struct<a>", "decimal(a)", "varchar", "int int", "array<int>>"]
)
def test_text_that_is_no_type_is_refused(text: str) -> None:
    """Each with a message that shows the known types or the missing length."""
    with pytest.raises(TypeTextError):
        parse_type(text)


def test_declarations_are_values() -> None:
    """Equal, hashable and picklable."""
    one = table(ID, Column("s", "struct<a:int>", tags={"x": "y"}), checks=["id > 0"], properties={"a": True})
    two = table(
        ID, Column("s", "struct<a:int>", tags={"x": "y"}), checks=["id > 0"], properties={"a": "true"}
    )
    assert one == two
    assert hash(one) == hash(two)
    assert pickle.loads(pickle.dumps(one)) == one


def test_every_spelling_of_a_column_type_means_the_same() -> None:
    """A type, its class and its text."""
    assert Column("a", Integer) == Column("a", Integer()) == Column("a", "int") == Column("a", "INTEGER")


def test_derived_constraint_names_are_stable_distinct_and_short() -> None:
    """The borders between the parts count, and long names are cut."""
    assert constraint_name("pk", "a_b", "c") != constraint_name("pk", "a", "b_c")
    assert constraint_name("fk", "x" * 300, "y" * 300).startswith("fk_xxx")
    assert len(constraint_name("fk", "x" * 300, "y" * 300)) <= MAX_CONSTRAINT_NAME
    assert constraint_name("ck", "😀", "ü") == constraint_name("ck", "😀", "ü")
    names = {constraint_name("uq", "t", f"c{n}") for n in range(1000)}
    assert len(names) == 1000


def test_the_same_check_in_another_spelling_has_the_same_name() -> None:
    """Spacing, case and needless quoting do not make another rule."""
    spellings = ["id>0", "ID  > 0", "`id` > 0", "(id > 0)"]
    assert len({table(checks=[text]).checks[0].name for text in spellings}) == 1


def test_a_default_may_be_a_python_value() -> None:
    """Numbers and truth values are written as SQL."""
    assert [Column("a", Date(), default=value).default for value in (0, 1.5, True, "current_date()")] == [
        "0",
        "1.5",
        "true",
        "current_date()",
    ]


def test_unique_and_char_have_defaults_that_read_well() -> None:
    """A single column needs no tuple."""
    assert Unique("a").columns == ("a",)
    assert Char(3).text == "char(3)"
    assert Map("string", "int").text == "map<string,int>"


def test_one_name_may_be_given_without_a_list() -> None:
    """A text is one name, never a list of letters."""
    declared = table(features="deletionVectors", primary_key="id")
    assert declared.features == ("deletionVectors",)
    assert declared.primary_key == ("id",)
