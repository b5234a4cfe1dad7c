"""The context without the garbage collector."""

from __future__ import annotations

import gc
import threading

import pytest

from rl_training.core.garbage import without_collection


def test_the_collector_is_off_inside_and_as_it_was_behind() -> None:
    assert gc.isenabled()
    with pytest.raises(KeyError), without_collection():
        with without_collection():
            assert not gc.isenabled()
        assert not gc.isenabled(), "the outer context is still open"
        raise KeyError
    assert gc.isenabled()
    gc.disable()
    try:
        with without_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_thread_that_leaves_does_not_turn_it_on_for_another() -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with without_collection():
            entered.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    entered.wait(10)
    with without_collection():
        leave.set()
        thread.join()
        assert not gc.isenabled()
    assert gc.isenabled()
