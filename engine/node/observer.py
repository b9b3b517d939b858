"""Observes the stations of a process: a thread reads their logs twice a second and reports new rows.

Workers do not wait for it. It shares their interpreter, so it reads in small pieces with a pause after each.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from engine.net.clock import now_s
from engine.node.worker import Worker
from fleet.records.recorder import RecordedStation, ReportedRows
from fleet.records.schema import WIDTH

LOOK_S = 0.5  # between two reads of the logs
PIECE = 32  # rows of a report: some 100 microseconds
PAUSE_S = 0.0005  # between two reports

Stations = Callable[[], Sequence[RecordedStation]]  # those of a process; some may share a log


class Observer(threading.Thread):
    """Reports the new rows of this process's stations, until `end`.

    - `zero_s`: the run's time zero by this host's clock.
    - `report`: takes a report; False if it failed, which repeats the rows.
    """

    def __init__(self, stations: Stations, zero_s: float, report: Callable[[ReportedRows], bool]) -> None:
        super().__init__(name="observer", daemon=True)
        self.places: dict[int, int] = {}  # of the next value, by log
        self.stations = stations
        self.zero_s = zero_s
        self.report = report
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

    def _look(self) -> None:
        """Report the new rows of all logs, piece by piece, and the time."""
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


# As `observed` for a watched run; also gets the workers with devices to sample before each draft.
Observed = Callable[[Stations, float, Sequence[Worker]], AbstractContextManager[None]]


@contextmanager
def observed(stations: Stations, zero_s: float, report: Callable[[ReportedRows], bool] | None) -> Iterator[None]:
    """Report the new rows of stations twice a second, and at the end; do nothing without `report`."""
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
