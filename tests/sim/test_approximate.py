"""Approximate mean value analysis: exact in the limits, and between the bounds elsewhere."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.sim.analytic import rounds_per_s
from specfleet.sim.approximate import rounds_per_s as approximate
from tests.helpers.theory import exponential_round_rate

TIMES = st.floats(1e-4, 1.0)


@given(N=st.integers(1, 40), S_s=TIMES, Z_s=st.floats(0.0, 2.0))
def test_without_variability_it_is_the_papers_equations(N: int, S_s: float, Z_s: float) -> None:
    assert float(approximate(N, S_s, Z_s)) == pytest.approx(rounds_per_s(N, S_s, Z_s))


@given(N=st.integers(1, 40), S_s=TIMES, Z_s=st.floats(0.0, 2.0))
def test_exponential_service_is_exact(N: int, S_s: float, Z_s: float) -> None:
    assert float(approximate(N, S_s, Z_s, 1.0)) == pytest.approx(exponential_round_rate(N, S_s, Z_s))


@given(S_s=TIMES, Z_s=st.floats(0.0, 2.0), scv=st.floats(0.0, 8.0), return_scv=st.floats(0.0, 8.0))
def test_round_rates_grow_with_N_within_the_bounds(S_s: float, Z_s: float, scv: float, return_scv: float) -> None:
    N = np.arange(1, 33)
    rates = approximate(N, S_s, Z_s, scv, return_scv)
    assert (np.diff(rates) >= -1e-9 * rates[:-1]).all()
    for targets, rate in zip(N.tolist(), rates.tolist(), strict=True):
        lower, upper = targets / (targets * S_s + Z_s), min(targets / (S_s + Z_s), 1 / S_s)
        assert lower * (1 - 1e-9) <= rate <= upper * (1 + 1e-9)


def test_cells_in_an_array_equal_single_cells() -> None:
    rng = np.random.default_rng(0)
    N, S, Z, scv = (
        rng.integers(1, 30, 200),
        rng.uniform(0.001, 0.1, 200),
        rng.uniform(0, 0.5, 200),
        rng.uniform(0, 2, 200),
    )
    alone = [float(approximate(*cell)) for cell in zip(N, S, Z, scv, strict=True)]
    assert approximate(N, S, Z, scv) == pytest.approx(alone)


@given(N=st.integers(1, 40), S_s=TIMES, Z_s=st.floats(0.0, 2.0))
def test_small_variability_changes_little(N: int, S_s: float, Z_s: float) -> None:
    assert float(approximate(N, S_s, Z_s, 1e-9, 1e-9)) == pytest.approx(rounds_per_s(N, S_s, Z_s), rel=1e-3)
