"""Links in simulated time: one direction each, in the order of sending."""

from collections import deque
from collections.abc import Callable, Mapping

from simpy import Environment
from simpy.events import Event

from fleet.records.playback import Sent, sent_of
from fleet.scenario.faults import LinkFaults
from fleet.stations.messages import Message
from sim.servers import Server

Way = Callable[[int], float]
"""Draws how long a payload in bytes is on its way, in seconds."""


class Wire:
    """One direction of a link: messages arrive in the order in which they were sent, as over TCP, however late.

    `faults`: what else becomes of them, where a scenario has any.
    """

    def __init__(
        self,
        env: Environment,
        server: Server,
        one_way_s: Way,
        faults: LinkFaults | None = None,
    ) -> None:
        self.env = env
        self.server = server
        self.one_way_s = one_way_s
        self.faults = faults
        self.in_flight: deque[tuple[Message, int]] = deque()
        self.last_s = 0.0

    def send(self, message: Message, payload_bytes: int) -> None:
        """Let the message arrive at the server after its time on the way, and after all that were sent before."""
        self._send(message, payload_bytes, self.one_way_s(payload_bytes))

    def _send(self, message: Message, payload_bytes: int, way_s: float) -> None:
        if self.faults is None:
            self._send_in_order(message, payload_bytes, way_s)
            return
        for late_s, in_order in self.faults.copies(self.env.now):
            if in_order:
                self._send_in_order(message, payload_bytes, way_s + late_s)
            else:
                arrival = self.env.timeout(way_s + late_s)
                arrival.callbacks.append(lambda _: self.server.deliver(message, payload_bytes))

    def _send_in_order(self, message: Message, payload_bytes: int, way_s: float) -> None:
        now_s = self.env.now
        self.last_s = max(self.last_s, now_s + way_s)
        self.in_flight.append((message, payload_bytes))
        self.env.timeout(self.last_s - now_s).callbacks.append(self._arrive)

    def _arrive(self, _arrival: Event) -> None:
        self.server.deliver(*self.in_flight.popleft())


class PlayedWire(Wire):
    """A link on which each message takes as long as in a measured run; those that were not sent there are drawn."""

    def __init__(
        self,
        env: Environment,
        server: Server,
        one_way_s: Way,
        ways_s: Mapping[Sent, deque[float]],
        faults: LinkFaults | None = None,
    ) -> None:
        super().__init__(env, server, one_way_s, faults)
        self.ways_s = ways_s

    def send(self, message: Message, payload_bytes: int) -> None:
        """Let the message arrive when it did."""
        known_s = self.ways_s.get(sent_of(self.server.station.name, message))
        self._send(message, payload_bytes, known_s.popleft() if known_s else self.one_way_s(payload_bytes))
