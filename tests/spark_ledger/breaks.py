"""Takes one of the fixes out, to see that the tests which guard it can fail.

`make test-breaks` runs every break in a process of its own, with the tests that must fail then. As a plugin
of pytest this module breaks what DELTAPLANE_BREAK names.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
_SECONDS = 400


@dataclass(frozen=True)
class Break:
    """One fix that is taken out.

    Attributes:
        hole: The hole that opens, as the tests name it.
        tests: The tests that must fail, as module and name; in some variant each.
        take_out: Takes the fix out.
    """

    hole: str
    tests: tuple[str, ...]
    take_out: Callable[[], None]


def java(name: str, old: str, new: str) -> Callable[[], None]:
    """Other text in one of the Java classes."""

    def take_out() -> None:
        from deltaplane.spark import compiling

        original = compiling.java_source

        def changed(asked: str) -> str:
            text = original(asked)
            if asked == name:
                assert old in text, f"{name}.java does not hold {old!r} any more"
                return text.replace(old, new)
            return text

        compiling.java_source = changed

    return take_out


def python(module: str, name: str, other: Callable[[Any], Any]) -> Callable[[], None]:
    """Something else in the place of a function or a method; `other` is given the original."""

    def take_out() -> None:
        owner: Any = __import__(module, fromlist=["_"])
        *path, last = name.split(".")
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, last, other(getattr(owner, last)))

    return take_out


def _keeps_the_version(_: Any) -> Any:
    return lambda version, later, moment: version


def _does_nothing(_: Any) -> Any:
    return lambda *args, **kwargs: None


def _refuses_only(outside: bool) -> Callable[[Any], Any]:
    def other(check: Any) -> Any:
        return lambda ctx, statement, root, seen: (
            check(ctx, statement, root, seen) if (seen is None) == outside else None
        )

    return other


def _forgets_unknown_views(look: Any) -> Any:
    def outside(self: Any, log: str, writes: int, view: str | None, query: str | None, early: bool) -> Any:
        return look(self, log, writes, view if view in self.views else None, query, early)

    return outside


def _one_at_a_time(method: Any) -> Any:
    def guarded(self: Any, *args: Any) -> Any:
        with _ALL:
            return method(self, *args)

    return guarded


_ALL = threading.RLock()


def _waits_for_everybody() -> None:
    for name in ("look", "commit", "find"):
        python("deltaplane.spark.port", f"LedgerPort.{name}", _one_at_a_time)()


def _tells_of_lost_races(stage: Any) -> Any:
    def other(self: Any, seen: Any, log: str, root: str, new: Any) -> None:
        from deltaplane.errors import CommitConflict

        head = self.ctx.find_location(root)
        if head is not None and head.head_version >= new.version:
            raise CommitConflict(root, new.version, "somebody else", "")
        stage(self, seen, log, root, new)

    return other


def _ignores_queries(check_alive: Any) -> Any:
    return lambda self, query: check_alive(self, self.query)


def _pins_on_first_use(listing: Any) -> Any:
    def other(self: Any, seen: Any, root: str, log: str) -> Any:
        if root in seen.pins and root not in seen.checked:
            seen.pins = {**seen.pins, root: self.ctx.find_location(root)}
        return listing(self, seen, root, log)

    return other


def _goes_behind_everybody(_: Any) -> Any:
    return lambda staged, head, own, winners, fixed_reason: head + 1 + own


def _clears_away_at_once(leave: Any) -> Any:
    def other(spark: Any, attachment: Any, view: Any) -> None:
        leave(spark, attachment, view)
        for commits in getattr(view, "staged", {}).values():
            for staged in commits:
                Path(staged.file.removeprefix("file:")).unlink()

    return other


def _asks_for_nothing_read(request: Any) -> Any:
    return lambda self: replace(request(self), read=())


class _WithoutJars:
    """A context of Spark that hands no jar to its executors."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def sc(self) -> Any:
        return _WithoutJars(self._context.sc())

    def addJar(self, _: str) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def _keeps_classes_in_the_driver(load_sources: Any) -> Any:
    def other(spark: Any, sources: Any) -> None:
        context = spark.sparkContext
        real, context._jsc = context._jsc, _WithoutJars(context._jsc)
        try:
            load_sources(spark, sources)
        finally:
            context._jsc = real

    return other


_PORT = "deltaplane.spark.port"
BREAKS: dict[str, Break] = {
    "one cache for all views": Break(
        "H1",
        (
            "test_holes_snapshots::test_two_transactions_at_the_same_version_do_not_see_each_other",
            "test_isolation::test_dirty_read",
        ),
        java("ViewCache", "view == null ? NO_VIEW : view", "NO_VIEW"),
    ),
    "Delta writes checkpoints": Break(
        "H1",
        ("test_outside::test_no_file_of_the_log_tells_of_a_version_that_is_not_ratified",),
        java("LedgerLogStore", 'port() != null && isCalledBy("Checkpoints")', "false"),
    ),
    "checksums inside": Break(
        "H2",
        ("test_holes_snapshots::test_a_rolled_back_alter_leaves_no_checksum",),
        java("LedgerLogStore", "if (view != null) writeNoChecksums(view);", ""),
    ),
    "checksums above the pin": Break(
        "H2",
        ("test_holes_snapshots::test_a_checksum_above_the_pin_is_not_read",),
        java("LedgerLogStore", "version(path.getName()) > pin(seen)", "false"),
    ),
    "Spark's own cache": Break(
        "H3",
        (
            "test_holes_caching::test_what_was_cached_before_is_not_used_inside_and_stays_clean_outside",
            "test_holes_caching::test_what_was_marked_before_is_not_computed_inside",
            "test_holes_caching::test_nothing_is_cached_inside",
        ),
        java("LedgerCacheManager", "return LedgerLogStore.view() != null;", "return false;"),
    ),
    "tables that are cached by name": Break(
        "H3",
        ("test_holes_caching::test_a_table_that_is_cached_by_its_name_is_written_inside",),
        java("LedgerCacheManager", "if (!inView()) super.recacheTableOrView", "super.recacheTableOrView"),
    ),
    "what is cached stays old": Break(
        "H3",
        ("test_holes_caching::test_what_was_cached_before_is_computed_anew_after_the_commit",),
        python("deltaplane.spark.transacting", "SparkTransaction._refresh_cached", _does_nothing),
    ),
    "staging tells of lost races": Break(
        "H4",
        ("test_holes_snapshots::test_a_write_below_newer_versions_does_not_spin",),
        python(_PORT, "LedgerPort._stage", _tells_of_lost_races),
    ),
    "tasks do not find version 0": Break(
        "H5",
        ("test_holes_creation::test_a_table_made_in_a_transaction_is_there_for_everybody_after_it",),
        java("LedgerFileSystem", "first != null && exists(first)", "false"),
    ),
    "tables that others dropped": Break(
        "departures",
        (
            "test_holes_creation::test_a_table_that_others_drop_or_make_anew_during_a_transaction_is_a_conflict",
        ),
        python("deltaplane.spark.transacting", "departed", _does_nothing),
    ),
    "tables that were only read": Break(
        "departures",
        (
            "test_holes_creation::test_a_table_that_others_drop_or_make_anew_during_a_transaction_is_a_conflict",
        ),
        python("deltaplane.spark.transacting", "SparkTransaction._request", _asks_for_nothing_read),
    ),
    "tables that were made anew are read": Break(
        "departures",
        ("test_holes_creation::test_nothing_of_a_table_that_others_made_anew_is_read_or_written",),
        python("deltaplane.spark.pins", "_still_there", _does_nothing),
    ),
    "outside writers of before the begin": Break(
        "departures",
        (
            "test_outside_writers::test_what_was_in_the_log_when_a_transaction_began_is_seen_and_can_be_built_on",
        ),
        python("deltaplane.spark.pins", "with_outsiders", _keeps_the_version),
    ),
    "names are not in the ledger": Break(
        "names",
        ("test_names::test_a_table_that_spark_creates_has_its_name_in_the_ledger",),
        python("deltaplane.spark.ledger_names", "TableNames.wish", _does_nothing),
    ),
    "names are not resolved": Break(
        "names",
        ("test_names::test_sql_and_dataframes_find_a_table_by_the_name_in_the_ledger",),
        python("deltaplane.spark.ledger_names", "TableNames.location", _does_nothing),
    ),
    "names stay": Break(
        "H5",
        ("test_holes_creation::test_a_table_made_in_a_rolled_back_transaction_leaves_no_name_and_no_files",),
        python("deltaplane.spark.transacting", "take_back_names", _does_nothing),
    ),
    "streams inside": Break(
        "H6",
        ("test_holes_threads::test_a_stream_started_inside_is_refused_and_loses_no_rows_later",),
        python("deltaplane.spark.views", "View.check_alive", _ignores_queries),
    ),
    "unmanaged tables": Break(
        "H7",
        ("test_holes_threads::test_a_table_that_is_not_managed_is_read_inside_and_not_written",),
        python(_PORT, "LedgerPort._unmanaged", _does_nothing),
    ),
    "threads that share one of Java": Break(
        "H7",
        ("test_holes_threads::test_threads_that_share_one_of_java_are_refused",),
        python("deltaplane.spark.attaching", "_require_driver", _does_nothing),
    ),
    "functions are not bound": Break(
        "H7",
        ("test_holes_threads::test_bound_functions_and_threads_of_spark_take_part",),
        python("deltaplane.spark.transacting", "SparkTransaction.bind", lambda _: lambda self, fn: fn),
    ),
    "classes stay in the driver": Break(
        "H8",
        (
            "test_cluster::test_history_vacuum_and_manifests_work_on_executors",
            "test_cluster::test_a_whole_transaction_works_on_executors",
        ),
        python("deltaplane.spark.compiling", "load_sources", _keeps_classes_in_the_driver),
    ),
    "VACUUM and DROP inside": Break(
        "H9",
        ("test_holes_ends::test_what_no_rollback_brings_back_is_refused_inside_and_nothing_is_gone",),
        python(_PORT, "check_statement", _refuses_only(outside=True)),
    ),
    "VACUUM beside": Break(
        "H9",
        ("test_holes_ends::test_vacuum_waits_for_open_transactions_that_have_files_in_the_table",),
        python(_PORT, "check_statement", _refuses_only(outside=False)),
    ),
    "failures behind staging": Break(
        "H10",
        ("test_holes_ends::test_a_statement_that_fails_behind_its_commit_dooms_the_transaction",),
        python("deltaplane.spark.views", "TransactionView.uncollected", _does_nothing),
    ),
    "new file systems": Break(
        "H10",
        ("test_holes_ends::test_closing_all_file_systems_leaves_transactions_working",),
        java("FileSystems", 'conf.set("fs." + scheme + ".impl", className);', ""),
    ),
    "pins behind a cleanup": Break(
        "H11",
        ("test_read_points::test_a_point_that_the_log_no_longer_holds_has_expired",),
        python("deltaplane.spark.pins", "_check_log", _does_nothing),
    ),
    "tables newer than the pin": Break(
        "H11",
        (
            "test_read_points::test_tables_that_are_newer_than_the_point_or_the_transaction_are_refused_by_name",
        ),
        python(_PORT, "LedgerPort._unmanaged", _does_nothing),
    ),
    "staged files go at once": Break(
        "H12",
        ("test_holes_ends::test_a_dataframe_held_over_the_end_reads_what_is_committed_by_then",),
        python("deltaplane.spark.transacting", "leave", _clears_away_at_once),
    ),
    "logs of ended views": Break(
        "H12",
        (
            "test_holes_caching::test_a_frame_of_a_transaction_that_is_cached_after_its_end_serves_nothing_of_it",
        ),
        java("ViewCache", "for (int i = 0; i < logs.length; i++) {", "for (int i = 0; i < 0; i++) {"),
    ),
    "times in commits": Break(
        "H13",
        ("test_transactions::test_appends_do_not_move_where_their_bytes_would_have_to_change",),
        python("deltaplane.ledger.commit", "fixed_reason", _does_nothing),
    ),
    "one answer at a time": Break(
        "H14",
        ("test_holes_ends::test_a_commit_that_waits_for_the_database_keeps_no_reader_waiting",),
        _waits_for_everybody,
    ),
    "a view remembers nothing": Break(
        "H15",
        ("test_holes_speed::test_statements_inside_run_no_more_jobs_than_outside",),
        java(
            "ViewCache",
            "    return cache().get(key, loader);",
            "    if (LedgerLogStore.view() != null) invalidateAll();\n    return cache().get(key, loader);",
        ),
    ),
    "a view that ends takes all logs along": Break(
        "H15",
        ("test_holes_speed::test_the_end_of_a_transaction_leaves_the_logs_of_others_cached",),
        java("ViewCache", "views.remove(view);", "views.remove(view);\n    views.clear();"),
    ),
    "unknown views": Break(
        "H16",
        ("test_holes_ends::test_a_stale_id_is_refused_and_never_means_no_transaction",),
        python(_PORT, "LedgerPort.look", _forgets_unknown_views),
    ),
    "Delta's own pool": Break(
        "H16",
        ("test_holes_snapshots::test_updates_in_deltas_own_pool_keep_to_the_view_that_asked_for_them",),
        java("ViewCache", "    useForwardingPool();\n    return cache;", "    return cache;"),
    ),
    "listings are not cut": Break(
        "isolation",
        ("test_isolation::test_nonrepeatable_read", "test_isolation::test_phantom"),
        java("LedgerLogStore", "if (newest(file.getPath().getName()) <= pin) found.add", "found.add"),
    ),
    "the last committer wins": Break(
        "isolation",
        ("test_isolation::test_lost_update", "test_transactions::test_a_conflict_names_the_table"),
        python("deltaplane.ledger.commit", "place", _goes_behind_everybody),
    ),
    "tables are pinned on first use": Break(
        "isolation",
        ("test_isolation::test_torn_read_over_two_tables",),
        python(_PORT, "LedgerPort._listing", _pins_on_first_use),
    ),
    "unpublished versions are not waited for": Break(
        "isolation",
        ("test_isolation::test_torn_read_between_the_publications_of_two_tables",),
        python(_PORT, "publish_pending", _does_nothing),
    ),
}


def pytest_configure() -> None:
    """As a plugin, and in drivers that tests start: take out what the environment names."""
    named = os.environ.get("DELTAPLANE_BREAK")
    if named:
        BREAKS[named].take_out()


def survivors(name: str) -> list[str]:
    """The tests that pass although a fix is taken out."""
    broken = BREAKS[name]
    modules = sorted({str(TESTS / f"{test.split('::')[0]}.py") for test in broken.tests})
    names = " or ".join(test.split("::")[1] for test in broken.tests)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "--tb=line", "-p", "spark_ledger.breaks"),
            *("-p", "no:cacheprovider", *modules, "-k", f"({names}) and not postgres"),
        ],
        env={**os.environ, "DELTAPLANE_BREAK": name, "PYTHONPATH": str(TESTS.parent)},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if not re.search(r"\d+ (failed|error|passed)", done.stdout):
        raise RuntimeError(f"{name}: no test ran\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    fallen = re.findall(r"^(?:FAILED|ERROR) \S+?::(\w+)", done.stdout, re.MULTILINE)
    return [test for test in broken.tests if not any(test.split("::")[1] in one for one in fallen)]


def main(wanted: list[str]) -> int:
    """Run the breaks, all of them or those whose hole or name is given."""
    standing = 0
    for name, broken in BREAKS.items():
        if wanted and name not in wanted and broken.hole not in wanted:
            continue
        passed = survivors(name)
        standing += len(passed)
        told = "fails as it must" if not passed else f"PASSES: {', '.join(passed)}"
        print(f"{broken.hole:9}  {name}: {told}", flush=True)
    return 1 if standing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
