"""A network in memory and in virtual time, for tests of faults: the same servers and clients, no sockets.

Frames take a given time, and the faults of a scenario may drop, repeat, delay and reorder them. Nodes can be stalled,
killed and started again. Runs with the same seed are the same, event by event.
"""

import heapq
from collections.abc import Callable, Sequence
from itertools import count

import numpy as np

from specfleet.engine.net.actions import NO_PEER, SERVER_PORT, ReceivedFrame, Send
from specfleet.fleet.scenario.faults import Fault, LinkFaults, Way
from tests.fakes.node import FakeNode


class FakeNetwork:
    """Nodes by the names of their stations, the frames in flight between them, and the virtual time.

    - `faults`: of links; they apply to frames of every kind, greetings too.
    - `notices`: whether a server learns of the end of a connection, as from the kernel of a running host.

    `connect` connects a client to the server of another node. A connection ends, and a new one begins, when one of its
    nodes is killed.
    """

    def __init__(self, seed: int, way_s: float = 0.001, faults: Sequence[Fault] = (), notices: bool = True) -> None:
        self.seed = seed
        self.notices = notices
        self.way_s = way_s
        self.faults = faults
        self.ways: dict[tuple[str, int, Way], LinkFaults] = {}  # by client and direction
        self.now_s = 0.0
        self.nodes: dict[str, FakeNode] = {}
        self.servers: dict[tuple[str, int], str] = {}  # the server of each client, by node and port
        self.lives: dict[tuple[str, int], int] = {}  # number of connections of each client
        self.stalled: dict[str, list[Callable[[], None]]] = {}  # pending work of stalled nodes
        self.due: list[tuple[float, int, Callable[[], object]]] = []
        self.numbers = count()

    def connect(self, name: str, port: int, server: str) -> None:
        """Connect the client `port` of a node to the server of another."""
        self.servers[name, port] = server
        self.lives[name, port] = 0

    def start(self, node: FakeNode) -> None:
        """Start a node, or one of the same name again."""
        self.kill(node.name)
        self.nodes[node.name] = node
        node.start()

    def kill(self, name: str) -> None:
        """End a node without a last message; its peers notice with their next frame at the earliest."""
        self.stalled.pop(name, None)
        if self.nodes.pop(name, None) is not None:
            for (client, port), server in self.servers.items():
                if name == client and server in self.nodes and self.notices:
                    self.nodes[server].left.append(_peer(client, port, self.lives[client, port]))
                if name in (client, server):
                    self.lives[client, port] += 1

    def stall(self, name: str) -> None:
        """Stall a node until `resume`; its frames wait."""
        if name in self.nodes:
            self.stalled.setdefault(name, [])

    def resume(self, name: str) -> None:
        """Resume a node: pending frames and work follow now, in order."""
        for work in self.stalled.pop(name, []):
            self.at(self.now_s, work)

    def at(self, time_s: float, work: Callable[[], object]) -> None:
        """Schedule work at a time; work of the same time runs in the order of these calls."""
        heapq.heappush(self.due, (time_s, next(self.numbers), work))

    def for_node(self, node: FakeNode, time_s: float, work: Callable[[], None]) -> None:
        """Schedule work of a node at a time, or at the end of its stall; dropped if the node is dead by then."""

        def when_it_can() -> None:
            if self.nodes.get(node.name) is not node:
                return
            if node.name in self.stalled:
                self.stalled[node.name].append(when_it_can)
            else:
                work()

        self.at(time_s, when_it_can)

    def send(self, name: str, send: Send) -> bool:
        """Carry a frame from a node; False if the connection is gone."""
        if send.port == SERVER_PORT:
            ends = [(key, life) for key, life in self.lives.items() if _peer(*key, life) == send.peer]
            if not ends or self.servers[ends[0][0]] != name:
                return False
            key, life = ends[0]
            (to, port), way = key, self._way(key, "down")
            arrived = ReceivedFrame(port, NO_PEER, send.frame, 0.0)
        else:
            key = name, send.port
            life, to, way = self.lives[key], self.servers[key], self._way(key, "up")
            arrived = ReceivedFrame(SERVER_PORT, _peer(*key, life), send.frame, 0.0)
        receiver = self.nodes.get(to)
        if receiver is None:
            return False
        for arrives_s in way.arrivals_s(self.now_s, self.way_s):
            self.for_node(receiver, arrives_s, lambda: receiver.arrive(arrived))
        return True

    def run(self, until_s: float, finished: Callable[[], bool]) -> bool:
        """Let virtual time pass until a condition holds; False if it does not by `until_s`."""
        while not finished():
            if not self.due or self.due[0][0] > until_s:
                return False
            self.now_s, _, work = heapq.heappop(self.due)
            work()
        return True

    def _way(self, client: tuple[str, int], way: Way) -> LinkFaults:
        """The faults of one direction of a client."""
        if (*client, way) not in self.ways:
            rng = np.random.default_rng([self.seed, 3, len(self.ways)])
            self.ways[*client, way] = LinkFaults(self.faults, self.servers[client], client[0], rng)
        return self.ways[*client, way]


def _peer(client: str, port: int, life: int) -> bytes:
    """The routing id of a client's connection, as its server sees it."""
    return f"{client}/{port}/{life}".encode()
