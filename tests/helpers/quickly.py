"""Long simulations in little time."""

from fleet.records.run import Run
from fleet.scenario.scenario import Scenario
from sim.fast.choice import has_numba
from sim.run import simulate


def simulated(scenario: Scenario) -> Run:
    """Simulate a plain star with the compiled loop, if any: its rows are the same (`tests/sim/test_fast.py`)."""
    return simulate(scenario, path="fast" if has_numba() else "simpy")
