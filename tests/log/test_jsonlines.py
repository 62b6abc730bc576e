from __future__ import annotations

import math
from decimal import Decimal

import pytest

from deltaplane.errors import CorruptLog
from deltaplane.log.actions import (
    AddFile,
    CommitInfo,
    DomainMetadata,
    Format,
    Metadata,
    Protocol,
    RemoveFile,
    SetTransaction,
    UnknownAction,
)
from deltaplane.log.jsonlines import action_from_dict, dump_json, parse_commit, parse_json, write_commit


def txn(text: str) -> list[object]:
    return list(parse_commit(text.encode(), "0.json"))


ONE, TWO = SetTransaction("one", 1), SetTransaction("two", 2)
FIRST, SECOND = '{"txn":{"appId":"one","version":1}}', '{"txn":{"appId":"two","version":2}}'
PRETTY = '{\n  "txn": {\n    "appId": "one",\n    "version": 1\n  }\n}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("\n\n", []),
        ("{}\n", []),
        (f"{FIRST}\n{SECOND}\n", [ONE, TWO]),
        (f"{FIRST}\n{SECOND}", [ONE, TWO]),
        (f"\ufeff{FIRST}\n", [ONE]),
        (f"{FIRST}\n\ufeff{SECOND}\n", [ONE, TWO]),
        (f"\n \t\n{FIRST}\n\n\n{SECOND}\n\n", [ONE, TWO]),
        (f"{FIRST}\r\n{SECOND}\r\n", [ONE, TWO]),
        (f"{FIRST}\r{SECOND}\r", [ONE, TWO]),
        (f"{FIRST}x\n{SECOND} }}]junk\n", [ONE, TWO]),
        (f"{FIRST}{SECOND}\n", [ONE]),
        (f"{FIRST}{{not json\n{SECOND}", [ONE, TWO]),
        (f"{PRETTY}\n{SECOND}", [ONE, TWO]),
        (f"{PRETTY}junk\n{SECOND}", [ONE, TWO]),
        (PRETTY.replace("\n", "\r\n") + "\r\n" + SECOND, [ONE, TWO]),
        ('{"add":null,"txn":{"appId":"one","version":1},"remove":null}', [ONE]),
    ],
)
def test_layout_of_a_commit(text: str, expected: list[object]) -> None:
    assert txn(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9223372036854775808", 9223372036854775808),
        ("-170141183460469231731687303715884105728", -(2**127)),
        ("0.10", Decimal("0.10")),
        ("12345678901234567890.123456789012345678", Decimal("12345678901234567890.123456789012345678")),
        ("-0.0", Decimal("-0.0")),
        ("1e400", Decimal("1e400")),
        ("1.5E-400", Decimal("1.5E-400")),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ('"\\ud83d\\ude00 \\u00e9\\/"', "😀 é/"),
        ('"\\ud800"', "\ud800"),
    ],
)
def test_values_are_exact_and_survive_writing(text: str, expected: object) -> None:
    value = parse_json(text)

    assert (value, isinstance(value, Decimal)) == (expected, isinstance(expected, Decimal))
    assert parse_json(dump_json(value).encode().decode()) == expected


def test_nan_survives_reading_and_writing() -> None:
    assert math.isnan(parse_json("NaN"))
    assert (dump_json(math.nan), dump_json(Decimal("NaN")), dump_json(Decimal("sNaN"))) == (
        "NaN",
        "NaN",
        "NaN",
    )


def test_trailing_zeros_of_a_decimal_are_kept() -> None:
    assert dump_json(parse_json('{"a":1.500,"b":0.00}')) == '{"a":1.500,"b":0.00}'


@pytest.mark.parametrize(
    ("text", "size"), [("1.0", 1), ("1e3", 1000), ('"7"', 7), (str(2**63 - 1), 2**63 - 1)]
)
def test_whole_numbers_are_read_in_every_form_that_delta_takes(text: str, size: int) -> None:
    assert txn(f'{{"add":{{"path":"p","size":{text}}}}}') == [AddFile("p", size=size)]


@pytest.mark.parametrize(
    "text", ["9223372036854775808", "-9223372036854775809", "1e20", '"9223372036854775808"']
)
@pytest.mark.parametrize("action", ['{"add":{"path":"p","size":%s}}', '{"txn":{"appId":"a","version":%s}}'])
def test_a_number_beyond_64_bits_is_read_by_nobody(action: str, text: str) -> None:
    with pytest.raises(CorruptLog, match=r"^0\.json, line 1: (add\.size|txn\.version) is beyond 64 bits"):
        txn(action % text)


@pytest.mark.parametrize(
    "path",
    [
        "a%20b.parquet",
        "p=%C3%A9/x",
        "p=2021-10-01%2008%253A09%253A20/part",
        'quote"back\\slash',
        "日本/é",
        "tab\there",
    ],
)
def test_paths_are_carried_as_they_are(path: str) -> None:
    written = [AddFile(path, {"p": path}), RemoveFile(path)]

    assert list(parse_commit(write_commit(written))) == written


def test_unknown_actions_and_fields_are_kept() -> None:
    text = '{"add":{"path":"p","new":{"b":[1.50,null],"a":1},"stats":null}}\n{"future":[1,{"z":true}]}\n'

    read = txn(text)

    assert read == [
        AddFile("p", extra={"new": {"b": [Decimal("1.50"), None], "a": 1}}),
        UnknownAction("future", [1, {"z": True}]),
    ]
    assert txn(write_commit(read).decode()) == read  # type: ignore[arg-type]


def test_the_canonical_form_of_a_commit() -> None:
    written = write_commit(
        [
            CommitInfo({"timestamp": 1, "operation": "WRITE", "operationParameters": {"b": "2", "a": "1"}}),
            Protocol(3, 7, ("deletionVectors",), ("deletionVectors",)),
            Metadata("id", "{}", format=Format(), configuration={"z": "1", "a": "2"}),
            AddFile(
                "é%20",
                {"q": None, "p": "1"},
                3,
                4,
                stats='{"numRecords":1}',
                extra={"y": 1, "x": {"d": 1, "c": 2}},
            ),
            DomainMetadata("delta.clustering", '{"a":1}'),
        ]
    )

    assert written.decode().split("\n") == [
        '{"commitInfo":{"operation":"WRITE","operationParameters":{"a":"1","b":"2"},"timestamp":1}}',
        '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],'
        '"writerFeatures":["deletionVectors"]}}',
        '{"metaData":{"id":"id","schemaString":"{}","format":{"provider":"parquet","options":{}},"partitionColumns":[],'
        '"configuration":{"a":"2","z":"1"}}}',
        '{"add":{"path":"é%20","partitionValues":{"p":"1","q":null},"size":3,"modificationTime":4,"dataChange":true,'
        '"stats":"{\\"numRecords\\":1}","x":{"c":2,"d":1},"y":1}}',
        '{"domainMetadata":{"domain":"delta.clustering","configuration":"{\\"a\\":1}","removed":false}}',
        "",
    ]


def test_metadata_without_a_schema_is_read_and_written_without_one() -> None:
    text = (
        '{"metaData":{"id":"1","format":{"provider":"parquet","options":{}},'
        '"partitionColumns":[],"configuration":{}}}\n'
    )

    assert txn(text) == [Metadata("1")]
    assert txn(text.replace('"1",', '"1","schemaString":null,')) == [Metadata("1")]
    assert write_commit([Metadata("1")]).decode() == text


def test_values_of_maps_become_texts() -> None:
    read = txn('{"add":{"path":"p","partitionValues":{"a":1,"b":1.50,"c":true,"d":null,"e":"x"}}}')

    assert read == [AddFile("p", {"a": "1", "b": "1.50", "c": "true", "d": None, "e": "x"})]


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ('{"add":', "not JSON"),
        ("nonsense", "not JSON"),
        ('{"add":{"path":"unended', "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"x":1e99999999999999999999}', "exponent out of all bounds"),
        ("[1]", "not an object"),
        ('"text"', "not an object"),
        ('{"add":null}', "an action must have one key"),
        ('{"add":{"path":"p"},"txn":{"appId":"a","version":1}}', "an action must have one key"),
        ('{"add":5}', "add must be an object"),
        ('{"add":{"size":1}}', "add has no path"),
        ('{"add":{"path":null}}', "add has no path"),
        ('{"add":{"path":7}}', "add.path has an impossible value: 7"),
        ('{"add":{"path":"p","size":"many"}}', "add.size has an impossible value: 'many'"),
        ('{"add":{"path":"p","size":1.5}}', "add.size has an impossible value"),
        ('{"add":{"path":"p","size":true}}', "add.size has an impossible value: True"),
        ('{"add":{"path":"p","size":NaN}}', "add.size has an impossible value: nan"),
        ('{"add":{"path":"p","size":1e999999}}', "add.size has an impossible value"),
        ('{"add":{"path":"p","dataChange":"maybe"}}', "add.dataChange has an impossible value"),
        ('{"add":{"path":"p","partitionValues":[]}}', "add.partitionValues has an impossible value"),
        (
            '{"add":{"path":"p","deletionVector":{"storageType":"u"}}}',
            "add.deletionVector has no pathOrInlineDv",
        ),
        ('{"add":{"path":"p","deletionVector":7}}', "add.deletionVector must be an object"),
        (
            '{"metaData":{"id":"i","partitionColumns":[null]}}',
            "metaData.partitionColumns has an impossible value",
        ),
        ('{"protocol":{"minReaderVersion":1}}', "protocol has no minWriterVersion"),
        (
            '{"domainMetadata":{"domain":"d","configuration":{}}}',
            "domainMetadata.configuration has an impossible",
        ),
        ('{"txn":{"appId":"a","version":1}}\xff', "is not UTF-8"),
    ],
)
@pytest.mark.parametrize("before", [f"{FIRST}\n\n", f"{FIRST}\r\n\r\n", "{\n}\n"])
def test_every_error_names_the_file_and_the_line(before: str, line: str, cause: str) -> None:
    with pytest.raises(CorruptLog) as caught:
        list(parse_commit((before + line).encode("latin-1"), "_delta_log/00000000000000000007.json"))

    assert caught.value.source == "_delta_log/00000000000000000007.json, line 3"
    assert cause in caught.value.cause_text


def test_actions_before_a_damaged_line_are_given_out_first() -> None:
    read = parse_commit(f"{FIRST}\n{{broken".encode(), "0.json")

    assert next(read) == ONE
    with pytest.raises(CorruptLog, match=r"0\.json, line 2: not JSON"):
        next(read)


def test_booleans_are_read_from_text_as_delta_reads_them() -> None:
    assert action_from_dict({"remove": {"path": "p", "dataChange": "false"}}) == RemoveFile(
        "p", data_change=False
    )
