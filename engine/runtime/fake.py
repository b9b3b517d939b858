"""A network in memory and in virtual time, for tests of what may go wrong: the same doors and lines, no sockets.

Frames take a stated time, and a seeded script may drop, repeat, delay (and so reorder) them, stall nodes, kill them and
start them again. Runs with the same seed are the same, event by event.
"""

import heapq
from collections.abc import Callable
from itertools import count

import msgspec
import numpy as np

from engine.runtime.actions import ANYBODY, DOOR, Send
from engine.runtime.fake_node import FakeNode
from engine.runtime.transport import Arrived


class Mishaps(msgspec.Struct, frozen=True):
    """What may happen to a frame: probabilities, and how late a delayed one may be, in seconds, until `until_s`."""

    drop: float = 0.0
    repeat: float = 0.0
    delay: float = 0.0
    late_s: float = 0.0
    until_s: float = float("inf")


NONE = Mishaps()


class FakeNetwork:
    """Nodes by name, what is under way between them, and the virtual time.

    `connect` says which node's door a line of another reaches. A connection ends, and another begins, when one of its
    nodes is killed, or its door cuts it.
    """

    def __init__(self, seed: int, way_s: float = 0.001, mishaps: Mishaps = NONE) -> None:
        self.rng = np.random.default_rng(seed)
        self.way_s = way_s
        self.mishaps = mishaps
        self.now_s = 0.0
        self.nodes: dict[str, FakeNode] = {}
        self.doors: dict[tuple[str, int], str] = {}  # node and port of a line: whose door it reaches
        self.lives: dict[tuple[str, int], int] = {}  # how many connections a line has had
        self.stalled_s: dict[str, float] = {}  # until when a node does nothing
        self.due: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = count()

    def connect(self, name: str, port: int, door: str) -> None:
        """Let the line `port` of a node reach the door of another."""
        self.doors[name, port] = door
        self.lives[name, port] = 0

    def start(self, node: FakeNode) -> None:
        """Start a node, or one of the same name again."""
        self.kill(node.name)
        self.nodes[node.name] = node
        node.start()

    def kill(self, name: str) -> None:
        """End a node without a word; whoever is connected with it sees that by its next frame at the earliest."""
        if self.nodes.pop(name, None) is not None:
            for (client, port), door in self.doors.items():
                if name in (client, door):
                    self.lives[client, port] += 1

    def stall(self, name: str, seconds: float) -> None:
        """Let a node do nothing for a while; what reaches it waits."""
        self.stalled_s[name] = max(self.stalled_s.get(name, 0.0), self.now_s + seconds)

    def cut(self, door: str, peer: bytes) -> None:
        """Close a connection of a door."""
        for (client, port), life in self.lives.items():
            if self.doors[client, port] == door and _peer(client, port, life) == peer:
                self.lives[client, port] += 1

    def at(self, time_s: float, work: Callable[[], None]) -> None:
        """Have something done at a time; what is due at once is done in the order in which it was asked for."""
        heapq.heappush(self.due, (time_s, next(self.numbers), work))

    def for_node(self, node: FakeNode, time_s: float, work: Callable[[], None]) -> None:
        """Have a node do something at a time, or when it does not stall any more; not if it is dead by then."""

        def when_it_can() -> None:
            if self.nodes.get(node.name) is not node:
                return
            if self.stalled_s.get(node.name, 0.0) > self.now_s:
                self.at(self.stalled_s[node.name], when_it_can)
            else:
                work()

        self.at(time_s, when_it_can)

    def send(self, name: str, send: Send) -> bool:
        """Carry a frame from a node; False if the connection is gone."""
        if send.port == DOOR:
            ends = [(key, life) for key, life in self.lives.items() if _peer(*key, life) == send.peer]
            if not ends or self.doors[ends[0][0]] != name:
                return False
            (to, port), life = ends[0]
            arrived = Arrived(port, ANYBODY, send.frame, 0.0)
        else:
            key = name, send.port
            life, to = self.lives[key], self.doors[key]
            arrived = Arrived(DOOR, _peer(*key, life), send.frame, 0.0)
        receiver = self.nodes.get(to)
        if receiver is None:
            return False
        for way_s in self._ways_s():
            self.for_node(receiver, self.now_s + way_s, lambda: receiver.arrive(arrived))
        return True

    def run(self, until_s: float, finished: Callable[[], bool]) -> bool:
        """Let virtual time pass until a condition holds; False if it does not by `until_s`."""
        while not finished():
            if not self.due or self.due[0][0] > until_s:
                return False
            self.now_s, _, work = heapq.heappop(self.due)
            work()
        return True

    def _ways_s(self) -> list[float]:
        """How long a frame takes; twice where it is repeated, never where it is lost."""
        mishaps = self.mishaps
        if self.now_s >= mishaps.until_s:
            return [self.way_s]
        chances = [mishaps.drop, mishaps.repeat, mishaps.delay, mishaps.delay]
        dropped, repeated, *delayed = (self.rng.random(4) < chances).tolist()
        late_s = (self.rng.random(2) * mishaps.late_s).tolist()
        ways_s = [self.way_s + late * is_late for late, is_late in zip(late_s, delayed, strict=True)]
        return [] if dropped else ways_s[: 1 + repeated]


def _peer(client: str, port: int, life: int) -> bytes:
    """The routing id of a line's connection, as its door sees it."""
    return f"{client}/{port}/{life}".encode()
