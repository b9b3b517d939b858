"""Counters of the processes of a run, or of a node started by hand, and its latest status for `specfleet top`.

The observer thread writes the counters; a display and the status endpoint read them.
"""

import math
from collections.abc import Callable

import msgspec

from engine.net.clock import now_s
from engine.net.status import ROWS, Status, StatusRow
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


class StatusCache:
    """Makes pages of a node's status from its counters, once for each change of them. `node`: its station's name."""

    def __init__(self, counters: Counters, node: str) -> None:
        self.counters = counters
        self.empty = Status(node[:64], counters.fleet.name[:200], 0.0, counters.fleet.verifiers.count)
        self.pages: dict[int, Status] = {}
        self.time_s = 0.0  # of these pages

    def page(self, first: int) -> Status:
        """Return the status with rows of at most ROWS targets from number `first` on. For one thread."""
        first = min(first, self.empty.targets)
        with self.counters.lock:
            if self.counters.time_s != self.time_s:
                self.pages, self.time_s = {}, self.counters.time_s
            if first not in self.pages:
                self.pages[first] = self._page(range(first, min(first + ROWS, self.empty.targets)))
            return self.pages[first]

    def _page(self, targets: range) -> Status:
        counters, texts = self.counters, self.counters.texts()
        of_all, *metrics = counters.recent_metrics(targets)
        rows = []
        for target, recent in zip(targets, metrics, strict=True):
            counts, own = counters.known.get(target), texts.get(target, [])
            rows.append(
                StatusRow(
                    target, len(own), sum(text.waits for text in own), counts.rounds if counts is not None else 0,
                    recent["throughput"], _known(recent["acceptance_rate"]), _known(recent["wait_p50_s"]),
                    _known(recent["wait_p90_s"]),
                )
            )  # fmt: skip
        open_texts = [text for station in counters.stations.values() for text in station.texts.values()]
        return msgspec.structs.replace(
            self.empty,
            time_s=counters.time_s,
            sessions=len(open_texts),
            waiting=sum(text.waits for text in open_texts),
            rounds=counters.rounds,
            tokens_per_s=of_all["throughput"],
            acceptance=_known(of_all["acceptance_rate"]),
            load=_known(of_all["load"]),
            draft_s=_known(of_all["service_s"]),
            first=targets.start,
            rows=tuple(rows),
        )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
