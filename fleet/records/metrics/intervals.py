"""Confidence intervals, all at 95 %.

Values within one run depend on each other. Its intervals therefore use means over consecutive batches of time, with
the corrections of Skart (Tafazzoli, Steiger and Wilson 2011) for the correlation of neighbouring batches and for the
skewness of their means. Independent values, as over replications, have Student's interval.
"""

import math
import operator
from collections.abc import Sequence
from statistics import fmean

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, ndtri, stdtrit

CONFIDENCE = 0.95
UPPER = (1 + CONFIDENCE) / 2  # level of the quantile at the upper end of an interval
Interval = tuple[float, float]
NO_INTERVAL: Interval = (float("nan"), float("nan"))
LARGEST_CORRELATION = 0.9  # between neighbouring batches; the correction is undefined beyond it
FALSE_ALARM = 0.01  # false alarm rate of the test for drift
LARGEST_STEP = 0.05  # relative change between a run's beginning and end that counts as rounding


def student_t_interval(values: ArrayLike) -> Interval:
    """Interval of the mean of independent values (replications). NaN for fewer than two."""
    sample = np.asarray(values, dtype=float)
    if len(sample) < 2:
        return NO_INTERVAL
    half = stdtrit(len(sample) - 1, UPPER) * sample.std(ddof=1) / np.sqrt(len(sample))
    return float(sample.mean() - half), float(sample.mean() + half)


def batch_interval(means: ArrayLike) -> Interval:
    """Interval of the mean of one run's consecutive batch means, by Skart's corrections. NaN for fewer than two.

    The interval is asymmetric if batch means are skewed, as waits are: most runs miss rare events, so the truth is
    more often beyond the longer side.
    """
    batches: list[float] = np.asarray(means, dtype=float).tolist()
    if len(batches) < 2:
        return NO_INTERVAL
    mean, error = fmean(batches), math.sqrt(variance_of_mean(batches))
    if error <= 1e-12 * max(map(abs, batches)):  # equal up to rounding
        return mean, mean
    skewness = _skewness(batches) if len(batches) > 2 else 0.0
    tail, quantile = skewness / (6 * math.sqrt(len(batches))), float(stdtrit(len(batches) - 1, UPPER))
    return mean - _skewed(quantile, tail) * error, mean - _skewed(-quantile, tail) * error


def variance_of_mean(means: Sequence[float]) -> float:
    """Variance of the mean of consecutive batch means, with first-order autocorrelation.

    The estimated correlation is 1 / batches too low without correlation, which is added (Kendall 1954).
    """
    deviations, count = _deviations(means), len(means)
    squares = math.fsum(deviation * deviation for deviation in deviations)
    if squares == 0:
        return 0.0
    correlation = math.fsum(map(operator.mul, deviations[1:], deviations)) / squares + 1 / count
    correlation = min(max(correlation, 0.0), LARGEST_CORRELATION)
    return squares / (count - 1) / count * (1 + correlation) / (1 - correlation)


def quantile_levels(below: ArrayLike, counts: ArrayLike, level: float) -> Interval:
    """Return the shares of a run's ordered values that enclose the quantile at `level` in (0, 1).

    - `below`, `counts`: for each batch of time, the number of values up to the estimate, and of all values.

    The variance of their ratio over batches gives the effective number of independent values, at most their number.
    For that number, the interval is Jeffreys' interval of a binomial share. NaN for fewer than two batches.
    """
    under, all_of = np.asarray(below, dtype=float), np.asarray(counts, dtype=float)
    if len(all_of) < 2 or all_of.sum() == 0:
        return NO_INTERVAL
    error = variance_of_mean(((under - under.sum() / all_of.sum() * all_of) / all_of.mean()).tolist())
    # Few batches estimate the variance itself; Student's quantile over the normal quantile corrects for that.
    error *= (stdtrit(len(all_of) - 1, UPPER) / ndtri(UPPER)) ** 2
    worth = level * (1 - level) / max(error, level * (1 - level) / all_of.sum())
    low, high = betaincinv(level * worth + 0.5, (1 - level) * worth + 0.5, (1 - UPPER, UPPER))
    return float(low), float(high)


def drifts(means: ArrayLike) -> bool:
    """Return whether a run's batch means drift: their first fifth against their second half (Geweke).

    The false alarm rate of a stationary run is FALSE_ALARM. Fewer than five batches never drift.
    """
    batches: list[float] = np.asarray(means, dtype=float).tolist()
    if len(batches) < 5:
        return False
    early, late = batches[: len(batches) // 5], batches[len(batches) // 2 :]
    squares = math.fsum(deviation * deviation for part in (early, late) for deviation in _deviations(part))
    freedom = len(early) + len(late) - 2
    spread = math.sqrt(squares / freedom * (1 / len(early) + 1 / len(late)))
    change, largest = abs(fmean(early) - fmean(late)), max(map(abs, batches))
    if spread <= 1e-12 * largest:  # both constant up to rounding; counts may differ by one
        return bool(change > LARGEST_STEP * largest)
    return bool(change > spread * stdtrit(freedom, 1 - FALSE_ALARM / 2))


# Batches are few: Python lists take a fifth of numpy's time.


def _deviations(values: Sequence[float]) -> list[float]:
    mean = fmean(values)
    return [value - mean for value in values]


def _skewness(values: Sequence[float]) -> float:
    """Return the bias-corrected sample skewness of three or more values."""
    deviations, count = _deviations(values), len(values)
    cubes, squares = (math.fsum(deviation**power for deviation in deviations) / count for power in (3, 2))
    biased = cubes / squares**1.5
    return float(biased * math.sqrt(count * (count - 1)) / (count - 2))


def _skewed(quantile: float, tail: float) -> float:
    """Willink's skewness adjustment of a quantile of Student's distribution."""
    if abs(tail) < 1e-9:
        return quantile
    return (math.cbrt(1 + 6 * tail * (quantile - tail)) - 1) / (2 * tail)
