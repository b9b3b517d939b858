"""Approximate mean value analysis of stars: round rates of many fleets at once, without a simulation.

A drafter serves in order of arrival, whoever is served comes back after a return time. Reiser and Lavenberg's recursion
with the residual service of whoever is being served (Reiser 1979) knows the variability of S; where nothing varies the
star's own equations (8) to (12) are exact, and are taken; where little varies, what is between both. Targets that come
back sooner than a service lasts do not find it at a random moment, but at its beginning.
`python -m bench screening` measures what this misses by; ERRORS holds what it said.
"""

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

ENOUGH = 1e-6  # relative change of the queues at which the iteration over unlike targets ends
MOST_ITERATIONS = 500
LITTLE = 0.25  # squared variability of S and Z together up to which targets partly keep out of each other's way


class Error(msgspec.Struct, frozen=True):
    """By how much round rates missed simulations: the mean, the 90th percentile and the worst, as shares."""

    mean: float
    p90: float
    worst: float


ERRORS = {
    "S varies little (SCV <= 1)": Error(0.005, 0.015, 0.04),
    "S varies much (SCV > 1)": Error(0.018, 0.044, 0.07),
    "unlike targets, SCV of S <= 1": Error(0.014, 0.031, 0.07),
    "unlike targets, SCV of S > 1": Error(0.038, 0.089, 0.11),
}
"""By region of `python -m bench screening`: 2 to 48 like targets or 2 to 16 unlike ones, Z / S from 0.25 to 32,
SCV up to 4. Where the SCV is above 1 a part is the simulations' own error, 3 %."""


def rounds_per_s(
    N: ArrayLike, S_s: ArrayLike, Z_s: ArrayLike, scv: ArrayLike = 0.0, return_scv: ArrayLike = 0.0
) -> Floats:
    """R_q of stars of N like targets; all arguments broadcast against each other.

    `N`: targets, whole numbers from 1. `S_s`: mean service time, positive. `Z_s`: mean return time. `scv`: squared
    coefficient of variation of S. `return_scv`: that of Z, which matters where little varies. Where both are 0:
    N / max(N S, S + Z).
    """
    arguments = np.broadcast_arrays(*(np.asarray(each, dtype=float) for each in (N, S_s, Z_s, scv, return_scv)))
    targets, S, Z, c2, return_c2 = arguments
    constant: Floats = targets / np.maximum(targets * S, S + Z)
    if not np.any(c2 + return_c2 > 0):
        return constant
    found_s = _found_s(S, Z, c2)
    rate, queue, busy = (np.zeros(targets.shape) for _ in range(3))
    for customers in range(1, int(targets.max(initial=1)) + 1):
        # Who arrives waits for those in the queue, and for what is left of the service that runs.
        throughput = customers / (Z + S * (1 + queue - busy) + busy * found_s)
        throughput = np.clip(throughput, customers / (customers * S + Z), 1 / S)
        rate = np.where(customers <= targets, throughput, rate)
        queue, busy = customers - throughput * Z, throughput * S
    in_the_way = np.sqrt(np.minimum(1.0, (c2 + return_c2) / LITTLE))
    between: Floats = constant + in_the_way * (rate - constant)
    return between


def rates_of_unlike(S_s: ArrayLike, Z_s: ArrayLike, scv: ArrayLike = 0.0, return_scv: ArrayLike = 0.0) -> Floats:
    """Rounds a second of each target of stars whose targets differ: shape (..., targets), as `S_s` and `Z_s`.

    `S_s`: what a draft for each target takes. Each target is a class of its own with one customer, which finds the
    others as they are on average with it (Bard 1979): a little too many of them. So all rates are raised by what that
    makes of a star of as many like targets with the same mean S and, were they alone, the same rounds.
    """
    arguments = np.broadcast_arrays(*(np.asarray(each, dtype=float) for each in (S_s, Z_s, scv, return_scv)))
    S, Z, c2, return_c2 = arguments
    N, alone = S.shape[-1], 1 / (S + Z)
    total = alone.sum(axis=-1, keepdims=True)
    mean_S, mean_Z = ((alone * times_s).sum(axis=-1, keepdims=True) / total for times_s in (S, Z))
    mean_c2, mean_return_c2 = (each.mean(axis=-1, keepdims=True) for each in (c2, return_c2))
    better = rounds_per_s(N, mean_S, mean_Z, mean_c2, mean_return_c2) / (N * _bard(mean_S, mean_Z, mean_c2, N))
    rates = _bard(S, Z, c2) * better
    busy: Floats = (rates * S).sum(axis=-1, keepdims=True)
    corrected: Floats = np.minimum(rates / np.maximum(busy, 1.0), alone)
    return corrected


def _bard(S: Floats, Z: Floats, c2: Floats, alike: int = 1) -> Floats:
    """Bard's fixed point; `alike`: how many targets each one given stands for."""
    found_s, residence_s = _found_s(S, Z, c2), np.array(S)
    rate: Floats = 1 / (Z + residence_s)
    for _ in range(MOST_ITERATIONS):
        waiting_s = S * rate * (residence_s - S) + rate * S * found_s  # that each target's work makes
        others_s = alike * waiting_s.sum(axis=-1, keepdims=True) - waiting_s
        newer = (residence_s + S + others_s) / 2
        load = alike * (S / (Z + newer)).sum(axis=-1, keepdims=True)
        newer = np.where(load > 1, newer * load, newer)
        if np.all(np.abs(newer - residence_s) <= ENOUGH * newer):
            break
        residence_s, rate = newer, 1 / (Z + newer)
    return rate


def _found_s(S: Floats, Z: Floats, c2: Floats) -> Floats:
    """What is left of a service that is found running: S (1 + c^2) / 2 at a random moment, S at its beginning.

    S (1 + c^2) is the mean length of services that random moments fall into; returns that are short beside it find
    their beginnings.
    """
    at_random = Z / (Z + S * (1 + c2))
    left: Floats = S * (1 + at_random * (c2 - 1) / 2)
    return left
