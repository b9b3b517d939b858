"""How drafts, and what passes around them, slow down after the drafter was idle: fitted over runs in service.

A shared host is faster in one run than in another, so the effect is read within runs: each has a level of its own, and
a gap's slowdown is what its drafts take beyond those without a gap in the same run.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from calibrate.inservice import INTERRUPTED, Rounds
from fleet.times.effects import IdleEffect, interpolated

Floats = NDArray[np.float64]

SHORTEST_OVER_TURNAROUND = 2.0  # a gap is idleness if it is so many times as long as the median turnaround
BINS = 8  # of longer gaps, evenly over the logarithm
FEWEST = 20  # values in a bin that counts
ROUNDS = 30  # of fitting levels and slowdowns by turns


def fit_idle(runs: Sequence[Rounds]) -> IdleEffect:
    """Fit slowdowns of drafts and of overheads as rising curves of the idle gap.

    Overheads are those of wake-ups, which nothing else delays. Both are 1 where there is no gap.
    """
    edges_s = gap_edges_s(runs)
    gaps_s, slowdowns = rising([rounds.gap_s for rounds in runs], [rounds.ratios for rounds in runs], edges_s)
    idle_s, factors = rising([rounds.woken_after_s for rounds in runs], [rounds.wake_up_s for rounds in runs], edges_s)
    return IdleEffect(gaps_s, slowdowns, tuple(interpolated(gap_s, idle_s, factors) for gap_s in gaps_s))


def gap_edges_s(runs: Sequence[Rounds]) -> Floats:
    """Return the edges between bins of gaps, in seconds: none below the first is idleness."""
    gaps_s = np.concatenate([rounds.gap_s for rounds in runs])
    turnarounds_s = np.concatenate([rounds.turnaround_s for rounds in runs])
    shortest_s = SHORTEST_OVER_TURNAROUND * float(np.median(turnarounds_s)) if len(turnarounds_s) else 0.0
    longest_s = float(gaps_s.max())
    if not 0 < shortest_s < longest_s:
        return np.array([np.inf])
    return np.geomspace(shortest_s, longest_s, BINS, endpoint=False)


def rising(
    gaps_s: Sequence[Floats], values: Sequence[Floats], edges_s: Floats
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean gaps of the bins that hold enough, and how many times as large values are there as without a gap.

    `gaps_s`, `values`: one array a run. The curve rises: bins that fall below one before are pooled with it.
    """
    every, run = np.concatenate(gaps_s), np.repeat(np.arange(len(gaps_s)), [len(gaps) for gaps in gaps_s])
    measured = np.concatenate(values)
    bins = np.digitize(every, edges_s)
    bins[every <= 0] = 0
    counted = [number for number in np.unique(bins) if (bins == number).sum() >= FEWEST]
    if len(counted) < 2:
        return (0.0,), (1.0,)
    kept = np.isin(bins, counted)
    every, run, measured, place = every[kept], run[kept], measured[kept], np.searchsorted(counted, bins[kept])
    for number in range(len(counted)):  # a value far beyond its bin's median met another process, not a gap
        measured[place == number] = np.minimum(
            measured[place == number], INTERRUPTED * np.median(measured[place == number])
        )
    slowdowns = np.ones(len(counted))
    for _ in range(ROUNDS):  # each run's level by least squares given the slowdowns, then these given the levels
        by_run = _least_squares(measured, slowdowns[place], run, len(gaps_s))
        slowdowns = _least_squares(measured, by_run[run], place, len(counted))
        slowdowns /= slowdowns[0]
    weights = np.bincount(place, minlength=len(counted))
    curve = isotonic_regression(slowdowns, weights=weights).x
    centres = np.bincount(place, np.maximum(every, 0.0)) / weights
    return tuple(centres.tolist()), tuple((curve / curve[0]).tolist())


def _least_squares(measured: Floats, factors: Floats, group: NDArray[np.intp], groups: int) -> Floats:
    """The level of each group that, times the factors, comes closest to the measured; 1 of an empty group."""
    above = np.bincount(group, measured * factors, minlength=groups)
    below = np.bincount(group, factors**2, minlength=groups)
    levels: Floats = np.divide(above, below, out=np.ones(groups), where=below > 0)
    return levels


def with_recoveries(idle: IdleEffect, warmed: Sequence[tuple[int, Rounds]]) -> IdleEffect:
    """Return the effect with the share of a draft's excess that warm-up tokens leave, from runs of one gap each.

    `warmed`: rounds by warm-up tokens; those without any say what the excess is. What was not run is between.
    """
    ratios = {tokens: float(np.median(rounds.ratios)) for tokens, rounds in sorted(warmed, key=lambda pair: pair[0])}
    gap_s = next((float(np.median(rounds.gap_s)) for tokens, rounds in warmed if tokens == 0), 0.0)
    slowdown = idle.slowdown(gap_s)
    if slowdown <= 1:
        return idle
    level = ratios[0] / slowdown
    left = [(ratio / level - 1) / (slowdown - 1) for ratio in ratios.values()]
    left = np.minimum.accumulate(np.clip(left, 0.0, 1.0)).tolist()
    shares = np.interp(np.arange(max(ratios) + 1), list(ratios), left)
    return msgspec.structs.replace(idle, recoveries=tuple(shares.tolist()))


def without_idleness(rounds: Rounds, idle: IdleEffect) -> Rounds:
    """Return the rounds as if no idle gap had slowed anything."""
    slowdowns = np.interp(rounds.gap_s, idle.gaps_s, idle.slowdowns)
    return msgspec.structs.replace(
        rounds,
        draft_s=rounds.draft_s / slowdowns,
        wake_up_s=rounds.wake_up_s / overheads(idle, rounds.woken_after_s),
        dispatch_s=rounds.dispatch_s / overheads(idle, rounds.gap_s),
    )


def overheads(idle: IdleEffect, idle_s: Floats) -> Floats:
    """Return what multiplies what passes around a step after so much idleness; same shape."""
    factors: Floats = np.interp(idle_s, idle.gaps_s, idle.overheads) if idle.overheads else np.ones_like(idle_s)
    return factors
