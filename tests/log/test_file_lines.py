"""What is decoded fast is what the exact reader makes of the same line, whatever the line is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltaplane.errors import CorruptLog
from deltaplane.log.actions import Action, AddFile, RemoveFile
from deltaplane.log.file_lines import usual_line
from deltaplane.log.jsonlines import _exact as exact
from deltaplane.log.jsonlines import action_from_dict, parse_commit, parse_json
from golden import golden_root, golden_tables, needs_golden

USUAL_ADD = {
    "path": "part-1.parquet",
    "partitionValues": {"day": "1", "none": None},
    "size": 1,
    "modificationTime": 2,
    "dataChange": True,
}
USUAL_REMOVE = {"path": "part-1.parquet", "deletionTimestamp": 3, "dataChange": False}
VECTOR = {"storageType": "u", "pathOrInlineDv": "ab", "offset": 1, "sizeInBytes": 2, "cardinality": 3}

NAMES = [
    *("path", "partitionValues", "size", "modificationTime", "dataChange", "stats", "tags", "deletionVector"),
    *("baseRowId", "defaultRowCommitVersion", "clusteringProvider", "deletionTimestamp"),
    *("extendedFileMetadata", "unheardOf"),
]
TEXTS = st.text(max_size=8) | st.sampled_from(["a%20b", "\0", "é", "\U0001f600", "true", "7", ""])
NUMBERS = (
    st.integers(-(2**70), 2**70) | st.floats(allow_nan=True) | st.sampled_from([2**63, -(2**63), 1.0, 1e3])
)
PLAIN = TEXTS | NUMBERS | st.booleans() | st.none()
VALUES = (
    PLAIN
    | st.dictionaries(TEXTS, PLAIN, max_size=2)
    | st.just(VECTOR)
    | st.dictionaries(st.sampled_from([*VECTOR, "more"]), PLAIN, max_size=6)
    | st.lists(PLAIN, max_size=1)
)
CHANGES = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4)


def exactly(line: str) -> Action | str:
    try:
        return action_from_dict(parse_json(line))
    except CorruptLog as error:
        return error.cause_text


@given(
    kind=st.sampled_from(["add", "remove"]),
    changes=CHANGES,
    missing=st.sets(st.sampled_from(NAMES), max_size=1),
)
@settings(max_examples=600)
def test_any_line_is_read_as_the_exact_reader_reads_it(
    kind: str, changes: dict[str, Any], missing: set[str]
) -> None:
    body = (USUAL_ADD if kind == "add" else USUAL_REMOVE) | changes
    line = json.dumps({kind: {k: v for k, v in body.items() if k not in missing}}, separators=(",", ":"))

    found = usual_line(line)

    if found is not None:
        assert found == exactly(line)
        assert [type(getattr(found, name)) for name in found.__struct_fields__] == [
            type(getattr(exactly(line), name)) for name in found.__struct_fields__
        ]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (json.dumps({"add": USUAL_ADD}, separators=(",", ":")), AddFile),
        (
            json.dumps(
                {"add": USUAL_ADD | {"deletionVector": VECTOR, "tags": {"a": "b"}}}, separators=(",", ":")
            ),
            AddFile,
        ),
        (json.dumps({"remove": USUAL_REMOVE}, separators=(",", ":")), RemoveFile),
        (json.dumps({"remove": USUAL_REMOVE | {"baseRowId": 4}}, separators=(",", ":")), RemoveFile),
    ],
)
def test_usual_lines_take_the_fast_way(line: str, kind: type) -> None:
    assert type(usual_line(line)) is kind


@pytest.mark.parametrize(
    "line",
    [
        '{"txn":{"appId":"a","version":1}}',
        '{"add":null}',
        '{"add":{"path":"a","partitionValues":{"p":1},"size":1,"modificationTime":1,"dataChange":true}}',
        '{"remove":{"path":"a","dataChange":true,"later":1}}',
        '{"remove":{"path":"a","dataChange":"true"}}',
        '{"remove":{"path":"a","dataChange":true}} trailing',
        '{"remove":{"path":"a","dataChange":true},"add":{"path":"b"}}',
        '{"remove":{"path":"\\ud800","dataChange":true}}',
        '{"remove":{"path":"a","dataChange":tr',
        "",
    ],
)
def test_what_is_unusual_is_left_to_the_exact_reader(line: str) -> None:
    assert usual_line(line) is None


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ('{"add":{"path":7,"size":1}}', "add.path has an impossible value"),
        ('{"remove":{"dataChange":true}}', "remove has no path"),
    ],
)
def test_a_damaged_line_is_named_by_its_number(line: str, cause: str) -> None:
    good = json.dumps({"add": USUAL_ADD}, separators=(",", ":"))

    with pytest.raises(CorruptLog, match=f"0.json, line 3: {cause}"):
        list(parse_commit(f"{good}\n{good}\n{line}\n".encode(), "0.json"))


PIECES = st.sampled_from(
    [
        *('{"add":{"path":"a","size":1}}', '{"remove":{"path":"a"}}', '{"txn":{"appId":"a","version":1}}'),
        *('{"commitInfo":{"operation":"}\\n{"}}', '{"protocol":{"minReaderVersion":1}}', '{"more":{}}', "{}"),
        *('{"add":null,"cdc":{"path":"c"}}', '{"add":', '{"path":"b"}}', "}", '{"', "[", "null", "\ufeff"),
        *("\n", "\n", "\n", "\n", "\r\n", " ", "\t", "trailing", '{"txn":{"appId":"b","version":1.5}}'),
    ]
)


@given(pieces=st.lists(PIECES, max_size=12))
@settings(max_examples=1_500)
def test_any_text_is_read_as_the_exact_reader_reads_it(pieces: list[str]) -> None:
    content = "".join(pieces).encode()

    def outcome(read: Callable[[], Iterable[Action]]) -> list[Action] | str:
        try:
            return list(read())
        except CorruptLog as error:
            return str(error)

    assert outcome(lambda: parse_commit(content, "0.json")) == outcome(lambda: exact(content, "0.json"))


@needs_golden
def test_the_lines_of_all_golden_tables() -> None:
    assert golden_root() is not None
    fast = 0
    for table in golden_tables():
        for file in sorted(table.path.glob("_delta_log/*.json")):
            for line in file.read_text("utf-8", "replace").splitlines():
                found = usual_line(line)
                if found is not None:
                    fast += 1
                    assert found == exactly(line), (table.name, file.name)
    assert fast > 1000
