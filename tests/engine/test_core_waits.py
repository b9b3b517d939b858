"""The kernel's count of waits for a core, read per thread."""

import gc
import os
import threading
import time

import pytest

from engine.net.core_waits import CoreWaits, OwnCoreWaits, all_threads


def test_the_first_reading_is_nothing_and_no_wait_is_counted_twice() -> None:
    waits = OwnCoreWaits()
    assert waits.since_last_s() == 0.0
    total_s = sum(waits.since_last_s() for _ in range(100))
    again_s = waits.since_last_s()
    assert total_s >= 0.0
    assert 0.0 <= again_s < 10.0


def test_threads_that_compete_for_the_interpreter_wait_no_longer_than_time_passes() -> None:
    waits, began_s = OwnCoreWaits(), time.monotonic()
    waits.since_last_s()
    others = [threading.Thread(target=lambda: sum(range(200_000))) for _ in range(3)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert 0.0 <= waits.since_last_s() <= time.monotonic() - began_s + 0.01


def test_a_thread_that_the_kernel_does_not_know_waits_for_nothing() -> None:
    waits = CoreWaits(lambda: [2**30])
    assert waits.since_last_s() == waits.since_last_s() == 0.0


def test_a_thread_that_was_switched_away_has_its_waits_counted_as_the_kernel_counts_them() -> None:
    """Read by what it was switched, and by the file alone."""
    own, told = OwnCoreWaits(), CoreWaits(lambda: [threading.get_native_id()])
    own.since_last_s(), told.since_last_s()
    others = [threading.Thread(target=lambda: sum(range(300_000))) for _ in range(3)]
    for other in others:
        other.start()
    own_s = told_s = 0.0
    for _ in range(50):
        time.sleep(0.001)  # it is switched away
        told_s += told.since_last_s()
        own_s += own.since_last_s()
    for other in others:
        other.join()
    assert abs(own_s + own.since_last_s() - told_s - told.since_last_s()) < 0.005


def test_a_thread_that_was_not_switched_away_was_held_up_by_nothing_and_others_no_longer_than_off_their_core() -> None:
    own, told = OwnCoreWaits(), CoreWaits(lambda: [threading.get_native_id()])
    for _ in range(50):
        own.begin()
        began_s = time.monotonic()
        assert own.held_up_s() <= time.monotonic() - began_s
    others = [threading.Thread(target=lambda: sum(range(300_000))) for _ in range(3)]
    for other in others:
        other.start()
    for _ in range(50):
        own.since_last_s()
        own.begin()
        told.since_last_s()
        time.sleep(0.001)
        held_s, waited_s = own.held_up_s(), told.since_last_s()
        assert held_s <= waited_s + 0.005
    for other in others:
        other.join()


def test_files_of_the_kernel_are_closed_with_who_read_them() -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    gc.collect()
    before = open_files()
    for _ in range(5):
        waits = CoreWaits(all_threads)
        waits.since_last_s()
        assert open_files() > before
        del waits
    assert open_files() == before


def test_a_core_that_is_lost_where_the_first_clock_is_asked_is_waited_for_since_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kernel gives it to others at the first call into it after a long computation."""
    own, lost_s = OwnCoreWaits(), 0.002
    monkeypatch.setattr(own, "since_last_s", iter([lost_s, 0.0, 0.0]).__next__)

    def cpu_s() -> float:
        time.sleep(lost_s)
        return thread_time()

    thread_time = time.thread_time
    with monkeypatch.context() as losing:
        losing.setattr("engine.net.core_waits.time.thread_time", cpu_s)
        own.begin()
    assert own.held_up_s() == lost_s
    assert own.held_up_s() == lost_s  # however often it is asked
