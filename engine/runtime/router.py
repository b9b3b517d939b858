"""The router's node: it sends each round of a session to one of several drafters, and drafts back past its station."""

import time
from collections.abc import Callable, Mapping

import msgspec

from engine.runtime.content import NOTHING, Content
from engine.runtime.door import Door
from engine.runtime.exchange import Exchange
from engine.runtime.keys import Keys
from engine.runtime.limits import most_bytes
from engine.runtime.line import Line
from engine.runtime.node import LOOPBACK, Node
from engine.runtime.sockets import Sockets
from engine.runtime.stated_links import stated_links
from fleet.policies.outcome import Outcome
from fleet.records.recorded import RecordedStation
from fleet.scenario.settled import Fleet
from fleet.stations.build import router_station
from fleet.stations.messages import Draft, DraftRequest, Leave, Message, StationEvent
from fleet.times.step import Step


class Seen(msgspec.Struct, frozen=True):
    """The newest draft of a session that went by."""

    request: int
    epoch: int
    tokens: list[int]


class RouteExecutor:
    """Keeps the committed tokens of every session, which a session that moves is opened with at its new drafter.

    Targets say their own token only; the accepted ones it knows from the draft that it passed on (`seen`, which the
    socket thread calls, before the target can have the draft).
    """

    def __init__(self) -> None:
        self.texts: dict[int, list[int]] = {}
        self.told: dict[int, Content] = {}  # what came with the request that waits for its route
        self.drafts: dict[int, Seen] = {}

    def seen(self, draft: Draft, content: Content) -> None:
        """Note a draft that goes by."""
        known = self.drafts.get(draft.tag)
        if known is None or (known.request, known.epoch) < (draft.request, draft.epoch):
            self.drafts[draft.tag] = Seen(draft.request, draft.epoch, list(content.tokens))

    def receive(self, event: StationEvent, content: Content) -> None:
        """Follow a session: its prefix, the accepted tokens of its last draft and the target's own, its end."""
        match event:
            case DraftRequest(tag=tag, opening=True):
                self.texts[tag], self.told[tag] = list(content.tokens), content
            case DraftRequest(tag=tag):
                text = self.texts[tag]
                accepted = event.base - len(text) - 1
                path = range(1, accepted + 1) if content.nodes is None else content.nodes
                text += [*(self.drafts[tag].tokens[node - 1] for node in path), *content.tokens]
                self.told[tag] = content
            case Leave(tag=tag):
                for kept in (self.texts, self.told, self.drafts):
                    kept.pop(tag, None)

    def run(self, step: Step) -> tuple[Outcome, ...]:
        """Do nothing: whom to send a request to, the station says."""
        return (Outcome(),) * len(step.members)

    def content_of(self, message: Message) -> Content:
        """Return what came with a request; the whole prefix where it opens its session."""
        if not isinstance(message, DraftRequest):
            return NOTHING
        return Content(list(self.texts[message.tag])) if message.opening else self.told[message.tag]

    def release(self, tag: int) -> None:
        """Forget nothing more: a session that left is forgotten."""


class RouterNode(Node):
    """A node with a door for all targets, and a line to each drafter. `port`: that of the door.

    `addresses`: of the drafters' doors, tcp://HOST:PORT by number; `vocabulary`: the larger one of the models, 0 if
    nobody knows. Its door answers nobody before all drafters have answered.
    """

    def __init__(
        self,
        fleet: Fleet,
        addresses: Mapping[int, str],
        vocabulary: int = 0,
        address: str = LOOPBACK,
        port: int = 0,
        keys: Keys | None = None,
        say: Callable[[str], None] = lambda _line: None,
    ) -> None:
        life = time.time_ns()
        lines = {
            drafter: Line(fleet, 0, life, "router", drafter=drafter, port=drafter, name=doors.removeprefix("tcp://"))
            for drafter, doors in addresses.items()
        }
        executor = RouteExecutor()
        sockets = Sockets(f"{address}:{port}", addresses, most_bytes(fleet, vocabulary), keys)
        self.port = sockets.bound_port
        super().__init__(
            RecordedStation(router_station(fleet), "real"),
            executor,
            Exchange(
                Door(fleet, life, drafter=None), lines, relays=True, seen=executor.seen, links=stated_links(fleet)
            ),
            sockets,
            say=say,
        )
