"""Intervals cover as claimed or are absent, and fairness has its bounds.

Coverage is counted over TRIALS independent samples. The claim is 95 %, the promise 92 to 98 %. A count is accepted if
a true coverage within the promise makes it likelier than one in a million.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from specfleet.fleet.records.metrics.intervals import batch_interval, drifts, quantile_levels, student_t_interval
from specfleet.fleet.records.metrics.measure import combine
from specfleet.fleet.records.metrics.steady import of_device_s
from specfleet.fleet.records.metrics.window import MIN_BEYOND, MIN_RELAXATIONS, Metric, Window
from tests.helpers.marks import slow

TRIALS, RUNS = 2000, 400
EXACTLY = stats.binom.ppf([5e-7, 1 - 5e-7], TRIALS, 0.95)
PROMISE = (0.92, 0.98)


def covered(truth: float, interval_of: Callable[[np.random.Generator], tuple[float, float]], trials: int) -> int:
    rng = np.random.default_rng(1)
    return sum(low <= truth <= high for low, high in (interval_of(rng) for _ in range(trials)))


def within_promise(covering: int, trials: int) -> bool:
    least, most = stats.binom.ppf([5e-7, 1 - 5e-7], trials, PROMISE)
    return bool(least <= covering <= most)


@pytest.mark.parametrize("count", [slow(2), 5, slow(20)])
def test_student_intervals_cover_the_mean_of_normal_values(count: int) -> None:
    covering = covered(3.0, lambda rng: student_t_interval(rng.normal(3.0, 2.0, count)), TRIALS)
    assert EXACTLY[0] <= covering <= EXACTLY[1]


@pytest.mark.parametrize("draw", ["normal", slow("exponential"), slow("lognormal")])
@pytest.mark.parametrize("correlation", [0.0, slow(0.5)])
def test_batch_intervals_cover_the_mean_with_and_without_correlation(draw: str, correlation: float) -> None:
    """Ten batches of 20 values that follow an autoregression around draws of mean zero."""
    mean = {"normal": 0.0, "exponential": 1.0, "lognormal": math.exp(0.5)}[draw]

    def interval(rng: np.random.Generator) -> tuple[float, float]:
        values = getattr(rng, draw)(size=220) - mean
        for place in range(1, len(values)):
            values[place] += correlation * values[place - 1]
        return batch_interval(5.0 + values[20:].reshape(10, 20).mean(axis=1))

    assert within_promise(covered(5.0, interval, RUNS), RUNS)


def test_a_share_over_seeds_lies_within_0_and_1_and_loses_no_coverage() -> None:
    """Loads near 1 of three seeds: Student's interval, cut, covers exactly as often as the whole one."""
    rng, whole, cut = np.random.default_rng(1), [], []
    for _ in range(RUNS):
        loads = rng.beta(9.0, 1.0, 3).tolist()
        share = combine([{"load": Metric(load, unit="share of time")} for load in loads])["load"]
        assert 0.0 <= share.low <= share.value <= share.high <= 1.0
        low, high = student_t_interval(loads)
        whole.append(low <= 0.9 <= high)
        cut.append(share.low <= 0.9 <= share.high)
        assert high <= 1.0 or share.high == 1.0
    assert cut == whole
    assert within_promise(sum(cut), RUNS)


ESTIMATES: dict[str, tuple[float, Callable[[Window, np.ndarray, np.ndarray], Metric]]] = {
    "rate": (80.0, lambda window, times_s, values: window.rate(window.sums(times_s, values), "tokens/s")),
    "mean": (4.0, lambda window, *values: window.mean(*values, "s")),
    "P50": (4.0 * math.log(2), lambda window, *values: window.spread(*values, "s").percentiles["p50"]),
    "P99": (4.0 * math.log(100), lambda window, *values: window.spread(*values, "s").percentiles["p99"]),
}


@pytest.mark.parametrize("name", [slow(name) if name != "P99" else name for name in ESTIMATES])
def test_estimates_from_a_window_of_independent_values_cover(name: str) -> None:
    """Poisson events with exponential values; the one run in a hundred that seems to drift is left out."""
    window, (truth, estimate) = Window(np.linspace(10.0, 110.0, 11)), ESTIMATES[name]
    rng, metrics = np.random.default_rng(1), []
    for _ in range(RUNS):
        times_s = rng.uniform(0.0, 120.0, rng.poisson(2400))
        metrics.append(estimate(window, times_s, rng.exponential(4.0, len(times_s))))
    printed = [metric for metric in metrics if metric.times_longer == 1]
    assert len(printed) >= stats.binom.ppf(1e-6, RUNS, 0.98)
    assert within_promise(sum(metric.low <= truth <= metric.high for metric in printed), len(printed))


class Queue(NamedTuple):
    """Requests of one run, in order: the end, the wait and the service time of each; service takes 1 s on average."""

    ended_s: np.ndarray
    wait_s: np.ndarray
    service_s: np.ndarray


def mm1(load: float, requests: int, rng: np.random.Generator) -> Queue:
    """M/M/1 at `load`, from empty. A wait is how far the walk of service minus gap is above its minimum so far."""
    gap_s, service_s = rng.exponential(1 / load, requests), rng.exponential(1.0, requests)
    walk_s = np.concatenate([[0.0], np.cumsum(service_s[:-1] - gap_s[1:])])
    wait_s = walk_s - np.minimum.accumulate(walk_s)
    return Queue(np.cumsum(gap_s) + wait_s + service_s, wait_s, service_s)


QUEUES = [(0.5, 1000), (0.5, 10000), (0.8, 3000), (0.8, 10000), (0.9, 10000), (0.9, 30000), (0.95, 3000), (0.95, 10000)]


@pytest.mark.parametrize(("load", "requests"), [slow(*queue) if queue != (0.8, 10000) else queue for queue in QUEUES])
def test_intervals_of_one_queues_run_cover_or_are_not_there(load: float, requests: int) -> None:
    """Waits and times in M/M/1 against theory; values of one run depend on each other over (1 - load)^-2 services."""
    rng, covering, printed = np.random.default_rng(1), dict[str, int](), dict[str, int]()
    for _ in range(RUNS if requests <= 10000 else 150):
        for name, (metric, truth) in estimates(mm1(load, requests, rng), load).items():
            printed[name] = printed.get(name, 0) + (not math.isnan(metric.low))
            covering[name] = covering.get(name, 0) + (metric.low <= truth <= metric.high)
            assert math.isnan(metric.low) == (metric.times_longer > 1)
    for name, count in printed.items():
        if count:  # not only where most runs have one: those of lucky runs would not cover
            assert within_promise(covering[name], count), f"{name}: {covering[name]} of {count}"


def estimates(queue: Queue, load: float) -> dict[str, tuple[Metric, float]]:
    end_s = queue.ended_s.max()
    edges_s = np.linspace(0.1 * end_s, end_s, 11)
    work_s = queue.service_s / queue.service_s.mean()  # the expected mean, not that of the run
    window = Window(edges_s, (end_s - edges_s[0]) / of_device_s(work_s, load, 1.0, len(work_s)))
    stay_s = queue.wait_s + queue.service_s
    stable = load < 1
    mean_wait_s = load / (1 - load) if stable else math.inf

    def sojourn_s(level: float) -> float:
        """Quantile of the time in M/M/1: it is exponential with rate 1 - load."""
        return -math.log(1 - level) / (1 - load) if stable else math.inf

    percentiles = window.spread(queue.ended_s, stay_s, "s").percentiles
    quantiles = {name: (metric, sojourn_s(int(name[1:]) / 100)) for name, metric in percentiles.items()}
    return quantiles | {
        "rate": (window.rate(window.sums(queue.ended_s), "requests/s"), load),
        "wait": (window.mean(queue.ended_s, queue.wait_s, "s"), mean_wait_s),
    }


@pytest.mark.parametrize("load", [0.9, slow(0.95)])
def test_short_runs_at_high_load_have_no_interval(load: float) -> None:
    """In units of the asymptotic variance of M/M/1, a run of 50 such times is long enough; above load 1, none is."""
    rng = np.random.default_rng(2)
    factors = [estimates(mm1(load, 3000, rng), load)["wait"][0].times_longer for _ in range(20)]
    needed = MIN_RELAXATIONS * 2 * load * (1 + load) / (1 - load) ** 2 / (0.9 * 3000)
    assert needed / 2 < np.median(factors) < 2 * needed


def test_beyond_capacity_no_run_is_long_enough() -> None:
    queue = mm1(1.2, 1000, np.random.default_rng(4))
    assert {metric.times_longer for metric, _ in estimates(queue, 1.2).values()} == {math.inf}


def test_quantiles_need_values_and_independent_stretches_beyond_them() -> None:
    window = Window(np.linspace(0.0, 1.0, 11), math.inf)
    times_s = (np.arange(10 * MIN_BEYOND) + 0.5) / (10 * MIN_BEYOND)
    values = np.random.default_rng(0).permutation(times_s)
    whole, shorter = window.spread(times_s, values, "s"), window.spread(times_s[1:], values[1:], "s")
    remembered = Window(window.edges_s, 5 * MIN_BEYOND).spread(times_s, values, "s")
    assert whole.percentiles["p90"].times_longer == 1
    assert shorter.percentiles["p90"].times_longer > 1
    assert whole.percentiles["p99"].times_longer == pytest.approx(10)
    assert remembered.percentiles["p90"].times_longer == pytest.approx(2)
    assert remembered.percentiles["p50"].times_longer == 1


def test_quantiles_of_equal_values_lie_on_them() -> None:
    window = Window(np.linspace(0.0, 1.0, 11))
    metric = window.spread((np.arange(1000) + 0.5) / 1000, np.full(1000, 0.05), "s").percentiles["p90"]
    assert (metric.low, metric.value, metric.high) == (0.05, 0.05, 0.05)


def test_drifting_runs_have_no_interval() -> None:
    rng = np.random.default_rng(3)
    alarms = sum(drifts(rng.normal(size=10)) for _ in range(TRIALS))
    assert stats.binom.ppf(1e-6, TRIALS, 0.01) <= alarms <= stats.binom.ppf(1 - 1e-6, TRIALS, 0.01)
    window, rising = Window(np.linspace(0.0, 10.0, 11)), np.arange(10.0)
    assert drifts(rising)
    changing = window.rate(rising, "tokens/s")
    assert (changing.drifting, changing.times_longer) == (True, 2)
    times_s = np.linspace(0.001, 10.0, 1000)
    changing = window.spread(times_s, times_s, "s")
    assert changing.percentiles["p50"].drifting
    assert changing.percentiles["p90"].drifting
    assert not drifts(np.full(10, 0.1))


def test_too_few_values_have_no_interval() -> None:
    for interval in (student_t_interval([1.0]), batch_interval([1.0]), quantile_levels([1.0], [2.0], 0.5)):
        assert all(map(math.isnan, interval))
