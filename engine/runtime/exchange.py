"""All connections of a node, as one state machine: a door where it serves, lines where it asks."""

from collections.abc import Callable, Mapping

from engine.runtime.actions import DOOR, Action, Deliver
from engine.runtime.content import Content
from engine.runtime.door import Door
from engine.runtime.identity import Ping
from engine.runtime.line import Line
from fleet.stations.messages import Draft, DraftRequest, Leave, Message, Refusal, Routed, View

Posted = Message | Routed | Ping


class Exchange:
    """The door and the lines of a node. `line_of`: by which line a tag's messages to its drafter go.

    `relays`: drafts and refusals that come in by a line go out by the door, past the station: what a router does.
    `seen` is shown each draft that does. Until it had all of its lines once, its door answers nobody, so that targets
    wait for a drafter that starts late instead of decoding alone.
    """

    def __init__(
        self,
        door: Door | None = None,
        lines: Mapping[int, Line] | None = None,
        line_of: Callable[[int], int] = lambda _tag: 0,
        relays: bool = False,
        seen: Callable[[Draft, Content], None] = lambda _draft, _content: None,
    ) -> None:
        self.door = door
        self.lines = dict(lines or {})
        self.line_of = line_of
        self.relays = relays
        self.seen = seen
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
            return self.door.receive(peer, frame, now_s, user) if self.serves else []
        actions = self._relayed(self.lines[port].receive(frame, now_s))
        self.serves = self.serves or all(line.state == "open" for line in self.lines.values())
        return actions

    def post(self, message: Posted, content: Content, now_s: float) -> list[Action]:
        """Send what the station, or the worker, wants to have sent."""
        if isinstance(message, Routed):
            return self._relayed(self.lines[message.drafter].send(message.message, content, now_s))
        if isinstance(message, DraftRequest | Leave) or self.door is None:
            return self._relayed(self.lines[self.line_of(message.tag)].send(message, content, now_s))
        assert isinstance(message, Draft | Refusal | View | Ping)
        return self.door.send(message, content)

    def lost(self, port: int, peer: bytes, now_s: float) -> list[Action]:
        """Note that a frame could not be sent."""
        if port == DOOR:
            return [] if self.door is None else self.door.lost(peer)
        return self._relayed(self.lines[port].lost(now_s))

    def tick(self, now_s: float) -> list[Action]:
        """Do what is due by now."""
        due = [] if self.door is None else self.door.tick(now_s)
        for line in self.lines.values():
            due += self._relayed(line.tick(now_s))
        return due

    def close(self, now_s: float) -> list[Action]:
        """Say goodbye to everybody."""
        goodbyes = [] if self.door is None else self.door.close()
        return goodbyes + [action for line in self.lines.values() for action in line.close(now_s)]

    def _relayed(self, actions: list[Action]) -> list[Action]:
        if not self.relays or self.door is None:
            return actions
        relayed: list[Action] = []
        for action in actions:
            if isinstance(action, Deliver) and isinstance(action.event, Draft | Refusal):
                if isinstance(action.event, Draft):
                    self.seen(action.event, action.content)
                relayed += self.door.send(action.event, action.content)
            else:
                relayed.append(action)
        return relayed
