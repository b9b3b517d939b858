"""What a host adds to a run: delays around the steps of its stations, from its log, and steps that it made longer.

A step was delayed if it took more than DELAYED times the median of its kind.
"""

from itertools import compress

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from specfleet.fleet.records.playback import playback_of
from specfleet.fleet.records.run import Run

DELAYED = 2.0
Floats = NDArray[np.float64]
LATE = 5.0  # a step is late if its delay is this many times its station's median ...
LATE_OF_STEP = 0.02  # ... and exceeds this share of the station's mean step time


def not_delayed(times: ArrayLike) -> Floats:
    """Return the times of like steps, in any unit, without those that the host delayed."""
    values = np.asarray(times, dtype=float)
    kept: Floats = values[values <= DELAYED * np.median(values)] if values.size else values
    return kept


class StationDelays(msgspec.Struct, frozen=True):
    """Delays of one station in seconds, in the order of its steps (`fleet/times/overhead.py`); none is negative.

    `queued_s` and `woken_s` have a value for each step of that kind, `after_s` for each finished step.
    """

    queued_s: list[float]
    woken_s: list[float]
    after_s: list[float]


def delays_in(run: Run) -> dict[str, StationDelays]:
    """Return the delays around the steps of each station, by its name.

    Raises InputError if the log does not match the run's scenario.
    """
    playback = playback_of(run, ())
    delays = {}
    for name, starts_s in playback.starts_s.items():
        late_s, queued = [max(start_s, 0.0) for start_s in starts_s], playback.queued[name]
        delays[name] = StationDelays(
            queued_s=list(compress(late_s, queued)),
            woken_s=list(compress(late_s, (not waited for waited in queued))),
            after_s=[max(end_s, 0.0) for end_s in playback.ends_s.get(name, [])],
        )
    return delays


def late_starts(run: Run) -> float:
    """Return the share of a run's steps that started late, which is small on a quiet host.

    Raises InputError if the log does not match the run's scenario.
    """
    playback = playback_of(run, ())
    late = steps = 0
    for name, starts_s in playback.starts_s.items():
        took_s = [
            step.duration_s for (station, _), taken in playback.steps.items() if station == name for step in taken
        ]
        limit_s = max(LATE * float(np.median(starts_s)), LATE_OF_STEP * float(np.mean(took_s)))
        late += sum(start_s > limit_s for start_s in starts_s)
        steps += len(starts_s)
    return late / steps if steps else 0.0
