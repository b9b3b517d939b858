"""Waits end on time, with a clock and a sleep of the test."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.engine.net.clock import MAX_MARGIN_S, MIN_MARGIN_S, Waiter

LOOK_S = 2e-6  # of a reading of the clock


class Host:
    """A host with sleeps that end late by `lates_s` in turn."""

    def __init__(self, lates_s: list[float]) -> None:
        self.time_s = 100.0
        self.lates_s = lates_s
        self.slept = 0

    def now(self) -> float:
        self.time_s += LOOK_S
        return self.time_s

    def sleep(self, time_s: float) -> None:
        self.time_s += time_s + self.lates_s[self.slept % len(self.lates_s)]
        self.slept += 1

    def let_others(self) -> None:
        self.time_s += LOOK_S

    def waited_s(self, waiter: Waiter, time_s: float) -> float:
        """Wait once; return its lateness."""
        due_s = self.time_s + time_s
        waiter.until(due_s)
        return self.time_s - due_s


lates = st.lists(st.floats(0, 5e-3), min_size=1, max_size=5)


@given(lates, st.lists(st.floats(0, 0.05), min_size=1, max_size=30))
def test_a_wait_ends_neither_early_nor_too_late(lates_s: list[float], times_s: list[float]) -> None:
    host = Host(lates_s)
    waiter = Waiter(host.now, host.sleep, host.let_others)
    for time_s in times_s:
        late_s = host.waited_s(waiter, time_s)
        assert 0 <= late_s <= max(lates_s) + 3 * LOOK_S
        assert MIN_MARGIN_S <= waiter.margin.s <= MAX_MARGIN_S


@pytest.mark.parametrize("late_s", [0.0, 60e-6, 150e-6, 400e-6])
def test_late_sleeps_are_compensated_from_the_second_on(late_s: float) -> None:
    host = Host([late_s])
    waiter = Waiter(host.now, host.sleep, host.let_others)
    errors_s = [host.waited_s(waiter, 0.01) for _ in range(200)]
    assert max(errors_s[1:]) <= 3 * LOOK_S
    assert waiter.margin.s <= max(late_s, MIN_MARGIN_S) * 1.1, "it looks at the clock for no longer than it has to"


def test_a_past_time_is_not_waited_for() -> None:
    host = Host([1.0])
    Waiter(host.now, host.sleep, host.let_others).until(99.0)
    assert host.slept == 0
