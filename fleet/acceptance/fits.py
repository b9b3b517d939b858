"""Maximum-likelihood fits of acceptance models to recorded acceptance, and how far they are from it.

A round is a row of Bernoulli trials that ends with the first failure or with the draft. A length equal to its depth is
censored: agreement might have continued. For drafts of one depth the likelihood needs only P(l >= j), j = 1 .. depth.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from specfleet.fleet.acceptance import models
from specfleet.fleet.acceptance.models import BetaGeometric, Geometric, PerPosition, Recorded
from specfleet.fleet.errors import InputError

Floats = NDArray[np.float64]
Measured = PerPosition | Recorded
Fitted = Geometric | BetaGeometric

MIN_SPREAD = 1e-9  # variance of beta over its maximum; below this share a single beta describes the data


class MeanLength(NamedTuple):
    """Mean accepted draft tokens a round, with its 95 % confidence interval.

    - `alike`: how many times as wide the interval is as if rounds did not depend on their session.
    """

    mean: float
    low: float
    high: float
    alike: float


def fit_geometric(measured: Measured) -> Geometric:
    """Fit one beta: accepted tokens over verified tokens, the first mismatch included."""
    won, _, tried = _trials(measured)
    return Geometric(float(won.sum() / tried.sum()))


@lru_cache(maxsize=16)
def fit_beta_geometric(measured: Measured) -> Fitted:
    """Fit Beta(a, b), from which each round draws its beta.

    If lengths spread no more than one beta explains, the likelihood grows towards a + b = infinity; the function then
    returns that limit, a `Geometric`. If each round accepts all or nothing, it grows towards a + b = 0; the fit stops
    at 1e-9.
    """
    one_beta = fit_geometric(measured)
    mean = one_beta.beta
    if mean in {0.0, 1.0}:
        return one_beta
    urn = _trials(measured)
    trials = float(urn[2].sum())

    def cost(point: Floats) -> tuple[float, Floats]:
        log_likelihood, slope = _polya_log_likelihood(point[0], point[1], *urn)
        return -log_likelihood / trials, -slope / trials

    # Start from one beta: for a fixed mean, the likelihood has one peak in the spread (Levin and Reeds 1977). TNC
    # calls no linear algebra, whose threads are slow on a busy machine.
    inside = (MIN_SPREAD, 1 - MIN_SPREAD)
    best = optimize.minimize(
        cost, x0=(mean, 0.0), jac=True, method="TNC", bounds=(inside, (0.0, inside[1])),
        options={"ftol": 1e-15, "xtol": 1e-12, "gtol": 1e-9, "maxfun": 1000},
    )  # fmt: skip
    mean, spread = best.x.tolist()
    if spread < MIN_SPREAD:
        return one_beta
    total = (1 - spread) / spread
    return BetaGeometric(mean * total, (1 - mean) * total)


def total_variation(model: Fitted, measured: Measured) -> float:
    """Total variation distance of a model from the recorded distribution at its depth: 0 if equal, 1 if disjoint."""
    depth = int(models.deepest(measured))
    return float(np.abs(models.pmf(model, depth) - models.pmf(measured, depth)).sum() / 2)


def mean_interval(sessions: Sequence[Sequence[int]]) -> MeanLength:
    """Mean over all rounds, with a 95 % interval that allows for dependence within a session.

    - `sessions[i]`: acceptance lengths of session i.

    The mean is a ratio: accepted tokens over rounds. Its variance comes from the sessions' sums (linearised), with
    Student's quantile for sessions - 1 degrees of freedom. Raises InputError for fewer than two sessions, or an empty
    one.
    """
    rounds = np.array([len(session) for session in sessions])
    if len(rounds) < 2 or not rounds.all():
        raise InputError(f"sessions of {rounds.tolist()} rounds; allowed: two sessions or more, none empty")
    accepted = np.array([sum(session) for session in sessions])
    mean = accepted.sum() / rounds.sum()
    residuals = accepted - mean * rounds
    error = np.sqrt(residuals.var(ddof=1) * len(rounds)) / rounds.sum()
    half_width = stats.t.ppf(0.975, len(rounds) - 1) * error
    independent = np.concatenate(list(map(np.asarray, sessions))).std() / np.sqrt(rounds.sum())
    alike = error / independent if independent else 1.0
    return MeanLength(float(mean), float(mean - half_width), float(mean + half_width), float(alike))


def _trials(measured: Measured) -> tuple[Floats, Floats, Floats]:
    """Return the shares of rounds with more than i successes, failures and trials, for i = 0, 1, ..."""
    reached = models.survival(measured, int(models.deepest(measured)))
    return reached, 1 - reached[-1:], np.append(1.0, reached[:-1])


def _polya_log_likelihood(mean: float, spread: float, won: Floats, lost: Floats, tried: Floats) -> tuple[float, Floats]:
    """Log-likelihood of groups of trials, each with its own beta, and its slope in (mean, spread).

    w successes and f failures have probability E[beta^w (1 - beta)^f] = a (a+1) .. (a+w-1) times b .. (b+f-1) over
    (a+b) .. (a+b+w+f-1): Polya's urn. With mean = a / (a+b) and spread = 1 / (a+b+1), the factors stay finite at
    spread = 0, which is one beta for all. The sum over groups needs only the share of groups with more than i
    successes, failures and trials, for every i.
    """
    up = _log_rising(mean, spread, won)
    down = _log_rising(1 - mean, spread, lost)
    total = _log_rising(1.0, spread, tried)
    value, _, by_spread = up + down - total
    return float(value), np.array([up[1] - down[1], by_spread])


def _log_rising(first: float, spread: float, exceeding: Floats) -> Floats:
    """Sum over i of exceeding[i] log(first (1 - spread) + i spread); its slopes in first and in spread."""
    i = np.arange(len(exceeding))
    factors = first * (1 - spread) + i * spread
    weights = exceeding / factors
    return np.array([exceeding @ np.log(factors), (1 - spread) * weights.sum(), weights @ (i - first)])
