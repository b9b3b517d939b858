"""Who looks at a node while it works: a thread that reads the log twice a second and tells what it says so far.

The worker knows nothing of it and waits for nothing. Both share the interpreter, so the log is read in small pieces,
and whoever wants to draft in between can.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import msgspec

from engine.net.clock import now_s
from engine.node.worker import Worker
from fleet.records.counts import Counts, merged, over
from fleet.records.recorded import RecordedStation
from fleet.records.tally import Tally
from fleet.scenario.settled import Fleet

LOOK_S = 0.5  # between two looks
PIECE = 32  # rows that are read at once: some 40 microseconds
PAUSE_S = 0.0005  # between two pieces

Watch = Callable[[Counts], None]
Stations = Callable[[], Sequence[RecordedStation]]  # those of a process; some may share a log


class Observer(threading.Thread):
    """Tells `watch` what the stations of this process have done, until `end`.

    `zero_s`: the run's time zero here; `recent`: whether the last waits of each target are told, too.
    """

    def __init__(self, fleet: Fleet, stations: Stations, zero_s: float, watch: Watch, recent: bool = False) -> None:
        super().__init__(name="observer", daemon=True)
        self.tallies: dict[int, Tally] = {}  # by log
        self.fleet = fleet
        self.stations = stations
        self.zero_s = zero_s
        self.watch = watch
        self.recent = recent
        self.ending = threading.Event()

    def run(self) -> None:
        """Look, until it is to end."""
        while not self.ending.wait(LOOK_S):
            self._look()

    def end(self) -> None:
        """End, and tell once more: all that happened."""
        self.ending.set()
        if self.is_alive():
            self.join()
        self._look()

    def _look(self) -> None:
        """Read what is new in the logs, and tell."""
        by_log = {id(recorded.log): recorded.log for recorded in self.stations()}
        for key, log in by_log.items():
            tally = self.tallies.setdefault(key, Tally(self.fleet))
            while tally.take(log, PIECE):
                time.sleep(PAUSE_S)
        time_s = max(now_s() - self.zero_s, 0.0)
        self.watch(
            merged(
                self.tallies[key].counts(
                    time_s, [recorded.station for recorded in self.stations() if recorded.log is log], self.recent
                )
                for key, log in by_log.items()
            )
        )


# As `observed`, for somebody who watches; then the workers whose device may be sampled before each draft.
Observed = Callable[[Fleet, Stations, float, Sequence[Worker]], AbstractContextManager[None]]


@contextmanager
def observed(
    fleet: Fleet, stations: Stations, zero_s: float, watch: Watch | None, recent: bool = False
) -> Iterator[None]:
    """Tell `watch`, twice a second and at the end, what the stations have done; nobody, if there is none."""
    if watch is None:
        yield
        return
    observer = Observer(fleet, stations, zero_s, watch, recent)
    observer.start()
    try:
        yield
    finally:
        observer.end()


class Together:
    """Tells `watch` what several processes have done together: when each has reported since, or one of them again."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.parts: dict[str, Counts] = {}
        self.past: list[Counts] = []  # of processes that were started again
        self.fresh: set[str] = set()

    def part(self, name: str) -> Watch:
        """Return who takes the reports of one of them; what one of that name has done before stays counted."""
        if name in self.parts:
            self.past.append(over(self.parts[name]))
        self.parts[name] = Counts(0.0)

        def take(counts: Counts) -> None:
            if name in self.fresh:
                self._tell()
            self.parts[name] = counts
            self.fresh.add(name)
            if self.fresh == self.parts.keys():
                self._tell()

        return take

    def end(self) -> None:
        """Tell what was not told yet."""
        if self.fresh:
            self._tell()

    def _tell(self) -> None:
        self.fresh.clear()
        self.watch(merged([*self.past, *self.parts.values()]))


class Observing(msgspec.Struct, frozen=True):
    """How a run is observed. `together`: who is told, if anybody; `power`: the device that is measured, if any."""

    together: Together | None = None
    power: str = ""

    def of(self, name: str, measures: bool = False) -> dict[str, Any]:
        """Return what the process of that name is to do about it. `measures`: one of a run does, for all of them."""
        watch = None if self.together is None else self.together.part(name)
        return {"watch": watch, "power": self.power if measures else ""}

    def end(self) -> None:
        """Tell what was not told yet."""
        if self.together is not None:
            self.together.end()


UNOBSERVED = Observing()


def unobserved(
    _fleet: Fleet, _stations: Stations, _zero_s: float, _workers: Sequence[Worker]
) -> AbstractContextManager[None]:
    """Tell nobody."""
    return nullcontext()
