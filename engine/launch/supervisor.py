"""The processes of a running fleet: their results are collected, and its faults kill, stall and restart stations.

A process that dies without a fault ends the run. The progress of a run, or of a node started by hand, is counted by the
thread that observes it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait

import msgspec

from specfleet.engine.launch.places import Place
from specfleet.engine.net.clock import now_s
from specfleet.engine.node.observer import LOOK_S, Report
from specfleet.engine.node.write_ahead_log import Served, read_log
from specfleet.fleet.records.progress import Progress
from specfleet.fleet.records.recorder import ReportedRows
from specfleet.fleet.records.schema import SCHEMA, Row
from specfleet.fleet.scenario.faults import Change, Moment

Watch = Callable[[Progress], None]


@dataclass(eq=False)
class Supervisor:
    """All processes of a run that have its time zero.

    - `start(place)`: starts the next life of a process, which reports that it is ready and waits for time zero.
    - `script`: what its faults change, in order of time.
    """

    places: Sequence[Place]
    start: Callable[[Place], None]
    script: list[Moment]
    zero_s: float

    def run(self) -> Served:
        """Wait until all requests are done; stop the others; return the rows and the texts of all lives."""
        while any(place.goes for place in self.places if place.ends):
            due_s = self.script[0].time_s + self.zero_s if self.script else None
            if due_s is not None and due_s <= now_s():
                moment = self.script.pop(0)
                self._change(moment.node, moment.change)
            else:
                self._wait(None if due_s is None else due_s - now_s())
        for place in reversed([place for place in self.places if not place.ends]):  # a router before its drafters
            self._stop(place)
        whole = Served([], {})
        for place in self.places:
            whole.add(place.recovered)
        return whole

    def _back_s(self, station: str) -> float:
        """Return when a killed process starts again, by the engine's clock; 0 if never."""
        starts_s = (moment.time_s for moment in self.script if (moment.node, moment.change) == (station, "start"))
        return next((time_s + self.zero_s for time_s in starts_s), 0.0)

    def _wait(self, wait_s: float | None) -> None:
        """Read messages of all processes, for at most that time."""
        by_pipe = {place.node.pipe: place for place in self.places if place.goes}
        for pipe in wait(list(by_pipe), wait_s):
            place = by_pipe[pipe]  # type: ignore[index]  # `wait` returns what it was given
            place.node.take()
            self._read(place)

    def _read(self, place: Place) -> None:
        place.node.check()
        if not place.node.kept:
            return
        said = place.node.receive()
        if place.state == "starting":  # a restarted one: all others began together
            place.node.send(self.zero_s)
            place.state = "serving"
        else:
            self._done(place, said)

    def _change(self, station: str, change: Change) -> None:
        """Apply a change of a fault, if the process is in a state for it; `_kill` restarts a killed one."""
        (place,) = [place for place in self.places if place.station == station]
        while place.goes and place.node.pipe.poll():  # it may have ended
            place.node.take()
            self._read(place)
        if change == "kill" and place.goes and place.life.back_s <= now_s():
            self._kill(place)
        elif change == "stall" and place.state == "serving":
            place.node.stall(stops=True)
            place.state = "stalled"
        elif change == "resume" and place.state == "stalled":
            place.node.stall(stops=False)
            place.state = "serving"

    def _kill(self, place: Place) -> None:
        time_s, life = now_s() - self.zero_s, place.life
        place.node.kill()
        assert life.wal is not None
        left = read_log(life.wal)
        time_s = max([time_s, *left.log[-len(SCHEMA) :][:1]])
        written = life.written + len(left.log) // len(SCHEMA)
        place.recovered.add(left)
        killed = Row(time_s, place.station, written, "killed", "replayed" if place.replayed else "real")
        place.recovered.log += killed
        place.report(ReportedRows(time_s, [*left.log[place.reported :], *killed]))
        place.reported = 0
        place.life = msgspec.structs.replace(
            life, number=life.number + 1, written=written + 1, finished=life.finished | left.outputs.keys(),
            wal=life.wal.with_name(f"{place.station}.{life.number + 2}.wal"), back_s=self._back_s(place.station),
        )  # fmt: skip
        place.state = "dead"
        if place.life.back_s:  # so that its model is loaded in time
            self.start(place)
            place.state = "starting"

    def _stop(self, place: Place) -> None:
        """End a process that serves others, and keep its rows, if it has any."""
        if place.state == "stalled":
            place.node.stall(stops=False)
        if place.state in ("serving", "stalled"):
            place.node.send("stop")
            self._done(place, place.node.receive())

    def _done(self, place: Place, result: Served) -> None:
        """Keep the rows and the texts of a life that ended by itself."""
        place.recovered.add(result)
        place.state = "done"


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
