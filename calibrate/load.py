"""How drafts in service, and what passes around them, depend on the recent load of their device.

Fitted over runs that load it differently.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from calibrate.fits import spread_of
from calibrate.inservice import Rounds
from fleet.times.effects import RecentLoad
from fleet.times.step_time import Quantiles

Floats = NDArray[np.float64]

HALF_LIVES_S = (0.016, 0.032, 0.064, 0.128, 0.256)
BIN_EDGES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 0.95)  # beyond the last is a saturated drafter
FEWEST = 20  # drafts in a bin that counts


def recent_loads(rounds: Rounds, half_life_s: float) -> Floats:
    """Return the recent load at the begin of each draft, from the busy times before it."""
    return loads_at(rounds.begin_s, rounds.busy_s, half_life_s)


def loads_at(times_s: Floats, busy_s: Floats, half_life_s: float) -> Floats:
    """Return the recent load of a device at some times, from the times (steps, 2) in which it was busy."""
    memory = RecentLoad(half_life_s, (0.0,), (1.0,))
    edges_s, loads = busy_s.ravel(), [1.0]
    for number, time_s in enumerate(np.diff(edges_s)):
        loads.append(memory.after(loads[-1], time_s, busy=number % 2 == 0))
    last = np.maximum(np.searchsorted(edges_s, times_s, side="right") - 1, 0)
    kept = 2 ** (-(times_s - edges_s[last]) / half_life_s)
    busy = last % 2 == 0
    loads_then = np.array(loads)[last]
    at: Floats = np.where(busy, 1 - (1 - loads_then) * kept, loads_then * kept)
    return at


def returning_loads(rounds: Rounds, half_life_s: float) -> Floats:
    """Return the mean of the recent loads at which each return began and ended: a link has two ways."""
    loads = loads_at(rounds.returning_s.ravel(), rounds.busy_s, half_life_s)
    means: Floats = loads.reshape(-1, 2).mean(axis=1)
    return means


def fit_recent_load(runs: Sequence[Rounds]) -> RecentLoad:
    """Fit the slowdown over the step fit, the host's mean pace, and the overheads, as falling curves of recent load.

    Of several half-lives the one that explains the slowdown best. The curves are the means of bins, made monotone:
    more load never slows a drafter. Overheads are those of the links, whose mean over the returns is 1.
    """
    ratios = np.concatenate([rounds.ratios for rounds in runs])
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
    return msgspec.structs.replace(best[1], overheads=_overheads(best[1], runs))


def _overheads(effect: RecentLoad, runs: Sequence[Rounds]) -> tuple[float, ...]:
    """Return the mean of returns at the loads of the other curves, over that of all; of runs without returns, none."""
    returns_s = np.concatenate([rounds.return_s for rounds in runs])
    if not returns_s.mean() > 0:
        return ()
    loads = np.concatenate([returning_loads(rounds, effect.half_life_s) for rounds in runs])
    nearest = np.abs(loads[:, None] - np.array(effect.loads)).argmin(axis=1)
    seen = [number for number in range(len(effect.loads)) if (nearest == number).sum() >= FEWEST]
    means = falling(returns_s / returns_s.mean(), [np.flatnonzero(nearest == number) for number in seen])
    return tuple(np.interp(effect.loads, np.array(effect.loads)[seen], means).tolist())


def at_mean_load(effect: RecentLoad, times_s: Floats, loads: Floats) -> Floats:
    """Return overheads that were seen at some loads as if at that where their curve is 1."""
    factors: Floats = np.interp(loads, effect.loads, effect.overheads) if effect.overheads else np.ones_like(loads)
    return times_s / factors


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
                rounds.ratios / np.interp(recent_loads(rounds, effect.half_life_s), effect.loads, effect.slowdowns)
                for rounds in runs
            ]
        )
    )
