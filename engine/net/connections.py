"""All connections of a node, as one state machine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from specfleet.engine.net.actions import SERVER_PORT, Action, Deliver, Lost, Opened, Rejected, Send
from specfleet.engine.net.client import ClientEnd
from specfleet.engine.net.content import Content
from specfleet.engine.net.frames import due_of
from specfleet.engine.net.links import StatedLinks, with_due
from specfleet.engine.net.server import ServerEnd
from specfleet.engine.net.sockets import Sockets
from specfleet.fleet.stations.messages import Draft, DraftRequest, Leave, Message, Refusal, Routed, View

Posted = Message | Routed


@dataclass(eq=False)
class ConnectionTable:
    """The server and the clients of a node.

    - `client_of`: the client that sends a tag's messages to its drafter.
    - `on_draft`: if given (a router), drafts and refusals of clients go out by the server, past the station; it is
      called with each draft. The server answers once all clients have been welcomed, so that targets wait for a late
      drafter instead of decoding alone.
    - `links`: delays of messages, if the scenario describes links.
    """

    server: ServerEnd | None = None
    clients: Mapping[int, ClientEnd] = field(default_factory=dict)
    client_of: Callable[[int], int] = lambda _tag: 0
    on_draft: Callable[[Draft, Content], None] | None = None
    links: StatedLinks | None = None

    def __post_init__(self) -> None:
        self.serves = self.on_draft is None

    def missing(self) -> str:
        """Return the servers that have not welcomed this node yet, in words; empty if there is none."""
        clients = [client for client in self.clients.values() if client.state != "open"]
        names = ", ".join(dict.fromkeys(client.name for client in clients))
        called = "a drafter" if len(names.split(", ")) == 1 else "drafters"
        return f"{'the router' if clients[0].calls_router else called} at {names}" if clients else ""

    def receive(self, port: int, peer: bytes, frame: bytes, now_s: float) -> list[Action]:
        """Take a frame of a port."""
        if port == SERVER_PORT:
            assert self.server is not None
            actions = self.server.receive(peer, frame, now_s) if self.serves else []
        else:
            actions = self.clients[port].receive(frame, now_s)
            self.serves = self.serves or all(client.state == "open" for client in self.clients.values())
        return self._followed(actions, now_s, 0.0 if self.links is None else due_of(frame))

    def post(self, message: Posted, content: Content, now_s: float, left_s: float | None = None) -> list[Action]:
        """Send a message. `left_s`: when it left its station, if not now."""
        actions = self._post(message, content, now_s)
        if self.links is not None:
            actions = self.links.stamp(actions, message, now_s if left_s is None else left_s)
        return self._followed(actions, now_s)

    def _post(self, message: Posted, content: Content, now_s: float) -> list[Action]:
        if isinstance(message, Routed):
            return self.clients[message.drafter].send(message.message, content, now_s)
        if isinstance(message, DraftRequest | Leave) or self.server is None:
            return self.clients[self.client_of(message.tag)].send(message, content, now_s)
        assert isinstance(message, Draft | Refusal | View)
        return self.server.send(message, content)

    def lost(self, port: int, peer: bytes, now_s: float) -> list[Action]:
        """Note that a frame could not be sent to a peer."""
        if port == SERVER_PORT:
            return self._followed([] if self.server is None else self.server.lost(peer), now_s)
        return self._followed(self.clients[port].lost(now_s), now_s)

    def tick(self, now_s: float) -> list[Action]:
        """Send and detect what is due; to be called several times a second."""
        due = [] if self.server is None else self.server.tick(now_s)
        for client in self.clients.values():
            due += client.tick(now_s)
        return self._followed(due, now_s)

    def close(self, now_s: float) -> list[Action]:
        """Send Bye to all peers."""
        goodbyes = [] if self.server is None else self.server.close()
        return goodbyes + [action for client in self.clients.values() for action in client.close(now_s)]

    def carry_out(
        self, actions: Sequence[Action], sockets: Sockets, now_s: float
    ) -> list[Deliver | Opened | Lost | Rejected]:
        """Send; return the other actions, in order.

        A peer that nothing can be sent to is lost; the actions that follow from it are carried out too.
        """
        others: list[Deliver | Opened | Lost | Rejected] = []
        left = list(actions)
        while left:
            action = left.pop(0)
            if not isinstance(action, Send):
                others.append(action)
            elif not sockets.send(action):
                left += self.lost(action.port, action.peer, now_s)
        return others

    def _followed(self, actions: list[Action], now_s: float, due_s: float = 0.0) -> list[Action]:
        """Relay drafts and refusals of a router; delay other deliveries until they are due."""
        if self.on_draft is None or self.server is None:
            return actions if self.links is None else self.links.keep(actions, due_s, now_s)
        relayed: list[Action] = []
        for action in actions:
            if isinstance(action, Deliver) and isinstance(action.event, Draft | Refusal):
                if isinstance(action.event, Draft):
                    self.on_draft(action.event, action.content)
                sent = self.server.send(action.event, action.content)
                relayed += [with_due(send, due_s) if isinstance(send, Send) else send for send in sent]
            else:
                relayed.append(action)
        return relayed
