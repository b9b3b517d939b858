"""Overhead of a run's stations, step by step, as its log shows it."""

from itertools import compress

import msgspec

from fleet.records.playback import playback_of
from fleet.records.run import Run


class StationDelays(msgspec.Struct, frozen=True):
    """Delays of one station in seconds, in the order of its steps (`fleet/times/overhead.py`); none is below 0.

    `queued_s` and `woken_s` have a value for each step that began so, `after_s` one for every step that ended.
    """

    queued_s: list[float]
    woken_s: list[float]
    after_s: list[float]


def delays_in(run: Run) -> dict[str, StationDelays]:
    """Return the delays around the steps of each station, by its name.

    Raises InputError where the log is not one of the run's scenario.
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
