"""Approximate mean value analysis of stars: round rates of many fleets at once, without a simulation.

A drafter serves in order of arrival, whoever is served comes back after a return time. Reiser and Lavenberg's recursion
with the residual service of whoever is being served (Reiser 1979) knows the variability of S; where nothing varies the
star's own equations (8) to (12) are exact, and are taken. What this misses by is measured by
`python -m experiments.plan.screening`.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

ENOUGH = 1e-9  # relative change of the queues at which the iteration over unlike targets ends
MOST_ITERATIONS = 500


def rounds_per_s(N: ArrayLike, S_s: ArrayLike, Z_s: ArrayLike, scv: ArrayLike = 0.0) -> Floats:
    """R_q of stars of N like targets; all arguments broadcast against each other.

    `N`: targets, whole numbers from 1. `S_s`: mean service time, positive. `Z_s`: mean return time. `scv`: squared
    coefficient of variation of S. Where `scv` is 0 return times are taken as constant, too: N / max(N S, S + Z).
    """
    targets, S, Z, c2 = np.broadcast_arrays(*(np.asarray(each, dtype=float) for each in (N, S_s, Z_s, scv)))
    constant: Floats = targets / np.maximum(targets * S, S + Z)
    if not np.any(c2 > 0):
        return constant
    rate, queue, busy = (np.zeros(targets.shape) for _ in range(3))
    for customers in range(1, int(targets.max(initial=1)) + 1):
        # Who arrives waits for those in the queue, and for what is left of the service that runs: S (1 + c^2) / 2.
        residence_s = S * (1 + queue - busy) + busy * S * (1 + c2) / 2
        throughput = customers / (Z + residence_s)
        throughput = np.minimum(throughput, 1 / S)
        rate = np.where(customers <= targets, throughput, rate)
        queue, busy = throughput * residence_s, throughput * S
    return np.where(c2 > 0, rate, constant)


def rates_of_unlike(S_s: ArrayLike, Z_s: ArrayLike, scv: ArrayLike = 0.0) -> Floats:
    """Rounds a second of each target of stars whose targets differ: shape (..., targets), as `S_s` and `Z_s`.

    `S_s`: what a draft for each target takes. Each target is a class of its own with one customer, which finds the
    others as they are on average with it (Bard 1979): a little too many of them, so rates are a little low.
    """
    S, Z, c2 = np.broadcast_arrays(*(np.asarray(each, dtype=float) for each in (S_s, Z_s, scv)))
    residence_s: Floats = np.array(S)
    rate: Floats = 1 / (Z + residence_s)
    for _ in range(MOST_ITERATIONS):
        waiting_s = S * (rate * residence_s - rate * S) + rate * S * S * (1 + c2) / 2  # that each target's work makes
        others_s = waiting_s.sum(axis=-1, keepdims=True) - waiting_s
        newer = (residence_s + S + others_s) / 2
        load = (S / (Z + newer)).sum(axis=-1, keepdims=True)
        newer = np.where(load > 1, newer * load, newer)
        if np.all(np.abs(newer - residence_s) <= ENOUGH * newer):
            break
        residence_s, rate = newer, 1 / (Z + newer)
    return rate
