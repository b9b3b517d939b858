"""Common part of hypothesis state machines for a fleet's stations: the world around them, steps, and three laws."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.scenario.names import ROUTER, verifier_name
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.scenario.workload import Request, streams_of
from specfleet.fleet.stations.build import join_of, stations
from specfleet.fleet.stations.drafter import DrafterStation
from specfleet.fleet.stations.messages import (
    Draft,
    DraftRequest,
    Finished,
    Ignored,
    Instruction,
    Leave,
    Message,
    Refusal,
    Routed,
    StepDone,
    View,
)
from specfleet.fleet.stations.station import Start, Station
from specfleet.fleet.stations.verifier import VerifierStation
from specfleet.fleet.times.step import Step

choices = st.integers(0, 1 << 16)


def snapshot(station: Station) -> tuple[object, ...]:
    """Return the whole state that decides the station's next step."""
    cold = set(station.cold) if isinstance(station, DrafterStation) else None
    return dict(station.sessions), list(station.waiting), list(station.program), station.running, cold


class StationsMachine(RuleBasedStateMachine):
    """Stations by name. `finished`: tag and request of each text; `committed`: tokens by tag and request."""

    def open_fleet(self, scenario: Scenario) -> None:
        """Build the stations of a scenario, and send the first request of every stream."""
        self.fleet = resolve(scenario)
        self.stations = stations(self.fleet)
        self.now_s = 0.0
        self.requests = {tag: iter(requests) for tag, requests in streams_of(self.fleet).items()}
        self.open: dict[int, Request] = {}
        self.finished: list[tuple[int, int]] = []
        self.committed: dict[tuple[int, int], int] = {}
        for tag in self.requests:
            self.next_request(tag)

    def next_request(self, tag: int) -> None:
        request = next(self.requests[tag], None)
        if request is not None:
            self.ask(tag, request)

    def ask(self, tag: int, request: Request) -> None:
        self.open[tag] = request
        self.committed[tag, request.number] = request.prompt_tokens
        self.tell(self.target(tag), join_of(self.fleet, tag, request))

    def target(self, tag: int) -> str:
        return verifier_name(self.fleet.target_of(tag))

    def tell(self, name: str, event: Any) -> list[Instruction]:
        followed = self.stations[name].handle(event, self.now_s)
        for instruction in followed:
            self.carry_out(name, instruction)
        return followed

    def carry_out(self, name: str, instruction: Instruction) -> None:
        match instruction:
            case DraftRequest(tag) | Leave(tag):
                drafter = self.fleet.drafter_name(self.fleet.drafter_of(tag))
                self.send(name, ROUTER if self.fleet.routed else drafter, instruction)
            case Routed(tag):  # the messages of a target to a drafter keep their order on any route
                self.send(self.target(tag), self.fleet.drafter_name(instruction.drafter), instruction.message)
            case Draft(tag) | Refusal(tag):
                self.send(name, self.target(tag), instruction)
            case View():
                self.send(name, ROUTER, instruction)
            case Finished(tag, request):
                self.finished.append((tag, request))
                del self.open[tag]
                self.next_request(tag)

    def send(self, sender: str, name: str, message: Message) -> None:
        """Send a message of a station to another."""
        raise NotImplementedError

    @property
    def running(self) -> list[str]:
        return [name for name, station in self.stations.items() if station.running is not None]

    @property
    def ready(self) -> list[str]:
        return [name for name, station in self.stations.items() if station.ready]

    @precondition(lambda self: self.ready)
    @rule(choice=choices)
    def a_step_starts(self, choice: int) -> None:
        plan = self.stations[self.ready[choice % len(self.ready)]].plan(self.now_s)
        assert isinstance(plan, Start)
        tags = [member.tag for member in plan.step.members]
        assert len(tags) == len(set(tags)) > 0

    @precondition(lambda self: self.running)
    @rule(choice=choices, luck=choices)
    def a_step_ends(self, choice: int, luck: int) -> None:
        name = self.running[choice % len(self.running)]
        station = self.stations[name]
        step = station.running
        assert step is not None
        outcomes = tuple(_drawn(station, step, place, luck) for place in range(len(step.members)))
        if isinstance(station, VerifierStation):
            for member, outcome in zip(step.members, outcomes, strict=True):
                if step.kind_of(member) == "chunk":
                    continue
                stream, goal = (member.tag, member.request), station.sessions[member.tag].goal
                self.committed[stream] = min(self.committed[stream] + outcome.accepted + 1, goal)
        done = StepDone(step.number, outcomes, 1.0)
        self.tell(name, done)
        self.assert_harmless(station, done)  # the same report again

    def assert_harmless(self, station: Station, event: Any) -> None:
        """A stale or repeated event is ignored, and changes nothing."""
        before = snapshot(station)
        followed = station.handle(event, self.now_s)
        assert [type(instruction) for instruction in followed] == [Ignored], (event, followed)
        assert snapshot(station) == before

    def assert_complete(self) -> None:
        """Every request has all its tokens, and no station has work."""
        asked = {(tag, request.number): request for tag, stream in streams_of(self.fleet).items() for request in stream}
        assert sorted(self.finished) == sorted(asked)
        for stream, request in asked.items():
            assert self.committed[stream] == request.prompt_tokens + request.new_tokens
        assert not any(station.waiting or station.running for station in self.stations.values())

    @invariant()
    def nobody_is_served_twice(self) -> None:
        assert len(self.finished) == len(set(self.finished))

    @invariant()
    def targets_own_the_truth(self) -> None:
        """A target's committed tokens are the sum of its steps' outcomes."""
        for station in self.stations.values():
            if isinstance(station, VerifierStation):
                for tag, session in station.sessions.items():
                    assert session.base == self.committed[tag, session.request] <= session.goal


def _drawn(station: Station, step: Step, place: int, luck: int) -> Outcome:
    """The outcome of a step's member, from the bits of `luck`."""
    member = step.members[place]
    if step.kind_of(member) != "verify":
        return Outcome()
    accepted = (luck >> (3 * place)) % (member.tokens + 1)
    went_on = accepted == member.tokens < station.sessions[member.tag].tail
    return Outcome(accepted, matches=went_on and luck % 2 == 0, ratio=0.5)
