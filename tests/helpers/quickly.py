"""Long simulations in little time."""

from fleet.records.run import Run
from fleet.scenario.names import SimPath
from fleet.scenario.resolve import resolve
from fleet.scenario.scenario import Scenario
from sim.fast.choice import reason_against
from sim.run import simulate


def quickest(scenario: Scenario) -> SimPath:
    """The compiled loop if it knows the fleet: its rows and metrics are the same (`tests/sim/test_fast.py`)."""
    return "simpy" if reason_against(resolve(scenario)) else "fast"


def simulated(scenario: Scenario) -> Run:
    """Simulate a scenario by the quickest path."""
    return simulate(scenario, path=quickest(scenario))
