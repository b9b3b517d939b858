"""The serving end of all connections of a node, as a state machine: bytes in, actions out; no socket, no clock.

Nobody is believed. A peer is known after its Hello; its tags are translated into its own tags of the fleet; whatever is
malformed or out of place is counted and dropped, and whoever sends much of it is cut. The seats of the fleet bound what
peers can make a door keep.
"""

from collections import Counter
from dataclasses import dataclass

import msgspec

from engine.runtime.actions import DOOR, LEASE_S, Action, Cut, Deliver, Send
from engine.runtime.admissible import bounds_of
from engine.runtime.content import Content
from engine.runtime.frames import VERSION, FrameError, OtherVersionError, Said, pack, parse, payload_of
from engine.runtime.identity import (
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
from engine.runtime.sessions import Sessions
from fleet.scenario.settled import Fleet
from fleet.stations.messages import DraftRequest, Leave, Message, View

MOST_BAD = 8  # frames of a peer that are malformed or out of place, before it is cut


@dataclass(slots=True)
class Peer:
    """Somebody who is welcome. `sessions`: what it has open, by the fleet's tags."""

    seat: Seat
    user: str
    life: tuple[int, int]  # incarnation, attempt
    sessions: Sessions
    heard_s: float
    bad: int = 0


class Door:
    """Who is connected, and what passes.

    `incarnation`: of this node. `vocabulary`, `state_numbers`: what its model knows, see `admissible.py`; 0 if unknown.
    `counts`: what was refused, dropped and cut, and why.
    """

    def __init__(self, fleet: Fleet, incarnation: int, vocabulary: int = 0, state_numbers: int = 0) -> None:
        self.fleet = fleet
        self.bounds = bounds_of(fleet, vocabulary, state_numbers)
        self.terms = terms_of(fleet)
        self.incarnation = incarnation
        self.peers: dict[bytes, Peer] = {}
        self.seated: dict[tuple[Role, int], bytes] = {}
        self.lives: dict[tuple[Role, int], tuple[int, int]] = {}  # last incarnation of each seat, its generation
        self.homes: dict[int, bytes] = {}  # who is to have the messages of a tag
        self.counts: Counter[str] = Counter()

    def receive(self, peer: bytes, frame: bytes, now_s: float, user: str = "") -> list[Action]:
        """Take a frame of `peer`: its connection's routing id. `user`: as whom it is authenticated, if it is."""
        known = self.peers.get(peer)
        try:
            message, content = parse(frame)
        except OtherVersionError as error:
            reason = f"the drafter speaks version {VERSION} of the protocol, and not {error.version}"
            return [Send(DOOR, peer, pack(Denied(0, reason))), *self._bad(peer, known, "malformed")]
        except FrameError:
            return self._bad(peer, known, "malformed")
        if type(message) is Hello:
            return self._hello(peer, message, now_s, user)
        if known is None:
            self.counts["of strangers"] += 1
            return [] if type(message) is Bye else [Send(DOOR, peer, pack(Unknown()))]
        known.heard_s = now_s
        return self._heed(peer, known, message, content, frame)

    def _heed(self, peer: bytes, known: Peer, message: Said, content: Content, frame: bytes) -> list[Action]:
        """Take a message of somebody who is welcome."""
        if isinstance(message, DraftRequest | Leave | Ping):
            return self._pass_on(peer, known, message, content, payload_of(frame))
        if type(message) is Bye:
            return self.lost(peer)
        return [Send(DOOR, peer, frame)] if type(message) is Alive else self._bad(peer, known, "out of place")

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
        return [Send(DOOR, peer, pack(sent, content))]

    def lost(self, peer: bytes) -> list[Action]:
        """Note that a peer is gone, and let its sessions leave."""
        known = self.peers.pop(peer, None)
        if known is None:
            return []
        self.seated.pop((known.seat.role, known.seat.number), None)
        self.homes = {tag: home for tag, home in self.homes.items() if home != peer}
        return [Deliver(leave) for leave in known.sessions.leaves()]

    def tick(self, now_s: float) -> list[Action]:
        """Let those be lost who have said nothing for LEASE_S; to be asked now and then."""
        silent = [peer for peer, known in self.peers.items() if now_s - known.heard_s > LEASE_S]
        self.counts["silent"] += len(silent)
        return [action for peer in silent for action in self.lost(peer)]

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
            return []
        self.homes[own] = peer
        return [*map(Deliver, before), Deliver(message, content, payload_bytes)]

    def _bad(self, peer: bytes, known: Peer | None, what: str) -> list[Action]:
        """Count a bad frame; cut a stranger at once, and a peer after several."""
        self.counts[what] += 1
        if known is not None:
            known.bad += 1
            if known.bad < MOST_BAD:
                return []
        self.counts["cut"] += 1
        return [*self.lost(peer), Cut(peer)]

    def _hello(self, peer: bytes, hello: Hello, now_s: float, user: str) -> list[Action]:
        """Give a peer its seat, or say why not."""
        role, number, life = hello.role, hello.number, (hello.incarnation, hello.attempt)
        known = self.peers.get(peer)
        if known is not None and (known.seat.role, known.seat.number, known.life) == (role, number, life):
            known.heard_s = now_s  # it has not seen the answer yet
            return [self._welcome(peer, hello)]
        reason = difference(self.terms, hello.terms, role)
        if reason:
            return self._deny(peer, hello, reason)
        generation = self._generation(role, number, hello.incarnation)
        seat = seat_of(self.fleet, role, number, generation)
        if seat is None:
            has = f"verifiers.count = {self.fleet.verifiers.count}"
            return self._deny(peer, hello, f"there is no {role} {number + 1}; the scenario has {has}")
        holder = self.seated.get((role, number))
        if holder is not None and holder != peer and (not user or self.peers[holder].user != user):
            reason = f"{role} {number + 1} is connected already; give each a number of its own"
            return self._deny(peer, hello, reason, later=True)
        if holder is not None and self.peers[holder].life >= life:
            return self._deny(peer, hello, f"{role} {number + 1} has been started again since")
        before = self.lost(peer) + (self.lost(holder) if holder is not None else [])
        self.lives[role, number] = hello.incarnation, generation
        priority = None if role == "router" else self.bounds.priority(number)
        self.peers[peer] = Peer(seat, user, life, Sessions(self.bounds, priority), now_s)
        self.seated[role, number] = peer
        return [*before, self._welcome(peer, hello)]

    def _generation(self, role: Role, number: int, incarnation: int) -> int:
        """Return the generation of a seat's tags: another life begins its requests anew."""
        last, generation = self.lives.get((role, number), (incarnation, 0))
        return generation + (incarnation != last)

    def _welcome(self, peer: bytes, hello: Hello) -> Send:
        return Send(DOOR, peer, pack(Welcome(hello.attempt, self.incarnation)))

    def _deny(self, peer: bytes, hello: Hello, reason: str, later: bool = False) -> list[Action]:
        self.counts["denied"] += 1
        return [Send(DOOR, peer, pack(Denied(hello.attempt, reason, later)))]
