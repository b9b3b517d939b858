"""Intervals cover what they claim to cover, small cases are the textbooks', and fairness has its bounds.

Coverage is counted over TRIALS independent samples: at a true coverage of 95 %, a count outside [LEAST, MOST] has a
probability of 1e-6.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fleet.records.intervals import jain_index, quantile_interval, ratio_interval, student_t_interval
from fleet.records.window import Metric, Window
from tests.helpers.marks import slow
from tests.helpers.stars import repeatable

TRIALS = 2000
LEAST, MOST = stats.binom.ppf([5e-7, 1 - 5e-7], TRIALS, 0.95)


def covered(truth: float, interval_of: Callable[[np.random.Generator], tuple[float, float]]) -> int:
    rng = np.random.default_rng(1)
    return sum(low <= truth <= high for low, high in (interval_of(rng) for _ in range(TRIALS)))


def bounds(metric: Metric) -> tuple[float, float]:
    return metric.low, metric.high


@pytest.mark.parametrize("count", [slow(2), 5, slow(20)])
def test_student_intervals_cover_the_mean_of_normal_values(count: int) -> None:
    assert LEAST <= covered(3.0, lambda rng: student_t_interval(rng.normal(3.0, 2.0, count))) <= MOST


@pytest.mark.parametrize(("count", "level"), [slow(30, 0.5), (60, 0.9), slow(400, 0.99)])
def test_order_statistics_cover_the_quantile_whatever_the_distribution(count: int, level: float) -> None:
    """Discrete, hence at least 95 %: only the lower bound is exact."""
    truth = stats.lognorm.ppf(level, 1.0)
    assert covered(truth, lambda rng: quantile_interval(rng.lognormal(size=count), level)) >= LEAST


def test_ratio_intervals_cover_the_ratio_of_means() -> None:
    """The delta method is right for many batches; 200 are many: its error, O(1/batches), is allowed 1 %."""

    def interval(rng: np.random.Generator) -> tuple[float, float]:
        events = rng.poisson(20, 200)
        return ratio_interval(rng.normal(2.0 * events, 3.0 * np.sqrt(events)), events)

    assert LEAST - 0.01 * TRIALS <= covered(2.0, interval) <= MOST + 0.01 * TRIALS


@pytest.mark.slow
def test_estimates_from_a_window_cover_rate_and_mean() -> None:
    """Poisson events, exponential values; 20 batches of about 50 events are nearly normal: 1 % is allowed for that."""
    window = Window(np.linspace(10.0, 110.0, 21))

    def events(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        times_s = rng.uniform(0.0, 120.0, rng.poisson(1200))
        return times_s, rng.exponential(4.0, len(times_s))

    def rate(rng: np.random.Generator) -> tuple[float, float]:
        return bounds(window.rate(window.sums(*events(rng)), "tokens/s"))

    def mean(rng: np.random.Generator) -> tuple[float, float]:
        return bounds(window.mean(*events(rng), "tokens"))

    assert LEAST - 0.01 * TRIALS <= covered(40.0, rate) <= MOST + 0.01 * TRIALS
    assert LEAST - 0.01 * TRIALS <= covered(4.0, mean) <= MOST + 0.01 * TRIALS


def test_one_event_a_batch_makes_the_ratio_interval_students() -> None:
    sums, counts = np.array([3.0, 0.0, 5.0, 0.0, 10.0]), np.array([1.0, 0.0, 1.0, 0.0, 1.0])
    assert ratio_interval(sums, counts) == pytest.approx(student_t_interval([3.0, 5.0, 10.0]))


def test_the_medians_interval_of_a_hundred_values_is_the_textbooks() -> None:
    """Conover, Practical Nonparametric Statistics: ranks 40 and 61."""
    assert quantile_interval(np.arange(100.0, 0.0, -1.0), 0.5) == (40.0, 61.0)


@pytest.mark.parametrize(("count", "bracketed"), [(367, False), (368, True)])
def test_the_99th_percentile_needs_368_values(count: int, bracketed: bool) -> None:
    """1 - 0.99^n >= 0.975."""
    assert math.isfinite(quantile_interval(np.arange(count), 0.99)[1]) == bracketed


def test_too_few_values_have_no_interval() -> None:
    for interval in (student_t_interval([1.0]), ratio_interval([1.0, 0.0], [1.0, 0.0]), quantile_interval([1.0], 0.5)):
        assert all(map(math.isnan, interval))


@repeatable
@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=20), st.floats(0.1, 10))
def test_jains_index_lies_between_a_monopoly_and_equality_in_any_unit(shares: list[float], unit: float) -> None:
    index = jain_index(shares)
    assert 1 / len(shares) - 1e-12 <= index <= 1 + 1e-12
    assert jain_index(unit * np.array(shares)) == pytest.approx(index)
    assert jain_index([*shares[:1], *[0.0] * (len(shares) - 1)]) == pytest.approx(1 / len(shares))
    assert jain_index([unit] * len(shares)) == pytest.approx(1)
