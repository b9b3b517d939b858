"""The client of a connection, as a state machine: it connects until it is welcomed, and again when it was lost.

If the scenario has a patience, the station notices timeouts, and a request waits for the connection. Without a patience
the client delivers a Refusal, and the target decodes alone.
"""

from dataclasses import dataclass

import msgspec

from specfleet.engine.net import handshake
from specfleet.engine.net.actions import (
    ALIVE_S,
    HELLO_S,
    LEASE_S,
    NO_PEER,
    Action,
    Deliver,
    Lost,
    Opened,
    Rejected,
    Send,
)
from specfleet.engine.net.content import NOTHING, Content
from specfleet.engine.net.frames import VERSION, FrameError, OtherVersionError, WireMessage, pack, parse, payload_of
from specfleet.engine.net.limits import bounds_of, draft_refused
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.stations.messages import Draft, DraftRequest, Leave, Message, Refusal, View

PATIENCE_S = 60.0  # for a draft, if the scenario has no patience: much longer than a queue of prefills
TAKEN_S = 2 * LEASE_S  # a client keeps calling while its number is taken: the peer that has it may have just died


@dataclass(slots=True)
class Asked:
    """The newest request of a session: its request, epoch, and the base of the next draft.

    `since_s`: since when it waits for that draft. `due`: tokens to come from a drafter that works ahead. `waits`:
    whether a draft is to come.
    """

    request: int
    epoch: int
    base: int
    since_s: float
    due: int = 0
    waits: bool = True

    def is_answer(self, message: Draft | Refusal) -> bool:
        """Whether a message answers it, and is no repeated one."""
        if not self.waits or self.request != message.request:
            return False
        return isinstance(message, Refusal) or (message.epoch, message.base) == (self.epoch, self.base)

    def take(self, draft: Draft, now_s: float) -> None:
        """Note a draft that answers it."""
        self.waits = self.due > draft.tokens
        self.base, self.since_s, self.due = self.base + draft.tokens, now_s, self.due - draft.tokens


class ClientEnd:
    """A connection of a target, or of a router, to one drafter; or of a target to the router.

    - `drafter`: number of that drafter. `port`: number of the client at its node.
    - `name`: address of the server, as users write it.
    - `vocabulary`: of the target's model; 0 if unknown.
    - `goes_on`: see `Hello`.
    - `asked`: the newest request of each session that the server knows, by tag.
    - `unsent`: the newest request of each session, with its content, that waits for the connection.
    """

    def __init__(
        self,
        fleet: Fleet,
        number: int,
        incarnation: int,
        role: handshake.Role = "verifier",
        drafter: int = 0,
        port: int = 0,
        name: str = "the drafter",
        vocabulary: int = 0,
        goes_on: bool = False,
    ) -> None:
        seat = handshake.seat_of(fleet, role, number)
        if seat is None:
            raise InputError(f"{role} {number + 1}: the scenario has verifiers.count = {fleet.verifiers.count}")
        self.seat = seat
        self.hello = handshake.Hello(role, number, incarnation, 0, handshake.terms_of(fleet), drafter, goes_on)
        self.drafter, self.port, self.name = drafter, port, name
        self.calls_router, self.routes = fleet.routed and role == "verifier", role == "router"
        self.state = "calling"  # then "open", "rejected" or "closed"
        patience = fleet.verifiers.patience
        self.watched = patience.patience_s > 0
        self.hello_s = min(HELLO_S, patience.rejoin_s / 2) if self.watched else HELLO_S
        self.bounds = bounds_of(fleet, vocabulary)
        self.asked: dict[int, Asked] = {}
        self.unsent: dict[int, tuple[DraftRequest, Content]] = {}
        self.called_s = self.received_s = self.sent_s = -1e9
        self.taken_s: float | None = None  # since when its number has been taken

    def receive(self, frame: bytes, now_s: float) -> list[Action]:
        """Take a frame."""
        try:
            message, content = parse(frame)
        except OtherVersionError as error:
            return self._rejected(f"it speaks version {error.version} of the protocol, and this end {VERSION}", now_s)
        except FrameError as error:
            return self._drop(f"malformed, {error}")
        self.received_s = now_s
        if isinstance(message, Draft | Refusal | View):
            return self._deliver(message, content, payload_of(frame), now_s)
        return self._take_message(message, now_s)

    def _take_message(self, message: WireMessage, now_s: float) -> list[Action]:
        """Take a message about the connection itself."""
        match message:
            case handshake.Welcome():
                return self._welcomed(message, now_s)
            case handshake.Denied():
                return self._denied(message, now_s)
            case handshake.Unknown():
                return self.lost(now_s, "does not know this end any more")
            case handshake.Bye():
                return self.lost(now_s, "has ended")
        return [] if isinstance(message, handshake.Alive) else self._drop(type(message).__name__)

    def send(self, message: Message, content: Content, now_s: float) -> list[Action]:
        """Send a message of the station; without a connection a request waits, or is refused."""
        self.unsent.pop(message.tag, None)
        if self.state != "open":
            if not isinstance(message, DraftRequest):
                return []
            if not self.watched:
                return [Deliver(Refusal(message.tag, message.request, f"{self.name} is not there"))]
            self.unsent[message.tag] = message, content
            return []
        if isinstance(message, DraftRequest):
            due = 0 if self.bounds.in_turn else message.tokens
            self.asked[message.tag] = Asked(message.request, message.epoch, message.base, now_s, due)
        elif isinstance(message, Leave):
            self.asked.pop(message.tag, None)
        local: WireMessage = msgspec.structs.replace(message, tag=self.seat.to_wire(message.tag))
        return [self._send(local, now_s, content)]

    def lost(self, now_s: float, reason: str = "is gone") -> list[Action]:
        """Note that the server is gone: its sessions decode alone, and the client connects again."""
        if self.state != "open":
            return []
        self.state = "calling"
        self.hello = msgspec.structs.replace(self.hello, attempt=self.hello.attempt + 1)
        self.called_s = now_s  # a server that is gone does not answer at once
        sessions, self.asked = self.asked, {}
        lost = Lost(f"{self.name} {reason}")
        refused = {} if self.watched else sessions
        return [lost, *(Deliver(Refusal(tag, asked.request, lost.reason)) for tag, asked in refused.items())]

    def tick(self, now_s: float) -> list[Action]:
        """Send Hello or Alive if it is due, and detect timeouts; to be called several times a second."""
        if self.state == "calling" and now_s - self.called_s >= self.hello_s:
            self.called_s = now_s
            return [self._send(self.hello, now_s)]
        if self.state == "open":
            if now_s - self.received_s > LEASE_S:
                return self.lost(now_s, f"has said nothing for {LEASE_S:.0f} s")
            if now_s - self.sent_s >= ALIVE_S:
                return [*self._overdue(now_s), self._send(handshake.Alive(), now_s)]
            return self._overdue(now_s)
        return []

    def close(self, now_s: float) -> list[Action]:
        """Send Bye, if connected."""
        connected, self.state = self.state == "open", "closed"
        return [self._send(handshake.Bye(), now_s)] if connected else []

    def _deliver(
        self, message: Draft | Refusal | View, content: Content, payload_bytes: int, now_s: float
    ) -> list[Action]:
        """Deliver a message to the station, under its tag of the fleet; drop it if the connection was lost."""
        if self.state != "open":
            return []
        tag = self.drafter if isinstance(message, View) else self.seat.to_fleet(message.tag)
        if tag is None or (isinstance(message, View) and not self.routes):
            return self._drop(type(message).__name__)
        if isinstance(message, Draft | Refusal):
            asked = self.asked.get(tag)
            answered = asked if asked is not None and asked.is_answer(message) else None
            why = draft_refused(message, content, self.bounds) if isinstance(message, Draft) else ""
            if why:
                reason = f"{self.name} sends a draft that cannot be verified: {why}"
                return self._give_up(tag, reason, now_s) if answered and not self.watched else [Lost(reason)]
            if isinstance(message, Draft) and answered:
                answered.take(message, now_s)
            elif isinstance(message, Refusal) and asked is not None and asked.request == message.request:
                del self.asked[tag]
            if self.routes and not answered:  # the texts that the router keeps would be wrong
                return []
        return [Deliver(msgspec.structs.replace(message, tag=tag), content, payload_bytes)]

    def _welcomed(self, welcome: handshake.Welcome, now_s: float) -> list[Action]:
        if self.state != "calling" or welcome.attempt != self.hello.attempt:
            return []
        self.state, self.taken_s = "open", None
        unsent, self.unsent = self.unsent, {}
        back = f"{self.name} is back" if self.hello.attempt else ""
        return [Opened(back), *(action for request in unsent.values() for action in self.send(*request, now_s))]

    def _denied(self, denied: handshake.Denied, now_s: float) -> list[Action]:
        if self.state != "calling" or denied.attempt != self.hello.attempt:
            return []
        self.taken_s = now_s if self.taken_s is None else self.taken_s
        if denied.later and now_s - self.taken_s < TAKEN_S:
            return []
        return self._rejected(handshake.printable(denied.reason), now_s)

    def _rejected(self, reason: str, now_s: float) -> list[Action]:
        if self.state != "calling":
            return []
        if self.hello.attempt or self.hello.goes_on:  # its server may be another for a while
            self.called_s = now_s + LEASE_S
            return [Lost(f"{self.name}: {reason}")]
        self.state = "rejected"
        return [Rejected(f"{self.name}: {reason}")]

    def _overdue(self, now_s: float) -> list[Action]:
        """Refuse requests without a draft for too long, and close their sessions at the drafter."""
        if self.watched:
            return []
        overdue = [tag for tag, asked in self.asked.items() if asked.waits and now_s - asked.since_s > PATIENCE_S]
        reason = f"{self.name} sent no draft within {PATIENCE_S:g} s"
        return [action for tag in overdue for action in self._give_up(tag, reason, now_s)]

    def _give_up(self, tag: int, reason: str, now_s: float) -> list[Action]:
        """Close a session at the drafter, and refuse its request."""
        request = self.asked[tag].request
        left = self.send(Leave(tag, request), NOTHING, now_s)
        return [Lost(reason), *left, Deliver(Refusal(tag, request, reason))]

    def _drop(self, what: str) -> list[Action]:
        """Drop a frame, and say so."""
        return [Lost(f"{self.name} sends what is dropped: {handshake.printable(what)[:100]}")]

    def _send(self, message: WireMessage, now_s: float, content: Content | None = None) -> Send:
        self.sent_s = now_s
        return Send(self.port, NO_PEER, pack(message) if content is None else pack(message, content))
