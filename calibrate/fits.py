"""Fits times as sums of variables: a robust fit with coefficients of at least 0, and the spread around it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from specfleet.fleet.times.step_time import Quantiles

Floats = NDArray[np.float64]

LEVELS = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 1.0)
ROUNDS = 6  # of a fit with weights that follow from itself
ABSOLUTE_ROUNDS = 20  # of the fit that it starts from
SMALLEST = 1e-3  # error that counts, over the median of times


def spread_of(ratios: ArrayLike) -> Quantiles:
    """Return the quantiles of `ratios` (measured over fitted), scaled so that their interpolation has mean 1."""
    values = np.quantile(np.asarray(ratios, dtype=float), LEVELS)
    mean = np.trapezoid(values, LEVELS)
    return Quantiles(LEVELS, tuple((values / mean).tolist()))


def columns_of(tokens: float, context: float, rows: float, row_tokens: float) -> list[float]:
    """Return the variables of a step over rows, in the order of the coefficients of `StepTime`."""
    others, several = rows - 1, float(rows > 1)
    alone = [1.0, tokens, context, tokens * context]
    return [*alone, others, row_tokens, others * context, several, several * tokens]


def fit_relative(design: Floats, times: Floats) -> tuple[Floats, Floats]:
    """Fit times as sums of the columns; return the coefficients, and measured over fitted times.

    Coefficients are at least 0, by least squares of errors relative to the fit of the round before: relative to the
    measured times, slow steps would count less than quick ones, and the more so the more times spread. The first round
    starts from the fit of least absolute errors, which a few times of nearly 0 do not move. Steps that took more than
    twice the fit, or less than half, do not shape it, but count in the mean.
    """
    least_s = SMALLEST * float(np.median(times))
    fitted = np.maximum(least_absolute(design, times, least_s), least_s)
    kept = (times > fitted / 2) & (times < 2 * fitted)
    for _ in range(ROUNDS):
        coefficients = nonnegative(design[kept], times[kept], fitted[kept])
        fitted = design @ coefficients
        kept = (times > fitted / 2) & (times < 2 * fitted)
    return coefficients * (times.sum() / fitted.sum()), times / fitted


def least_absolute(design: Floats, times: Floats, least_s: float) -> Floats:
    """Return the times that the columns give with least absolute errors, by squares over the errors of each round.

    - `least_s`: errors below it count as equal.
    """
    fitted, units = times, np.ones(len(times))
    for _ in range(ABSOLUTE_ROUNDS):
        fitted = design @ nonnegative(design, times, units)
        units = np.sqrt(np.maximum(np.abs(times - fitted), least_s))
    return fitted


def nonnegative(design: Floats, times: Floats, units: Floats) -> Floats:
    """Return the coefficients of at least 0 with the least squares of errors, each error in a unit of its own."""
    scale = np.abs(design).max(axis=0, initial=0.0)  # columns may differ by many orders
    scale[scale == 0] = 1.0
    coefficients: Floats = nnls(design / scale / units[:, None], times / units)[0] / scale
    return coefficients


def fit_bandwidth(payloads_bytes: Sequence[int], round_trips_s: Sequence[Sequence[float]]) -> float | None:
    """Fit latency and bandwidth to round trips of equal payloads both ways; give bytes a second, None if unlimited."""
    one_way_s = np.array([np.median(times) / 2 for times in round_trips_s])
    design = np.stack([np.ones(len(one_way_s)), np.array(payloads_bytes, dtype=float)], axis=1)
    _, per_byte_s = nonnegative(design, one_way_s, one_way_s)
    return float(1 / per_byte_s) if per_byte_s > 0 else None
