"""Servers that can die, stall and start again, and that tell their stations what silence amounts to."""

import math
from collections.abc import Callable
from functools import partial

from simpy.events import Event

from fleet.policies.outcome import Outcome
from fleet.scenario.faults import Change
from fleet.stations.messages import Restarted, StationEvent
from fleet.stations.station import Station
from fleet.times.step import Step
from sim.servers import Server

Fresh = Callable[[], tuple[Station, Callable[[Step], tuple[Outcome, ...]]]]
"""Builds a server's station again, and what draws the outcomes of its steps."""


class FallibleServer(Server):
    """A server whose process may die, stall and start again.

    What reaches a dead process is lost; what reaches one that stands still waits, the end of its step too. Set after
    it is built: `fresh`. `deaths` counts how often it died.
    """

    fresh: Fresh
    held: list[Callable[[], None]]  # what happened while the process stood still
    dead = stalled = False
    deaths = 0
    ring_s = math.inf  # when the station is asked next what is due

    def change(self, change: Change) -> None:
        """Let the process die, start, stand still or go on; nothing where it did already."""
        if change == "kill" and not self.dead:
            self.dead, self.stalled, self.held = True, False, []
            self.queued = self.delayed = False
            self.station, self.outcomes = self.fresh()
            self.recorded.killed(self.station, self.env.now)
            self.deaths += 1
        elif change == "start" and self.dead:
            self.dead = False
            self.deliver(Restarted(self.deaths))
        elif change == "stall" and not self.dead and not self.stalled:
            self.stalled, self.held = True, []
        elif change == "resume" and self.stalled:
            self._resume()

    def _resume(self) -> None:
        self.stalled = False
        for happened in self.held:
            happened()
        self._ask()

    def deliver(self, event: StationEvent, payload_bytes: int = 0) -> None:
        """Hand an event to the station, and see when its silence would mean something."""
        if self.stalled:
            self.held.append(partial(self.deliver, event, payload_bytes))
        elif not self.dead:
            super().deliver(event, payload_bytes)
            self._watch()

    def begin(self) -> tuple[Step, float] | None:
        """Start the planned step, if the process goes."""
        return None if self.dead or self.stalled else super().begin()

    def finish(self, step: Step, duration_s: float) -> None:
        """Report the running step as done, unless it was lost with its process."""
        if self.stalled:
            self.held.append(partial(self.finish, step, duration_s))
        elif self.station.running is step:
            super().finish(step, duration_s)

    def _watch(self) -> None:
        """Ask the station when it next has something to say about silence, and ask it again then."""
        due_s = self.station.alarm_s()
        if due_s < self.ring_s:
            self.ring_s = due_s
            self.env.timeout(max(0.0, due_s - self.env.now), due_s).callbacks.append(self._ring)

    def _ring(self, ring: Event) -> None:
        if ring.value != self.ring_s:
            return  # an earlier time took its place
        self.ring_s = math.inf
        if self.stalled:
            self.held.append(self._look)
        elif not self.dead:
            self._look()

    def _look(self) -> None:
        for event in self.station.due(self.env.now):
            self.deliver(event)
        self._watch()
