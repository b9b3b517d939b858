"""Links in simulated time: one direction each, in the order of sending."""

from collections import deque
from collections.abc import Callable, Mapping

from simpy import Environment
from simpy.events import Event

from fleet.records.playback import Sent, sent_of
from fleet.scenario.faults import LinkFaults
from fleet.scenario.links import Ways
from fleet.scenario.settled import SettledLink
from fleet.stations.messages import Message
from fleet.times.durations import one_way_s
from sim.servers import Server

Way = Callable[[int], float]
"""Draws how long a payload in bytes is on its way, in seconds."""

Waits = Callable[[Message], float]
"""Tells how long a message waits for cores of the hosts that send and receive it, in seconds."""


def no_wait(_message: Message) -> float:
    """Every thread has a core of its own."""
    return 0.0


class Wire:
    """One direction of a link: messages arrive in the order in which they were sent, as over TCP, however late.

    `faults`: what else becomes of them, where a scenario has any.
    """

    def __init__(
        self,
        env: Environment,
        server: Server,
        one_way_s: Way,
        core_wait_s: Waits = no_wait,
        faults: LinkFaults | None = None,
    ) -> None:
        self.env = env
        self.server = server
        self.one_way_s = one_way_s
        self.core_wait_s = core_wait_s
        self.faults = faults
        self.under_way: deque[tuple[Message, int, float]] = deque()
        self.last_s = 0.0

    def send(self, message: Message, payload_bytes: int) -> None:
        """Let the message arrive at the server after its time on the way, and after all that were sent before."""
        wait_s = self.core_wait_s(message)
        self._send(message, payload_bytes, self.one_way_s(payload_bytes) + wait_s, wait_s)

    def _send(self, message: Message, payload_bytes: int, way_s: float, wait_s: float = 0.0) -> None:
        if self.faults is None:
            self._send_in_order(message, payload_bytes, way_s, wait_s)
            return
        for late_s, in_order in self.faults.copies(self.env.now):
            if in_order:
                self._send_in_order(message, payload_bytes, way_s + late_s, wait_s)
            else:
                arrival = self.env.timeout(way_s + late_s)
                arrival.callbacks.append(lambda _: self.server.deliver(message, payload_bytes, wait_s))

    def _send_in_order(self, message: Message, payload_bytes: int, way_s: float, wait_s: float) -> None:
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
        one_way_s: Way,
        ways_s: Mapping[Sent, deque[float]],
        faults: LinkFaults | None = None,
    ) -> None:
        super().__init__(env, server, one_way_s, faults=faults)
        self.ways_s = ways_s

    def send(self, message: Message, payload_bytes: int) -> None:
        """Let the message arrive when it did."""
        known_s = self.ways_s.get(sent_of(self.server.station.name, message))
        self._send(message, payload_bytes, known_s.popleft() if known_s else self.one_way_s(payload_bytes))


def ways_between(link: SettledLink, host: Server | None, sources: Ways) -> tuple[Way, Way]:
    """Return what draws the times of both ways, down and up; a measured link goes at the pace of its drafter's host."""
    down_s, up_s = one_way_s(link.time, sources.down), one_way_s(link.time, sources.up)
    if host is None or not link.of_host:
        return down_s, up_s
    busy_s = down_s if link.busy is None else one_way_s(link.busy, sources.down)
    return _way_down(down_s, busy_s, host), _way_up(up_s, host)


def _way_down(way_s: Way, busy_s: Way, host: Server) -> Way:
    """The way down from a drafter, at the pace of its host: another one where the next step is about to begin."""
    return lambda payload: host.around((busy_s if host.station.ready else way_s)(payload), host.gap_s)


def _way_up(way_s: Way, host: Server) -> Way:
    """The way up to a drafter, at the pace of its host: slow where it has to be woken."""
    return lambda payload: host.around(way_s(payload), host.idle_s)
