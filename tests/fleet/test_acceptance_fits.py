"""Fits of acceptance models to accepted lengths, and the interval of their mean.

Statistical tests raise a false alarm with probability FALSE_ALARM at most, each, were the seeds not fixed.
"""

import math
import re
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy import stats

from specfleet.experiments.notes import notes_of
from specfleet.fleet.acceptance.fits import fit_beta_geometric, fit_geometric, mean_interval, total_variation
from specfleet.fleet.acceptance.models import (
    AcceptanceModel,
    BetaGeometric,
    Geometric,
    PerPosition,
    Recorded,
    check_depth,
    committed_closed_form,
    expected_accepted,
    expected_committed,
    pmf,
)
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.reading import change_scenario, make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.run import simulate

FALSE_ALARM = 1e-6
DEPTH = 6


def cut_geometric(rng: np.random.Generator, beta: np.ndarray, depth: np.ndarray | int) -> np.ndarray:
    """Lengths drawn by numpy's own geometric generator, one for each beta."""
    return np.minimum(rng.geometric(1 - beta) - 1, depth)


def recorded(lengths: ArrayLike, depth: int = DEPTH) -> Recorded:
    return Recorded(depth, (tuple(np.asarray(lengths).tolist()),))


def rounds_of(beta: np.ndarray, seed: int) -> Recorded:
    return recorded(cut_geometric(np.random.default_rng(seed), beta, DEPTH))


def log_likelihood(model: AcceptanceModel, lengths: tuple[int, ...]) -> float:
    return float(np.log(pmf(model, DEPTH))[np.array(lengths)].sum())


def test_one_beta_is_recovered_within_its_standard_error() -> None:
    beta, rounds = 0.8, 20_000
    fit = fit_geometric(rounds_of(np.full(rounds, beta), 10))
    verified = committed_closed_form(beta, DEPTH - 1) * rounds
    error = math.sqrt(beta * (1 - beta) / verified)  # from the Fisher information of a verified token
    assert abs(fit.beta - beta) < stats.norm.isf(FALSE_ALARM / 2) * error


def test_many_betas_are_recovered_within_their_confidence_region() -> None:
    """Twice the log-likelihood that the truth falls short of the fit is chi-square (Wilks), two parameters."""
    rounds = rounds_of(np.random.default_rng(11).beta(3, 1, 20_000), 12)
    (lengths,) = rounds.sessions
    shortfall = log_likelihood(fit_beta_geometric(rounds), lengths) - log_likelihood(BetaGeometric(3, 1), lengths)
    assert 0 <= 2 * shortfall < stats.chi2.isf(FALSE_ALARM, 2)


def test_all_accepted_and_none_accepted_are_fitted_as_certainty() -> None:
    for fit_model in (fit_geometric, fit_beta_geometric):
        assert fit_model(recorded([5, 5], 5)) == Geometric(1)
        assert fit_model(recorded([0, 0], 5)) == Geometric(0)


def test_underdispersed_lengths_are_fitted_by_one_beta() -> None:
    rounds = recorded([1, 2] * 50)
    assert fit_beta_geometric(rounds) == fit_geometric(rounds)


def test_all_or_nothing_rounds_are_fitted_by_extreme_betas() -> None:
    fit = fit_beta_geometric(recorded([8] * 30 + [0] * 10, 8))
    assert pmf(fit, 8) == pytest.approx([1 / 4, *[0] * 7, 3 / 4], abs=1e-6)
    msgspec.json.decode(msgspec.json.encode(fit), type=AcceptanceModel)  # still a model within its limits


def pair(model: Any, **changes: Any) -> Scenario:
    """A profile with that acceptance, of which the scenario takes a fit."""
    profile = {"name": "own", "draft": {"base_s": 0.1}, "verify": {"base_s": 0.2}, "acceptance": model}
    workload = {"requests": 40, "prompt_tokens": 4, "new_tokens": 40}
    return make_scenario({"profile": profile, "acceptance": "beta-geometric", "workload": workload} | changes)


def test_the_bare_name_draws_from_a_fit_to_the_profiles_record() -> None:
    record = Recorded(3, ((3, 0, 1, 3), (0, 2, 3, 3, 0)))
    fit = fit_beta_geometric(record)
    for model in (record, PerPosition(histogram=(3, 1, 1, 4))):
        assert resolve(pair(msgspec.to_builtins(model))).acceptance == fit
    deep = pair(msgspec.to_builtins(record), drafters={"depth": 12})  # of which the record says nothing
    stated = change_scenario(deep, {"acceptance": fit})
    assert simulate(deep).table.equals(simulate(stated).table)
    assert not [note for note in notes_of(deep) if "acceptance" in note]
    with pytest.raises(InputError, match=r"depth = 12 goes beyond the recorded depth = 3; allowed: up to 3; --set"):
        simulate(change_scenario(deep, {"acceptance": None}))


def test_a_depth_beyond_the_record_names_a_rate_of_its_mean() -> None:
    model = PerPosition(histogram=(3, 1, 1, 4))
    with pytest.raises(InputError, match="extrapolates at a constant rate") as refused:
        check_depth(model, 4)
    beta = re.search(r'model="geometric",beta=([\d.]+)', str(refused.value))
    assert beta is not None
    assert expected_committed(Geometric(float(beta[1])), 3) == pytest.approx(expected_committed(model, 3), rel=0.003)


def test_a_fit_needs_a_record() -> None:
    with pytest.raises(InputError, match="fitted to a record, and profile 'own' has none; give a and b"):
        resolve(pair({"model": "geometric", "beta": 0.5}))
    with pytest.raises(InputError, match="acceptance is missing"):
        simulate(pair(None))


def test_total_variation_is_zero_if_equal_and_one_if_disjoint() -> None:
    assert total_variation(Geometric(0.5), PerPosition(survival=(0.5, 0.25))) == pytest.approx(0)
    assert total_variation(Geometric(1), recorded([0, 1, 1, 3], 4)) == pytest.approx(1)
    assert total_variation(Geometric(0), recorded([0, 1, 1, 4], 4)) == pytest.approx(3 / 4)


def test_counts_by_length_are_fitted_as_the_rounds_themselves() -> None:
    lengths = [0, 0, 0, 1, 2, 2, 5, 5, 5, 5]
    counts = PerPosition(histogram=tuple(np.bincount(lengths).tolist()))
    assert fit_beta_geometric(counts) == fit_beta_geometric(recorded(lengths, 5))


def test_the_interval_of_equal_sessions_is_students_over_their_means() -> None:
    sessions = [[1, 2, 3], [0, 0, 5], [4, 4, 1], [2, 2, 2]]
    students = stats.ttest_1samp([np.mean(session) for session in sessions], 0).confidence_interval(0.95)
    assert mean_interval(sessions)[:3] == pytest.approx((26 / 12, students.low, students.high))


def test_repeating_every_round_of_a_session_narrows_nothing() -> None:
    sessions = [[1, 2, 3], [0, 5], [4, 4, 1, 0], [2]]
    once, repeated = mean_interval(sessions), mean_interval([session * 9 for session in sessions])
    assert repeated == pytest.approx(once._replace(alike=3 * once.alike))  # as nine times as many rounds would


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
