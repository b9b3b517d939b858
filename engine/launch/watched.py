"""Counters of the processes of a run, or of a node started by hand. The observer thread writes them."""

from collections.abc import Callable

from engine.net.clock import now_s
from engine.node.observer import LOOK_S
from fleet.records.metrics.counters import Counters
from fleet.records.recorder import ReportedRows
from fleet.scenario.resolved import Fleet

Watch = Callable[[Counters], None]


class Watched:
    """Counters of a fleet from reports of its processes; `watch` is called with them twice a second and at the end."""

    def __init__(self, fleet: Fleet, watch: Watch) -> None:
        self.counters = Counters(fleet)
        self.watch = watch
        self.called_s = -LOOK_S

    def take(self, report: ReportedRows) -> bool:
        """Add a report to the counters."""
        self.counters.take(report)
        if now_s() - self.called_s >= LOOK_S:
            self.called_s = now_s()
            self.watch(self.counters)
        return True

    def end(self) -> None:
        """Call `watch` with all counters."""
        self.watch(self.counters)
