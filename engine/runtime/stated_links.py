"""Links that a scenario states, held on one host: a message is handed over when its stated time has passed.

Who sends draws the time as a simulation does, and stamps the frame with when it is due; who receives keeps it until
then. Both read the same clock, so what the transport takes is part of the stated time. Only a transport that takes
longer makes a message later.
"""

from collections.abc import Callable, Sequence

import msgspec

from engine.runtime.actions import Action, Deliver, Send
from engine.runtime.frames import payload_of, stamped
from engine.runtime.identity import Ping
from fleet.chance.sources import sources_of
from fleet.scenario.links import Pair, holds_messages, linked_pairs, ways_of
from fleet.scenario.settled import Fleet
from fleet.scenario.workload import streams_of
from fleet.stations.messages import Draft, DraftRequest, Leave, Message, Refusal, Routed, View
from fleet.times.durations import one_way_s

MOST_HELD_S = 3600.0  # a stamp that asks for more is not believed


class StatedLinks:
    """When the messages of one node are due at the other end, and until when it keeps those that it received.

    `drafter`: the number of the drafter whose node it is; None for all others.
    """

    def __init__(self, fleet: Fleet, drafter: int | None = None) -> None:
        self.fleet = fleet
        self.drafter = drafter
        self.sources = ways_of(linked_pairs(fleet, streams_of(fleet)), sources_of(fleet.seed).links)
        self.ways_s: dict[tuple[Pair, bool], Callable[[int], float]] = {}  # by link, and whether it is the way down
        self.last_s: dict[tuple[Pair, bool], float] = {}  # when the last message of a way is due: none overtakes it
        self.kept_s: dict[int, float] = {}  # until when the last message of a stream is kept, by tag

    def due_s(self, message: Message | Routed | Ping, payload_bytes: int, left_s: float) -> float:
        """Return when a message that leaves its station at `left_s` is due; 0 where nothing is stated of its way."""
        if isinstance(message, View):
            return left_s + self.fleet.drafters.view_delay_s
        way = self._way(message)
        if way is None or not self.fleet.links:
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

    def _way(self, message: Message | Routed | Ping) -> tuple[Pair, bool] | None:
        """The link of a message, and whether it goes down it; None for one on no link: to a router, and news."""
        fleet = self.fleet
        match message:
            case Routed():
                return (fleet.target_of(message.tag), message.drafter), False
            case DraftRequest() | Leave() if self.drafter is None and not fleet.routed:
                return (fleet.target_of(message.tag), fleet.drafter_of(message.tag)), False
            case Draft() | Refusal() if self.drafter is not None:
                return (fleet.target_of(message.tag), self.drafter), True
        return None

    def stamp(self, actions: list[Action], message: Message | Routed | Ping, left_s: float) -> list[Action]:
        """Stamp the frame that carries a message with when it is due."""
        for place, action in enumerate(actions):
            if isinstance(action, Send):
                due_s = self.due_s(message, payload_of(action.frame), left_s)
                actions[place] = with_due(action, due_s)
        return actions

    def keep(self, actions: Sequence[Action], due_s: float, now_s: float) -> list[Action]:
        """Let what is delivered be delivered when it is due, and nothing of a stream before what came earlier."""
        return [self._kept(action, due_s, now_s) if isinstance(action, Deliver) else action for action in actions]

    def _kept(self, deliver: Deliver, due_s: float, now_s: float) -> Deliver:
        due_s = due_s if due_s - now_s < MOST_HELD_S else 0.0
        if isinstance(deliver.event, View | Ping):  # of no stream; how late news is meant to be is in its stamp
            return msgspec.structs.replace(deliver, after_s=max(due_s - now_s, 0.0)) if due_s else deliver
        tag = deliver.event.tag
        until_s = max(due_s, self.kept_s.pop(tag, 0.0))
        if not until_s > now_s:
            return deliver
        self.kept_s[tag] = until_s
        return msgspec.structs.replace(deliver, after_s=max(deliver.after_s, until_s - now_s))


def with_due(send: Send, due_s: float) -> Send:
    """Return a frame to be sent that says when its message is due."""
    return msgspec.structs.replace(send, frame=stamped(send.frame, due_s)) if due_s else send


def stated_links(fleet: Fleet, drafter: int | None = None) -> StatedLinks | None:
    """Return what holds the messages of a node back; None where the fleet states neither links nor how old news is."""
    return StatedLinks(fleet, drafter) if holds_messages(fleet) else None
