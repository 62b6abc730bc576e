from __future__ import annotations

import time
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltaplane.errors import UnsafePath
from deltaplane.log.paths import check_inside, is_inside, resolve, suspicious
from golden import golden_tables, needs_golden

LOCAL, S3 = "/lake/orders", "s3://lake/orders"


@pytest.mark.parametrize(
    ("root", "raw", "expected"),
    [
        (LOCAL, "part-0.parquet", "/lake/orders/part-0.parquet"),
        (LOCAL + "/", "p=1/part-0.parquet", "/lake/orders/p=1/part-0.parquet"),
        (LOCAL, "p=a%20b/x", "/lake/orders/p=a b/x"),
        (LOCAL, "p=08%253A09/x", "/lake/orders/p=08%3A09/x"),
        (LOCAL, "p=%C3%A9/a+b", "/lake/orders/p=é/a+b"),
        (LOCAL, "p=é/x#y?z", "/lake/orders/p=é/x#y?z"),
        (LOCAL, "/lake/orders/x%20y", "/lake/orders/x y"),
        (LOCAL, "file:/lake/orders/x%20y", "/lake/orders/x y"),
        (LOCAL, "file:///lake/orders/x", "/lake/orders/x"),
        (LOCAL, "FILE://localhost/lake//orders/x", "/lake/orders/x"),
        (LOCAL, "s3a://lake/source/x%20y", "s3://lake/source/x y"),
        (S3, "p=1/x", "s3://lake/orders/p=1/x"),
        ("s3a://lake", "x", "s3://lake/x"),
        (S3, "s3n://lake/orders/x", "s3://lake/orders/x"),
        (S3, "/lake/x", "/lake/x"),
        ("abfss://c@account.dfs/t", "abfs://c@account.dfs/t/x", "abfss://c@account.dfs/t/x"),
    ],
)
def test_what_a_path_points_at(root: str, raw: str, expected: str) -> None:
    assert resolve(root, raw) == expected


INSIDE = [
    (LOCAL, "x.parquet"),
    (LOCAL, "p=1/x"),
    (LOCAL, "./x"),
    (LOCAL, "a..b/x..parquet"),
    (LOCAL, "...hidden/x"),
    (LOCAL, "%252e%252e/x"),
    (LOCAL, "a\\..\\..\\b"),
    (LOCAL, "p=08%3A09/x"),
    (LOCAL, "/lake/orders/x"),
    (LOCAL, "file:/lake/orders/x"),
    (LOCAL, "file:///lake/orders/p=1/x"),
    (LOCAL, "//lake///orders//x"),
    ("/", "/anything"),
    (S3, "x"),
    (S3, "s3a://lake/orders/x"),
]
OUTSIDE = [
    (LOCAL, "../x"),
    (LOCAL, "a/../../x"),
    (LOCAL, "a/../b"),
    (LOCAL, ".."),
    (LOCAL, "%2e%2e/x"),
    (LOCAL, "%2E./x"),
    (LOCAL, "a%2f..%2f..%2fx"),
    (LOCAL, "%2fetc/passwd"),
    (LOCAL, "/etc/passwd"),
    (LOCAL, "/lake/orders2/x"),
    (LOCAL, "/lake/orders"),
    (LOCAL, "/lake/orders/"),
    (LOCAL, "/lake/orders/../secret/x"),
    (LOCAL, "file:/lake/other/x"),
    (LOCAL, "file:///lake/orders/%2e%2e/x"),
    (LOCAL, "file://server/lake/orders/x"),
    (LOCAL, "s3://lake/orders/x"),
    (LOCAL, "http://lake/orders/x"),
    (LOCAL, "C:\\x"),
    (LOCAL, "part:0.parquet"),
    (LOCAL, ""),
    (LOCAL, "."),
    (LOCAL, "./."),
    (LOCAL, "a%00b"),
    (S3, "../x"),
    (S3, "/lake/orders/x"),
    (S3, "s3://other/orders/x"),
    (S3, "s3://lake/orders2/x"),
    (S3, "gs://lake/orders/x"),
]


@pytest.mark.parametrize(("root", "raw"), INSIDE)
def test_paths_that_stay_in_the_table(root: str, raw: str) -> None:
    check_inside(root, raw, "orders")


@pytest.mark.parametrize(("root", "raw"), OUTSIDE)
def test_paths_that_leave_the_table(root: str, raw: str) -> None:
    with pytest.raises(UnsafePath, match=r"^orders: the log names the file "):
        check_inside(root, raw, "orders")

    assert suspicious(pa.array([raw])).to_pylist() == [True]


def test_the_error_says_what_was_not_done_and_how_to_allow_it() -> None:
    with pytest.raises(UnsafePath) as caught:
        check_inside(LOCAL, "file:/lake/source/x%20y", "sales.orders")

    assert str(caught.value) == (
        "sales.orders: the log names the file 'file:/lake/source/x%20y', which leaves the table's folder: it "
        "stands for '/lake/source/x y'. Nothing was adopted or committed. If its place is meant, as in a "
        "shallow clone, allow the folder that holds it: allow_paths=['…']"
    )


@pytest.mark.parametrize("allowed", ["/lake/source", "file:///lake/source/", "/lake"])
def test_a_shallow_clone_may_point_into_its_source(allowed: str) -> None:
    check_inside("/lake/clone", "file:/lake/source/p=1/x", "clone", [allowed])


@pytest.mark.parametrize(
    "raw", ["file:/lake/source2/x", "/lake/source/../x", "../source/x", "s3://lake/source/x"]
)
def test_an_allowed_root_allows_no_more_than_itself(raw: str) -> None:
    assert not is_inside("/lake/clone", raw, ["/lake/source"])


pieces = st.sampled_from(
    ["..", ".", "/", "//", "a", "b=1", "%2e", "%2E", "%2f", "%25", "%00", "\\", ":", "file:", " "]
)


@given(st.lists(pieces, max_size=7).map("".join) | st.text(max_size=8))
def test_what_is_not_suspicious_is_inside(raw: str) -> None:
    try:
        marked = suspicious(pa.array([raw])).to_pylist() == [True]
    except UnicodeEncodeError:
        return

    assert marked or is_inside(LOCAL, raw)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12))
def test_an_encoded_name_points_at_that_name(name: str) -> None:
    assert resolve(LOCAL, quote(name, safe="")) == (name if name.startswith("/") else f"{LOCAL}/{name}")


def test_null_is_suspicious() -> None:
    assert suspicious(pa.array([None, "x"], pa.string())).to_pylist() == [True, False]


def test_a_million_paths_are_checked_in_little_time() -> None:
    paths = pa.array([f"month={n % 12}/part-{n:08d}-c000.snappy.parquet" for n in range(1_000_000)])
    started = time.perf_counter()

    marked = pc.any(suspicious(paths)).as_py()

    assert marked is False
    assert time.perf_counter() - started < 3


@needs_golden
def test_paths_of_golden_tables_are_suspicious_only_where_they_are_absolute() -> None:
    absolute = set()
    for table in golden_tables("readable", "log_only"):
        paths = [file["path"] for file in table.expected_files()]
        marked = suspicious(pa.array(paths, pa.string())).to_pylist()
        if any(marked):
            absolute.add(table.name)
        assert all(is_inside(LOCAL, path) for path, mark in zip(paths, marked, strict=True) if not mark)

    with_tag = {
        table.name for table in golden_tables("readable", "log_only") if "absolute_path" in table.exercises
    }
    assert absolute <= with_tag
