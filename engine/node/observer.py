"""Observes the stations of a run: a thread reads their logs twice a second; counters are kept where the run is watched.

Workers do not wait for it. It shares their interpreter, so it reads in small pieces with a pause after each.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import msgspec

from engine.net.clock import now_s
from engine.node.worker import Worker
from fleet.records.counters import WIDTH, Counters, Report
from fleet.records.recorded import RecordedStation
from fleet.scenario.settled import Fleet

LOOK_S = 0.5  # between two looks
PIECE = 32  # rows of a report: some 40 microseconds
PAUSE_S = 0.0005  # between two reports

Watch = Callable[[Counters], None]
Stations = Callable[[], Sequence[RecordedStation]]  # those of a process; some may share a log


class Observer(threading.Thread):
    """Reports what the stations of this process record, until `end`.

    - `zero_s`: the run's time zero by this host's clock.
    - `report`: takes a report; False if it could not, and is to get the rows again.
    """

    def __init__(self, stations: Stations, zero_s: float, report: Callable[[Report], bool]) -> None:
        super().__init__(name="observer", daemon=True)
        self.places: dict[int, int] = {}  # of the next value, by log
        self.stations = stations
        self.zero_s = zero_s
        self.report = report
        self.ending = threading.Event()

    def run(self) -> None:
        """Look, until it is to end."""
        while not self.ending.wait(LOOK_S):
            self._look()

    def end(self) -> None:
        """End, and report what is left."""
        self.ending.set()
        if self.is_alive():
            self.join()
        self._look()

    def _look(self) -> None:
        """Report the new rows of all logs, piece by piece, and the time."""
        for key, log in {id(recorded.log): recorded.log for recorded in self.stations()}.items():
            end = len(log) // WIDTH * WIDTH  # a row may be half written
            for place in range(self.places.get(key, 0), end, PIECE * WIDTH):
                rows = log[place : min(place + PIECE * WIDTH, end)]
                if not self.report(Report(self._time_s(), rows)):
                    return
                self.places[key] = place + len(rows)
                time.sleep(PAUSE_S)
        self.report(Report(self._time_s(), []))

    def _time_s(self) -> float:
        return max(now_s() - self.zero_s, 0.0)


# As `observed`, if the run is watched; then the workers whose device may be sampled before each draft.
Observed = Callable[[Stations, float, Sequence[Worker]], AbstractContextManager[None]]


@contextmanager
def observed(stations: Stations, zero_s: float, report: Callable[[Report], bool] | None) -> Iterator[None]:
    """Report twice a second, and at the end, what the stations record; do nothing without `report`."""
    if report is None:
        yield
        return
    observer = Observer(stations, zero_s, report)
    observer.start()
    try:
        yield
    finally:
        observer.end()


def unobserved(_stations: Stations, _zero_s: float, _workers: Sequence[Worker]) -> AbstractContextManager[None]:
    """Observe nothing."""
    return nullcontext()


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
