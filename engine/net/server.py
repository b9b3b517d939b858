"""The server of a node's connections, as a state machine: frames in, actions out; without sockets and clocks.

A peer is known after its Hello, and its tags are translated into its own tags of the fleet. It may be broken: what is
malformed or out of place is dropped, counted and logged.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from specfleet.engine.net import handshake
from specfleet.engine.net.actions import LEASE_S, SERVER_PORT, Action, Deliver, Send
from specfleet.engine.net.content import Content
from specfleet.engine.net.frames import VERSION, FrameError, OtherVersionError, WireMessage, pack, parse, payload_of
from specfleet.engine.net.limits import REPEATED, Sessions, bounds_of
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.stations.messages import DraftRequest, Leave, Message, View


@dataclass(slots=True)
class Peer:
    """An accepted peer. `sessions`: its open ones, by tags of the fleet; `whence`: its address and key, if known."""

    seat: handshake.Seat
    life: tuple[int, int]  # incarnation, attempt
    sessions: Sessions
    received_s: float  # when its last frame came
    whence: str = ""

    @property
    def place(self) -> tuple[handshake.Role, int]:
        """Its seat in the fleet."""
        return self.seat.role, self.seat.number

    @property
    def name(self) -> str:
        """Its name in log lines."""
        return name_of(*self.place) + (f" ({self.whence})" if self.whence else "")


@dataclass(eq=False)
class ServerEnd:
    """The accepted peers of a node, and the messages between them and its station.

    - `vocabulary`, `state_numbers`: of its model, see `limits.py`; 0 if unknown.
    - `drafter`: number of the drafter that it serves, from 0; None for a router.
    - `counts`: what was refused and dropped, by reason.
    - `log`: is called with lines on peers that joined, left or were refused, and on what was dropped.
    - `names`: addresses and keys of peers, for the log.
    """

    fleet: Fleet
    vocabulary: int = 0
    state_numbers: int = 0
    drafter: int | None = 0
    counts: Counter[str] = field(default_factory=Counter)
    log: Callable[[str], None] = lambda _line: None
    names: Mapping[bytes, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bounds = bounds_of(self.fleet, self.vocabulary, self.state_numbers)
        self.terms = handshake.terms_of(self.fleet)
        self.peers: dict[bytes, Peer] = {}
        self.seated: dict[tuple[handshake.Role, int], bytes] = {}
        # last incarnation of each seat, its generation
        self.lives: dict[tuple[handshake.Role, int], tuple[int, int]] = {}
        self.homes: dict[int, bytes] = {}  # the peer of each tag

    def receive(self, peer: bytes, frame: bytes, now_s: float) -> list[Action]:
        """Take a frame. `peer`: routing id of its connection."""
        try:
            message, content = parse(frame)
        except FrameError as error:
            return [*_answer_to(peer, error), *self._drop(peer, "malformed", str(error))]
        if isinstance(message, handshake.Hello):
            return self._hello(peer, message, now_s)
        sender = self.peers.get(peer)
        if sender is not None:
            sender.received_s = now_s
            return self._take(peer, sender, message, content, payload_of(frame))
        return [] if isinstance(message, handshake.Bye) else [Send(SERVER_PORT, peer, pack(handshake.Unknown()))]

    def _take(
        self, peer: bytes, sender: Peer, message: WireMessage, content: Content, payload_bytes: int
    ) -> list[Action]:
        """Take a message of an accepted peer."""
        match message:
            case DraftRequest() | Leave():
                return self._deliver(peer, sender, message, content, payload_bytes)
            case handshake.Bye():
                return self.lost(peer, "it has ended")
            case handshake.Alive():
                return [Send(SERVER_PORT, peer, pack(message))]
        return self._drop(peer, "out of place", type(message).__name__)

    def send(self, message: Message, content: Content) -> list[Action]:
        """Send a message of the station to its peer, if that is connected."""
        if type(message) is View:
            routers = [peer for peer, sender in self.peers.items() if sender.seat.role == "router"]
            return [Send(SERVER_PORT, peer, pack(message, content)) for peer in routers]
        peer = self.homes.get(message.tag)
        if peer is None:
            return []
        sender = self.peers[peer]
        sender.sessions.sent(message, content)
        local = sender.seat.to_wire(message.tag)
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
        frame = pack(handshake.Bye())
        return [Send(SERVER_PORT, peer, frame) for peer in self.peers]

    def _deliver(
        self, peer: bytes, sender: Peer, message: DraftRequest | Leave, content: Content, payload_bytes: int
    ) -> list[Action]:
        """Deliver a message to the station, under its tag of the fleet."""
        tag = sender.seat.to_fleet(message.tag)
        if tag is None:
            return self._drop(peer, "out of place", f"tag {message.tag}")
        message = msgspec.structs.replace(message, tag=tag)
        before, why = sender.sessions.judge(message, content)
        if why:
            return self._drop(peer, "repeated" if why == REPEATED else "malformed", why)
        self.homes[tag] = peer
        return [*map(Deliver, before), Deliver(message, content, payload_bytes)]

    def _drop(self, peer: bytes, what: str, why: str) -> list[Action]:
        """Drop a frame: count it, and log it unless it only repeats another."""
        self.counts[what] += 1
        if what != "repeated":
            sender = self.peers.get(peer)
            whose = self.names.get(peer, "a peer") if sender is None else sender.name
            self.log(f"dropped what {whose} sends: {what}, {handshake.printable(why)[:100]}")
        return []

    def _hello(self, peer: bytes, hello: handshake.Hello, now_s: float) -> list[Action]:
        """Give a peer its seat, or deny it."""
        role, number, life = hello.role, hello.number, (hello.incarnation, hello.attempt)
        sender = self.peers.get(peer)
        if sender is not None and (sender.place, sender.life) == ((role, number), life):
            sender.received_s = now_s  # it has not received the answer yet
            return [self._welcome(peer, hello)]
        reason, later = self._why_not(peer, hello)
        if reason:
            return self._deny(peer, hello, reason, later)
        generation = self._generation(hello)
        seat = handshake.seat_of(self.fleet, role, number, generation)
        assert seat is not None
        holder, again = self.seated.get((role, number)), "it has connected again"
        before = self.lost(peer, again) + (self.lost(holder, again) if holder is not None else [])
        self.lives[role, number] = hello.incarnation, generation
        self.peers[peer] = joined = Peer(seat, life, Sessions(self.bounds), now_s, self.names.get(peer, ""))
        self.seated[role, number] = peer
        self.log(f"{joined.name} joins")
        return [*before, self._welcome(peer, hello)]

    def _why_not(self, peer: bytes, hello: handshake.Hello) -> tuple[str, bool]:
        """Return why a Hello is denied, and whether a later one may be accepted; an empty reason accepts it."""
        role, number = hello.role, hello.number
        name = f"{role} {number + 1}"
        reason = handshake.difference(self.terms, hello.terms, role) or self._wrong_node(hello)
        if reason:
            return reason, False
        if handshake.seat_of(self.fleet, role, number) is None:
            return f"there is no {name}; the scenario has verifiers.count = {self.fleet.verifiers.count}", False
        holder = self.seated.get((role, number))
        if holder is not None and holder != peer and self.peers[holder].life[0] != hello.incarnation:
            return f"{name} is connected already; give each a number of its own", True
        if holder is not None and self.peers[holder].life >= (hello.incarnation, hello.attempt):
            return f"{name} has connected again since", False
        if self.drafter is None and self._generation(hello) >= handshake.LIVES:
            return f"{name} has been started too often; start the router again", False
        return "", False

    def _wrong_node(self, hello: handshake.Hello) -> str:
        """Return why a peer has called the wrong node; empty if it has not."""
        if self.drafter is None:
            return "" if hello.role == "verifier" else "this is a router, and routers call drafters"
        if self.fleet.routed and hello.role == "verifier":
            return f"this is drafter {self.drafter + 1}; with drafters.route targets connect to the router alone"
        if hello.drafter != self.drafter:
            return f"this is drafter {self.drafter + 1}, and not {hello.drafter + 1}; name drafters in their order"
        return ""

    def _generation(self, hello: handshake.Hello) -> int:
        """Return the generation of a seat's tags: a new incarnation starts its requests again, unless it goes on."""
        last, generation = self.lives.get((hello.role, hello.number), (hello.incarnation, 0))
        return generation + (hello.incarnation != last and not hello.goes_on)

    def _welcome(self, peer: bytes, hello: handshake.Hello) -> Send:
        return Send(SERVER_PORT, peer, pack(handshake.Welcome(hello.attempt)))

    def _deny(self, peer: bytes, hello: handshake.Hello, reason: str, later: bool = False) -> list[Action]:
        self.counts["denied"] += 1
        at = f" ({self.names[peer]})" if peer in self.names else ""
        self.log(f"{name_of(hello.role, hello.number)}{at} is refused: {reason}")
        return [Send(SERVER_PORT, peer, pack(handshake.Denied(hello.attempt, reason, later)))]


def name_of(role: handshake.Role, number: int) -> str:
    """Return the name of a peer for users; targets count from 1."""
    return "the router" if role == "router" else f"target {number + 1}"


def _answer_to(peer: bytes, error: FrameError) -> list[Action]:
    """Answer a frame of another version of the protocol; other bad frames get no answer."""
    if not isinstance(error, OtherVersionError):
        return []
    reason = f"the drafter speaks version {VERSION} of the protocol, and not {error.version}"
    return [Send(SERVER_PORT, peer, pack(handshake.Denied(0, reason)))]
