"""The control computation: taken seldom enough to cost little, and often enough to tell a host's pace."""

import itertools
import math
from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calibrate.steps import Stopwatch
from engine.node import control
from engine.node.control import EVERY_S, Control, timing_of
from fleet.times.pace import WINDOW_S, pace_of

CONTROL_S = 3e-5  # at the reference pace
step_times = st.lists(st.floats(1e-4, 0.4), min_size=1, max_size=200)


class Host:
    """A host whose clock is a number. `slow_from_s`: from when on it is at half its pace; `steps_s`: at full pace."""

    def __init__(self, slow_from_s: float = math.inf) -> None:
        self.time_s = 0.0
        self.slow_from_s = slow_from_s

    def pace(self) -> float:
        return 2.0 if self.time_s >= self.slow_from_s else 1.0

    def controls_s(self, steps_s: list[float], every_s: float = EVERY_S) -> list[tuple[float, float]]:
        """The end of each step in turn, and the control that was taken then, 0 for none."""
        due, taken = Control(every_s), []
        with patch.object(control, "now_s", lambda: self.time_s), patch.object(due, "seconds", self._compute):
            for step_s in steps_s:
                self.time_s += step_s * self.pace()
                taken.append((self.time_s, due.after_step_s()))
        return taken

    def _compute(self) -> float:
        self.time_s += 2 * CONTROL_S * self.pace()  # with what is touched before
        return CONTROL_S * self.pace()


@given(step_times)
def test_between_two_controls_lies_their_distance_and_never_more_than_a_step_beyond_it(steps_s: list[float]) -> None:
    times_s = [ended_s for ended_s, control_s in Host().controls_s(steps_s) if control_s]
    assert times_s[0] == pytest.approx(steps_s[0])
    longest_s = EVERY_S + max(steps_s) + 1e-3
    assert all(EVERY_S <= later - sooner <= longest_s for sooner, later in itertools.pairwise(times_s))


@given(step_times)
def test_where_each_step_is_judged_each_has_a_control(steps_s: list[float]) -> None:
    assert all(control_s for _, control_s in Host().controls_s(steps_s, every_s=0.0))


@given(step_times, st.integers(1, 5))
def test_a_host_at_half_pace_from_some_second_on_is_seen_in_that_second(steps_s: list[float], second: int) -> None:
    steps_s = steps_s * math.ceil((second + 3) * WINDOW_S / sum(steps_s))
    taken = [each for each in Host(second * WINDOW_S).controls_s(steps_s) if each[1]]
    slowness = pace_of(*map(list, zip(*taken, strict=True)), CONTROL_S).slowness
    assert slowness[:second] == pytest.approx([1.0] * second)
    assert slowness[second:] == pytest.approx([2.0] * (len(slowness) - second))


@given(step_times)
def test_controls_cost_a_drafter_little_however_short_its_drafts(steps_s: list[float]) -> None:
    host = Host()
    host.controls_s(steps_s)
    assert host.time_s - sum(steps_s) <= 2 * CONTROL_S * (1 + host.time_s / EVERY_S)


def test_a_node_takes_its_first_control_after_its_first_step_and_none_right_after_it() -> None:
    timing = timing_of(torch.device("cpu"))
    with patch.object(control, "now_s", map(float, itertools.count()).__next__):  # a second passes at each look
        assert timing.control_s() > 0.0
    with patch.object(control, "now_s", lambda: 0.0):
        assert timing.control_s() == 0.0


def test_a_stopwatch_tells_the_pace_of_steps_that_are_shorter_than_the_distance_of_controls() -> None:
    stopwatch = Stopwatch(torch.device("cpu"), reference_s=1e-9)
    for _ in range(3):  # the second and the third time none is due
        stopwatch.times_s(lambda: None, 2)
        assert stopwatch.slowness() > 1.0
