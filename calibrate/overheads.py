"""Delays around the steps of a calibration's fleets and of their messages, as a profile has them."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from specfleet.calibration.fits import spread_of
from specfleet.calibration.fleets import SETTLING_STEPS
from specfleet.fleet.records.delays import StationDelays, delays_in
from specfleet.fleet.records.playback import playback_of
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.names import DRAFTER
from specfleet.fleet.times.overhead import Delay, Overhead
from specfleet.fleet.times.step_time import LinkTime

MIN_DELAYS = 20  # values from which a delay has a distribution of its own
TIMED_MESSAGES = {"Draft": "draft", "DraftRequest": "draft-request"}  # messages that show the link, and their events


def delays_of(runs: Sequence[Run], drafters: bool) -> StationDelays:
    """Return the delays of all drafters of some runs, or of all targets, without the first ones of each station."""
    stations = [station for run in runs for station in delays_in(run).items()]
    of_kind = [delays for name, delays in stations if name.startswith(DRAFTER) == drafters]
    return StationDelays(
        *([time_s for delays in of_kind for time_s in getattr(delays, name)[SETTLING_STEPS:]] for name in DELAYS)
    )


DELAYS = StationDelays.__struct_fields__


def overhead_of(delays: StationDelays) -> Overhead:
    """Return the overhead of a station.

    Where too few steps were queued, or too few woken, the distribution of all starts stands for theirs.
    """
    starts_s = delays.queued_s + delays.woken_s
    queued_s = delays.queued_s if len(delays.queued_s) >= MIN_DELAYS else starts_s
    woken_s = delays.woken_s if len(delays.woken_s) >= MIN_DELAYS else starts_s
    # An engine drafts in the same step as it verifies, and the border of the two takes no time. Drawn as a delay of the
    # next step, 0 would let it start before the request that follows a result.
    spread = delay_of([time_s for time_s in queued_s if time_s > 0]).spread
    queued = msgspec.structs.replace(delay_of(queued_s), spread=spread)
    return Overhead(queued, delay_of(woken_s), delay_of(delays.after_s))


def delay_of(times_s: ArrayLike) -> Delay:
    """Return the mean of some times in seconds, and how they spread around it."""
    times = np.asarray(times_s, dtype=float)
    mean_s = float(times.mean()) if times.size else 0.0
    return Delay(mean_s, spread_of(times / mean_s)) if mean_s else Delay()


def link_of(runs: Sequence[Run], pinged: LinkTime) -> LinkTime:
    """Return the link, one way: latency and jitter of drafts and requests in some runs, bandwidth of pings."""
    ways_s = [
        way_s
        for run in runs
        for (_, kind, *_), of_message in playback_of(run, ()).ways_s.items()
        if kind in TIMED_MESSAGES
        for way_s in of_message
    ]
    rows = pd.concat([run.frame() for run in runs])
    sizes_bytes = rows[rows.event.isin(list(TIMED_MESSAGES.values()))].payload_bytes
    way = delay_of(ways_s)
    latency_s = max(way.mean_s - float(sizes_bytes.mean()) * pinged.s_per_byte, 0.0)
    return LinkTime(latency_s, pinged.bandwidth_bytes_per_s, way.spread)
