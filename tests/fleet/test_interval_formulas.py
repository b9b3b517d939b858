"""Interval formulas, by hand on small batches."""

import math

import numpy as np
import pytest
from scipy import stats

from specfleet.fleet.records.columns import Table, Words
from specfleet.fleet.records.metrics.intervals import (
    batch_interval,
    drifts,
    quantile_levels,
    student_t_interval,
    variance_of_mean,
)
from specfleet.fleet.records.metrics.steady import CELLS, _inside, _of_number_inside_s, of_device_s
from specfleet.fleet.records.metrics.window import Window


@pytest.mark.parametrize(
    ("means", "correlation"),
    [
        ([0.0, 1.0] * 5, 0.0),  # neighbours repel each other: no reward for that
        ([0.0] * 5 + [1.0] * 5, 1.75 / 2.5 + 1 / 10),
        ([0.0] * 50 + [1.0] * 50, 0.9),  # 0.98, and 0.01 for 100 batches: the largest that is corrected for
    ],
)
def test_variance_of_a_mean_grows_with_neighbour_correlation(means: list[float], correlation: float) -> None:
    independent = np.var(means, ddof=1) / len(means)
    assert variance_of_mean(np.array(means)) == pytest.approx(independent * (1 + correlation) / (1 - correlation))


def test_equal_batches_have_no_variance() -> None:
    assert variance_of_mean(np.full(7, 3.5)) == 0.0
    assert batch_interval([3.5] * 7) == (3.5, 3.5)


def test_the_skewness_adjustment_is_undone_by_johnsons_polynomial() -> None:
    """Willink 2005: (1 + 2 a G)^3 = 1 + 6 a (q - a), a = skewness / (6 sqrt(n)), on both sides of the mean."""
    means = np.array([1.0, 1.0, 1.3, 0.9, 1.6, 1.0, 2.5, 1.0, 0.9, 1.1])
    a = stats.skew(means, bias=False) / (6 * math.sqrt(10))
    error = math.sqrt(variance_of_mean(means))
    quantiles = [((1 + 2 * a * (means.mean() - end) / error) ** 3 - 1) / (6 * a) + a for end in batch_interval(means)]
    assert quantiles == pytest.approx([stats.t.ppf(0.975, 9), -stats.t.ppf(0.975, 9)])


def test_two_batches_and_symmetric_ones_have_students_interval() -> None:
    for means in ([1.0, 2.0], [1.0, 3.0, 2.0, 1.0, 3.0]):
        assert batch_interval(means) == pytest.approx(student_t_interval(means))


def test_equal_shares_in_all_batches_make_every_value_count() -> None:
    """Jeffreys' interval of 90 of 100."""
    levels = quantile_levels([9.0] * 10, [10.0] * 10, 0.9)
    assert levels == pytest.approx(stats.beta.ppf([0.025, 0.975], 90.5, 10.5))


@pytest.mark.parametrize("each", [100.0, 1000.0])
def test_quantile_intervals_use_the_variance_between_batches(each: float) -> None:
    levels = quantile_levels([0.4 * each, 0.6 * each] * 5, [each] * 10, 0.5)
    error = 0.1 / 9 / 10 * (stats.t.ppf(0.975, 9) / stats.norm.ppf(0.975)) ** 2
    assert levels == pytest.approx(stats.beta.ppf([0.025, 0.975], 0.125 / error + 0.5, 0.125 / error + 0.5))


def test_two_batches_suffice_for_levels_even_with_an_empty_one() -> None:
    assert not any(map(math.isnan, quantile_levels([1.0, 2.0], [2.0, 2.0], 0.5)))
    assert all(map(math.isnan, quantile_levels([0.0, 0.0], [0.0, 0.0], 0.5)))
    without = quantile_levels([5.0, 0.0, 5.0], [10.0, 0.0, 10.0], 0.5)
    assert without == pytest.approx(stats.beta.ppf([0.025, 0.975], 10.5, 10.5))


def test_a_drift_is_the_first_fifth_against_the_second_half() -> None:
    """Two batches around D against five around 0: Student's two-sided test at 1 % with 5 degrees of freedom."""
    limit = math.sqrt(4 / 5 * (1 / 2 + 1 / 5)) * stats.t.ppf(0.995, 5)
    for factor, drifting in ((0.999, False), (1.001, True)):
        for side in (1, -1):
            early = side * factor * limit
            assert drifts([early - 1, early + 1, 50.0, -90.0, 70.0, -1.0, 0.0, 0.0, 0.0, 1.0]) == drifting


def test_drift_test_needs_five_batches() -> None:
    assert drifts([100.0, 50.0, 0.0, 0.1, 0.0])
    assert not drifts([100.0, 50.0, 0.0, 0.1])


def test_two_constants_drift_unless_they_differ_by_one_count() -> None:
    for step, drifting in ((0.04, False), (0.06, True)):
        assert drifts([1.0 - step, 1.0 - step, *[1.0] * 8]) == drifting


def test_a_devices_memory_is_that_of_its_queue() -> None:
    """2 (1 + rho) / (1 - rho)^2 services in M/M/1, half of it in M/D/1; load counts arrivals that went elsewhere."""
    constant = np.full(4, 0.5)
    assert of_device_s(constant, 1.0, 1.0, 4) == pytest.approx(0.5 * 2 * 1.5 / 0.25 / 2)
    assert of_device_s(constant, 1.0, 1.0, 8) == pytest.approx(0.5 * 2 * 1.25 / 0.75**2 / 2)
    varied = np.array([0.0, 1.0, 0.0, 1.0])  # squared coefficient of variation 1
    assert of_device_s(varied, 1.0, 1.0, 4) == pytest.approx(0.5 * 2 * 1.5 / 0.25)
    assert of_device_s(varied, 1.0, 3.0, 4) == pytest.approx(2 * 0.5 * 2 * 1.5 / 0.25)
    assert of_device_s(constant, 2.0, 1.0, 4) == math.inf
    assert of_device_s(constant, 1.99, 1.0, 4) < math.inf


def requests_inside(opened_s: np.ndarray, closed_s: np.ndarray) -> tuple[Table, Table]:
    """Rows of joins and of commits, one of each for a request."""
    none = np.zeros(len(opened_s), dtype=int)
    named = {"tag": np.arange(len(opened_s)), "request": none}
    return Table.of(**named, event=Words(none, ["join"]), time_s=opened_s), Table.of(**named, time_s=closed_s)


def test_the_memory_of_a_crowd_is_that_of_exponential_stays() -> None:
    """M/M/inf: the number inside has covariance exp(-t / s), so its relaxation time is 2 s, both sides counted."""
    rng, relaxations = np.random.default_rng(1), []
    for stay_s in (4.0, 16.0):
        for _ in range(20):
            opened_s = np.sort(rng.uniform(0.0, 1200.0, 12000))
            inside = _inside(*requests_inside(opened_s, opened_s + rng.exponential(stay_s, 12000)))
            relaxations.append(_of_number_inside_s(inside, Window(np.linspace(200.0, 1200.0, 11))) / stay_s)
    assert np.mean(relaxations[:20]) == pytest.approx(
        2.0, rel=0.25
    )  # sums that stop where they fall to zero err upwards
    assert np.mean(relaxations[20:]) == pytest.approx(2.0, rel=0.25)


def test_relaxation_of_number_inside_is_geyers_sum() -> None:
    """Written out without transforms: pairs of neighbouring lags, while positive, none larger than one before."""
    rng = np.random.default_rng(2)
    for stay_s in (3.0, 40.0, 400.0):
        opened_s = np.sort(rng.uniform(0.0, 1000.0, 300))
        closed_s = opened_s + rng.exponential(stay_s, 300)
        cells_s = np.linspace(100.0, 900.0, CELLS)
        inside = np.array([np.sum((opened_s < at_s) & (closed_s >= at_s)) for at_s in cells_s], dtype=float)
        off = inside - inside.mean()
        covariance = [off[: CELLS - lag] @ off[lag:] / CELLS for lag in range(CELLS // 2)]
        integral, pair = -covariance[0], math.inf
        for even, odd in zip(covariance[::2], covariance[1::2], strict=True):
            if even + odd <= 0:
                break
            pair = min(pair, even + odd)
            integral += 2 * pair
        expected_s = max(integral / covariance[0], 1.0) * 800.0 / CELLS
        window = Window(np.linspace(100.0, 900.0, 11))
        assert _of_number_inside_s(_inside(*requests_inside(opened_s, closed_s)), window) == pytest.approx(expected_s)


def test_constant_or_alternating_number_inside_relaxes_in_one_cell() -> None:
    window = Window(np.linspace(0.0, 512.0, 11))
    nobody = requests_inside(np.array([600.0]), np.array([700.0]))
    assert _of_number_inside_s(_inside(*nobody), window) == 512.0 / CELLS
    opened_s = np.arange(0.0, 512.0, 2 * 512 / 511)  # in at every other cell
    flicker = requests_inside(opened_s - 0.1, opened_s + 0.1)
    assert _of_number_inside_s(_inside(*flicker), window) == 512.0 / CELLS


def test_batches_include_their_end_not_their_beginning() -> None:
    window = Window(np.array([1.0, 2.0, 3.0]))
    times_s = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, math.nan]
    assert window.inside(times_s).tolist() == [False, False, True, True, True, True, False, False]
    assert window.sums(times_s, [1, 2, 4, 8, 16, 32, 64, 128]).tolist() == [12.0, 48.0]
    assert window.sums(times_s).tolist() == [2.0, 2.0]
    assert (window.length_s, window.batch_s) == (2.0, 1.0)


def test_a_ratio_leaves_out_batches_in_which_nothing_happened() -> None:
    window = Window(np.linspace(0.0, 10.0, 11))
    above, below = np.array([2.0, 0, 4, 3, 3, 2, 4, 3, 0, 3]), np.array([1.0, 0, 1, 1, 1, 1, 1, 1, 0, 1])
    metric, shorter = window.ratio(above, below, "s"), Window(np.linspace(0.0, 8.0, 9))
    alone = shorter.ratio(above[below > 0], below[below > 0], "s")
    assert metric == alone
    assert metric.value == 3.0
    assert math.isnan(window.ratio(above, 0 * below, "s").value)


def test_a_run_is_long_enough_from_fifty_memories_on() -> None:
    edges_s, sums = np.linspace(0.0, 10.0, 11), np.array([3.0, 2, 4, 3, 3, 2, 4, 3, 3, 3])
    assert Window(edges_s, 50.0).rate(sums, "1/s").times_longer == 1
    assert Window(edges_s, 25.0).rate(sums, "1/s").times_longer == 2
    assert Window(edges_s, 0.0).rate(sums, "1/s").times_longer == math.inf
    assert Window(edges_s[:2], 50.0).rate(sums[:1], "1/s").times_longer == 2


def test_only_what_cannot_be_is_cut_off_an_interval() -> None:
    """Clip below zero if all batches are positive; a share lies within 0 and 1, whatever rounding adds."""
    window, swings = Window(np.array([0.0, 1.0, 2.0])), np.array([0.0, 1.0])
    low, high = batch_interval(swings)
    assert low < 0.0
    assert high > 1.0
    assert (window.rate(swings, "s").low, window.rate(swings, "s").high) == (0.0, high)
    assert (window.rate(swings, "share of time").low, window.rate(swings, "share of time").high) == (0.0, 1.0)
    assert window.rate(swings - 0.1, "s").low == pytest.approx(low - 0.1)
    assert window.rate(swings + 1e-16, "share of time").high == 1.0


def test_a_quantiles_interval_lies_between_two_of_the_values() -> None:
    """1,000 values in equal shares: Jeffreys' levels of 500 of 1,000, widened to whole values."""
    window, times_s = Window(np.linspace(0.0, 1.0, 11)), (np.arange(1000) + 0.5) / 1000
    values = np.tile(np.arange(100.0), 10) + np.repeat([0.3, 0.7, 0.1, 0.8, 0.5, 0.0, 0.9, 0.2, 0.6, 0.4], 100)
    metric = window.spread(times_s, values, "s").percentiles["p50"]
    below, counts = window.sums(times_s[values <= metric.value]), window.sums(times_s)
    low, high = quantile_levels(below, counts, 0.5)
    ordered = np.sort(values)
    assert metric.value == np.quantile(values, 0.5)
    assert metric.low == ordered[math.floor(low * 1000) - 1]
    assert metric.high == ordered[math.ceil(high * 1000)]


def test_a_drift_of_twenty_batches_takes_four_early_and_ten_late_ones() -> None:
    limit = math.sqrt((4 + 2) / 12 * (1 / 4 + 1 / 10)) * stats.t.ppf(0.995, 12)
    for factor, drifting in ((0.999, False), (1.001, True)):
        early = [factor * limit + side for side in (-1, 1, -1, 1)]
        assert drifts([*early, *[90.0, -90.0] * 3, -1.0, *[0.0] * 8, 1.0]) == drifting


def test_few_batches_widen_a_quantiles_interval_by_students_factor() -> None:
    below, counts, level = [40.0, 50.0, 60.0], [100.0] * 3, 0.5
    error = variance_of_mean([(each - 50.0) / 100.0 for each in below])
    error *= (stats.t.ppf(0.975, 2) / stats.norm.ppf(0.975)) ** 2
    worth = level * (1 - level) / error
    beta = stats.beta(level * worth + 0.5, (1 - level) * worth + 0.5)
    assert quantile_levels(below, counts, level) == pytest.approx((beta.ppf(0.025), beta.ppf(0.975)))
