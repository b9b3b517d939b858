"""What threads wait for a core in a fleet of a calibration, apart from what they do."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from calibrate.fits import spread_of
from fleet.records.playback import Playback, playback_of
from fleet.records.run import Run
from fleet.times.effects import CoreWaits
from fleet.times.step_time import Constant, Spread


def core_waits_in(runs: Sequence[Run]) -> CoreWaits:
    """Return the waits of drafters' steps and of all messages, over all runs together."""
    playbacks = [playback_of(run) for run in runs]
    starts_s = [
        wait_s
        for run, playback in zip(runs, playbacks, strict=True)
        for name in run.header.fleet.drafter_names
        for wait_s in playback.starts_waited_s.get(name, [])
    ]
    ways_s = [wait_s for playback in playbacks for waits_s in playback.ways_waited_s.values() for wait_s in waits_s]
    return CoreWaits(*_mean_and_spread(starts_s), *_mean_and_spread(ways_s))


def before_starts(run: Run, playback: Playback | None = None) -> pd.Series:
    """Return what steps waited for a core before they began, in seconds, by station and step.

    `playback`: that of the run, where it has been read already; to read it takes most of the time.
    """
    rows = run.frame()
    starts = rows[rows.event == "start"].sort_values("seq").drop_duplicates(["station", "step"])
    waited_s = (playback_of(run) if playback is None else playback).starts_waited_s
    parts = [
        pd.Series(waited_s[str(name)], pd.MultiIndex.from_frame(of_station[["station", "step"]]), dtype=float)
        for name, of_station in starts.groupby("station")
    ]
    return pd.concat(parts)


def _mean_and_spread(times_s: Sequence[float]) -> tuple[float, Spread]:
    mean_s = float(np.mean(times_s)) if times_s else 0.0
    return (mean_s, spread_of(np.array(times_s) / mean_s)) if mean_s else (0.0, Constant())
