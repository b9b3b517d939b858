"""All connections of a node, as one state machine: a door where it serves, lines where it asks."""

from collections.abc import Callable, Mapping

from engine.runtime.actions import DOOR, Action, Deliver, Send
from engine.runtime.content import Content
from engine.runtime.door import Door
from engine.runtime.frames import due_of
from engine.runtime.identity import Ping
from engine.runtime.line import Line
from engine.runtime.stated_links import StatedLinks, with_due
from fleet.stations.messages import Draft, DraftRequest, Leave, Message, Refusal, Routed, View

Posted = Message | Routed | Ping


class Exchange:
    """The door and the lines of a node. `line_of`: by which line a tag's messages to its drafter go.

    `relays`: drafts and refusals that come in by a line go out by the door, past the station: what a router does.
    `seen` is shown each draft that does. Until it had all of its lines once, its door answers nobody, so that targets
    wait for a drafter that starts late instead of decoding alone. `links`: what holds messages back,
    where the scenario states links.
    """

    def __init__(
        self,
        door: Door | None = None,
        lines: Mapping[int, Line] | None = None,
        line_of: Callable[[int], int] = lambda _tag: 0,
        relays: bool = False,
        seen: Callable[[Draft, Content], None] = lambda _draft, _content: None,
        links: StatedLinks | None = None,
    ) -> None:
        self.door = door
        self.lines = dict(lines or {})
        self.line_of = line_of
        self.relays = relays
        self.seen = seen
        self.links = links
        self.serves = not relays

    def missing(self) -> str:
        """Say whom this end calls and has not been welcomed by, in words; empty if there is nobody."""
        lines = [line for line in self.lines.values() if line.state != "open"]
        names = ", ".join(dict.fromkeys(line.name for line in lines))
        whom = "a drafter" if len(names.split(", ")) == 1 else "drafters"
        return f"{'the router' if lines[0].calls_router else whom} at {names}" if lines else ""

    def receive(self, port: int, peer: bytes, frame: bytes, now_s: float, user: str = "") -> list[Action]:
        """Take a frame that came in at a port."""
        if port == DOOR:
            assert self.door is not None
            actions = self.door.receive(peer, frame, now_s, user) if self.serves else []
        else:
            actions = self.lines[port].receive(frame, now_s)
            self.serves = self.serves or all(line.state == "open" for line in self.lines.values())
        return self._followed(actions, now_s, 0.0 if self.links is None else due_of(frame))

    def post(self, message: Posted, content: Content, now_s: float, left_s: float | None = None) -> list[Action]:
        """Send what the station, or the worker, wants to have sent. `left_s`: when it left the station, if not now."""
        actions = self._post(message, content, now_s)
        if self.links is not None:
            actions = self.links.stamp(actions, message, now_s if left_s is None else left_s)
        return self._followed(actions, now_s)

    def _post(self, message: Posted, content: Content, now_s: float) -> list[Action]:
        if isinstance(message, Routed):
            return self.lines[message.drafter].send(message.message, content, now_s)
        if isinstance(message, DraftRequest | Leave) or self.door is None:
            return self.lines[self.line_of(message.tag)].send(message, content, now_s)
        assert isinstance(message, Draft | Refusal | View | Ping)
        return self.door.send(message, content)

    def lost(self, port: int, peer: bytes, now_s: float) -> list[Action]:
        """Note that a frame could not be sent."""
        if port == DOOR:
            return self._followed([] if self.door is None else self.door.lost(peer), now_s)
        return self._followed(self.lines[port].lost(now_s), now_s)

    def tick(self, now_s: float) -> list[Action]:
        """Do what is due by now."""
        due = [] if self.door is None else self.door.tick(now_s)
        for line in self.lines.values():
            due += line.tick(now_s)
        return self._followed(due, now_s)

    def close(self, now_s: float) -> list[Action]:
        """Say goodbye to everybody."""
        goodbyes = [] if self.door is None else self.door.close()
        return goodbyes + [action for line in self.lines.values() for action in line.close(now_s)]

    def _followed(self, actions: list[Action], now_s: float, due_s: float = 0.0) -> list[Action]:
        """Relay what is to be relayed; keep the rest until it is due, where links are stated."""
        if self.relays and self.door is not None:
            return self._relayed(self.door, actions, due_s)
        return actions if self.links is None else self.links.keep(actions, due_s, now_s)

    def _relayed(self, door: Door, actions: list[Action], due_s: float) -> list[Action]:
        relayed: list[Action] = []
        for action in actions:
            if isinstance(action, Deliver) and isinstance(action.event, Draft | Refusal):
                if isinstance(action.event, Draft):
                    self.seen(action.event, action.content)
                sent = door.send(action.event, action.content)
                relayed += [with_due(send, due_s) if isinstance(send, Send) else send for send in sent]
            else:
                relayed.append(action)
        return relayed
