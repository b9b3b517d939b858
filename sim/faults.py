"""Servers that can die, stall and restart, and that call their stations at timeouts."""

import math
from collections.abc import Callable
from functools import partial

from simpy.events import Event

from specfleet.fleet.policies.outcome import Outcome
from specfleet.fleet.scenario.faults import Change
from specfleet.fleet.stations.messages import Restarted, StationEvent
from specfleet.fleet.stations.station import Station
from specfleet.fleet.times.step import Step
from specfleet.sim.servers import Server

Fresh = Callable[[], tuple[Station, Callable[[Step], tuple[Outcome, ...]]]]
"""Builds a new station for a server, and the function that draws the outcomes of its steps."""


class FallibleServer(Server):
    """A server that may die, stall and restart. `fresh` is set after construction.

    A dead server drops events. A stalled server queues them, the end of its step included.
    """

    fresh: Fresh
    pending: list[Callable[[], None]]  # events of a stalled server
    dead = stalled = False
    deaths = 0
    timeout_s = math.inf  # time of the next scheduled timeout

    def change(self, change: Change) -> None:
        """Apply a fault. A change to the current state does nothing."""
        if change == "kill" and not self.dead:
            self.dead, self.stalled, self.pending = True, False, []
            self.station, self.outcomes = self.fresh()
            self.recorded.killed(self.station, self.env.now)
            self.withdraw()
            self.deaths += 1
        elif change == "start" and self.dead:
            self.dead = False
            self.deliver(Restarted(self.deaths))
        elif change == "stall" and not self.dead and not self.stalled:
            self.stalled, self.pending = True, []
        elif change == "resume" and self.stalled:
            self.stalled = False
            for event in self.pending:
                event()
            self._apply_timeout()
            self._request_step()

    def deliver(self, event: StationEvent, payload_bytes: int = 0) -> None:
        """Hand an event to the station, and schedule its next timeout."""
        if self.stalled:
            self.pending.append(partial(self.deliver, event, payload_bytes))
        elif not self.dead:
            super().deliver(event, payload_bytes)
            self._schedule_timeout()

    def begin(self) -> tuple[Step, float] | None:
        """Start the planned step, unless the server is dead or stalled."""
        return None if self.dead or self.stalled else super().begin()

    def finish(self, step: Step, duration_s: float) -> None:
        """Report the running step as done, once the server goes on."""
        if self.stalled:
            self.pending.append(partial(self.finish, step, duration_s))
        else:
            super().finish(step, duration_s)

    def _schedule_timeout(self) -> None:
        due_s = self.station.alarm_s()
        if due_s < self.timeout_s:
            self.timeout_s = due_s
            self.env.timeout(max(0.0, due_s - self.env.now), due_s).callbacks.append(self._on_timeout)

    def _on_timeout(self, timeout: Event) -> None:
        if timeout.value != self.timeout_s:
            return  # an earlier timeout replaced it
        self.timeout_s = math.inf
        if not self.dead and not self.stalled:
            self._apply_timeout()

    def _apply_timeout(self) -> None:
        for event in self.station.due(self.env.now):
            self.deliver(event)
        self._schedule_timeout()
