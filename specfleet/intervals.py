"""Confidence intervals, all at 95 %, and Jain's fairness index."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
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
    """Interval of sum(numerators) / sum(denominators) over batches, by the delta method. NaN for fewer than two."""
    above, below = np.asarray(numerators, dtype=float), np.asarray(denominators, dtype=float)
    if len(above) < 2 or below.sum() <= 0:
        return NO_INTERVAL
    ratio = above.sum() / below.sum()
    deviations = (above - ratio * below) / below.mean()
    low, high = student_t_interval(deviations)
    return float(ratio + low), float(ratio + high)


def quantile_interval(sample: NDArray[np.float64], level: float) -> Interval:
    """Distribution-free interval of a quantile by order statistics (binomial). NaN where the sample is too small."""
    ordered, count = np.sort(sample), len(sample)
    low = int(stats.binom.ppf((1 - CONFIDENCE) / 2, count, level)) - 1
    high = int(stats.binom.ppf((1 + CONFIDENCE) / 2, count, level))
    if low < 0 or high >= count:
        return NO_INTERVAL
    return float(ordered[low]), float(ordered[high])


def jain_index(shares: Sequence[float] | NDArray[np.float64]) -> float:
    """Jain's fairness index of what each target gets: 1 if all get the same, 1/N if one gets everything."""
    values = np.asarray(shares, dtype=float)
    return float(values.sum() ** 2 / (len(values) * (values**2).sum())) if values.any() else 1.0
