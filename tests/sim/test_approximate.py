"""Approximate mean value analysis: exact where theory is, between the bounds elsewhere, and near simulations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.analytic import round_rate_bounds, rounds_per_s
from sim.approximate import rates_of_unlike
from sim.approximate import rounds_per_s as approximate
from sim.mva import mean_value_analysis

TIMES = st.floats(1e-4, 1.0)


@given(N=st.integers(1, 40), S_s=TIMES, Z_s=st.floats(0.0, 2.0))
def test_without_variability_it_is_the_papers_equations(N: int, S_s: float, Z_s: float) -> None:
    assert float(approximate(N, S_s, Z_s)) == pytest.approx(rounds_per_s(N, S_s, Z_s))


@given(N=st.integers(1, 40), S_s=TIMES, Z_s=st.floats(0.0, 2.0))
def test_exponential_service_is_exact(N: int, S_s: float, Z_s: float) -> None:
    exact = mean_value_analysis(N, [S_s], Z_s).throughput_per_s
    assert float(approximate(N, S_s, Z_s, 1.0)) == pytest.approx(exact)


@given(S_s=TIMES, Z_s=st.floats(0.0, 2.0), scv=st.floats(0.0, 8.0), return_scv=st.floats(0.0, 8.0))
def test_round_rates_grow_with_the_targets_and_stay_within_the_bounds(
    S_s: float, Z_s: float, scv: float, return_scv: float
) -> None:
    N = np.arange(1, 33)
    rates = approximate(N, S_s, Z_s, scv, return_scv)
    assert (np.diff(rates) >= -1e-9 * rates[:-1]).all()
    for targets, rate in zip(N.tolist(), rates.tolist(), strict=True):
        lower, upper = round_rate_bounds(targets, S_s, Z_s)
        assert lower * (1 - 1e-9) <= rate <= upper * (1 + 1e-9)


def test_many_cells_at_once_are_each_what_they_are_alone() -> None:
    rng = np.random.default_rng(0)
    N, S, Z, scv = (
        rng.integers(1, 30, 200),
        rng.uniform(0.001, 0.1, 200),
        rng.uniform(0, 0.5, 200),
        rng.uniform(0, 2, 200),
    )
    alone = [float(approximate(*cell)) for cell in zip(N, S, Z, scv, strict=True)]
    assert approximate(N, S, Z, scv) == pytest.approx(alone)


@settings(max_examples=50)
@given(N=st.integers(2, 16), S_s=TIMES, Z_s=st.floats(0.0, 2.0))
def test_unlike_targets_that_are_alike_are_like_ones(N: int, S_s: float, Z_s: float) -> None:
    together = float(rates_of_unlike([S_s] * N, [Z_s] * N, 1.0).sum())
    assert together == pytest.approx(mean_value_analysis(N, [S_s], Z_s).throughput_per_s, rel=1e-4)


@given(
    times=st.lists(st.tuples(TIMES, st.floats(0.0, 2.0)), min_size=1, max_size=12),
    scv=st.floats(0.0, 4.0),
    return_scv=st.floats(0.0, 4.0),
)
def test_unlike_targets_share_one_drafter_and_none_is_faster_than_alone(
    times: list[tuple[float, float]], scv: float, return_scv: float
) -> None:
    S, Z = np.array(times).T
    rates = rates_of_unlike(S, Z, scv, return_scv)
    assert (rates > 0).all()
    assert (rates <= 1 / (S + Z) * (1 + 1e-9)).all()
    assert (rates * S).sum() <= 1 + 1e-6


def test_many_unlike_stars_at_once_are_each_what_they_are_alone() -> None:
    rng = np.random.default_rng(0)
    S, Z, scv = rng.uniform(0.001, 0.1, (50, 6)), rng.uniform(0, 0.5, (50, 6)), rng.uniform(0, 2, (50, 1))
    alone = np.array([rates_of_unlike(*star) for star in zip(S, Z, scv, strict=True)])
    assert rates_of_unlike(S, Z, scv) == pytest.approx(alone, rel=1e-4)


@given(N=st.integers(1, 40), S_s=TIMES, Z_s=st.floats(0.0, 2.0))
def test_next_to_no_variability_changes_next_to_nothing(N: int, S_s: float, Z_s: float) -> None:
    assert float(approximate(N, S_s, Z_s, 1e-9, 1e-9)) == pytest.approx(rounds_per_s(N, S_s, Z_s), rel=1e-3)


def test_a_target_that_is_farther_away_gets_fewer_rounds() -> None:
    near, far = rates_of_unlike([0.01, 0.01], [0.02, 0.08], 1.0)
    assert near > 1.5 * far
