"""The mean accepted length of measured rounds, with its interval."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from fleet.errors import InputError


class MeanLength(NamedTuple):
    """Mean accepted draft tokens a round, with its 95 % confidence interval."""

    mean: float
    low: float
    high: float


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
    return MeanLength(float(mean), float(mean - half_width), float(mean + half_width))
