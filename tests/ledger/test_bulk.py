"""The collector rests while very many objects come to exist, and only then."""

from __future__ import annotations

import gc
import threading

import pytest

from deltaplane.ledger.bulk import without_collections


def test_the_collector_rests_inside_and_goes_on_behind() -> None:
    assert gc.isenabled()
    with without_collections(), without_collections():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_small_work_leaves_it_alone() -> None:
    with without_collections(False):
        assert gc.isenabled()


def test_it_goes_on_after_an_exception() -> None:
    with pytest.raises(KeyError), without_collections():
        raise KeyError
    assert gc.isenabled()


def test_the_last_of_several_threads_lets_it_go_on() -> None:
    inside, leave = threading.Event(), threading.Event()

    def work() -> None:
        with without_collections():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(10)
    with without_collections():
        pass
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_whoever_has_switched_it_off_finds_it_so() -> None:
    gc.disable()
    try:
        with without_collections():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
