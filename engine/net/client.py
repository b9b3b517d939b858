"""The asking end of a connection, as a state machine: it calls until it is welcomed, and calls again when it was lost.

What a target would wait for in vain becomes an event that its station knows. Where the scenario states a patience, the
station itself notices silence, and is told sooner what the line knows: Overdue when it is lost, Retry when it is back.
Else it is a Refusal, after which the target decodes alone.
"""

import msgspec

from engine.net.actions import (
    ALIVE_S,
    ANYBODY,
    HELLO_S,
    LEASE_S,
    Action,
    Deliver,
    Lost,
    Opened,
    Send,
    Turned,
)
from engine.net.content import NOTHING, Content
from engine.net.frames import VERSION, FrameError, OtherVersionError, Said, pack, parse, payload_of
from engine.net.handshake import (
    Alive,
    Bye,
    Denied,
    Hello,
    Ping,
    Role,
    Unknown,
    Welcome,
    in_a_line,
    seat_of,
    terms_of,
)
from engine.net.limits import bounds_of, draft_refused
from fleet.errors import InputError
from fleet.scenario.settled import Fleet
from fleet.stations.messages import Draft, DraftRequest, Leave, Message, Overdue, Refusal, Retry, View

MOST_BAD = 8
RECALL_S = 1.0
PATIENCE_S = 60.0  # for a draft: far beyond what a long queue of prefills takes
TAKEN_S = 2 * LEASE_S  # how long a line calls on where its number is taken: who had it may have died a moment ago


class Line:
    """A connection to drafter number `drafter` on behalf of a target, or of a router. `port`: its number at this node.

    `name`: what is connected to, as users write it. `open`: the request of each session that the drafter knows;
    `asked`: the epoch and the time of each draft that it owes. `patience_s`: after which the target decodes alone where
    the scenario states none; `away`: the requests that do where it states one. `vocabulary`: of the target's model, 0
    if unknown. `goes_on`: see `Hello`.
    """

    def __init__(
        self,
        fleet: Fleet,
        number: int,
        incarnation: int,
        role: Role = "verifier",
        drafter: int = 0,
        port: int = 0,
        name: str = "the drafter",
        patience_s: float = PATIENCE_S,
        vocabulary: int = 0,
        goes_on: bool = False,
    ) -> None:
        seat = seat_of(fleet, role, number)
        if seat is None:
            raise InputError(f"{role} {number + 1}: the scenario has verifiers.count = {fleet.verifiers.count}")
        self.seat = seat
        self.hello = Hello(role, number, incarnation, 0, terms_of(fleet), drafter, goes_on)
        self.drafter, self.port, self.name = drafter, port, name
        self.calls_router = fleet.routed and role == "verifier"
        self.state = "calling"  # then "open"; or "turned" away, or "closed"
        self.patience_s = patience_s
        patience = fleet.verifiers.patience
        self.watched = patience.patience_s > 0
        self.hello_s = min(HELLO_S, patience.rejoin_s / 2) if self.watched else HELLO_S
        self.view_delay_s = fleet.drafters.view_delay_s
        self.bounds = bounds_of(fleet, vocabulary)
        self.open: dict[int, int] = {}
        self.asked: dict[int, tuple[int, float]] = {}
        self.away: dict[int, int] = {}
        self.peer_life = -1
        self.called_s = self.heard_s = self.spoke_s = -1e9
        self.taken_s: float | None = None  # since when the answer is that its number is taken
        self.bad = 0

    def receive(self, frame: bytes, now_s: float) -> list[Action]:
        """Take a frame of the other end."""
        try:
            message, content = parse(frame)
        except OtherVersionError as error:
            return self._turned(f"it speaks version {error.version} of the protocol, and this end {VERSION}")
        except FrameError:
            return self._bad(now_s)
        self.heard_s = now_s
        if isinstance(message, Draft | Refusal | Ping | View):
            return self._pass_on(message, content, payload_of(frame), now_s)
        return self._heed(message, now_s)

    def _heed(self, message: Said, now_s: float) -> list[Action]:
        """Take what concerns the connection itself."""
        match message:
            case Welcome():
                return self._welcomed(message)
            case Denied():
                return self._denied(message, now_s)
            case Unknown():
                return self.lost(now_s, "does not know this end any more")
            case Bye():
                return self.lost(now_s, "has ended")
        return [] if isinstance(message, Alive) else self._bad(now_s)

    def send(self, message: Message | Ping, content: Content, now_s: float) -> list[Action]:
        """Send a message of the station; a draft is refused on behalf of a drafter that is not there."""
        self._note_away(message)
        known = self.state == "open" and not self._is_unknown(message)
        if isinstance(message, DraftRequest) and not known:
            return self._unasked(message)
        if self.state != "open":
            return []
        if isinstance(message, DraftRequest):
            self.open[message.tag], self.asked[message.tag] = message.request, (message.epoch, now_s)
        elif isinstance(message, Leave):
            self._forget(message.tag)
        local: Said = msgspec.structs.replace(message, tag=self.seat.local(message.tag))
        return [self._say(local, now_s, content)]

    def lost(self, now_s: float, reason: str = "is gone") -> list[Action]:
        """Note that the other end is gone: its sessions decode alone, and this end calls again."""
        if self.state != "open":
            return []
        self.state = "calling"
        self.hello = msgspec.structs.replace(self.hello, attempt=self.hello.attempt + 1)
        self.called_s, self.bad = now_s, 0  # whoever is gone will not answer at once
        sessions, asked, self.open, self.asked = self.open, self.asked, {}, {}
        lost = Lost(self.port, f"{self.name} {reason}")
        if not self.watched:
            return [lost, *(Deliver(Refusal(tag, request, lost.reason)) for tag, request in sessions.items())]
        owed = {tag: epoch for tag, (epoch, _) in asked.items() if self._tells and tag not in self.away}
        self.away |= {tag: sessions[tag] for tag in owed}
        return [lost, *(Deliver(Overdue(tag, sessions[tag], epoch)) for tag, epoch in owed.items())]

    def tick(self, now_s: float) -> list[Action]:
        """Say what is due: Hello, or that this end lives; to be asked several times a second."""
        if self.state == "calling" and now_s - self.called_s >= self.hello_s:
            self.called_s = now_s
            return [self._say(self.hello, now_s)]
        if self.state == "open":
            if now_s - self.heard_s > LEASE_S:
                return self.lost(now_s, f"has said nothing for {LEASE_S:.0f} s")
            if now_s - self.spoke_s >= ALIVE_S:
                return [*self._overdue(now_s), self._say(Alive(), now_s)]
            return self._overdue(now_s)
        return []

    def close(self, now_s: float) -> list[Action]:
        """Say goodbye, if anybody listens."""
        listens, self.state = self.state == "open", "closed"
        return [self._say(Bye(), now_s)] if listens else []

    def _pass_on(
        self, message: Draft | Refusal | Ping | View, content: Content, payload_bytes: int, now_s: float
    ) -> list[Action]:
        """Hand a message to the station, under its tag of the fleet; what comes after its line was lost is dropped."""
        if self.state != "open":
            return []
        own = self.drafter if isinstance(message, View) else self.seat.own(message.tag)
        if own is None or (isinstance(message, Draft) and draft_refused(message, content, self.bounds)):
            return self._bad(now_s)
        if not isinstance(message, Ping) and self.open.get(own) == message.request:
            if isinstance(message, Refusal):
                self._forget(own)
            elif isinstance(message, Draft) and self.asked.get(own, (-1,))[0] == message.epoch:  # no repeated one
                del self.asked[own]
        after_s = self.view_delay_s if isinstance(message, View) else 0.0
        return [Deliver(msgspec.structs.replace(message, tag=own), content, payload_bytes, after_s)]

    def _welcomed(self, welcome: Welcome) -> list[Action]:
        if self.state != "calling" or welcome.attempt != self.hello.attempt:
            return []
        self.state, self.peer_life, self.taken_s = "open", welcome.incarnation, None
        return [Opened(self.port), *(Deliver(Retry(tag, request)) for tag, request in self.away.items())]

    def _denied(self, denied: Denied, now_s: float) -> list[Action]:
        if self.state != "calling" or denied.attempt != self.hello.attempt:
            return []
        self.taken_s = now_s if self.taken_s is None else self.taken_s
        if denied.later and now_s - self.taken_s < TAKEN_S:
            return []
        return self._turned(in_a_line(denied.reason))

    def _turned(self, reason: str) -> list[Action]:
        if self.state != "calling":
            return []
        self.state = "turned"
        return [Turned(self.port, f"{self.name}: {reason}")]

    def _overdue(self, now_s: float) -> list[Action]:
        """Refuse on behalf of the drafter what it has owed for too long, and let it forget that session."""
        followed: list[Action] = []
        if self.watched:
            return followed
        for tag in [tag for tag, (_, asked_s) in self.asked.items() if now_s - asked_s > self.patience_s]:
            request = self.open[tag]
            followed += self.send(Leave(tag, request), NOTHING, now_s)
            followed.append(Deliver(Refusal(tag, request, f"{self.name} sent no draft within {self.patience_s:g} s")))
        return followed

    @property
    def _tells(self) -> bool:
        """Whether a target's station is told what its line knows; those behind a router notice silence alone."""
        return self.watched and self.seat.role == "verifier"

    def _note_away(self, message: Message | Ping) -> None:
        """Note which requests decode alone: those that have left to come back, or that ask for an empty draft."""
        if not self._tells or not isinstance(message, DraftRequest | Leave):
            return
        if _is_probe(message) or (isinstance(message, Leave) and message.epoch):
            self.away[message.tag] = message.request
        else:
            self.away.pop(message.tag, None)

    def _is_unknown(self, message: Message | Ping) -> bool:
        """Whether a request goes on with a session that the other end has lost with the connection."""
        return self._tells and isinstance(message, DraftRequest) and not (message.opening or message.tag in self.open)

    def _unasked(self, message: DraftRequest) -> list[Action]:
        """Say what becomes of a request that nobody would answer."""
        tag, request = message.tag, message.request
        if not self.watched:
            return [Deliver(Refusal(tag, request, f"{self.name} is not there"))]
        if not self._tells or _is_probe(message):
            return []
        self.away[tag] = request
        overdue = Deliver(Overdue(tag, request, message.epoch))
        return [overdue, Deliver(Retry(tag, request))] if self.state == "open" else [overdue]

    def _forget(self, tag: int) -> None:
        self.open.pop(tag, None)
        self.asked.pop(tag, None)

    def _bad(self, now_s: float) -> list[Action]:
        self.bad += 1
        return self.lost(now_s, "sends what cannot be read") if self.bad >= MOST_BAD else []

    def _say(self, message: Said, now_s: float, content: Content | None = None) -> Send:
        self.spoke_s = now_s
        return Send(self.port, ANYBODY, pack(message) if content is None else pack(message, content))


def _is_probe(message: Message) -> bool:
    """Whether a message asks for an empty draft, to see whether anybody answers."""
    return isinstance(message, DraftRequest) and message.opening and message.tokens == 0


def recall_s(fleet: Fleet) -> float:
    """How long it takes at most until a line that could not reach anybody calls again."""
    patience = fleet.verifiers.patience
    return patience.rejoin_s if patience.patience_s > 0 else RECALL_S
