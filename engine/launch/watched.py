"""Counts what the processes of a run, or a node by hand, have done, for those who watch it."""

from collections.abc import Callable
from typing import Any

import msgspec

from engine.net.clock import now_s
from engine.node.observer import LOOK_S
from fleet.records.metrics.counters import Counters
from fleet.records.recorder import Report
from fleet.scenario.resolved import Fleet

Watch = Callable[[Counters], None]


class Watched:
    """Counters of a fleet from reports of its processes; `watch` is called with them twice a second and at the end."""

    def __init__(self, fleet: Fleet, watch: Watch | None = None) -> None:
        self.counters = Counters(fleet)
        self.watch = watch
        self.called_s = -LOOK_S

    def take(self, report: Report) -> bool:
        """Count a report."""
        self.counters.take(report)
        if self.watch is not None and now_s() - self.called_s >= LOOK_S:
            self.called_s = now_s()
            self.watch(self.counters)
        return True

    def end(self) -> None:
        """Call `watch` with all that was reported."""
        if self.watch is not None:
            self.watch(self.counters)


class Observing(msgspec.Struct, frozen=True):
    """How a run is observed. `watched`: what takes the reports, if anything; `power`: the device that is measured."""

    watched: Watched | None = None
    power: str = ""

    def of(self, measures: bool = False) -> dict[str, Any]:
        """Return the options of a process. `measures`: it measures power, as one process of a run does."""
        watch = None if self.watched is None else self.watched.take
        return {"watch": watch, "power": self.power if measures else ""}

    def end(self) -> None:
        """End the watching of a run that is over."""
        if self.watched is not None:
            self.watched.end()
