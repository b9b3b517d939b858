"""Slowdown of drafts after idleness, and its remainder after warm-up tokens (StarSD, figures 6b and 6c)."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from specfleet.fleet.times.effects import IdleEffect

Floats = NDArray[np.float64]

SHORTEST_OVER_QUEUED = 2.0  # a gap is idleness if it is so many times as long as that between queued drafts
BINS = 8  # of longer gaps, evenly over the logarithm
MIN_DRAFTS = 20  # in a bin that counts


def fit_idle(drafts: pd.DataFrame, queued_s: float) -> IdleEffect:
    """Fit the slowdown of drafts (`steps_in`) as a rising curve of the idle gap, 1 where there is no gap.

    A bin's slowdown is its median ratio over that of drafts without a gap. `queued_s`: typical gap
    between queued drafts.
    """
    shortest_s, longest_s = SHORTEST_OVER_QUEUED * queued_s, float(drafts.gap_s.max())
    if not 0 < shortest_s < longest_s:
        return IdleEffect()
    bins = np.digitize(drafts.gap_s, np.geomspace(shortest_s, longest_s, BINS, endpoint=False))
    by_bin = drafts.groupby(bins).agg(gap_s=("gap_s", "mean"), ratio=("ratio", "median"), drafts=("ratio", "size"))
    by_bin = by_bin[by_bin.drafts >= MIN_DRAFTS]
    if 0 not in by_bin.index or len(by_bin) < 2:
        return IdleEffect()
    curve = isotonic_regression(by_bin.ratio, weights=by_bin.drafts).x
    return IdleEffect(tuple(by_bin.gap_s.clip(lower=0.0).tolist()), tuple((curve / curve[0]).tolist()))


def slowdowns_of(drafts: pd.DataFrame, idle: IdleEffect) -> Floats:
    """Return the slowdown of each draft by the gap before it, (drafts,)."""
    slowdowns: Floats = np.interp(drafts.gap_s, idle.gaps_s, idle.slowdowns)
    return slowdowns


def with_recoveries(idle: IdleEffect, warmed: Sequence[tuple[int, pd.DataFrame]]) -> IdleEffect:
    """Return the effect with the share of a draft's excess that warm-up tokens leave, from runs of one gap each.

    `warmed`: drafts by warm-up tokens; those without any show the whole excess. Counts that were not run are
    interpolated.
    """
    ratios = {tokens: float(drafts.ratio.median()) for tokens, drafts in sorted(warmed, key=lambda pair: pair[0])}
    gap_s = next((float(drafts.gap_s.median()) for tokens, drafts in warmed if tokens == 0), 0.0)
    slowdown = idle.slowdown(gap_s)
    if slowdown <= 1:
        return idle
    level = ratios[0] / slowdown
    left = [(ratio / level - 1) / (slowdown - 1) for ratio in ratios.values()]
    left = np.minimum.accumulate(np.clip(left, 0.0, 1.0)).tolist()
    shares = np.interp(np.arange(max(ratios) + 1), list(ratios), left)
    return msgspec.structs.replace(idle, recoveries=tuple(shares.tolist()))
