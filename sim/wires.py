"""Links in simulated time: one direction each, in the order of sending."""

from collections import deque
from collections.abc import Callable, Mapping

from simpy import Environment
from simpy.events import Event

from fleet.records.playback import Sent, sent_of
from fleet.stations.messages import Message
from sim.servers import Server

Waits = Callable[[Message], float]
"""Tells how long a message waits for cores of the hosts that send and receive it, in seconds."""


def no_wait(_message: Message) -> float:
    """Every thread has a core of its own."""
    return 0.0


class Wire:
    """One direction of a link: messages arrive in the order in which they were sent, as over TCP, however late."""

    def __init__(
        self, env: Environment, server: Server, one_way_s: Callable[[int], float], core_wait_s: Waits = no_wait
    ) -> None:
        self.env = env
        self.server = server
        self.one_way_s = one_way_s
        self.core_wait_s = core_wait_s
        self.under_way: deque[tuple[Message, int, float]] = deque()
        self.last_s = 0.0

    def send(self, message: Message, payload_bytes: int) -> None:
        """Let the message arrive at the server after its time on the way, and after all that were sent before."""
        wait_s = self.core_wait_s(message)
        self._send(message, payload_bytes, self.one_way_s(payload_bytes) + wait_s, wait_s)

    def _send(self, message: Message, payload_bytes: int, way_s: float, wait_s: float = 0.0) -> None:
        now_s = self.env.now
        self.last_s = max(self.last_s, now_s + way_s)
        self.under_way.append((message, payload_bytes, wait_s))
        self.env.timeout(self.last_s - now_s).callbacks.append(self._arrive)

    def _arrive(self, _arrival: Event) -> None:
        self.server.deliver(*self.under_way.popleft())


def played_waits(server: Server, waited_s: Mapping[Sent, deque[float]]) -> Waits:
    """Return the function that lets messages to a server wait as in a measured run; others wait for nothing."""

    def wait_s(message: Message) -> float:
        known_s = waited_s.get(sent_of(server.station.name, message))
        return known_s.popleft() if known_s else 0.0

    return wait_s


class PlayedWire(Wire):
    """A link on which each message takes as long as in a measured run; those that were not sent there are drawn."""

    def __init__(
        self,
        env: Environment,
        server: Server,
        one_way_s: Callable[[int], float],
        ways_s: Mapping[Sent, deque[float]],
    ) -> None:
        super().__init__(env, server, one_way_s)
        self.ways_s = ways_s

    def send(self, message: Message, payload_bytes: int) -> None:
        """Let the message arrive when it did."""
        known_s = self.ways_s.get(sent_of(self.server.station.name, message))
        self._send(message, payload_bytes, known_s.popleft() if known_s else self.one_way_s(payload_bytes))
