"""Simulated runs of a reproduction, and numbers that solve an equation."""

from collections.abc import Callable
from typing import Any

from scipy.optimize import brentq

from specfleet.fleet.acceptance.models import committed_closed_form
from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.sim.run import simulate


def simulated(**tables: Any) -> Run:
    """Simulate the scenario of these tables, from the first round to the last: nothing is left out as warm-up."""
    return simulate(make_scenario({"measure": {"warm_up_share": 0.0}} | tables))


def root(surplus: Callable[[float], float], low: float, high: float, within: float = 2e-12) -> float:
    """Return where `surplus` is 0 between `low` and `high`."""
    return float(brentq(surplus, low, high, xtol=within))


def acceptance_behind(committed: float, depth: int) -> float:
    """Return the acceptance, the same for all tokens, at which a round commits so many tokens."""
    return root(lambda beta: committed_closed_form(beta, depth) - committed, 0.0, 1.0)
