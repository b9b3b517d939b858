"""The server of a node's connections, as a state machine: frames in, actions out; without sockets and clocks.

It trusts no peer. A peer is known after its Hello, and its tags are translated into its own tags of the fleet.
Malformed and misplaced messages are counted and dropped. A peer that sends many of them, or many useless ones, is cut.
The seats of the fleet bound the memory for peers, and tables of fixed size that for strangers.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from specfleet.engine.net.actions import LEASE_S, SERVER_PORT, Action, Cut, Deliver, Send
from specfleet.engine.net.content import NOTHING, Content
from specfleet.engine.net.frames import VERSION, FrameError, OtherVersionError, WireMessage, pack, parse, payload_of
from specfleet.engine.net.handshake import (
    LIVES,
    Alive,
    Bye,
    Denied,
    Hello,
    Ping,
    Role,
    Seat,
    Unknown,
    Welcome,
    difference,
    seat_of,
    terms_of,
)
from specfleet.engine.net.limits import Sessions, bounds_of
from specfleet.engine.net.rates import TokenBucket, TokenBuckets, full
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.stations.messages import DraftRequest, Leave, Message, Refusal, View
from specfleet.fleet.stations.session import era_of

MAX_BAD = 8  # malformed or misplaced frames of a peer, before it is cut
IDLE, IDLE_PER_S = 64, 16.0  # useless frames (repeated ones, Alive); an honest peer sends 1 a second
JOINS, JOINS_PER_S = 16, 0.2  # how often a seat is assigned
STRANGERS = 256  # strangers with counted useless frames


@dataclass(slots=True)
class Peer:
    """An accepted peer. `sessions`: its open ones, by tags of the fleet; `address`: HOST:PORT, if known."""

    seat: Seat
    user: str
    life: tuple[int, int]  # incarnation, attempt
    sessions: Sessions
    received_s: float  # when its last frame came
    idle: TokenBucket
    address: str = ""
    bad: int = 0

    @property
    def place(self) -> tuple[Role, int]:
        """Its seat in the fleet."""
        return self.seat.role, self.seat.number

    @property
    def name(self) -> str:
        """Its name in log lines."""
        names = [self.address] * bool(self.address) + [f"key {self.user}"] * bool(self.user)
        return name_of(*self.place) + (f" ({', '.join(names)})" if names else "")


class ServerEnd:
    """The accepted peers of a node, and the messages between them and its station.

    - `incarnation`: of this node; a later one is larger.
    - `vocabulary`, `state_numbers`: of its model, see `limits.py`; 0 if unknown.
    - `drafter`: number of the drafter that it serves, from 0; None for a router.
    - `counts`: what was refused, dropped and cut, by reason.
    - `log`: is called with lines on peers that joined, left or were refused.
    - `address_of`: returns HOST:PORT of a peer.
    """

    def __init__(
        self,
        fleet: Fleet,
        incarnation: int,
        vocabulary: int = 0,
        state_numbers: int = 0,
        drafter: int | None = 0,
    ) -> None:
        self.fleet = fleet
        self.drafter = drafter
        self.bounds = bounds_of(fleet, vocabulary, state_numbers)
        self.terms = terms_of(fleet)
        self.incarnation = incarnation
        self.peers: dict[bytes, Peer] = {}
        self.seated: dict[tuple[Role, int], bytes] = {}
        self.lives: dict[tuple[Role, int], tuple[int, int]] = {}  # last incarnation of each seat, its generation
        self.homes: dict[int, bytes] = {}  # the peer of each tag
        self.were_cut: TokenBuckets[bytes] = TokenBuckets(0.0, 0.0, STRANGERS)
        self.joins: TokenBuckets[tuple[Role, int]] = TokenBuckets(JOINS, JOINS_PER_S)
        self.strangers: TokenBuckets[bytes] = TokenBuckets(IDLE, IDLE_PER_S, STRANGERS)
        self.counts: Counter[str] = Counter()
        self.log: Callable[[str], None] = lambda _line: None
        self.address_of: Callable[[bytes], str] = lambda _peer: ""

    def receive(self, peer: bytes, frame: bytes, now_s: float, user: str = "") -> list[Action]:
        """Take a frame. `peer`: routing id of its connection; `user`: name of its key, if it has one."""
        if peer in self.were_cut.by_key:  # its connection is not closed yet
            return []
        sender, before = self.peers.get(peer), list[Action]()
        if sender is not None and sender.user != user:  # a peer can claim a routing id, but no key
            sender, before = None, self.lost(peer, "its connection is another's")
        return [*before, *self._take(peer, sender, frame, now_s, user)]

    def _take(self, peer: bytes, sender: Peer | None, frame: bytes, now_s: float, user: str) -> list[Action]:
        try:
            message, content = parse(frame)
        except FrameError as error:
            return [*_answer_to(peer, error), *self._bad(peer, sender, "malformed")]
        if sender is not None and type(message) is not Hello:
            sender.received_s = now_s
            return self._take_message(peer, sender, message, content, frame)
        idle = self.strangers.of(peer, now_s) if sender is None else sender.idle
        if not idle.spend(now_s):
            return self._too_much(peer)
        if type(message) is Hello:
            return self._hello(peer, message, now_s, user)
        self.counts["of strangers"] += 1
        return [] if type(message) is Bye else [Send(SERVER_PORT, peer, pack(Unknown()))]

    def _take_message(
        self, peer: bytes, sender: Peer, message: WireMessage, content: Content, frame: bytes
    ) -> list[Action]:
        """Take a message of an accepted peer."""
        if isinstance(message, DraftRequest | Leave | Ping):
            return self._deliver(peer, sender, message, content, payload_of(frame))
        if type(message) is Bye:
            return self.lost(peer, "it has ended")
        if type(message) is not Alive:
            return self._bad(peer, sender, "out of place")
        return [Send(SERVER_PORT, peer, frame)] if sender.idle.spend(sender.received_s) else self._too_much(peer)

    def send(self, message: Message | Ping, content: Content) -> list[Action]:
        """Send a message of the station to its peer, if that is connected."""
        if type(message) is View:
            routers = [peer for peer, sender in self.peers.items() if sender.seat.role == "router"]
            return [Send(SERVER_PORT, peer, pack(message, content)) for peer in routers]
        peer = self.homes.get(message.tag)
        if peer is None:
            return []
        sender = self.peers[peer]
        sender.sessions.sent(message, content)
        local = sender.seat.local(message.tag)
        sent: WireMessage = msgspec.structs.replace(message, tag=local)
        return [Send(SERVER_PORT, peer, pack(sent, content))]

    def lost(self, peer: bytes, why: str = "it cannot be reached") -> list[Action]:
        """Forget a peer; its sessions leave."""
        sender = self.peers.pop(peer, None)
        if sender is None:
            return []
        self.log(f"{sender.name} is gone: {why}")
        self.seated.pop(sender.place, None)
        self.homes = {tag: home for tag, home in self.homes.items() if home != peer}
        return [Deliver(leave) for leave in sender.sessions.leaves()]

    def tick(self, now_s: float) -> list[Action]:
        """Forget peers that have sent nothing for LEASE_S; to be called now and then."""
        silent = [peer for peer, sender in self.peers.items() if now_s - sender.received_s > LEASE_S]
        self.counts["silent"] += len(silent)
        return [action for peer in silent for action in self.lost(peer, f"it has said nothing for {LEASE_S:.0f} s")]

    def close(self) -> list[Action]:
        """Send Bye to all peers."""
        frame = pack(Bye())
        return [Send(SERVER_PORT, peer, frame) for peer in self.peers]

    def _deliver(
        self, peer: bytes, sender: Peer, message: DraftRequest | Leave | Ping, content: Content, payload_bytes: int
    ) -> list[Action]:
        """Deliver a message to the station, under its tag of the fleet."""
        own = sender.seat.own(message.tag)
        if own is None:
            return self._bad(peer, sender, "out of place")
        message = msgspec.structs.replace(message, tag=own)
        judgement, before = sender.sessions.judge(message, content, sender.received_s)
        if judgement == "inadmissible" and sender.seat.role == "router" and isinstance(message, DraftRequest):
            return self._refuse(peer, sender, message)
        if judgement == "inadmissible":
            return self._bad(peer, sender, judgement)
        if judgement == "repeated":
            self.counts[judgement] += 1
            return [] if sender.idle.spend(sender.received_s) else self._too_much(peer)
        self.homes[own] = peer
        return [*map(Deliver, before), Deliver(message, content, payload_bytes)]

    def _refuse(self, peer: bytes, sender: Peer, request: DraftRequest) -> list[Action]:
        """Refuse an inadmissible request of a router: one of its targets made it, and the others are honest."""
        self.counts["inadmissible"] += 1
        session = sender.sessions.open.pop(request.tag, None)
        left = [] if session is None else [Deliver(Leave(request.tag, session.request, session.epoch))]
        self.homes[request.tag] = peer
        refusal = Refusal(request.tag, request.request, "an inadmissible request", era_of(request.epoch))
        return [*left, *self.send(refusal, NOTHING)]

    def _bad(self, peer: bytes, sender: Peer | None, what: str) -> list[Action]:
        """Count a bad frame. A stranger is cut at once, a peer after several."""
        self.counts[what] += 1
        if sender is not None:
            sender.bad += 1
            if sender.bad < MAX_BAD:
                return []
        return self._cut(peer, f"it is cut, for {MAX_BAD} bad frames, the last {what}")

    def _too_much(self, peer: bytes) -> list[Action]:
        """Cut a peer that has sent too many useless frames."""
        self.counts["too many"] += 1
        return self._cut(peer, "it is cut, for saying too much")

    def _cut(self, peer: bytes, why: str) -> list[Action]:
        self.counts["cut"] += 1
        self.were_cut.of(peer, 0.0)
        self.strangers.drop(peer)
        return [*self.lost(peer, why), Cut(peer)]

    def _hello(self, peer: bytes, hello: Hello, now_s: float, user: str) -> list[Action]:
        """Give a peer its seat, or deny it."""
        role, number, life = hello.role, hello.number, (hello.incarnation, hello.attempt)
        sender = self.peers.get(peer)
        if sender is not None and (sender.place, sender.life) == ((role, number), life):
            sender.received_s = now_s  # it has not received the answer yet
            return [self._welcome(peer, hello)]
        reason, later = self._why_not(peer, hello, now_s, user)
        if reason:
            return self._deny(peer, hello, reason, later)
        generation = self._generation(hello)
        seat = seat_of(self.fleet, role, number, generation)
        assert seat is not None
        holder, again = self.seated.get((role, number)), "it was started, or connected, again"
        before = self.lost(peer, again) + (self.lost(holder, again) if holder is not None else [])
        self.lives[role, number] = hello.incarnation, generation
        priority = None if role == "router" else self.fleet.verifiers.priority(number)
        sessions, idle = Sessions(self.bounds, priority), full(IDLE, IDLE_PER_S, now_s)
        self.peers[peer] = joined = Peer(seat, user, life, sessions, now_s, idle, self.address_of(peer))
        self.seated[role, number] = peer
        self.strangers.drop(peer)
        self.log(f"{joined.name} joins")
        return [*before, self._welcome(peer, hello)]

    def _why_not(self, peer: bytes, hello: Hello, now_s: float, user: str) -> tuple[str, bool]:
        """Return why a Hello is denied, and whether a later one may be accepted; an empty reason accepts it."""
        role, number, life = hello.role, hello.number, (hello.incarnation, hello.attempt)
        name = f"{role} {number + 1}"
        reason = difference(self.terms, hello.terms, role) or self._wrong_node(hello)
        if reason:
            return reason, False
        if seat_of(self.fleet, role, number) is None:
            return f"there is no {name}; the scenario has verifiers.count = {self.fleet.verifiers.count}", False
        holder = self.seated.get((role, number))
        if holder is not None and holder != peer and (not user or self.peers[holder].user != user):
            return f"{name} is connected already; give each a number of its own", True
        if holder is not None and self.peers[holder].life >= life:
            return f"{name} has been started again since", False
        no_tags = self.drafter is None and self._generation(hello) >= LIVES
        if no_tags or not self.joins.of((role, number), now_s).spend(now_s):
            until = "; start the router again" if no_tags else " just now"
            return f"{name} has been started too often{until}", not no_tags
        return "", False

    def _wrong_node(self, hello: Hello) -> str:
        """Return why a peer has called the wrong node; empty if it has not."""
        if self.drafter is None:
            return "" if hello.role == "verifier" else "this is a router, and routers call drafters"
        if self.fleet.routed and hello.role == "verifier":
            return f"this is drafter {self.drafter + 1}; with drafters.route targets connect to the router alone"
        if hello.drafter != self.drafter:
            return f"this is drafter {self.drafter + 1}, and not {hello.drafter + 1}; name drafters in their order"
        return ""

    def _generation(self, hello: Hello) -> int:
        """Return the generation of a seat's tags: a new incarnation starts its requests again, unless it goes on."""
        last, generation = self.lives.get((hello.role, hello.number), (hello.incarnation, 0))
        return generation + (hello.incarnation != last and not hello.goes_on)

    def _welcome(self, peer: bytes, hello: Hello) -> Send:
        return Send(SERVER_PORT, peer, pack(Welcome(hello.attempt, self.incarnation)))

    def _deny(self, peer: bytes, hello: Hello, reason: str, later: bool = False) -> list[Action]:
        self.counts["denied"] += 1
        host = self.address_of(peer).rpartition(":")[0]  # without its port, which differs when it calls again
        at = f" ({host})" if host else ""
        self.log(f"{name_of(hello.role, hello.number)}{at} is refused: {reason}")
        return [Send(SERVER_PORT, peer, pack(Denied(hello.attempt, reason, later)))]


def name_of(role: Role, number: int) -> str:
    """Return the name of a peer for users; targets count from 1."""
    return "the router" if role == "router" else f"target {number + 1}"


def _answer_to(peer: bytes, error: FrameError) -> list[Action]:
    """Answer a frame of another version of the protocol; other bad frames get no answer."""
    if not isinstance(error, OtherVersionError):
        return []
    reason = f"the drafter speaks version {VERSION} of the protocol, and not {error.version}"
    return [Send(SERVER_PORT, peer, pack(Denied(0, reason)))]
