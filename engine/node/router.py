"""The router: a node that sends each round of a session to one of several drafters."""

import time
from collections.abc import Mapping

import numpy as np

from specfleet.engine.net.addresses import shown
from specfleet.engine.net.client import ClientEnd
from specfleet.engine.net.connections import ConnectionTable
from specfleet.engine.net.content import NOTHING, Content
from specfleet.engine.net.limits import max_bytes
from specfleet.engine.net.links import stated_links
from specfleet.engine.net.server import ServerEnd
from specfleet.engine.net.sockets import Sockets
from specfleet.engine.node.node import HERE, Node, Site
from specfleet.engine.node.worker import Executor
from specfleet.fleet.records.recorder import RecordedStation
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.stations.build import router_station
from specfleet.fleet.stations.messages import Draft, DraftRequest, Leave, Message, StationEvent


class RouteExecutor(Executor):
    """Keeps the committed tokens of each session, to open it at another drafter; for a draft head their states, too.

    Targets send only their own token. The accepted ones are known from the draft; `relayed` takes it in the socket
    thread before its target does.
    """

    def __init__(self) -> None:
        self.texts: dict[int, list[int]] = {}
        self.states: dict[int, list[np.ndarray]] = {}  # float16 (tokens, numbers) each, as the requests had them
        self.waiting: dict[int, Content] = {}  # content of the request that waits for its route
        # the newest drafts of each session that passed the router: their request and epoch, and their tokens
        self.drafts: dict[int, tuple[tuple[int, int], list[int]]] = {}

    def relayed(self, draft: Draft, content: Content) -> None:
        """Note a draft on its way to a target; one of the same epoch continues it, from a drafter that works ahead."""
        newest, (noted, tokens) = (draft.request, draft.epoch), self.drafts.get(draft.tag, ((-1, -1), []))
        if noted <= newest:
            self.drafts[draft.tag] = newest, [*(tokens if noted == newest else ()), *content.tokens]

    def receive(self, event: StationEvent, content: Content) -> None:
        """Follow the text of a session: its prefix, accepted tokens, and the target's own token."""
        match event:
            case DraftRequest(tag=tag, opening=True):
                self.texts[tag], self.waiting[tag], self.states[tag] = list(content.tokens), content, []
            case DraftRequest(tag=tag):
                text, before = self.texts[tag], event.base - len(content.tokens)
                path = range(1, before - len(text) + 1) if content.nodes is None else content.nodes
                text += [self.drafts[tag][1][node - 1] for node in path]
                text[before:] = content.tokens
                self.waiting[tag] = content
            case Leave(tag=tag):
                for kept in (self.texts, self.states, self.waiting, self.drafts):
                    kept.pop(tag, None)
        if isinstance(event, DraftRequest) and content.hidden is not None:
            self.states[event.tag].append(content.hidden)

    def content_of(self, message: Message) -> Content:
        """Return the content of a request; the whole prefix if it opens its session."""
        if not isinstance(message, DraftRequest):
            return NOTHING
        if not message.opening:
            return self.waiting[message.tag]
        states = self.states[message.tag]
        return Content(list(self.texts[message.tag]), hidden=np.concatenate(states) if states else None)


def router_node(
    fleet: Fleet, addresses: Mapping[int, str], vocabulary: int = 0, site: Site = HERE, state_numbers: int = 0
) -> Node:
    """Return a node with a server for all targets, and a client of each drafter.

    - `addresses`: of the drafters, by number. The server answers once all drafters have answered.
    - `vocabulary`: the larger one of the models; 0 if unknown. `state_numbers`: of a token's hidden states; 0 for none.
    """
    born = time.time_ns()
    clients = {
        number: ClientEnd(fleet, 0, born, "router", number, number, shown([address]))
        for number, address in addresses.items()
    }
    executor, server = RouteExecutor(), ServerEnd(fleet, 0, state_numbers, drafter=None)
    return Node(
        fleet,
        RecordedStation(router_station(fleet), "real"),
        executor,
        ConnectionTable(server, clients, on_draft=executor.relayed, links=stated_links(fleet)),
        Sockets(site.address, addresses, max_bytes(fleet, vocabulary, state_numbers), site.keys),
        site=site,
    )
