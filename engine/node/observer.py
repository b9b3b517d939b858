"""Observes a process: a thread reads the logs of its stations twice a second, reports new rows, samples its device.

Workers do not wait for it. It shares their interpreter, so it reads in small pieces with a pause after each.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from specfleet.engine.net.clock import now_s
from specfleet.engine.node.power import Meter
from specfleet.engine.node.worker import Worker
from specfleet.fleet.records.progress import Progress
from specfleet.fleet.records.recorder import RecordedStation, ReportedRows
from specfleet.fleet.records.schema import WIDTH, PowerSample
from specfleet.fleet.times.step import Step

LOOK_S = 0.5  # between two reads of the logs
PIECE = 32  # rows of a report: some 100 microseconds
PAUSE_S = 0.0005  # between two reports

Stations = Callable[[], Sequence[RecordedStation]]  # those of a process; some may share a log
Report = Callable[[ReportedRows], bool]  # takes a report; False if it failed, which repeats the rows
Watch = Callable[[Progress], None]


class Observer(threading.Thread):
    """Reports the new rows of this process's stations, and takes samples, until `end`.

    - `zero_s`: the run's time zero by this host's clock.
    - `report`: None if nothing is reported. `meter`: None if nothing is sampled.
    """

    def __init__(self, stations: Stations, zero_s: float, report: Report | None, meter: Meter | None = None) -> None:
        super().__init__(name="observer", daemon=True)
        self.places: dict[int, int] = {}  # of the next value, by log
        self.stations = stations
        self.zero_s = zero_s
        self.report = report
        self.meter = meter
        self.samples: list[PowerSample] = []
        self.ending = threading.Event()

    def run(self) -> None:
        """Read the logs until `end`."""
        while not self.ending.wait(LOOK_S):
            self._look()

    def end(self) -> None:
        """End, and report the remaining rows."""
        self.ending.set()
        if self.is_alive():
            self.join()
        self._look()

    def sample(self, station: str = "", step: int = 0) -> None:
        """Sample the device, from any thread; for a step of a station that is about to begin, or between steps."""
        if self.meter is not None:
            time_s = now_s() - self.zero_s
            self.samples.append(self.meter.read()._replace(time_s=time_s, station=station, step=step))

    def before(self, station: str) -> Callable[[Step], None]:
        """Return a function that takes a sample before each draft of a station, as in StarSD's appendix F."""
        return lambda step: self.sample(station, step.number) if step.kind == "draft" else None

    def _look(self) -> None:
        """Take a sample; report the new rows of all logs, piece by piece, and the time."""
        self.sample()
        if self.report is None:
            return
        for key, log in {id(recorded.log): recorded.log for recorded in self.stations()}.items():
            end = len(log) // WIDTH * WIDTH  # a row may be half written
            for place in range(self.places.get(key, 0), end, PIECE * WIDTH):
                rows = log[place : min(place + PIECE * WIDTH, end)]
                if not self.report(ReportedRows(self._time_s(), rows)):
                    return
                self.places[key] = place + len(rows)
                time.sleep(PAUSE_S)
        self.report(ReportedRows(self._time_s(), []))

    def _time_s(self) -> float:
        return max(now_s() - self.zero_s, 0.0)


@contextmanager
def observed(
    stations: Stations, zero_s: float, report: Report | None, meter: Meter | None = None, workers: Sequence[Worker] = ()
) -> Iterator[list[PowerSample]]:
    """Report the new rows of stations twice a second, and at the end; do nothing without `report` and `meter`.

    A meter is read as often, at the beginning, and before each draft of `workers`. Yields its samples.
    """
    observer = Observer(stations, zero_s, report, meter)
    if report is None and meter is None:
        yield observer.samples
        return
    if meter is not None:
        for worker in workers:
            worker.before = observer.before(worker.recorded.station.name)
    observer.sample()
    observer.start()
    try:
        yield observer.samples
    finally:
        observer.end()


@contextmanager
def watched(watch: Watch | None) -> Iterator[Report | None]:
    """Yield what takes the reports of a fleet's processes; None without a `watch`.

    `watch` is called with the progress of all of them, twice a second and at the end.
    """
    if watch is None:
        yield None
        return
    progress, called_s = Progress(), -LOOK_S

    def take(report: ReportedRows) -> bool:
        nonlocal called_s
        progress.take(report)
        if now_s() - called_s >= LOOK_S:
            called_s = now_s()
            watch(progress)
        return True

    yield take
    watch(progress)
