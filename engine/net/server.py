"""The serving end of all connections of a node, as a state machine: bytes in, actions out; no socket, no clock.

Nobody is believed. A peer is known after its Hello; its tags are translated into its own tags of the fleet; whatever is
malformed or out of place is counted and dropped, and whoever sends much of it, or much that is of no use, is cut. The
seats of the fleet bound what peers can make a door keep, and a table of fixed size what strangers can.
"""

from collections import ChainMap, Counter
from collections.abc import Callable, Container
from dataclasses import dataclass

import msgspec

from engine.net.actions import DOOR, LEASE_S, Action, Cut, Deliver, Send
from engine.net.content import Content
from engine.net.frames import VERSION, FrameError, OtherVersionError, Said, pack, parse, payload_of
from engine.net.handshake import (
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
from engine.net.limits import bounds_of
from engine.net.sessions import Sessions
from engine.net.status import Ask, Status
from engine.net.token_bucket import TokenBucket, TokenBuckets, full
from engine.net.watchers import MOST as MOST_WATCHERS
from engine.net.watchers import Watchers
from fleet.scenario.settled import Fleet
from fleet.stations.messages import DraftRequest, Leave, Message, View

MOST_BAD = 8  # frames of a peer that are malformed or out of place, before it is cut
IDLE, IDLE_PER_S = 64, 16.0  # frames that are of no use: repeated ones, signs of life; an honest peer has 1 a second
JOINS, JOINS_PER_S = 16, 0.2  # how often a seat is given
STRANGERS = 256  # of whom it is known how much they have said
MOST_TOLD = 16  # lines for whoever runs the node that are not fetched yet; more are dropped


@dataclass(slots=True)
class Peer:
    """Somebody who is welcome. `sessions`: what it has open, by the fleet's tags; `address`: HOST:PORT, if known."""

    seat: Seat
    user: str
    life: tuple[int, int]  # incarnation, attempt
    sessions: Sessions
    heard_s: float
    idle: TokenBucket
    address: str = ""
    bad: int = 0

    @property
    def place(self) -> tuple[Role, int]:
        """Which seat of the fleet it has."""
        return self.seat.role, self.seat.number

    @property
    def name(self) -> str:
        """Who it is, for whoever runs the node."""
        told = [self.address] * bool(self.address) + [f"key {self.user}"] * bool(self.user)
        return name_of(*self.place) + (f" ({', '.join(told)})" if told else "")


class Door:
    """Who is connected, and what passes.

    `incarnation`: of this node. `vocabulary`, `state_numbers`: what its model knows, see `limits.py`; 0 if unknown.
    `drafter`: the number of the drafter whose door it is, from 0; None for a router's.
    `counts`: what was refused, dropped and cut, and why. `told`: lines for whoever runs the node, to be fetched: who
    joined, who left, who was refused, and why. `address_of`: from where a peer is connected. `board`: the node's status
    from a target on, for those who ask; None if it tells nobody.
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
        self.homes: dict[int, bytes] = {}  # who is to have the messages of a tag
        self.were_cut: TokenBuckets[bytes] = TokenBuckets(0.0, 0.0, STRANGERS)
        self.joins: TokenBuckets[tuple[Role, int]] = TokenBuckets(JOINS, JOINS_PER_S)
        self.strangers: TokenBuckets[bytes] = TokenBuckets(IDLE, IDLE_PER_S, STRANGERS)
        self.counts: Counter[str] = Counter()
        self.told: list[str] = []
        self.address_of: Callable[[bytes], str] = lambda _peer: ""
        self.board: Callable[[int], Status] | None = None
        self.watchers = Watchers()
        # Whose values differ in type, which nobody reads: asked is only who is in it.
        self.known: Container[bytes] = ChainMap(self.peers, self.watchers.asked_s)  # type: ignore[arg-type]
        self.bytes: dict[tuple[Role, int], list[int]] = {}  # of frames from and to each seat

    def receive(self, peer: bytes, frame: bytes, now_s: float, user: str = "") -> list[Action]:
        """Take a frame of `peer`: its connection's routing id. `user`: as whom it is authenticated, if it is."""
        if peer in self.were_cut.by_key:  # what it said before its connection is closed
            return []
        known, before = self.peers.get(peer), list[Action]()
        if known is not None and known.user != user:  # who connects may claim a routing id, but no key
            known, before = None, self.lost(peer, "its connection is another's")
        return [*before, *self._take(peer, known, frame, now_s, user)]

    def _take(self, peer: bytes, known: Peer | None, frame: bytes, now_s: float, user: str) -> list[Action]:
        try:
            message, content = parse(frame)
        except FrameError as error:
            return [*_answer_to(peer, error), *self._bad(peer, known, "malformed")]
        if known is not None and type(message) is not Hello:
            known.heard_s = now_s
            self.bytes[known.place][0] += len(frame)
            return self._heed(peer, known, message, content, frame)
        idle = self.strangers.of(peer, now_s) if known is None else known.idle
        if not idle.spend(now_s):
            return self._too_much(peer)
        if type(message) is Hello:
            return self._hello(peer, message, now_s, user)
        if type(message) is Ask and self.board is not None:
            return self._asked(peer, self.board(message.first), now_s)
        self.counts["of strangers"] += 1
        return [] if type(message) is Bye else [Send(DOOR, peer, pack(Unknown()))]

    def _heed(self, peer: bytes, known: Peer, message: Said, content: Content, frame: bytes) -> list[Action]:
        """Take a message of somebody who is welcome."""
        if isinstance(message, DraftRequest | Leave | Ping):
            return self._pass_on(peer, known, message, content, payload_of(frame))
        if type(message) is Bye:
            return self.lost(peer, "it has ended")
        if type(message) is not Alive:
            return self._bad(peer, known, "out of place")
        return [Send(DOOR, peer, frame)] if known.idle.spend(known.heard_s) else self._too_much(peer)

    def send(self, message: Message | Ping, content: Content) -> list[Action]:
        """Send a message of the station to whom it concerns; to nobody if that one is gone."""
        if type(message) is View:
            routers = [peer for peer, known in self.peers.items() if known.seat.role == "router"]
            return [Send(DOOR, peer, pack(message, content)) for peer in routers]
        peer = self.homes.get(message.tag)
        if peer is None:
            return []
        known = self.peers[peer]
        known.sessions.say(message, content)
        local = known.seat.local(message.tag)
        sent: Said = msgspec.structs.replace(message, tag=local)
        frame = pack(sent, content)
        self.bytes[known.place][1] += len(frame)
        return [Send(DOOR, peer, frame)]

    def lost(self, peer: bytes, why: str = "it cannot be reached") -> list[Action]:
        """Note that a peer is gone, and let its sessions leave."""
        known = self.peers.pop(peer, None)
        if known is None:
            return []
        self._tell(f"{known.name} is gone: {why}")
        self.seated.pop((known.seat.role, known.seat.number), None)
        self.homes = {tag: home for tag, home in self.homes.items() if home != peer}
        return [Deliver(leave) for leave in known.sessions.leaves()]

    def tick(self, now_s: float) -> list[Action]:
        """Let those be lost who have said nothing for LEASE_S; to be asked now and then."""
        self.watchers.tick(now_s)
        silent = [peer for peer, known in self.peers.items() if now_s - known.heard_s > LEASE_S]
        self.counts["silent"] += len(silent)
        return [action for peer in silent for action in self.lost(peer, f"it has said nothing for {LEASE_S:.0f} s")]

    def close(self) -> list[Action]:
        """Say goodbye to everybody."""
        frame = pack(Bye())
        return [Send(DOOR, peer, frame) for peer in self.peers]

    def _pass_on(
        self, peer: bytes, known: Peer, message: DraftRequest | Leave | Ping, content: Content, payload_bytes: int
    ) -> list[Action]:
        """Hand a message to the station, under its tag of the fleet."""
        own = known.seat.own(message.tag)
        if own is None:
            return self._bad(peer, known, "out of place")
        message = msgspec.structs.replace(message, tag=own)
        heard, before = known.sessions.hear(message, content, known.heard_s)
        if heard == "inadmissible":
            return self._bad(peer, known, heard)
        if heard == "repeated":
            self.counts[heard] += 1
            return [] if known.idle.spend(known.heard_s) else self._too_much(peer)
        self.homes[own] = peer
        return [*map(Deliver, before), Deliver(message, content, payload_bytes)]

    def _bad(self, peer: bytes, known: Peer | None, what: str) -> list[Action]:
        """Count a bad frame; cut a stranger at once, and a peer after several."""
        self.counts[what] += 1
        if known is not None:
            known.bad += 1
            if known.bad < MOST_BAD:
                return []
        return self._cut(peer, f"it is cut, for {MOST_BAD} bad frames, the last {what}")

    def _too_much(self, peer: bytes) -> list[Action]:
        """Cut who says too much that is of no use."""
        self.counts["too many"] += 1
        return self._cut(peer, "it is cut, for saying too much")

    def _cut(self, peer: bytes, why: str) -> list[Action]:
        self.counts["cut"] += 1
        self.were_cut.of(peer, 0.0)
        self.strangers.drop(peer)
        self.watchers.forget(peer)
        return [*self.lost(peer, why), Cut(peer)]

    def _tell(self, line: str) -> None:
        if len(self.told) < MOST_TOLD:
            self.told.append(line)

    def _asked(self, peer: bytes, status: Status, now_s: float) -> list[Action]:
        """Tell how the node is doing, and what is known here of its targets."""
        if not self.watchers.admit(peer, now_s):
            return [Send(DOOR, peer, pack(Denied(0, f"{MOST_WATCHERS} others watch already", later=True)))]
        rows = tuple(
            msgspec.structs.replace(
                row,
                received_bytes=received,
                sent_bytes=sent,
                heard_s=None if holder is None else now_s - holder.heard_s,
            )
            for row in status.rows
            for received, sent in [self.bytes.get(("verifier", row.target), (0, 0))]
            for holder in [self.peers.get(self.seated.get(("verifier", row.target), b""))]
        )
        return [Send(DOOR, peer, pack(msgspec.structs.replace(status, rows=rows)))]

    def _hello(self, peer: bytes, hello: Hello, now_s: float, user: str) -> list[Action]:
        """Give a peer its seat, or say why not."""
        role, number, life = hello.role, hello.number, (hello.incarnation, hello.attempt)
        known = self.peers.get(peer)
        if known is not None and (known.seat.role, known.seat.number, known.life) == (role, number, life):
            known.heard_s = now_s  # it has not seen the answer yet
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
        priority = None if role == "router" else self.bounds.priority(number)
        sessions, idle = Sessions(self.bounds, priority), full(IDLE, IDLE_PER_S, now_s)
        self.peers[peer] = joined = Peer(seat, user, life, sessions, now_s, idle, self.address_of(peer))
        self.seated[role, number] = peer
        self.strangers.drop(peer)
        self.watchers.forget(peer)
        self.bytes.setdefault(joined.place, [0, 0])
        self._tell(f"{joined.name} joins")
        return [*before, self._welcome(peer, hello)]

    def _why_not(self, peer: bytes, hello: Hello, now_s: float, user: str) -> tuple[str, bool]:
        """Say why a Hello is not welcome, and whether to say it again later may help; nothing if it is."""
        role, number, life = hello.role, hello.number, (hello.incarnation, hello.attempt)
        name = f"{role} {number + 1}"
        reason = difference(self.terms, hello.terms, role) or self._other_door(hello)
        if reason:
            return reason, False
        if seat_of(self.fleet, role, number) is None:
            return f"there is no {name}; the scenario has verifiers.count = {self.fleet.verifiers.count}", False
        holder = self.seated.get((role, number))
        if holder is not None and holder != peer and (not user or self.peers[holder].user != user):
            return f"{name} is connected already; give each a number of its own", True
        if holder is not None and self.peers[holder].life >= life:
            return f"{name} has been started again since", False
        if not self.joins.of((role, number), now_s).spend(now_s):
            return f"{name} has been started too often just now", True
        return "", False

    def _other_door(self, hello: Hello) -> str:
        """Say which door this is, if it is not the one that a peer has to call; nothing if it is."""
        if self.drafter is None:
            return "" if hello.role == "verifier" else "this is a router, and routers call drafters"
        if self.fleet.routed and hello.role == "verifier":
            return f"this is drafter {self.drafter + 1}; with drafters.route targets connect to the router alone"
        if hello.drafter != self.drafter:
            return f"this is drafter {self.drafter + 1}, and not {hello.drafter + 1}; name drafters in their order"
        return ""

    def _generation(self, hello: Hello) -> int:
        """Return the generation of a seat's tags: another life begins its requests anew, unless it says otherwise."""
        last, generation = self.lives.get((hello.role, hello.number), (hello.incarnation, 0))
        return generation + (hello.incarnation != last and not hello.goes_on)

    def _welcome(self, peer: bytes, hello: Hello) -> Send:
        return Send(DOOR, peer, pack(Welcome(hello.attempt, self.incarnation)))

    def _deny(self, peer: bytes, hello: Hello, reason: str, later: bool = False) -> list[Action]:
        self.counts["denied"] += 1
        host = self.address_of(peer).rpartition(":")[0]  # without its port: who calls again is the same one
        at = f" ({host})" if host else ""
        self._tell(f"{name_of(hello.role, hello.number)}{at} is refused: {reason}")
        return [Send(DOOR, peer, pack(Denied(hello.attempt, reason, later)))]


def name_of(role: Role, number: int) -> str:
    """Return how a peer is called towards people, who count targets from 1."""
    return "the router" if role == "router" else f"target {number + 1}"


def _answer_to(peer: bytes, error: FrameError) -> list[Action]:
    """What is said to whoever has sent bytes that are no message: nothing, unless it is another version's."""
    if not isinstance(error, OtherVersionError):
        return []
    reason = f"the drafter speaks version {VERSION} of the protocol, and not {error.version}"
    return [Send(DOOR, peer, pack(Denied(0, reason)))]
