"""Fleets of toy models in every topology, on a network in memory: drafters, a router, targets with several streams."""

from collections.abc import Callable

from engine.runtime.content import NOTHING, Content
from engine.runtime.door import Door
from engine.runtime.exchange import Exchange
from engine.runtime.fake import FakeNetwork
from engine.runtime.fake_node import FakeNode
from engine.runtime.line import Line
from engine.runtime.router import RouteExecutor
from engine.runtime.stated_links import stated_links
from engine.runtime.tails import Tails
from fleet.policies.outcome import Outcome
from fleet.records.recorded import Log, RecordedStation
from fleet.records.schema import SCHEMA, Row
from fleet.scenario.settled import Fleet
from fleet.scenario.workload import streams_of
from fleet.stations.build import drafter_station, joins_of, router_station, verifier_station
from fleet.stations.messages import Draft, DraftRequest, Message, StationEvent
from fleet.stations.station import Station
from fleet.times.step import Step
from tests.helpers.toys import VOCABULARY, ToyDrafter, ToyTarget, truth

ROUTER = "router"


class TailTarget(ToyTarget):
    """A target whose text is the truth, and which takes drafts as a real one does: as tails."""

    def __init__(self) -> None:
        super().__init__()
        self.tails = Tails()
        self.verified = 0

    def receive(self, event: StationEvent, content: Content) -> None:
        if isinstance(event, Draft):
            self.tails.append(event.tag, content)
        else:
            super().receive(event, content)

    def run(self, step: Step) -> tuple[Outcome, ...]:
        for member in step.members:
            self.drafts[member.tag] = self.tails.take(member.tag)
            if step.kind == "verify":
                assert len(self.drafts[member.tag].tokens) == member.tokens
                self.verified += member.tokens
        return super().run(step)

    def settled(self, step: Step, outcomes: tuple[Outcome, ...]) -> tuple[Outcome, ...]:
        if step.kind != "verify":
            return outcomes
        pairs = zip(step.members, outcomes, strict=True)
        return tuple(self.tails.settled(m.tag, m.tokens, outcome, self.texts[m.tag][1][-1]) for m, outcome in pairs)

    def release(self, tag: int) -> None:
        self.tails.forget(tag)
        super().release(tag)


class AheadDrafter(ToyDrafter):
    """A drafter that goes on from its own guesses, and back to what it is told."""

    def receive(self, event: StationEvent, content: Content) -> None:
        if isinstance(event, DraftRequest) and not event.opening:
            text = self.texts[event.tag][1]
            text[event.base - 1 :] = content.tokens
            assert text == truth(event.request, 0, event.base), f"poisoned by {event}"
        else:
            super().receive(event, content)

    def run(self, step: Step) -> tuple[Outcome, ...]:
        for member in step.members:
            if step.kind == "draft":
                request, text = self.texts[member.tag]
                assert len(text) == member.base
                (right,) = truth(request, member.base, member.base + 1)
                text.append(right if (member.base + request) % 5 else (right + 1) % VOCABULARY)
                self.sent[member.tag] = text[-1:]
        return (Outcome(),) * len(step.members)

    def content_of(self, message: Message) -> Content:
        return Content(self.sent[message.tag]) if isinstance(message, Draft) else NOTHING


class ToyFleet:
    """All nodes of a fleet. `seconds_of`: how long a step takes; `log`: of all stations."""

    def __init__(self, fleet: Fleet, network: FakeNetwork, seconds_of: Callable[[Step], float]) -> None:
        self.fleet = fleet
        self.network = network
        self.seconds_of = seconds_of
        self.executors: dict[str, TailTarget] = {}
        self.log: Log = []

    def start(self) -> None:
        """Start all nodes."""
        fleet, drafters = self.fleet, range(self.fleet.drafters.count)
        for drafter in drafters:
            executor = ToyDrafter() if fleet.in_turn else AheadDrafter()
            exchange = Exchange(Door(fleet, 1), links=stated_links(fleet, drafter))
            self._node(_drafter(drafter), drafter_station(fleet, drafter), executor, exchange)
        if fleet.routed:
            router = RouteExecutor()
            lines = {drafter: Line(fleet, 0, 1, "router", drafter, drafter) for drafter in drafters}
            for drafter in drafters:
                self.network.connect(ROUTER, drafter, _drafter(drafter))
            exchange = Exchange(Door(fleet, 1), lines, relays=True, seen=router.seen, links=stated_links(fleet))
            self._node(ROUTER, router_station(fleet), router, exchange)
        for target in range(fleet.verifiers.count):
            self._start_target(target)

    def _start_target(self, target: int) -> None:
        fleet, name = self.fleet, f"target {target}"
        streams = {tag: own for tag, own in streams_of(fleet).items() if fleet.target_of(tag) == target}
        asked = [0] if fleet.routed else sorted({fleet.drafter_of(tag) for tag in streams})
        for drafter in asked:
            self.network.connect(name, drafter, ROUTER if fleet.routed else _drafter(drafter))
        lines = {drafter: Line(fleet, target, 1, drafter=drafter, port=drafter) for drafter in asked}
        line_of = (lambda _tag: 0) if fleet.routed else fleet.drafter_of
        exchange = Exchange(lines=lines, line_of=line_of, links=stated_links(fleet))
        users = {tag: joins_of(fleet, tag, own) for tag, own in streams.items()}
        self.executors[name] = TailTarget()
        self._node(name, verifier_station(fleet, target), self.executors[name], exchange, users)

    def _node(self, name: str, station: Station, executor: object, exchange: Exchange, users: object = None) -> None:
        recorded = RecordedStation(station, "replayed", self.log)
        node = FakeNode(self.network, name, recorded, executor, exchange, self.seconds_of, users)  # type: ignore[arg-type]
        self.network.start(node)

    @property
    def rows(self) -> list[Row]:
        """The log, event by event."""
        width = len(SCHEMA)
        return [Row(*self.log[place : place + width]) for place in range(0, len(self.log), width)]

    @property
    def finished(self) -> bool:
        """Whether every target has all its texts."""
        return all(node.finished for name, node in self.network.nodes.items() if name.startswith("target"))

    @property
    def outputs(self) -> list[dict[int, list[int]]]:
        """The texts of every target."""
        return [executor.outputs for executor in self.executors.values()]


def _drafter(number: int) -> str:
    return f"drafter {number}"
