"""How fast a host was while a run went on: measured beside every step, played back by the simulator.

A shared host is not one machine but many: neighbours and clocks change its speed for seconds at a time. The engine
times a fixed control computation after each step, on the same core. Its slowness over time is the host's pace; it says
nothing of how the engine spends its time, so a simulation that plays it back is still a prediction. Besides steps, it
slows all that the host's processor does between them: turnaround, wake-up, handover, and the measured link, of which
the wire is the smaller part.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

WINDOW_S = 1.0  # spells last longer; a window holds enough controls for a mean good to a few per cent
INTERRUPTED = 3.0  # a control that took so many times the median was interrupted, and is no measure of pace


class HostPace(Protocol):
    """How slow a host is, relative to the pace that a profile's times refer to."""

    def at(self, time_s: float) -> float:
        """Slowness at a time since the run began."""


class Pace(msgspec.Struct, frozen=True):
    """Slowness over time: `slowness[i]` multiplies step times in window i of `window_s` seconds; the last holds on."""

    slowness: tuple[float, ...]
    window_s: float = WINDOW_S

    def at(self, time_s: float) -> float:
        """Slowness at a time since the run began."""
        return self.slowness[min(int(time_s / self.window_s), len(self.slowness) - 1)]


def typical_control_s(controls_s: Sequence[float] | NDArray[np.float64]) -> float:
    """Return the mean of control computations, but for interrupted ones: what every pace is made of.

    A mean, wherever controls are summed up: beside a neighbour they have two levels, and the mean of a run against the
    median of a calibration would pass for a slower host.
    """
    controls = np.asarray(controls_s, dtype=float)
    return float(controls[uninterrupted(controls)].mean())


def uninterrupted(controls_s: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which control computations say something of pace; same shape."""
    return np.asarray(controls_s < INTERRUPTED * np.median(controls_s))


def pace_of(times_s: Sequence[float], controls_s: Sequence[float], reference_s: float) -> Pace:
    """Return the pace from controls taken at `times_s`, relative to a control of `reference_s`.

    A window without a control keeps the slowness of the one before it.
    """
    times, controls = np.asarray(times_s, dtype=float), np.asarray(controls_s, dtype=float)
    counted = uninterrupted(controls)
    window = (times[counted] / WINDOW_S).astype(int)
    sums, counts = np.bincount(window, controls[counted] / reference_s), np.bincount(window)
    last = np.maximum.accumulate(np.where(counts > 0, np.arange(len(counts)), -1))
    last[last < 0] = int(np.argmax(counts > 0))
    return Pace(tuple((sums[last] / counts[last]).tolist()))


def slowness_at(pace: Pace, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the slowness at many times, of the same shape."""
    window = np.minimum((times_s / pace.window_s).astype(int), len(pace.slowness) - 1)
    slowness: NDArray[np.float64] = np.asarray(pace.slowness)[window]
    return slowness
