"""Every kind of fleet under random interleavings and faults: no request is lost or served twice, and all progress.

The stations are those of a scenario. Links keep the order of messages, take any time, and may repeat earlier
messages. Steps take any time. The laws are checked after every step.
"""

from collections import deque
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from fleet.scenario.names import DRAFTER, ROUTER, verifier_name
from fleet.scenario.reading import make_scenario
from fleet.scenario.resolve import resolve
from fleet.scenario.workload import streams_of
from fleet.stations.build import join_of, stations
from fleet.stations.drafter import DrafterStation
from fleet.stations.messages import (
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
from fleet.stations.station import Station
from fleet.stations.verifier import VerifierStation
from tests.helpers.faulty import BUDGET, FLEETS
from tests.helpers.machines import StationsMachine, choices, drawn_outcomes

NAMES = (
    "goodspeed", "work-conserving", "ahead", "ahead and busy", "routed", "central", "batched drafter", "shared target",
)  # fmt: skip


def snapshot(station: Station) -> tuple[object, ...]:
    """Return the whole state that decides the station's next step."""
    cold = set(station.cache.cold) if isinstance(station, DrafterStation) else None
    return dict(station.sessions), list(station.waiting), list(station.program), station.running, cold


class FaultyFleet(StationsMachine):
    """Stations of a scenario on links that the test controls."""

    @initialize(name=st.sampled_from(NAMES), new_tokens=st.integers(1, 9))
    def build(self, name: str, new_tokens: int) -> None:
        depth = {} if "ahead" in name else {"depth": 3}
        tables = {"drafters": depth, "workload": {"requests": 6, "prompt_tokens": 4, "new_tokens": new_tokens}}
        content: dict[str, Any] = {"acceptance": {"model": "geometric", "beta": 0.5}, "profile": {
            "name": "p", "draft": {"base_s": 1.0}, "verify": {"base_s": 1.0}}}  # fmt: skip
        for table in ("drafters", "verifiers", "workload"):
            content[table] = tables.get(table, {}) | FLEETS[name].get(table, {})
        self.fleet = resolve(make_scenario(content))
        self.stations = stations(self.fleet)
        self.requests = {tag: iter(requests) for tag, requests in streams_of(self.fleet).items()}
        self.goals: dict[tuple[int, int], int] = {}
        self.links: dict[tuple[str, str], deque[Message]] = {}
        self.delivered: list[tuple[str, Message]] = []
        self.finished: list[tuple[int, int]] = []
        self.committed: dict[tuple[int, int], int] = {}
        for tag in self.requests:
            self.next_request(tag)

    # The world.

    def next_request(self, tag: int) -> None:
        request = next(self.requests[tag], None)
        if request is not None:
            self.goals[tag, request.number] = request.prompt_tokens + request.new_tokens
            self.committed[tag, request.number] = request.prompt_tokens
            self.tell(self.target(tag), join_of(self.fleet, tag, request))

    def target(self, tag: int) -> str:
        return verifier_name(self.fleet.target_of(tag))

    def tell(self, name: str, event: Any) -> list[Instruction]:
        followed = self.stations[name].handle(event, 0.0)
        for instruction in followed:
            self.carry_out(name, instruction)
        return followed

    def carry_out(self, name: str, instruction: Instruction) -> None:
        match instruction:
            case DraftRequest(tag) | Leave(tag):
                routed = self.fleet.routed
                to = ROUTER if routed else self.fleet.drafter_name(self.fleet.drafter_of(tag))
                self.links.setdefault((name, to), deque()).append(instruction)
            case Routed():
                # Each target's messages to a drafter stay in order on any route.
                link = self.target(instruction.tag), self.fleet.drafter_name(instruction.drafter)
                self.links.setdefault(link, deque()).append(instruction.message)
            case Draft(tag) | Refusal(tag):
                self.links.setdefault((name, self.target(tag)), deque()).append(instruction)
            case View():
                self.links.setdefault((name, ROUTER), deque()).append(instruction)
            case Finished(tag, request):
                self.finished.append((tag, request))
                self.next_request(tag)

    @property
    def busy_links(self) -> list[tuple[str, str]]:
        return sorted(link for link, messages in self.links.items() if messages)

    @rule()
    def time_passes(self) -> None:
        """Nothing happens: there may be nothing left to happen."""

    @precondition(lambda self: self.busy_links)
    @rule(choice=choices)
    def link_delivers(self, choice: int) -> None:
        link = self.busy_links[choice % len(self.busy_links)]
        message = self.links[link].popleft()
        self.delivered.append((link[1], message))
        self.tell(link[1], message)

    @precondition(lambda self: self.delivered)
    @rule(choice=choices)
    def link_repeats(self, choice: int) -> None:
        name, message = self.delivered[choice % len(self.delivered)]
        before = snapshot(self.stations[name])
        followed = self.stations[name].handle(message, 0.0)
        assert [type(instruction) for instruction in followed] == [Ignored], (message, followed)
        assert snapshot(self.stations[name]) == before

    @precondition(lambda self: self.ready)
    @rule(choice=choices)
    def device_starts(self, choice: int) -> None:
        self.start_one(choice, now_s=0.0)

    @precondition(lambda self: self.running)
    @rule(choice=choices, luck=choices)
    def device_ends(self, choice: int, luck: int) -> None:
        name, station, step = self.running_one(choice)
        outcomes = drawn_outcomes(station, step, luck)
        before = {member.tag: station.sessions.get(member.tag) for member in step.members}
        done = StepDone(step.number, outcomes, 1.0)
        self.tell(name, done)
        if not name.startswith(DRAFTER) and name != ROUTER:
            for member, outcome in zip(step.members, outcomes, strict=True):
                session = before[member.tag]
                assert session is not None
                stream = (member.tag, member.request)
                assert outcome.accepted <= member.tokens
                self.committed[stream] = min(self.committed[stream] + outcome.accepted + 1, self.goals[stream])
        repeated = station.handle(done, 0.0)
        assert [type(instruction) for instruction in repeated] == [Ignored]

    # The laws.

    @invariant()
    def the_budget_holds(self) -> None:
        for station in self.stations.values():
            if isinstance(station, VerifierStation) and station.grants is not None:
                assert sum(station.grants.out.values()) <= BUDGET

    def teardown(self) -> None:
        """The fleet must finish from every state."""
        if not hasattr(self, "stations"):
            return
        for _ in range(20_000):
            if self.busy_links:
                self.link_delivers(0)
            elif self.running:
                self.device_ends(0, 0)
            elif self.ready:
                self.device_starts(0)
            else:
                break
        assert sorted(self.finished) == sorted(self.goals)
        assert {stream: self.committed[stream] for stream in self.goals} == self.goals
        assert not any(station.waiting or station.running for station in self.stations.values())


class TestFaultyFleet(FaultyFleet.TestCase):
    settings = settings(max_examples=30, stateful_step_count=60)


@pytest.mark.slow
class TestFaultyFleetAtLength(FaultyFleet.TestCase):
    settings = settings(max_examples=200, stateful_step_count=60)
