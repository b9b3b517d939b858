"""Counters of the processes of a run, or of a node started by hand. The observer thread writes them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.net.clock import now_s
from engine.node.observer import LOOK_S, Report
from fleet.records.metrics.counters import Counters
from fleet.records.recorder import ReportedRows
from fleet.scenario.resolved import Fleet

Watch = Callable[[Counters], None]


@contextmanager
def watched(fleet: Fleet, watch: Watch | None) -> Iterator[Report | None]:
    """Yield what takes the reports of a fleet's processes; None without a `watch`.

    `watch` is called with the counters of all reports, twice a second and at the end.
    """
    if watch is None:
        yield None
        return
    counters, called_s = Counters(fleet), -LOOK_S

    def take(report: ReportedRows) -> bool:
        nonlocal called_s
        counters.take(report)
        if now_s() - called_s >= LOOK_S:
            called_s = now_s()
            watch(counters)
        return True

    yield take
    watch(counters)
