"""Every kind of fleet under random interleavings and faults: no request is lost or served twice, and all progress.

The stations are those of a scenario. Links keep the order of messages, as TCP does, take any time, and may repeat
earlier messages. Steps take any time. Strangers write to every station, and a guest opens a session at a drafter and
leaves at any time. The laws are checked after every step.
"""

from collections import deque
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from specfleet.fleet.policies.admit import AtMost
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.scenario.reading import change_scenario
from specfleet.fleet.stations.drafter import DrafterStation
from specfleet.fleet.stations.messages import (
    Draft,
    DraftRequest,
    Ignored,
    Instruction,
    Leave,
    Message,
    Refusal,
    StepDone,
)
from specfleet.fleet.stations.verifier import VerifierStation
from tests.helpers.faulty import BUDGET, FLEETS, plain_fleet
from tests.helpers.machines import StationsMachine, choices, snapshot

NAMES = sorted(FLEETS.keys() - {"turns", "contended", "arrivals"})
STRANGER, GUEST = 990, 900  # tags
STRANGE = {
    DrafterStation: (DraftRequest(STRANGER, 0, 2, 9), Leave(STRANGER, 0)),
    VerifierStation: (Draft(STRANGER, 0, 1, 5, 3), Refusal(STRANGER, 0, "full")),
}


class FaultyFleet(StationsMachine):
    """Stations of a scenario on links that the test controls."""

    @initialize(name=st.sampled_from(NAMES), new_tokens=st.integers(1, 12))
    def build(self, name: str, new_tokens: int) -> None:
        self.links: dict[tuple[str, str], deque[Message]] = {}
        self.delivered: list[tuple[str, Message]] = []
        self.drafts: set[tuple[int, int, int]] = set()
        self.guest_request, self.guest_is_in = 0, False
        scenario = plain_fleet(name, 0, patience_s=0.0, lease_s=0.0)
        self.open_fleet(change_scenario(scenario, {"workload.new_tokens": new_tokens}))
        self.guest_house = next(station for station in self.stations.values() if isinstance(station, DrafterStation))

    # The world.

    def tell(self, name: str, event: Any) -> list[Instruction]:
        before, owed = snapshot(self.stations[name]), self.is_owed(name, event)
        followed = super().tell(name, event)
        if any(isinstance(instruction, Ignored) for instruction in followed) and not owed:
            assert len(followed) == 1
            assert snapshot(self.stations[name]) == before, "an ignored event changed the station"
        return followed

    def is_owed(self, name: str, event: Any) -> bool:
        """Whether a draft comes for a session that was preempted since it asked."""
        session = self.stations[name].sessions.get(event.tag) if isinstance(event, Draft) else None
        return session is not None and session.requested == event.epoch != session.epoch

    def carry_out(self, name: str, instruction: Instruction) -> None:
        if isinstance(instruction, Draft) and self.fleet.in_turn:
            epoch = instruction.tag, instruction.request, instruction.epoch
            assert epoch not in self.drafts, "two drafts in one epoch"
            self.drafts.add(epoch)
        if not isinstance(instruction, Ignored) and instruction.tag != GUEST:
            super().carry_out(name, instruction)

    def send(self, sender: str, name: str, message: Message) -> None:
        self.links.setdefault((sender, name), deque()).append(message)

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
        owed = self.is_owed(link[1], message)
        followed = self.tell(link[1], message)
        lost = self.fleet.in_turn and not owed and any(isinstance(instruction, Ignored) for instruction in followed)
        assert not lost, f"{message} was lost"

    @precondition(lambda self: self.delivered)
    @rule(choice=choices)
    def link_repeats(self, choice: int) -> None:
        name, message = self.delivered[choice % len(self.delivered)]
        self.assert_harmless(self.stations[name], message)

    @rule()
    def strangers_write(self) -> None:
        for station in self.stations.values():
            self.assert_harmless(station, StepDone(0, (Outcome(),), 1.0))
            for message in STRANGE.get(type(station), ()):
                self.assert_harmless(station, message)

    @precondition(lambda self: not self.guest_is_in)
    @rule()
    def guest_opens(self) -> None:
        self.guest_request += 1
        self.tell(self.guest_house.name, DraftRequest(GUEST, self.guest_request, 1, 5, opening=True, tokens=3))
        self.guest_is_in = GUEST in self.guest_house.sessions

    @precondition(lambda self: self.guest_is_in)
    @rule()
    def guest_leaves_even_during_a_step(self) -> None:
        self.tell(self.guest_house.name, Leave(GUEST, self.guest_request))
        self.guest_is_in = False

    # The laws.

    @invariant()
    def the_limits_of_budget_and_admission_hold(self) -> None:
        admit = self.fleet.drafters.admit
        for station in self.stations.values():
            if isinstance(station, VerifierStation) and station.grants is not None:
                assert sum(station.grants.out.values()) <= BUDGET
            if isinstance(station, DrafterStation) and isinstance(admit, AtMost):
                assert len(station.sessions) <= admit.sessions

    @invariant()
    def drafters_follow_and_no_session_waits_twice(self) -> None:
        for station in self.stations.values():
            tags = [work.tag for work in station.waiting]
            assert len(tags) == len(set(tags))
            assert set(tags) <= set(station.sessions)
            if isinstance(station, DrafterStation):
                own = {tag: session for tag, session in station.sessions.items() if tag != GUEST}
                assert all(session.base <= self.committed[tag, session.request] for tag, session in own.items())

    @invariant()
    def a_session_is_in_one_state_of_the_targets_table(self) -> None:
        for station in self.stations.values():
            if not isinstance(station, VerifierStation) or not self.fleet.in_turn:
                continue
            work = {(item.tag, item.kind) for item in station.waiting}
            if station.running is not None:
                work |= {(member.tag, station.running.kind_of(member)) for member in station.running.members}
            for tag, session in station.sessions.items():
                reads = (tag, "prefill") in work
                states = {
                    "prompt": reads,
                    "asked": session.requested == session.epoch,
                    "tail": (tag, "verify") in work,
                    "owed": 0 <= session.requested < session.epoch and not reads,
                    "alone": session.alone and not reads,
                }
                assert sum(states.values()) == 1, (session, states)

    def teardown(self) -> None:
        """The fleet must finish from every state."""
        if not hasattr(self, "guest_house"):
            return
        if self.guest_is_in:
            self.guest_leaves_even_during_a_step()
        for _ in range(20_000):
            if self.busy_links:
                self.link_delivers(0)
            elif self.running:
                self.a_step_ends(0, 0)
            elif self.ready:
                self.a_step_starts(0)
            else:
                break
        self.assert_complete()


class TestFaultyFleet(FaultyFleet.TestCase):
    settings = settings(max_examples=40, stateful_step_count=60)


@pytest.mark.slow
class TestFaultyFleetAtLength(FaultyFleet.TestCase):
    settings = settings(max_examples=200, stateful_step_count=60)
