"""Fits step times to measured times: a robust fit, also at points left out, and the spread around it."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

from specfleet.calibration.measurements import Point
from specfleet.fleet.records.delays import not_delayed
from specfleet.fleet.times.step_time import Quantiles, StepTime

Floats = NDArray[np.float64]

LEVELS = (0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 1.0)
ROUNDS = 6  # of a fit with weights that follow from itself
ABSOLUTE_ROUNDS = 20  # of the fit that it starts from
SMALLEST = 1e-3  # error that counts, over the median of times
HOLD_OUT_EVERY = 4  # each fourth grid point is not fitted but predicted


def spread_of(ratios: ArrayLike) -> Quantiles:
    """Return the quantiles of `ratios` (measured over fitted), scaled so that their interpolation has mean 1."""
    values = np.quantile(np.asarray(ratios, dtype=float), LEVELS)
    mean = np.trapezoid(values, LEVELS)
    return Quantiles(LEVELS, tuple((values / mean).tolist()))


def fit_step(points: Sequence[Point]) -> tuple[StepTime, list[dict[str, Any]]]:
    """Fit a + b k + c n + e k n to the medians, all coefficients at least 0, by least squares of relative errors.

    The fit is then scaled so that measured over fitted time is 1 in the mean over steps that the host did not delay.
    The fit leaves out every fourth point. Beside it stand raw quantiles and the fit of each point.
    """
    held_out = [len(points) >= 2 * HOLD_OUT_EVERY and index % HOLD_OUT_EVERY == 2 for index in range(len(points))]
    tokens, context, medians = (
        np.array([getattr(point, name) for point in points], dtype=float) for name in ("tokens", "context", "median_s")
    )
    design = np.stack([np.ones_like(tokens), tokens, context, tokens * context], axis=1)  # (points, 4)
    # A grid with one context or one token count cannot separate two terms; the simpler one explains it.
    usable = [True, len(set(tokens)) > 1, len(set(context)) > 1, len(set(tokens)) > 1 and len(set(context)) > 1]
    fitted = ~np.array(held_out)
    coefficients = nonnegative((design * usable)[fitted], medians[fitted], medians[fitted])
    predicted = design @ coefficients
    ratios = np.concatenate([not_delayed(point.times_s) / fit for point, fit in zip(points, predicted, strict=True)])
    a, b, c, e = (coefficients * ratios.mean()).tolist()
    quantiles_s = [np.quantile(point.times_s, (0.1, 0.5, 0.9)).tolist() for point in points]
    return StepTime(a, b, c, e, spread=spread_of(ratios)), [
        {"tokens": point.tokens, "context": point.context, "quantiles_s": own_s, "fitted_s": fit_s, "held_out": out}
        for point, own_s, fit_s, out in zip(points, quantiles_s, predicted.tolist(), held_out, strict=True)
    ]


def fits_of(points: Mapping[str, Sequence[Point]]) -> dict[str, Any]:
    """Return the fit of each point of each kind of step, by the names of a profile."""
    return {name: fit_step(of_name)[1] for name, of_name in points.items()}


def fit_batch_step(extents: ArrayLike, times_s: ArrayLike) -> tuple[StepTime, float]:
    """Fit a step's time over rows to single steps as they were served; return it with its mean absolute error.

    `extents` (steps, 4): tokens and context of the longest row, rows, tokens of all other rows (see
    `durations.extent`). Steps that took more than twice the fit, or less than half, do not count in the error.
    """
    design = np.array([columns_of(*extent) for extent in np.asarray(extents, dtype=float)])
    coefficients, ratios = fit_relative(design, np.asarray(times_s, dtype=float))
    kept = (ratios > 1 / 2) & (ratios < 2)
    return law_from(coefficients, spread_of(ratios)), float(np.abs(1 / ratios - 1)[kept].mean())


def columns_of(tokens: float, context: float, rows: float, row_tokens: float) -> list[float]:
    """Return the variables of a step over rows, in the order of the coefficients of `StepTime`."""
    others, several = rows - 1, float(rows > 1)
    alone = [1.0, tokens, context, tokens * context]
    return [*alone, others, row_tokens, others * context, several, several * tokens]


def law_from(coefficients: Floats, spread: Quantiles) -> StepTime:
    """Return the law with the coefficients of `columns_of`."""
    return msgspec.structs.replace(StepTime(*coefficients.tolist()), spread=spread)


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
