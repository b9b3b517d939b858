"""A node in virtual time: the station, executor and connections of a real one, on a network in memory."""

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from specfleet.engine.net.actions import SERVER_PORT, Action, Deliver, ReceivedFrame, Send
from specfleet.engine.net.connections import ConnectionTable
from specfleet.engine.net.content import NOTHING, Content
from specfleet.engine.net.socket_thread import TICK_S
from specfleet.engine.node.worker import Executor, Worker
from specfleet.fleet.records.recorder import RecordedStation
from specfleet.fleet.stations.messages import Finished, Ignored, Instruction, Join, Restarted, StepDone
from specfleet.fleet.stations.station import Start
from specfleet.fleet.times.step import Step


class Network(Protocol):
    """The network of a node; see `network.py`."""

    now_s: float

    def for_node(self, node: "FakeNode", time_s: float, work: Callable[[], None]) -> None:
        """Schedule work of a node at a time."""

    def send(self, name: str, send: Send) -> bool:
        """Carry a frame from a node; False if the connection is gone."""


class FakeNode:
    """A node with steps of `seconds_of(step)`. It is the transport of its own connections.

    `incarnation`: the number of its earlier kills; after the first, its users do not wait for the nodes that it
    connects to.
    """

    def __init__(
        self,
        network: Network,
        name: str,
        station: RecordedStation,
        executor: Executor,
        connections: ConnectionTable,
        seconds_of: Callable[[Step], float],
        users: Mapping[int, Iterator[Join]] | None = None,
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
        self.ring_s = math.inf  # time of the station's next timeout
        self.left: list[bytes] = []  # disconnected peers of its server

    @property
    def finished(self) -> bool:
        """Whether all its users have their texts."""
        return not self.users

    def start(self) -> None:
        """Connect to the servers; the users send their first requests after all welcomes."""
        if self.incarnation:
            self.worker.handle(Restarted(self.incarnation), NOTHING, self.network.now_s)
            self._begin()
        self._tick()

    def arrive(self, arrived: ReceivedFrame) -> None:
        """Take a frame."""
        time_s = self.network.now_s
        self._carry_out(self.connections.receive(arrived.port, arrived.peer, arrived.frame, time_s))
        self._go_on()

    def send(self, send: Send) -> bool:
        """As `Sockets.send`."""
        return self.network.send(self.name, send)

    def _tick(self) -> None:
        left, self.left = self.left, []
        for peer in left:
            self._carry_out(self.connections.lost(SERVER_PORT, peer, self.network.now_s))
        self._carry_out(self.connections.tick(self.network.now_s))
        self._go_on()
        self.network.for_node(self, self.network.now_s + TICK_S, self._tick)

    def _go_on(self) -> None:
        """Deliver the inbox to the station, and start its next step."""
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
        """Schedule the station's next timeout."""
        due_s = self.worker.station.alarm_s()
        if due_s < self.ring_s:
            self.ring_s = due_s
            self.network.for_node(self, max(due_s, self.network.now_s), partial(self._ring, due_s))

    def _ring(self, due_s: float) -> None:
        if due_s != self.ring_s:
            return  # replaced by an earlier time
        self.ring_s = math.inf
        if self.network.now_s > due_s:  # it was stalled or busy: earlier arrivals go first
            self.network.for_node(self, self.network.now_s, self._look)
        else:
            self._look()

    def _look(self) -> None:
        """Apply the station's timeout if it is due: between two steps, as in a worker."""
        if self.worker.station.running is not None:
            return
        self._drain()
        for event in self.worker.station.due(self.network.now_s):
            self.worker.handle(event, NOTHING, self.network.now_s)
        self._go_on()

    def _drain(self) -> None:
        while self.inbox:
            came, time_s = self.inbox.popleft()
            self.worker.handle(came.event, came.content, time_s, came.payload_bytes)

    def _finish(self, step: Step, seconds: float) -> None:
        outcomes = self.worker.executor.run(step)
        self._drain()
        outcomes = self.worker.executor.resolved(step, outcomes)
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
