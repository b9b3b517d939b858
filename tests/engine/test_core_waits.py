"""The kernel's count of waits for a core, read per thread."""

import threading
import time

from engine.runtime.core_waits import CoreWaits, this_thread


def test_the_first_reading_is_nothing_and_no_wait_is_counted_twice() -> None:
    waits = CoreWaits(this_thread)
    assert waits.since_last_s() == 0.0
    total_s = sum(waits.since_last_s() for _ in range(100))
    again_s = waits.since_last_s()
    assert total_s >= 0.0
    assert 0.0 <= again_s < 10.0


def test_threads_that_compete_for_the_interpreter_wait_no_longer_than_time_passes() -> None:
    waits, began_s = CoreWaits(this_thread), time.monotonic()
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
    waits.close()
