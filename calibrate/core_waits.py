"""How much of delays and links was waiting for a core, in fleets that ran for a calibration."""

from collections.abc import Iterable, Sequence

from fleet.records.playback import playback_of
from fleet.records.run import Run
from fleet.times.effects import CoreWaits


def core_waits_in(runs: Sequence[Run]) -> CoreWaits:
    """Return the shares over all runs together."""
    playbacks = [playback_of(run) for run in runs]
    return CoreWaits(
        starts=share(
            (times_s for playback in playbacks for times_s in playback.starts_waited_s.values()),
            (times_s for playback in playbacks for times_s in playback.starts_s.values()),
        ),
        ways=share(
            (times_s for playback in playbacks for times_s in playback.ways_waited_s.values()),
            (times_s for playback in playbacks for times_s in playback.ways_s.values()),
        ),
    )


def share(waited_s: Iterable[Sequence[float]], times_s: Iterable[Sequence[float]]) -> float:
    """Return how much of all times was waiting; 0 where nothing took time."""
    all_s = sum(max(time_s, 0.0) for of_one in times_s for time_s in of_one)
    return min(1.0, sum(map(sum, waited_s)) / all_s) if all_s else 0.0
