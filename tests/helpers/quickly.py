"""Long simulations in little time."""

from specfleet.fleet.records.run import Run
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.fast.choice import reason_against
from specfleet.sim.run import simulate


def simulated(scenario: Scenario) -> Run:
    """Simulate a scenario by the compiled loop if it knows the fleet: its rows are the same (`sim/test_fast.py`)."""
    return simulate(scenario, path="simpy" if reason_against(resolve(scenario)) else "fast")
