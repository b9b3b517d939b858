"""A node in virtual time: the station, executor and connections of a real one, driven by a network in memory."""

import math
from collections import Counter, deque
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Protocol

from engine.net.actions import SERVER_PORT, Action, Deliver, ReceivedFrame, Send
from engine.net.connections import ConnectionTable
from engine.net.content import NOTHING, Content
from engine.net.handshake import Ping
from engine.net.socket_thread import TICK_S
from engine.node.node import Users
from engine.node.worker import Executor, Worker
from fleet.records.recorder import RecordedStation
from fleet.stations.messages import Finished, Ignored, Instruction, Restarted, StepDone
from fleet.stations.station import Start
from fleet.times.step import Step


class Network(Protocol):
    """What a node needs of the network in memory; see `network.py`."""

    now_s: float

    def for_node(self, node: "FakeNode", time_s: float, work: Callable[[], None]) -> None:
        """Have a node do something at a time."""

    def send(self, name: str, send: Send) -> bool:
        """Carry a frame from a node; False if the connection is gone."""

    def cut(self, server: str, peer: bytes) -> None:
        """Close a connection of a server."""


class FakeNode:
    """A node whose steps take `seconds_of(step)`. It is the transport of its own connections.

    `incarnation`: how often it has been killed before; then its users do not wait for the nodes that it calls.
    """

    def __init__(
        self,
        network: Network,
        name: str,
        station: RecordedStation,
        executor: Executor,
        connections: ConnectionTable,
        seconds_of: Callable[[Step], float],
        users: Users | None = None,
        incarnation: int = 0,
    ) -> None:
        self.network = network
        self.name = name
        self.worker = Worker(station, executor, self._post)
        self.connections = connections
        self.seconds_of = seconds_of
        self.users = dict(users or {})
        self.inbox: deque[tuple[Deliver, float]] = deque()
        self.incarnation = incarnation
        self.begun = False
        self.ring_s = math.inf  # when its station is asked next what silence amounts to
        self.left: list[bytes] = []  # peers of its server whose connections have ended
        self.counts: Counter[str] = Counter()  # as those of a transport; nothing is refused here

    @property
    def finished(self) -> bool:
        """Whether all its users have their texts."""
        return not self.users

    def start(self) -> None:
        """Call the nodes that this one connects to; the users send their first requests when all have answered."""
        if self.incarnation:
            self.worker.handle(Restarted(self.incarnation), NOTHING, self.network.now_s)
            self._begin()
        self._tick()

    def arrive(self, arrived: ReceivedFrame) -> None:
        """Take a frame."""
        self._carry_out(self.connections.receive(arrived.port, arrived.peer, arrived.frame, self.network.now_s))
        self._go_on()

    def send(self, send: Send) -> bool:
        """As `Sockets.send`."""
        return self.network.send(self.name, send)

    def address_of(self, peer: bytes) -> str:
        """As `Sockets.address_of`: nowhere."""
        return ""

    def cut(self, peer: bytes) -> None:
        """As `Sockets.cut`."""
        self.network.cut(self.name, peer)

    def poll(self, timeout_s: float) -> list[ReceivedFrame]:
        """As `Sockets.poll`; here frames are brought."""
        return []

    def wake(self) -> None:
        """Do nothing: no thread sleeps here. See `Sockets.wake`."""

    def tidy(self, known: Container[bytes]) -> Counter[str]:
        """As `Sockets.tidy`; there is nothing to close."""
        return []

    def gone(self) -> list[bytes]:
        """As `Sockets.gone`."""
        left, self.left = self.left, []
        return left

    def close(self) -> None:
        """As `Sockets.close`; nothing is open."""

    def _tick(self) -> None:
        for peer in self.gone():
            self._carry_out(self.connections.lost(SERVER_PORT, peer, self.network.now_s))
        self._carry_out(self.connections.tick(self.network.now_s))
        self._go_on()
        self.network.for_node(self, self.network.now_s + TICK_S, self._tick)

    def _go_on(self) -> None:
        """Hand the station what has come in, and start what it plans."""
        if not self.begun and all(client.state == "open" for client in self.connections.clients.values()):
            self._begin()
        if self.worker.station.running is not None:
            return  # a worker reads its inbox between steps
        self._drain()
        self._start_planned()
        self._watch()

    def _begin(self) -> None:
        self.begun = True
        for tag in list(self.users):
            self._next_request(tag)

    def _start_planned(self) -> None:
        time_s = self.network.now_s
        if not self.worker.station.ready:
            return
        plan = self.worker.recorded.plan(time_s)
        if isinstance(plan, Start):
            step, seconds = plan.step, self.seconds_of(plan.step)
            self.network.for_node(self, time_s + seconds, lambda: self._finish(step, seconds))
        elif plan.until_s is not None:
            self.network.for_node(self, plan.until_s, self._go_on)

    def _watch(self) -> None:
        """See when the station's silence would mean something."""
        due_s = self.worker.station.alarm_s()
        if due_s < self.ring_s:
            self.ring_s = due_s
            self.network.for_node(self, max(due_s, self.network.now_s), partial(self._ring, due_s))

    def _ring(self, due_s: float) -> None:
        if due_s != self.ring_s:
            return  # an earlier time took its place
        self.ring_s = math.inf
        if self.network.now_s > due_s:  # it stood still, or was busy: what came meanwhile goes first
            self.network.for_node(self, self.network.now_s, self._look)
        else:
            self._look()

    def _look(self) -> None:
        """Tell the station what silence amounts to by now: between two steps, as a worker does."""
        if self.worker.station.running is not None:
            return
        self._drain()
        for event in self.worker.station.due(self.network.now_s):
            self.worker.handle(event, NOTHING, self.network.now_s)
        self._go_on()

    def _drain(self) -> None:
        while self.inbox:
            came, time_s = self.inbox.popleft()
            if isinstance(came.event, Ping):
                self.worker.post(came.event, came.content)
            else:
                self.worker.handle(came.event, came.content, time_s, came.payload_bytes)

    def _finish(self, step: Step, seconds: float) -> None:
        outcomes = self.worker.executor.run(step)
        self._drain()
        outcomes = self.worker.resolved(step, outcomes)
        self.worker.handle(StepDone(step.number, outcomes, seconds), NOTHING, self.network.now_s)
        self._look()

    def _next_request(self, tag: int) -> None:
        join = next(self.users[tag], None)
        if join is None:
            del self.users[tag]
        else:
            self.inbox.append((Deliver(join), self.network.now_s))

    def _post(self, instruction: Instruction, content: Content) -> None:
        if isinstance(instruction, Finished):
            self._next_request(instruction.tag)
        elif not isinstance(instruction, Ignored):
            self._carry_out(self.connections.post(instruction, content, self.network.now_s, self.worker.event_s))

    def _carry_out(self, actions: Sequence[Action]) -> None:
        time_s = self.network.now_s
        done = self.connections.carry_out(actions, self, time_s)
        for action in done:
            if isinstance(action, Deliver) and action.after_s:
                self.network.for_node(self, time_s + action.after_s, partial(self._late, action))
            elif isinstance(action, Deliver):
                self.inbox.append((action, time_s))

    def _late(self, action: Deliver) -> None:
        self.inbox.append((action, self.network.now_s))
        self._go_on()
