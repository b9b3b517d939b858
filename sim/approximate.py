"""Approximate mean value analysis of stars: round rates of many fleets at once, without a simulation.

The drafter serves requests in order of arrival, and each target returns after Z. Three cases are combined:

1. Variable times: Reiser and Lavenberg's recursion with the residual service time (Reiser 1979).
2. Constant times: equations (8) to (12) of StarSD, which are exact.
3. Little variability: an interpolation between both.

`specfleet plan` chooses by them which stars it simulates.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

LITTLE = 0.25  # SCV of S and Z together up to which the result is interpolated


def rounds_per_s(
    N: ArrayLike, S_s: ArrayLike, Z_s: ArrayLike, scv: ArrayLike = 0.0, return_scv: ArrayLike = 0.0
) -> Floats:
    """Return R_q of stars of N equal targets, N from 1 and S above 0. All arguments broadcast against each other.

    - `scv`, `return_scv`: squared coefficients of variation of S and of Z. With both 0 it is N / max(N S, S + Z).
    """
    arguments = np.broadcast_arrays(*(np.asarray(argument, dtype=float) for argument in (N, S_s, Z_s, scv, return_scv)))
    targets, S, Z, c2, return_c2 = arguments
    constant: Floats = targets / np.maximum(targets * S, S + Z)
    if not np.any(c2 + return_c2 > 0):
        return constant
    residual_s = _residual_s(S, Z, c2)
    rate, queue, busy = (np.zeros(targets.shape) for _ in range(3))
    for customers in range(1, int(targets.max(initial=1)) + 1):
        # An arriving request waits for the queue and for the rest of the running service.
        throughput = customers / (Z + S * (1 + queue - busy) + busy * residual_s)
        throughput = np.clip(throughput, customers / (customers * S + Z), 1 / S)
        rate = np.where(customers <= targets, throughput, rate)
        queue, busy = customers - throughput * Z, throughput * S
    weight = np.sqrt(np.minimum(1.0, (c2 + return_c2) / LITTLE))
    interpolated: Floats = constant + weight * (rate - constant)
    return interpolated


def _residual_s(S: Floats, Z: Floats, c2: Floats) -> Floats:
    """Return the mean rest of a running service at an arrival: S (1 + c^2) / 2 after a long return, S after a short
    one, which meets its start."""
    random_share = Z / (Z + S * (1 + c2))
    residual: Floats = S * (1 + random_share * (c2 - 1) / 2)
    return residual
