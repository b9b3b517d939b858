"""Common part of hypothesis state machines for a fleet's stations: steps, and two laws."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant

from fleet.policies.outcome import Outcome
from fleet.scenario.resolved import Fleet
from fleet.stations.station import Start, Station
from fleet.stations.verifier import VerifierStation
from fleet.times.step import Step

choices = st.integers(0, 1 << 16)


class StationsMachine(RuleBasedStateMachine):
    """Stations by name. `finished`: tag and request of each text; `committed`: tokens by tag and request."""

    fleet: Fleet
    stations: dict[str, Station]
    finished: list[tuple[int, int]]
    committed: dict[tuple[int, int], int]

    @property
    def running(self) -> list[str]:
        return [name for name, station in self.stations.items() if station.running is not None]

    @property
    def ready(self) -> list[str]:
        return [name for name, station in self.stations.items() if station.ready]

    def start_one(self, choice: int, now_s: float) -> None:
        plan = self.stations[self.ready[choice % len(self.ready)]].plan(now_s)
        assert isinstance(plan, Start)
        tags = [member.tag for member in plan.step.members]
        assert len(tags) == len(set(tags)) > 0

    def running_one(self, choice: int) -> tuple[str, Station, Step]:
        name = self.running[choice % len(self.running)]
        step = self.stations[name].running
        assert step is not None
        return name, self.stations[name], step

    @invariant()
    def nobody_is_served_twice(self) -> None:
        assert len(self.finished) == len(set(self.finished))

    @invariant()
    def targets_own_the_truth(self) -> None:
        """A target's committed tokens are the sum of its steps' outcomes."""
        for station in self.stations.values():
            if isinstance(station, VerifierStation):
                for tag, session in station.sessions.items():
                    assert session.base == self.committed[tag, session.request]


def drawn_outcomes(station: Station, step: Step, luck: int) -> tuple[Outcome, ...]:
    """Outcomes of a step, one a member, from the bits of `luck`."""
    return tuple(_drawn(station, step, place, luck) for place in range(len(step.members)))


def _drawn(station: Station, step: Step, place: int, luck: int) -> Outcome:
    if step.kind != "verify":
        return Outcome()
    member = step.members[place]
    accepted = (luck >> (3 * place)) % (member.tokens + 1)
    went_on = accepted == member.tokens < station.sessions[member.tag].tail
    return Outcome(accepted, matches=went_on and luck % 2 == 0, ratio=0.5)
