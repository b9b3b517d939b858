"""Links as a scenario describes them: their times and their faults, emulated by the nodes of one host.

The sender draws a one-way delay as the simulation does, and stamps the frame with its due time. The receiver holds the
frame until then. Both read the same clock, so the transport's own time is part of the delay. Link faults are applied at
the drafter's node, in both directions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from specfleet.engine.net.actions import Action, Deliver, Send
from specfleet.engine.net.frames import payload_of, stamped
from specfleet.fleet.acceptance.sources import sources_of
from specfleet.fleet.scenario.faults import LinkFault, LinkFaults, Way
from specfleet.fleet.scenario.links import Pair, holds_links, link_faults, linked_pairs, ways_of
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.workload import streams_of
from specfleet.fleet.stations.messages import Draft, DraftRequest, Leave, Message, Refusal, Routed, View
from specfleet.fleet.times.durations import one_way_s

MAX_HELD_S = 3600.0  # a larger delay in a stamp is ignored


class StatedLinks:
    """Due times of the messages of one node, and of those that it delays.

    `drafter`: number of the node's drafter; None for all other nodes.
    """

    def __init__(self, fleet: Fleet, drafter: int | None = None) -> None:
        self.fleet = fleet
        self.drafter = drafter
        self.sources = ways_of(linked_pairs(fleet, streams_of(fleet)), sources_of(fleet.seed).links)
        self.ways_s: dict[tuple[Pair, bool], Callable[[int], float]] = {}  # by link and direction; True is the way down
        # due time of the last message of a direction: none overtakes it
        self.last_s: dict[tuple[Pair, bool], float] = {}
        self.kept_s: dict[int, float] = {}  # due time of the last delayed message of a stream, by tag

    def due_s(self, message: Message | Routed, payload_bytes: int, left_s: float) -> float:
        """Return when a message that leaves its station at `left_s` is due.

        0 if the scenario does not describe its link.
        """
        way = self._way(message)
        if way is None:
            return 0.0
        (target, drafter), down = way
        link = self.fleet.link(target, drafter)
        if not link.held:
            return 0.0
        if way not in self.ways_s:
            source = self.sources[target, drafter]
            self.ways_s[way] = one_way_s(link.time, source.down if down else source.up)
        due_s = max(self.last_s.get(way, 0.0), left_s + self.ways_s[way](payload_bytes))
        self.last_s[way] = due_s
        return due_s

    def _way(self, message: Message | Routed) -> tuple[Pair, bool] | None:
        """The link of a message and its direction (True: down); None without a link: to a router, and views."""
        fleet = self.fleet
        match message:
            case Routed():
                return (fleet.target_of(message.tag), message.drafter), False
            case DraftRequest() | Leave() if self.drafter is None and not fleet.routed:
                return (fleet.target_of(message.tag), fleet.drafter_of(message.tag)), False
            case Draft() | Refusal() if self.drafter is not None:
                return (fleet.target_of(message.tag), self.drafter), True
        return None

    def stamp(self, actions: list[Action], message: Message | Routed, left_s: float) -> list[Action]:
        """Stamp the frame of a message with its due time."""
        for place, action in enumerate(actions):
            if isinstance(action, Send):
                due_s = self.due_s(message, payload_of(action.frame), left_s)
                actions[place] = with_due(action, due_s)
        return actions

    def keep(self, actions: Sequence[Action], due_s: float, now_s: float) -> list[Action]:
        """Delay deliveries until their due time; messages of a stream stay in order."""
        return [self._kept(action, due_s, now_s) if isinstance(action, Deliver) else action for action in actions]

    def _kept(self, deliver: Deliver, due_s: float, now_s: float) -> Deliver:
        due_s = due_s if due_s - now_s < MAX_HELD_S else 0.0
        if isinstance(deliver.event, View):  # of no stream
            return deliver
        tag = deliver.event.tag
        until_s = max(due_s, self.kept_s.pop(tag, 0.0))
        if not until_s > now_s:
            return deliver
        self.kept_s[tag] = until_s
        return msgspec.structs.replace(deliver, after_s=until_s - now_s)


def with_due(send: Send, due_s: float) -> Send:
    """Return a frame with the due time of its message."""
    return msgspec.structs.replace(send, frame=stamped(send.frame, due_s)) if due_s else send


def stated_links(fleet: Fleet, drafter: int | None = None) -> StatedLinks | None:
    """Return the emulated links of a node; None if the scenario describes none."""
    return StatedLinks(fleet, drafter) if holds_links(fleet) else None


@dataclass(eq=False)
class LossyLinks:
    """The lossy links of drafter number `drafter` in life number `life` of its process, with the simulation's seeds.

    `zero_s`: the run's time zero by the engine's clock, to be set before the first message.
    """

    fleet: Fleet
    drafter: int
    life: int = 0
    zero_s: float = 0.0
    faults: dict[tuple[int, Way], LinkFaults] = field(default_factory=dict)  # by target and direction

    def arrivals_s(self, tag: int, way: Way, now_s: float) -> Iterator[float]:
        """Yield when a message of a session that is sent now arrives, by the engine's clock."""
        for arrives_s in self._of(self.fleet.target_of(tag), way).arrivals_s(now_s - self.zero_s):
            yield arrives_s + self.zero_s

    def _of(self, target: int, way: Way) -> LinkFaults:
        if (target, way) not in self.faults:
            self.faults[target, way] = link_faults(self.fleet, target, self.drafter, way, self.life)
        return self.faults[target, way]


def lossy_links(fleet: Fleet, drafter: int, life: int = 0) -> LossyLinks | None:
    """Return the links of a drafter, if the scenario has link faults."""
    hit = any(isinstance(fault, LinkFault) for fault in fleet.faults)
    return LossyLinks(fleet, drafter, life) if hit else None
