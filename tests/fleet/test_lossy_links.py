"""Stations over links that lose, repeat and reorder, between processes that die: lengths only grow, and all completes.

Messages suffer any fault in any order, at any time. Once faults end, the fleet completes every request with all
requested tokens.
"""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from specfleet.fleet.scenario.names import ROUTER
from specfleet.fleet.stations.build import stations
from specfleet.fleet.stations.drafter import DrafterStation
from specfleet.fleet.stations.messages import Message, Overdue, Restarted, Retry, View
from specfleet.fleet.stations.verifier import VerifierStation
from tests.helpers.faulty import FLEETS, plain_fleet
from tests.helpers.machines import StationsMachine, choices


class LossyFleet(StationsMachine):
    """Stations of a fleet, all messages in flight, and all earlier ones."""

    @initialize(name=st.sampled_from([name for name in sorted(FLEETS) if name not in ("turns", "contended")]))
    def build(self, name: str) -> None:
        self.under_way: list[tuple[str, Message]] = []
        self.sent: list[tuple[str, Message]] = []
        self.open_fleet(plain_fleet(name, 0))
        self.deaths = dict.fromkeys(self.stations, 0)

    def send(self, sender: str, name: str, message: Message) -> None:
        if name == ROUTER and not isinstance(message, View):
            self.tell(ROUTER, message)  # it is where the targets are: no link lies between
            return
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

    @precondition(lambda self: max(self.deaths.values()) < 3)
    @rule(choice=choices)
    def a_process_dies_and_starts_again(self, choice: int) -> None:
        names = sorted(name for name in self.stations if name != ROUTER)
        name = names[choice % len(names)]
        self.deaths[name] += 1
        self.stations[name] = stations(self.fleet)[name]
        self.tell(name, Restarted(self.deaths[name]))
        for tag, request in sorted(self.open.items()):
            if self.target(tag) == name:
                self.ask(tag, request)

    @precondition(lambda self: self.open)
    @rule(choice=choices, back=st.booleans())
    def news_of_a_drafter_come(self, choice: int, back: bool) -> None:
        """A connection was lost, or is back, at any state of the target."""
        tag, request = sorted(self.open.items())[choice % len(self.open)]
        session = self.stations[self.target(tag)].sessions[tag]
        news = Retry(tag, request.number) if back else Overdue(tag, request.number, session.epoch)
        self.tell(self.target(tag), news)

    def teardown(self) -> None:
        """After the last fault, all requests finish, and no drafter keeps a session."""
        if not hasattr(self, "deaths"):
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
        self.assert_complete()
        for station in self.stations.values():
            assert not isinstance(station, DrafterStation | VerifierStation) or not station.sessions


class TestLossyFleet(LossyFleet.TestCase):
    settings = settings(max_examples=40, stateful_step_count=80)


@pytest.mark.slow
class TestLossyFleetAtLength(LossyFleet.TestCase):
    settings = settings(max_examples=200, stateful_step_count=120)
