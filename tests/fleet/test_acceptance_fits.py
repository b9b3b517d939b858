"""Fits of acceptance models to accepted lengths, and the interval of their mean.

Statistical tests raise a false alarm with probability FALSE_ALARM at most, each, were the seeds not fixed.
"""

import math

import msgspec
import numpy as np
import pytest
from scipy import stats

from specfleet.fleet.acceptance.fits import fit_beta_geometric, fit_geometric, mean_interval, total_variation
from specfleet.fleet.acceptance.models import (
    AcceptanceModel,
    BetaGeometric,
    Geometric,
    Recorded,
    committed_closed_form,
    expected_accepted,
    pmf,
)
from specfleet.fleet.errors import InputError

FALSE_ALARM = 1e-6
DEPTH = 6


def cut_geometric(rng: np.random.Generator, beta: np.ndarray, depth: np.ndarray | int) -> np.ndarray:
    """Lengths drawn by numpy's own geometric generator, one for each beta."""
    return np.minimum(rng.geometric(1 - beta) - 1, depth)


def mixed_rounds(beta: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Lengths and depths of rounds of every depth from 1 to 8, one for each beta."""
    rng = np.random.default_rng(seed)
    drafted = rng.integers(1, 9, len(beta))
    return cut_geometric(rng, beta, drafted), drafted


def log_likelihood(model: AcceptanceModel, lengths: np.ndarray, drafted: np.ndarray) -> float:
    chances = {depth: pmf(model, depth) for depth in range(1, 9)}
    return sum(math.log(chances[depth][length]) for length, depth in zip(lengths, drafted, strict=True))


def test_one_beta_is_recovered_within_its_standard_error() -> None:
    beta, rounds = 0.8, 20_000
    lengths, drafted = mixed_rounds(np.full(rounds, beta), 10)
    fit = fit_geometric(lengths, drafted)
    verified = np.mean([committed_closed_form(beta, depth - 1) for depth in range(1, 9)]) * rounds
    error = math.sqrt(beta * (1 - beta) / verified)  # from the Fisher information of a verified token
    assert abs(fit.beta - beta) < stats.norm.isf(FALSE_ALARM / 2) * error


def test_many_betas_are_recovered_within_their_confidence_region() -> None:
    """Twice the log-likelihood that the truth falls short of the fit is chi-square (Wilks), two parameters."""
    lengths, drafted = mixed_rounds(np.random.default_rng(11).beta(3, 1, 20_000), 12)
    fit = fit_beta_geometric(lengths, drafted)
    shortfall = log_likelihood(fit, lengths, drafted) - log_likelihood(BetaGeometric(3, 1), lengths, drafted)
    assert 0 <= 2 * shortfall < stats.chi2.isf(FALSE_ALARM, 2)


def test_all_accepted_and_none_accepted_are_fitted_as_certainty() -> None:
    for fit_model in (fit_geometric, fit_beta_geometric):
        assert fit_model([3, 5], [3, 5]) == Geometric(1)
        assert fit_model([0, 0], 5) == Geometric(0)


def test_underdispersed_lengths_are_fitted_by_one_beta() -> None:
    lengths = [1, 2] * 50
    assert fit_beta_geometric(lengths, 8) == fit_geometric(lengths, 8)


def test_all_or_nothing_rounds_are_fitted_by_extreme_betas() -> None:
    fit = fit_beta_geometric([8] * 30 + [0] * 10, 8)
    assert pmf(fit, 8) == pytest.approx([1 / 4, *[0] * 7, 3 / 4], abs=1e-6)
    msgspec.json.decode(msgspec.json.encode(fit), type=AcceptanceModel)  # still a model within its limits


def test_total_variation_is_zero_if_equal_and_one_if_disjoint() -> None:
    lengths = (0, 1, 1, 4)
    assert total_variation(Recorded(4, (lengths,)), lengths, 4) == pytest.approx(0)
    assert total_variation(Geometric(1), (0, 1, 1, 3), 4) == pytest.approx(1)
    assert total_variation(Geometric(0), lengths, 4) == pytest.approx(3 / 4)


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
