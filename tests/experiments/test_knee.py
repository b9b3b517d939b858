"""N_full and N_max as measured, with the range that intervals allow."""

import math

import numpy as np
import pytest

from specfleet.experiments.sweep.findings import level_between, level_of, most_that_gain
from specfleet.fleet.records.metrics.window import Metric
from specfleet.sim.analytic import N_full, rounds_per_s

COUNTS = list(range(1, 11))


def metrics_of(values: list[float], half: float = 0.0) -> list[Metric]:
    return [Metric(value, value - half, value + half, "1/s") for value in values]


@pytest.mark.parametrize("Z_s", [0.5, 2.0, 4.0, 6.0])
def test_constant_times_give_equation_12(Z_s: float) -> None:
    rates = [rounds_per_s(N, 1.0, Z_s) for N in COUNTS]
    assert level_of(COUNTS, rates) == N_full(1.0, Z_s)
    assert level_between(COUNTS, metrics_of(rates)) == (N_full(1.0, Z_s),) * 2


def test_its_range_covers_what_rates_without_chance_give() -> None:
    """95 % intervals of each rate: the range covers at least 95 %, and mostly more."""
    rng, inside, tries = np.random.default_rng(3), 0, 1000
    for _ in range(tries):
        Z_s, error = rng.uniform(1, 7), rng.uniform(0.001, 0.03)
        true = [rounds_per_s(N, 1.0, Z_s) for N in COUNTS]
        seen = [value + error * rng.standard_normal() for value in true]
        low, high = level_between(COUNTS, metrics_of(seen, 1.96 * error))
        inside += low <= level_of(COUNTS, true) <= high
    assert inside / tries > 0.95


def test_most_that_gain_are_those_whose_targets_are_as_fast_as_alone() -> None:
    each = [12.0, 12.0, 11.0, 10.0, 9.0]
    assert most_that_gain(COUNTS[:5], metrics_of(each), 10.0) == (4, 4, 4)
    assert most_that_gain(COUNTS[:5], metrics_of(each, 1.5), 10.0) == (4, 2, 5)
    assert most_that_gain(COUNTS[:5], metrics_of(each), 13.0) == (0, 0, 0)


def test_without_intervals_every_number_is_possible() -> None:
    each = [Metric(value, math.nan, math.nan, "1/s") for value in (1.0, 2.0, 3.0, 3.0)]
    assert level_between(COUNTS[:4], each) == (1, 4)
    assert most_that_gain(COUNTS[:4], each, 2.5) == (4, 0, 4)
