from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from deltaplane.errors import UnsupportedTable
from deltaplane.log.actions import Metadata, Protocol
from deltaplane.log.properties import (
    DataSkipping,
    append_only,
    change_feed_enabled,
    checkpoint_interval,
    checkpoint_policy,
    checkpoint_protected_before,
    checkpoint_stats_as_json,
    checkpoint_stats_as_struct,
    column_mapping_mode,
    data_skipping,
    deleted_file_retention_ms,
    expired_log_cleanup_enabled,
    in_commit_timestamps_enabled,
    log_retention_ms,
    parse_interval_ms,
    row_tracking_enabled,
    row_tracking_supported,
    row_tracking_suspended,
    set_transaction_retention_ms,
)

DAY = 86_400_000
LEGACY = Protocol(1, 2)


def table(**properties: str) -> Metadata:
    return Metadata(
        "id",
        "{}",
        "orders",
        configuration={f"delta.{key.replace('__', '.')}": v for key, v in properties.items()},
    )


def named(*features: str) -> Protocol:
    return Protocol(1, 7, None, features)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval 30 days", 30 * DAY),
        ("interval 1 week", 7 * DAY),
        ("2 weeks", 14 * DAY),
        ("INTERVAL 1 Day", DAY),
        ("  interval   3   hours  ", 10_800_000),
        ("interval 1 day 12 hours 30 minutes", DAY + 45_000_000),
        ("interval 90 seconds", 90_000),
        ("1.5 seconds", 1_500),
        ("2. seconds", 2_000),
        ("250 milliseconds", 250),
        ("1999 microseconds", 1),
        ("interval 2 days -1 hour", 2 * DAY - 3_600_000),
        ("interval + 1 day", DAY),
        ("interval 0 days", 0),
    ],
)
def test_intervals_as_spark_writes_them(text: str, expected: int) -> None:
    assert parse_interval_ms(text) == expected


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "it is empty"),
        ("interval ", "not understood"),
        ("interval", "not understood"),
        ("interval 30", "not understood from '30' on"),
        ("interval days", "not understood"),
        ("interval 1 month", "months and years have no fixed length"),
        ("1 year", "months and years have no fixed length"),
        ("interval 1 fortnight", "an unknown unit"),
        ("1.5 days", "only seconds may have a fraction"),
        ("interval -1 days", "it is negative"),
        ("30days", "not understood"),
        ("interval 1 day and more", "not understood from 'and more' on"),
    ],
)
def test_texts_that_are_no_interval(text: str, cause: str) -> None:
    with pytest.raises(ValueError, match=cause):
        parse_interval_ms(text)


@pytest.mark.parametrize(
    ("function", "key", "default", "value", "expected"),
    [
        (checkpoint_interval, "checkpointInterval", 10, "2", 2),
        (log_retention_ms, "logRetentionDuration", 30 * DAY, "interval 1 day", DAY),
        (deleted_file_retention_ms, "deletedFileRetentionDuration", 7 * DAY, "0 days", 0),
        (set_transaction_retention_ms, "setTransactionRetentionDuration", None, "interval 2 days", 2 * DAY),
        (expired_log_cleanup_enabled, "enableExpiredLogCleanup", True, "false", False),
        (checkpoint_stats_as_json, "checkpoint__writeStatsAsJson", True, "FALSE", False),
        (checkpoint_stats_as_struct, "checkpoint__writeStatsAsStruct", True, "false", False),
        (row_tracking_suspended, "rowTrackingSuspended", False, "true", True),
        (data_skipping, "dataSkippingNumIndexedCols", DataSkipping(32), "-1", DataSkipping(-1)),
    ],
)
def test_a_property_and_its_default(
    function: Callable[[Metadata], Any], key: str, default: Any, value: str, expected: Any
) -> None:
    assert (function(table()), function(table(**{key: value}))) == (default, expected)


@pytest.mark.parametrize(
    ("function", "key", "value"),
    [
        (checkpoint_interval, "checkpointInterval", "0"),
        (checkpoint_interval, "checkpointInterval", "ten"),
        (checkpoint_interval, "checkpointInterval", "1" * 40),
        (log_retention_ms, "logRetentionDuration", "for ever"),
        (deleted_file_retention_ms, "deletedFileRetentionDuration", "interval 1 month"),
        (set_transaction_retention_ms, "setTransactionRetentionDuration", ""),
        (expired_log_cleanup_enabled, "enableExpiredLogCleanup", "yes"),
        (data_skipping, "dataSkippingNumIndexedCols", "-2"),
        (data_skipping, "dataSkippingStatsColumns", "a..b"),
        (data_skipping, "dataSkippingStatsColumns", "a,"),
        (data_skipping, "dataSkippingStatsColumns", "a b"),
    ],
)
def test_a_value_that_cannot_be_understood_is_an_error_and_not_the_default(
    function: Callable[[Metadata], Any], key: str, value: str
) -> None:
    with pytest.raises(UnsupportedTable, match=f"^orders: the property delta.{key} is '") as caught:
        function(table(**{key: value}))

    assert caught.value.features == (f"delta.{key}",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("a", (("a",),)),
        ("a, s.b ,`odd, name`.`tick``ed`", (("a",), ("s", "b"), ("odd, name", "tick`ed"))),
    ],
)
def test_columns_with_statistics_by_name(text: str, expected: tuple[tuple[str, ...], ...]) -> None:
    assert data_skipping(table(dataSkippingStatsColumns=text)) == DataSkipping(32, expected)


@pytest.mark.parametrize(
    ("function", "key", "feature"),
    [
        (in_commit_timestamps_enabled, "enableInCommitTimestamps", "inCommitTimestamp"),
        (row_tracking_enabled, "enableRowTracking", "rowTracking"),
        (append_only, "appendOnly", "appendOnly"),
        (change_feed_enabled, "enableChangeDataFeed", "changeDataFeed"),
        (change_feed_enabled, "enableChangeDataCapture", "changeDataFeed"),
    ],
)
def test_a_switch_needs_both_the_property_and_the_feature(
    function: Callable[[Protocol, Metadata], bool], key: str, feature: str
) -> None:
    on, off = table(**{key: "true"}), table(**{key: "false"})

    assert [
        function(named(feature), on),
        function(named(feature), off),
        function(named(feature), table()),
    ] == [
        True,
        False,
        False,
    ]
    assert function(named(), on) is False


def test_an_old_protocol_implies_append_only() -> None:
    assert append_only(LEGACY, table(appendOnly="true")) is True
    assert append_only(Protocol(1, 1), table(appendOnly="true")) is False


def test_row_ids_are_due_as_soon_as_the_feature_is_there() -> None:
    assert (row_tracking_supported(named("rowTracking")), row_tracking_supported(LEGACY)) == (True, False)


@pytest.mark.parametrize(
    ("protocol", "value", "expected"),
    [
        (named("v2Checkpoint"), "v2", "v2"),
        (named("v2Checkpoint"), "classic", "classic"),
        (LEGACY, "v2", "classic"),
    ],
)
def test_v2_checkpoints_need_the_feature(protocol: Protocol, value: str, expected: str) -> None:
    assert checkpoint_policy(protocol, table(checkpointPolicy=value)) == expected


@pytest.mark.parametrize(
    ("protocol", "value", "expected"),
    [
        (Protocol(2, 5), "name", "name"),
        (Protocol(2, 5), "ID", "id"),
        (Protocol(2, 5), "none", "none"),
        (named("columnMapping"), "name", "name"),
        (LEGACY, "name", "none"),
    ],
)
def test_the_mode_of_column_mapping(protocol: Protocol, value: str, expected: str) -> None:
    assert column_mapping_mode(protocol, table(columnMapping__mode=value)) == expected


def test_the_protection_of_checkpoints() -> None:
    protected = table(requireCheckpointProtectionBeforeVersion="17")

    assert checkpoint_protected_before(named("checkpointProtection"), protected) == 17
    assert checkpoint_protected_before(named("checkpointProtection"), table()) == 0
    assert checkpoint_protected_before(LEGACY, protected) == 0
