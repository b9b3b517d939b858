"""Counters of the processes of a run, or of a node started by hand, for a display."""

from collections.abc import Callable
from typing import Any

import msgspec

from engine.net.clock import now_s
from engine.node.observer import LOOK_S
from fleet.records.metrics.counters import Counters
from fleet.records.recorder import ReportedRows
from fleet.scenario.resolved import Fleet

Watch = Callable[[Counters], None]


class Watched:
    """Counters of a fleet from reports of its processes; `watch` is called with them twice a second and at the end."""

    def __init__(self, fleet: Fleet, watch: Watch | None = None) -> None:
        self.counters = Counters(fleet)
        self.watch = watch
        self.called_s = -LOOK_S

    def take(self, report: ReportedRows) -> bool:
        """Add a report to the counters."""
        self.counters.take(report)
        if self.watch is not None and now_s() - self.called_s >= LOOK_S:
            self.called_s = now_s()
            self.watch(self.counters)
        return True

    def end(self) -> None:
        """Call `watch` with all counters."""
        if self.watch is not None:
            self.watch(self.counters)


class Observing(msgspec.Struct, frozen=True):
    """How a run is observed. `watched`: the receiver of reports, if any; `power`: the measured device."""

    watched: Watched | None = None
    power: str = ""

    def of(self, measures: bool = False) -> dict[str, Any]:
        """Return the options of a process. `measures`: it measures power, as one process of a run does."""
        watch = None if self.watched is None else self.watched.take
        return {"watch": watch, "power": self.power if measures else ""}

    def end(self) -> None:
        """End the observation of a finished run."""
        if self.watched is not None:
            self.watched.end()
