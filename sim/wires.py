"""Links in simulated time, one direction each. Messages arrive in the order in which they were sent."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from simpy import Environment
from simpy.events import Event

from specfleet.fleet.records.playback import Sent, sent_of
from specfleet.fleet.scenario.faults import ON_TIME, LinkFaults
from specfleet.fleet.stations.messages import Message
from specfleet.sim.servers import Server, at_last

Way = Callable[[int], float]
"""Draws the one-way delay in seconds of a payload in bytes."""


@dataclass(eq=False)
class Wire:
    """One direction of a link. Messages keep their order, as over TCP.

    - `server`: the receiver. `one_way_s`: draws the delay of a message. `faults`: link faults of the scenario.
    - `played_s`: delays of a measured run. Those of messages that the run did not send are drawn.
    """

    env: Environment
    server: Server
    one_way_s: Way
    faults: LinkFaults | None
    played_s: Mapping[Sent, deque[float]]

    def __post_init__(self) -> None:
        self.last_s = 0.0  # arrival of the last message in order
        self.yields = False  # whether messages arrive after all else of their instant

    def send(self, message: Message, payload_bytes: int) -> None:
        """Schedule the arrival of a message, after all earlier ones."""
        measured_s = self.played_s.get(sent_of(self.server.station.name, message)) if self.played_s else None
        way_s, now_s = measured_s.popleft() if measured_s else self.one_way_s(payload_bytes), self.env.now
        for late_s, in_order in self.faults.copies(now_s) if self.faults else ON_TIME:
            arrives_s = now_s + way_s + late_s
            if in_order:
                arrives_s = self.last_s = max(self.last_s, arrives_s)
            arrival = self.env.timeout(arrives_s - now_s)
            arrival.callbacks.append(partial(self._arrive, message, payload_bytes))

    def _arrive(self, message: Message, payload_bytes: int, _arrival: Event) -> None:
        at_last(self.yields, self.env, partial(self.server.deliver, message, payload_bytes))
