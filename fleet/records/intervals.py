"""Confidence intervals, all at 95 %, and Jain's fairness index."""

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

CONFIDENCE = 0.95
Interval = tuple[float, float]
NO_INTERVAL: Interval = (float("nan"), float("nan"))


def student_t_interval(values: ArrayLike) -> Interval:
    """Interval of the mean of independent values: batch means, or replications. NaN for fewer than two."""
    sample = np.asarray(values, dtype=float)
    if len(sample) < 2:
        return NO_INTERVAL
    half = stats.t.ppf((1 + CONFIDENCE) / 2, len(sample) - 1) * sample.std(ddof=1) / np.sqrt(len(sample))
    return float(sample.mean() - half), float(sample.mean() + half)


def ratio_interval(numerators: ArrayLike, denominators: ArrayLike) -> Interval:
    """Interval of sum(numerators) / sum(denominators) over independent batches, by the delta method.

    Batches in which nothing happened, 0 / 0, are left out; with one event a batch this is the Student t
    interval of the events' mean. NaN for fewer than two batches.
    """
    above, below = np.asarray(numerators, dtype=float), np.asarray(denominators, dtype=float)
    telling = (above != 0) | (below != 0)
    above, below = above[telling], below[telling]
    if len(above) < 2 or below.sum() <= 0:
        return NO_INTERVAL
    ratio = above.sum() / below.sum()
    low, high = student_t_interval((above - ratio * below) / below.mean())
    return float(ratio + low), float(ratio + high)


def quantile_interval(values: ArrayLike, level: float) -> Interval:
    """Interval of the quantile at `level` in (0, 1), between two order statistics of independent values.

    The number of values below the quantile is binomial whatever their distribution is. NaN where the sample is too
    small to bracket the quantile: 99 % needs 368 values.
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    low = int(stats.binom.ppf((1 - CONFIDENCE) / 2, len(ordered), level)) - 1
    high = int(stats.binom.ppf((1 + CONFIDENCE) / 2, len(ordered), level))
    if low < 0 or high >= len(ordered):
        return NO_INTERVAL
    return float(ordered[low]), float(ordered[high])


def jain_index(shares: ArrayLike) -> float:
    """Jain's fairness index of what each target gets: 1 if all get the same, 1/N if one of N gets everything."""
    values = np.asarray(shares, dtype=float)
    return float(values.sum() ** 2 / (len(values) * (values**2).sum())) if values.any() else 1.0
