"""Simulated runs of a reproduction."""

from typing import Any

from fleet.records.run import Run
from fleet.scenario.reading import make_scenario
from sim.run import simulate


def simulated(**tables: Any) -> Run:
    """Simulate the scenario of these tables, from the first round to the last: nothing is left out as warm-up."""
    return simulate(make_scenario({"measure": {"warm_up_share": 0.0}} | tables))
