"""The interval of the mean accepted length.

The statistical test raises a false alarm with probability FALSE_ALARM at most, were the seed not fixed.
"""

import numpy as np
import pytest
from scipy import stats

from fleet.acceptance.fits import mean_interval
from fleet.acceptance.models import BetaGeometric, expected_accepted
from fleet.errors import InputError

FALSE_ALARM = 1e-6
DEPTH = 6


def cut_geometric(rng: np.random.Generator, beta: np.ndarray, depth: np.ndarray | int) -> np.ndarray:
    """Lengths drawn by numpy's own geometric generator, one for each beta."""
    return np.minimum(rng.geometric(1 - beta) - 1, depth)


def test_the_interval_of_equal_sessions_is_students_over_their_means() -> None:
    sessions = [[1, 2, 3], [0, 0, 5], [4, 4, 1], [2, 2, 2]]
    students = stats.ttest_1samp([np.mean(session) for session in sessions], 0).confidence_interval(0.95)
    assert mean_interval(sessions) == pytest.approx((26 / 12, students.low, students.high))


def test_repeating_every_round_of_a_session_narrows_nothing() -> None:
    sessions = [[1, 2, 3], [0, 5], [4, 4, 1, 0], [2]]
    assert mean_interval([session * 7 for session in sessions]) == pytest.approx(mean_interval(sessions))


def test_the_interval_holds_the_mean_as_often_as_it_says() -> None:
    """Of sessions of unequal length with a beta each; 0.02 is allowed for 40 of them."""
    rng = np.random.default_rng(22)
    truth = expected_accepted(BetaGeometric(3, 1), DEPTH)
    covered = 0
    for _ in range(500):
        sizes = rng.integers(5, 30, 40)
        lengths = cut_geometric(rng, rng.beta(3, 1, 40).repeat(sizes), DEPTH)
        interval = mean_interval([part.tolist() for part in np.split(lengths, sizes.cumsum()[:-1])])
        covered += interval.low <= truth <= interval.high
    assert stats.binom.ppf(FALSE_ALARM / 2, 500, 0.93) <= covered <= stats.binom.isf(FALSE_ALARM / 2, 500, 0.97)


def test_an_interval_needs_two_sessions() -> None:
    for sessions in ([], [[1, 2]], [[1], []]):
        with pytest.raises(InputError, match="allowed: two sessions or more, none empty"):
            mean_interval(sessions)
