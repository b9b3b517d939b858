"""Fleets of toy models in every topology, on a network in memory: drafters, a router, targets with several streams."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from specfleet.engine.net.client import ClientEnd
from specfleet.engine.net.connections import ConnectionTable
from specfleet.engine.net.content import NOTHING, Content
from specfleet.engine.net.links import stated_links
from specfleet.engine.net.server import ServerEnd
from specfleet.engine.node.pending import PendingDrafts, repeats
from specfleet.engine.node.router import RouteExecutor
from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.records.recorder import Log, RecordedStation
from specfleet.fleet.records.schema import SCHEMA, Row
from specfleet.fleet.scenario.faults import Change, moments
from specfleet.fleet.scenario.names import ROUTER, verifier_name
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import streams_of
from specfleet.fleet.stations.build import drafter_station, join_of, router_station, stations, verifier_station
from specfleet.fleet.stations.messages import DraftRequest, Message, StationEvent
from specfleet.fleet.stations.station import Station
from specfleet.fleet.times.step import Member, Step
from tests.fakes.network import FakeNetwork
from tests.fakes.node import FakeNode
from tests.helpers.toys import VOCABULARY, ToyDrafter, ToyTarget, seconds_of, truth


class TailTarget(ToyTarget):
    """A target with the true text; it takes drafts as a real one does, as pending drafts."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self.pending = PendingDrafts(repeats(fleet))
        self.outruns = fleet.verifiers.outruns_drafts and fleet.in_turn
        self.sent: dict[int, int] = {}  # tokens that the drafter knows, by tag
        self.verified = 0

    def receive(self, event: StationEvent, content: Content) -> None:
        self.pending.receive(event, content)
        super().receive(event, content)

    def run(self, step: Step) -> tuple[Outcome, ...]:
        for member in step.members:
            draft = self.pending.take(member.tag)
            if step.kind_of(member) == "verify":
                draft = self._rest(member, list(draft.tokens))
                self.verified += member.tokens
            self.drafts[member.tag] = draft
        return super().run(step)

    def _rest(self, member: Member, tokens: list[int]) -> Content:
        """Return what is left of a draft that the text has passed, or that had not enough room."""
        passed, text = member.behind, self.texts[member.tag][1]
        assert len(tokens) == member.tokens + passed or self.outruns
        assert len(text) == member.base
        if tokens[:passed] != text[member.base - passed :]:
            return NOTHING
        return Content(tokens[passed : passed + member.tokens])

    def resolved(self, step: Step, outcomes: tuple[Outcome, ...]) -> tuple[Outcome, ...]:
        pairs = zip(step.members, outcomes, strict=True)
        return tuple(
            self.pending.resolved(m.tag, m.tokens, outcome, self.texts[m.tag][1][-1])
            if step.kind_of(m) == "verify"
            else outcome
            for m, outcome in pairs
        )

    def content_of(self, message: Message) -> Content:
        if not isinstance(message, DraftRequest):
            return NOTHING
        said = self.pending.tokens_sent(message)
        if self.outruns:
            self.pending.take(message.tag)
            said = message.base - (0 if message.opening else self.sent[message.tag])
            self.sent[message.tag] = message.base
        return Content(self.texts[message.tag][1][message.base - said : message.base])

    def release(self, tag: int) -> None:
        self.pending.forget(tag)
        super().release(tag)


class AheadDrafter(ToyDrafter):
    """A drafter that continues from its own guesses, and returns to its target's text."""

    def receive(self, event: StationEvent, content: Content) -> None:
        if isinstance(event, DraftRequest) and not event.opening and not self.trusts:
            text = self.texts[event.tag][1]
            text[event.base - len(content.tokens) :] = content.tokens
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


class ToyFleet:
    """All nodes of a fleet, with the faults of its scenario. `log`: of all lives of all stations.

    - `seconds_of`: the time of a step.
    - `targets`: the numbers of those to start.
    - `state_numbers`: of a token's hidden states, if drafters read them.
    """

    state_numbers = 0

    def __init__(self, fleet: Fleet, network: FakeNetwork, seconds_of: Callable[[Step], float] = seconds_of) -> None:
        self.fleet = fleet
        self.network = network
        self.seconds_of = seconds_of
        self.targets: Sequence[int] = range(fleet.verifiers.count)
        self.executors: dict[str, list[TailTarget]] = {}
        self.recorded: dict[str, RecordedStation] = {}
        self.deaths: Counter[str] = Counter()
        self.log: Log = []

    def start(self) -> None:
        """Start all nodes, and schedule all faults."""
        fleet = self.fleet
        self.starts: dict[str, Callable[[], None]] = {
            fleet.drafter_name(drafter): partial(self._start_drafter, drafter)
            for drafter in range(fleet.drafters.count)
        }
        if fleet.routed:
            self.starts[ROUTER] = self._start_router
        for target in self.targets:
            self.starts[verifier_name(target)] = partial(self._start_target, target)
        for begin in self.starts.values():
            begin()
        for moment in moments(fleet.faults):
            self.network.at(moment.time_s, partial(self.change, moment.node, moment.change))

    def change(self, name: str, change: Change) -> None:
        """Kill, start, stall or resume a node."""
        if change in ("kill", "stall") and self.finished:
            return
        if change == "kill" and name in self.network.nodes:
            self.network.kill(name)
            self.deaths[name] += 1
            self.recorded[name].killed(stations(self.fleet)[name], self.network.now_s)
        elif change == "start" and name not in self.network.nodes:
            self.starts[name]()
        elif change == "stall":
            self.network.stall(name)
        elif change == "resume":
            self.network.resume(name)

    def _start_drafter(self, drafter: int) -> None:
        fleet, name = self.fleet, self.fleet.drafter_name(drafter)
        executor = self.new_drafter(drafter)
        server = ServerEnd(fleet, 0, self.state_numbers, drafter)
        connections = ConnectionTable(server, links=stated_links(fleet, drafter))
        self._node(name, drafter_station(fleet, drafter), executor, connections)

    def new_target(self) -> TailTarget:
        """Return the executor of a target."""
        return TailTarget(self.fleet)

    def new_drafter(self, _drafter: int) -> ToyDrafter:
        """Return the executor of a drafter."""
        return ToyDrafter() if self.fleet.in_turn else AheadDrafter()

    def _start_router(self) -> None:
        fleet, drafters = self.fleet, range(self.fleet.drafters.count)
        router = RouteExecutor()
        clients = {drafter: ClientEnd(fleet, 0, 1, "router", drafter, drafter) for drafter in drafters}
        for drafter in drafters:
            self.network.connect(ROUTER, drafter, fleet.drafter_name(drafter))
        server, links = ServerEnd(fleet, drafter=None), stated_links(fleet)
        connections = ConnectionTable(server, clients, on_draft=router.relayed, links=links)
        self._node(ROUTER, router_station(fleet), router, connections)

    def _start_target(self, target: int) -> None:
        fleet, name = self.fleet, verifier_name(target)
        deaths, lives = self.deaths[name], self.executors.setdefault(name, [])
        done = {request for life in lives for request in life.outputs}
        streams = {tag: requests for tag, requests in streams_of(fleet).items() if fleet.target_of(tag) == target}
        numbers = [0] if fleet.routed else sorted({fleet.drafter_of(tag) for tag in streams})
        if not deaths:
            for drafter in numbers:
                self.network.connect(name, drafter, ROUTER if fleet.routed else fleet.drafter_name(drafter))
        clients = {
            drafter: ClientEnd(fleet, target, 1 + deaths, drafter=drafter, port=drafter, goes_on=deaths > 0)
            for drafter in numbers
        }
        client_of = (lambda _tag: 0) if fleet.routed else fleet.drafter_of
        connections = ConnectionTable(clients=clients, client_of=client_of, links=stated_links(fleet))
        left = {
            tag: [request for request in requests if request.number not in done] for tag, requests in streams.items()
        }
        users = {tag: map(partial(join_of, fleet, tag), requests) for tag, requests in left.items() if requests}
        lives.append(self.new_target())
        self._node(name, verifier_station(fleet, target), lives[-1], connections, users)

    def _node(
        self, name: str, station: Station, executor: object, connections: ConnectionTable, users: object = None
    ) -> None:
        recorded = self.recorded.setdefault(name, RecordedStation(station, "replayed", self.log))
        deaths = self.deaths[name]
        node = FakeNode(self.network, name, recorded, executor, connections, self.seconds_of, users, deaths)  # type: ignore[arg-type]
        self.network.start(node)

    @property
    def rows(self) -> list[Row]:
        """The log, event by event."""
        width = len(SCHEMA)
        return [Row(*self.log[place : place + width]) for place in range(0, len(self.log), width)]

    @property
    def finished(self) -> bool:
        """Whether every target is up and has all its texts."""
        names = [verifier_name(target) for target in self.targets]
        return all(name in self.network.nodes and self.network.nodes[name].finished for name in names)

    @property
    def outputs(self) -> list[dict[int, list[int]]]:
        """The texts of every life of every target."""
        return [life.outputs for lives in self.executors.values() for life in lives]
