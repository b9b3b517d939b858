"""Stations over links that lose, repeat and reorder, between processes that die: lengths only grow, and all completes.

Messages suffer any fault in any order, at any time. Once faults end, the fleet completes every request with all
requested tokens.
"""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from fleet.scenario.names import ROUTER, verifier_name
from fleet.scenario.resolve import resolve
from fleet.scenario.workload import Request, streams_of
from fleet.stations.build import join_of, station_named, stations
from fleet.stations.drafter import DrafterStation
from fleet.stations.messages import (
    Draft,
    DraftRequest,
    Finished,
    Instruction,
    Leave,
    Message,
    Overdue,
    Refusal,
    Restarted,
    Retry,
    Routed,
    StepDone,
    View,
)
from fleet.stations.verifier import VerifierStation
from tests.helpers.faulty import FLEETS, plain_fleet
from tests.helpers.machines import StationsMachine, choices, drawn_outcomes


class LossyFleet(StationsMachine):
    """Stations of a fleet, all messages in flight, and all earlier ones."""

    @initialize(name=st.sampled_from([name for name in sorted(FLEETS) if name not in ("turns", "contended")]))
    def build(self, name: str) -> None:
        self.fleet = resolve(plain_fleet(name, 0))
        self.stations = stations(self.fleet)
        self.now_s = 0.0
        self.deaths = dict.fromkeys(self.stations, 0)
        self.requests = {tag: iter(requests) for tag, requests in streams_of(self.fleet).items()}
        self.open: dict[int, Request] = {}
        self.finished: list[tuple[int, int]] = []
        self.committed: dict[tuple[int, int], int] = {}
        self.under_way: list[tuple[str, Message]] = []
        self.sent: list[tuple[str, Message]] = []
        for tag in self.requests:
            self.next_request(tag)

    # The world.

    def next_request(self, tag: int) -> None:
        request = next(self.requests[tag], None)
        if request is not None:
            self.ask(tag, request)

    def ask(self, tag: int, request: Request) -> None:
        self.open[tag] = request
        self.committed[tag, request.number] = request.prompt_tokens
        self.tell(verifier_name(self.fleet.target_of(tag)), join_of(self.fleet, tag, request))

    def tell(self, name: str, event: Any) -> None:
        for instruction in self.stations[name].handle(event, self.now_s):
            self.carry_out(instruction)

    def carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case DraftRequest(tag) | Leave(tag) if self.fleet.routed:
                self.tell(ROUTER, instruction)  # it is where the targets are: no link lies between
            case DraftRequest(tag) | Leave(tag):
                self.send(self.fleet.drafter_name(self.fleet.drafter_of(tag)), instruction)
            case Routed():
                self.send(self.fleet.drafter_name(instruction.drafter), instruction.message)
            case Draft(tag) | Refusal(tag):
                self.send(verifier_name(self.fleet.target_of(tag)), instruction)
            case View():
                self.send(ROUTER, instruction)
            case Finished(tag, request):
                self.finished.append((tag, request))
                del self.open[tag]
                self.next_request(tag)

    def send(self, name: str, message: Message) -> None:
        self.under_way.append((name, message))
        self.sent.append((name, message))

    # What may happen.

    @rule(seconds=st.sampled_from([0.1, 0.8, 2.0, 5.0]))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds
        self.tell_all_that_is_due()

    def tell_all_that_is_due(self) -> None:
        for name, station in self.stations.items():
            for event in station.due(self.now_s):
                self.tell(name, event)
            assert station.alarm_s() > self.now_s

    @precondition(lambda self: self.under_way)
    @rule(choice=choices)
    def a_message_arrives(self, choice: int) -> None:
        """Any message: they overtake each other."""
        self.tell(*self.under_way.pop(choice % len(self.under_way)))

    @precondition(lambda self: self.under_way)
    @rule(choice=choices)
    def a_message_is_lost(self, choice: int) -> None:
        name, message = self.under_way[choice % len(self.under_way)]
        if name != ROUTER:  # views of drafters use no link
            self.under_way.remove((name, message))

    @precondition(lambda self: self.sent)
    @rule(choice=choices)
    def a_message_arrives_again(self, choice: int) -> None:
        self.tell(*self.sent[choice % len(self.sent)])

    @precondition(lambda self: self.ready)
    @rule(choice=choices)
    def a_step_starts(self, choice: int) -> None:
        self.start_one(choice, self.now_s)

    @precondition(lambda self: self.running)
    @rule(choice=choices, luck=choices)
    def a_step_ends(self, choice: int, luck: int) -> None:
        name, station, step = self.running_one(choice)
        outcomes = drawn_outcomes(station, step, luck)
        if isinstance(station, VerifierStation):
            for member, outcome in zip(step.members, outcomes, strict=True):
                stream, goal = (member.tag, member.request), station.sessions[member.tag].goal
                self.committed[stream] = min(self.committed[stream] + outcome.accepted + 1, goal)
        self.tell(name, StepDone(step.number, outcomes, 1.0))

    @precondition(lambda self: max(self.deaths.values()) < 3)
    @rule(choice=choices)
    def a_process_dies_and_starts_again(self, choice: int) -> None:
        names = sorted(name for name in self.stations if name != ROUTER)
        name = names[choice % len(names)]
        self.deaths[name] += 1
        self.stations[name] = station_named(self.fleet, name)
        self.tell(name, Restarted(self.deaths[name]))
        for tag, request in sorted(self.open.items()):
            if verifier_name(self.fleet.target_of(tag)) == name:
                self.ask(tag, request)

    @precondition(lambda self: self.open)
    @rule(choice=choices, back=st.booleans())
    def news_of_a_drafter_come(self, choice: int, back: bool) -> None:
        """A connection was lost, or is back, at any state of the target."""
        tag, request = sorted(self.open.items())[choice % len(self.open)]
        name = verifier_name(self.fleet.target_of(tag))
        session = self.stations[name].sessions[tag]
        self.tell(name, Retry(tag, request.number) if back else Overdue(tag, request.number, session.epoch))

    def teardown(self) -> None:
        """After the last fault, all requests finish, and no drafter keeps a session."""
        if not hasattr(self, "stations"):
            return
        for _ in range(20_000):
            if self.under_way:
                self.a_message_arrives(0)
            elif self.running:
                self.a_step_ends(0, 0)
            elif self.ready:
                self.a_step_starts(0)
            elif (next_s := min(station.alarm_s() for station in self.stations.values())) < float("inf"):
                self.now_s = next_s
                self.tell_all_that_is_due()
            else:
                break
        assert not self.open
        asked = {(tag, one.number): one for tag, stream in streams_of(self.fleet).items() for one in stream}
        assert sorted(self.finished) == sorted(asked)
        for stream, request in asked.items():
            assert self.committed[stream] == request.prompt_tokens + request.new_tokens
        for station in self.stations.values():
            assert not isinstance(station, DrafterStation | VerifierStation) or not station.sessions
            assert not station.waiting
            assert station.running is None


class TestLossyFleet(LossyFleet.TestCase):
    settings = settings(max_examples=40, stateful_step_count=80, deadline=None)


@pytest.mark.slow
class TestLossyFleetAtLength(LossyFleet.TestCase):
    settings = settings(max_examples=400, stateful_step_count=150, deadline=None)
