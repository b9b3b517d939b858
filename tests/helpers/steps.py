"""Steps of a single station, for small examples."""

from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.stations.messages import Instruction, StepDone
from specfleet.fleet.stations.station import Start, Station
from specfleet.fleet.times.step import Step


def started(station: Station, now_s: float = 0.0) -> Step:
    """Start the station's next step, and return it."""
    plan = station.plan(now_s)
    assert isinstance(plan, Start)
    return plan.step


def ended(station: Station, now_s: float = 0.0, *outcomes: Outcome) -> list[Instruction]:
    """End the running step; without outcomes, nothing is accepted."""
    step = station.running
    assert step is not None
    return station.handle(StepDone(step.number, outcomes or (Outcome(),) * len(step.members), 1.0), now_s)


def run_step(station: Station, now_s: float = 0.0, *outcomes: Outcome) -> list[Instruction]:
    """Start and end the station's next step."""
    started(station, now_s)
    return ended(station, now_s, *outcomes)


def run_all(station: Station, now_s: float = 0.0) -> list[Step]:
    """Run steps until the station waits; return them."""
    steps = []
    while isinstance(plan := station.plan(now_s), Start):
        steps.append(plan.step)
        ended(station, now_s)
    return steps
