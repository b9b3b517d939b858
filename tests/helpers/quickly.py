"""Long simulations in little time."""

from fleet.records.run import Run
from fleet.scenario.resolve import resolve
from fleet.scenario.scenario import Scenario
from sim.fast.choice import reason_against
from sim.run import simulate


def simulated(scenario: Scenario) -> Run:
    """Simulate a scenario by the compiled loop if it knows the fleet: its rows are the same (`sim/test_fast.py`)."""
    return simulate(scenario, path="simpy" if reason_against(resolve(scenario)) else "fast")
