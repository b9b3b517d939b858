"""Latest status of a node, for `specfleet top`. The observer thread writes it; the status endpoint reads it."""

import math

import msgspec

from engine.net.status import ROWS, Status, StatusRow
from fleet.records.metrics.counters import Counters


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
