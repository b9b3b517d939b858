"""Fair goodput (GoodSpeed, section III-B): utilities, the optimum over all schedules, and goodputs of a run."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fleet.policies.goodspeed import expected_goodput
from fleet.records.columns import Table
from fleet.records.metrics.grouped import Groups

Floats = NDArray[np.float64]


def utility(goodputs: Sequence[float] | Floats) -> float:
    """U(x) = sum log x_i."""
    return float(np.log(np.asarray(goodputs, dtype=float)).sum())


def mixed_goodput(acceptance: float, length: float) -> float:
    """Tokens a round of a client that mixes the two integer lengths around `length` so that they average to it.

    It is linear between integers: the convex hull in equation (2) consists of time shares of schedules.
    """
    whole = math.floor(length)
    below, above = expected_goodput(acceptance, whole), expected_goodput(acceptance, whole + 1)
    return below + (length - whole) * (above - below)


def best_goodput(acceptances: Sequence[float], budget: int) -> list[float]:
    """x*, the solution of problem (1): goodputs in tokens a round that maximise the utility over the region (2).

    Gains are concave in the length, so every point of the hull's upper edge mixes neighbouring integer lengths, and
    only the budget couples the clients. Bisection finds the multiplier of sum S_i <= C; at that price each client
    takes the length at which its marginal utility falls below it.
    """
    alphas = [min(alpha, 1.0) for alpha in acceptances]
    low, high = 0.0, max(alphas, default=0.0) + 1.0
    for _ in range(200):
        price = (low + high) / 2
        if sum(_wanted(alpha, price, budget) for alpha in alphas) > budget:
            low = price
        else:
            high = price
    return [mixed_goodput(alpha, _wanted(alpha, high, budget)) for alpha in alphas]


def _wanted(alpha: float, price: float, budget: int) -> float:
    """Length at which a client's marginal utility, alpha^(S + 1) / x, falls below the price."""
    for whole in range(budget):
        gain = alpha ** (whole + 1)
        if gain <= 0:
            return whole
        x = expected_goodput(alpha, whole)
        if x**-1 * gain <= price:
            return whole
        # Within the piece x grows by `gain` a token: find the root of gain / x = price, if it is inside.
        there = gain / price if price > 0 else math.inf
        if there < x + gain:
            return whole + (there - x) / gain
    return budget


def goodputs_of(verifications: Table, clients: int) -> Floats:
    """x_i(t): tokens of client i in iteration t, shape (iterations, clients); NaN where the client took no part.

    `verifications`: see `tables.verifications_of`. An iteration is a step of the verifier.
    """
    steps, rounds = Groups(verifications.step), Groups(verifications.step, verifications.tag)
    client = verifications.tag[rounds.first]
    valid = client < clients
    goodputs = np.full((len(steps), clients), np.nan)
    goodputs[steps.of[rounds.first][valid], client[valid]] = verifications.acceptance_length[rounds.first][valid] + 1
    return goodputs


def smoothed(goodputs: Floats, beta: float, start: float) -> Floats:
    """X(t) by equation (4), from the goodputs of a run: shape (iterations, clients); clients without a part keep X."""
    estimates = np.empty_like(goodputs)
    now = np.full(goodputs.shape[1], start)
    for t, x in enumerate(goodputs):
        now = np.where(np.isnan(x), now, (1 - beta) * now + beta * x)
        estimates[t] = now
    return estimates
