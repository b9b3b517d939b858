"""Simulated runs of a reproduction, and numbers that solve an equation."""

from collections.abc import Callable
from functools import cache
from typing import Any

from scipy.optimize import brentq

from specfleet.fleet.records.metrics.measure import combine, measure
from specfleet.fleet.records.metrics.window import Metric
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.sim.run import simulate


def simulated(**tables: Any) -> Run:
    """Simulate the scenario of these tables, from the first round to the last: nothing is left out as warm-up."""
    return simulate(make_scenario({"measure": {"warm_up_share": 0.0}} | tables))


def means(seeds: int, run: Callable[[int], Run]) -> dict[str, Metric]:
    """Return the means of the metrics of runs by seed."""
    return combine([measure(run(seed)) for seed in range(seeds)])


def root(surplus: Callable[[float], float], low: float, high: float, within: float = 2e-12) -> float:
    """Return where `surplus` is 0 between `low` and `high`; where it is nowhere, the bound that comes closer."""
    known = cache(surplus)  # a simulation, perhaps
    if (known(low) < 0) == (known(high) < 0):
        return min(low, high, key=lambda bound: abs(known(bound)))
    return float(brentq(known, low, high, xtol=within))
