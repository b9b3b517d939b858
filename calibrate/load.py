"""How drafts in service depend on the recent load of their device: fitted over runs that load it differently."""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import isotonic_regression

from calibrate.fits import spread_of
from calibrate.inservice import Rounds
from fleet.times.effects import RecentLoad
from fleet.times.step_time import Quantiles

Floats = NDArray[np.float64]

HALF_LIVES_S = (0.016, 0.032, 0.064, 0.128, 0.256)
BIN_EDGES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 0.95)  # beyond the last is a saturated drafter
FALSE_ALARM = 0.01  # of taking a host that changes from run to run for an effect of load
FEWEST = 20  # drafts in a bin that counts


def recent_loads(rounds: Rounds, half_life_s: float) -> Floats:
    """Return the recent load at the begin of each draft, from the busy times before it."""
    memory = RecentLoad(half_life_s, (0.0,), (1.0,))
    load, free_s = 1.0, rounds.busy_s[0, 0]
    loads = {}
    for begin_s, end_s in rounds.busy_s:
        load = memory.after(load, begin_s - free_s, busy=False)
        loads[begin_s] = load
        load = memory.after(load, end_s - begin_s, busy=True)
        free_s = end_s
    return np.array([loads[begin_s] for begin_s in rounds.begin_s])


def fit_recent_load(runs: Sequence[Rounds]) -> RecentLoad:
    """Fit the slowdown over the step fit, and the host's mean pace, as falling curves of recent load.

    Of several half-lives the one that explains the slowdown best. The curves are the means of bins, made monotone:
    more load never slows a drafter. What differs between runs counts only if it goes with their loads beyond chance: a
    shared host is faster in one run than in another.
    """
    ratios = np.concatenate(ratios_of(runs))
    slowness = np.concatenate([rounds.slowness for rounds in runs])
    best: tuple[float, RecentLoad] | None = None
    for half_life_s in HALF_LIVES_S:
        loads = np.concatenate([recent_loads(rounds, half_life_s) for rounds in runs])
        bins = np.digitize(loads, BIN_EDGES)
        parts = [part for number in range(len(BIN_EDGES) + 1) if len(part := np.flatnonzero(bins == number)) >= FEWEST]
        centres = tuple(float(loads[part].mean()) for part in parts)
        effect = RecentLoad(half_life_s, centres, falling(ratios, parts), falling(slowness, parts))
        error = float(np.mean((ratios - np.interp(loads, effect.loads, effect.slowdowns)) ** 2))
        if best is None or error < best[0]:
            best = error, effect
    assert best is not None
    return best[1]


def at_one_level(runs: Sequence[Rounds]) -> list[Rounds]:
    """Return the rounds with what passed between their steps as if all runs had been on an equally fast host.

    What passes between steps is computed by the same core, so a run's own steps say how fast that was.
    """
    levels = [float(np.median(rounds.ratios)) for rounds in runs]  # but for steps that were interrupted
    factors = [float(np.mean(levels)) / level for level in levels]
    return [
        msgspec.structs.replace(
            rounds,
            wake_up_s=factor * rounds.wake_up_s,
            turnaround_s=factor * rounds.turnaround_s,
            dispatch_s=factor * rounds.dispatch_s,
            returns=msgspec.structs.replace(rounds.returns, time_s=factor * rounds.returns.time_s),
        )
        for rounds, factor in zip(runs, factors, strict=True)
    ]


def ratios_of(runs: Sequence[Rounds]) -> list[Floats]:
    """Return each run's ratios of draft times; at one level for all, unless their levels go with how busy they were."""
    levels = [float(rounds.ratios.mean()) for rounds in runs]
    busy = [float(np.diff(rounds.busy_s).sum() / np.ptp(rounds.busy_s)) for rounds in runs]
    if len(runs) > 2 and np.ptp(busy) > 0 and stats.linregress(busy, levels).pvalue < FALSE_ALARM:
        return [rounds.ratios for rounds in runs]
    return [rounds.ratios * np.mean(levels) / level for rounds, level in zip(runs, levels, strict=True)]


def falling(values: Floats, parts: Sequence[NDArray[np.intp]]) -> tuple[float, ...]:
    """Return the means of `values` over consecutive parts, made falling by pooling neighbours, weighted by size."""
    means = [float(values[part].mean()) for part in parts]
    fitted: list[float] = isotonic_regression(means, weights=[len(part) for part in parts], increasing=False).x.tolist()
    return tuple(fitted)


def spread_in_service(effect: RecentLoad, runs: Sequence[Rounds]) -> Quantiles:
    """Quantiles of draft times in service over fit, recent load and pace together: wider than back to back."""
    return spread_of(
        np.concatenate(
            [
                ratios / np.interp(recent_loads(rounds, effect.half_life_s), effect.loads, effect.slowdowns)
                for ratios, rounds in zip(ratios_of(runs), runs, strict=True)
            ]
        )
    )
