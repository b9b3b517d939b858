"""The processes of a run while it goes: results are collected, and a script kills, stalls and restarts its stations.

A process that dies without a script ends the run.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path
from typing import Literal

import msgspec

from engine.launch.processes import NodeProcess
from engine.net.clock import now_s
from engine.node.write_ahead_log import FIRST, Kept, Life, read_journal
from fleet.records.recorded import Log, Origin
from fleet.records.schema import SCHEMA, Row
from fleet.scenario.faults import Change, Fault, Kill, moments

State = Literal["starting", "serving", "stalled", "dead", "done"]


@dataclass
class Place:
    """A process of a run, in whichever life: what it is called, how it is started, what its lives have left.

    `station`: whom a script names; empty where the process has several. `start(life)` begins the next life, which says
    that it is ready and waits for time zero. `ends`: whether it ends by itself, when its requests are done.
    """

    station: str
    origin: Origin
    start: Callable[[Life], NodeProcess]
    ends: bool
    life: Life = FIRST
    state: State = "starting"
    kept: Kept = field(default_factory=lambda: Kept([], {}))
    nodes: list[NodeProcess] = field(default_factory=list)  # of all lives, the last one at the end

    @property
    def node(self) -> NodeProcess:
        """The process of the last life."""
        return self.nodes[-1]

    @property
    def goes(self) -> bool:
        """Whether there is a process that has not ended."""
        return self.state in ("starting", "serving", "stalled")

    def begin(self) -> NodeProcess:
        """Start the next life."""
        self.nodes.append(self.start(self.life))
        self.state = "starting"
        return self.node

    def take_result(self, result: tuple[Log, dict[int, list[int]]]) -> None:
        """Keep the log and the texts of a life that ended by itself."""
        log, outputs = result
        self.kept.log += log
        self.kept.outputs |= outputs
        self.state = "done"


def first_life(station: str, faults: Sequence[Fault], folder: Path) -> Life:
    """Return the first life of a station's process; one that a script kills keeps a journal in that folder."""
    dies = any(isinstance(fault, Kill) and fault.node == station for fault in faults)
    return Life(journal=folder / f"{station}.1.journal") if dies else FIRST


class Supervisor:
    """All processes of a run that have been sent its time zero, by the engine's clock, and its script."""

    def __init__(self, places: Sequence[Place], faults: Sequence[Fault], zero_s: float) -> None:
        self.places = places
        self.zero_s = zero_s
        self.script = moments(faults)

    def run(self) -> tuple[Log, dict[int, list[int]]]:
        """Wait until all requests are done; stop the others; return the rows and the texts of all lives."""
        while any(place.goes for place in self.places if place.ends):
            due_s = self.script[0].time_s + self.zero_s if self.script else None
            if due_s is not None and due_s <= now_s():
                moment = self.script.pop(0)
                self._change(moment.node, moment.change)
            else:
                self._listen(None if due_s is None else due_s - now_s())
        for place in reversed([place for place in self.places if not place.ends]):  # a router before its drafters
            self._stop(place)
        log = [value for place in self.places for value in place.kept.log]
        return log, {request: text for place in self.places for request, text in place.kept.outputs.items()}

    def _back_s(self, station: str) -> float:
        """When the script starts a dead process again, by the engine's clock; 0 where it does not."""
        starts_s = (moment.time_s for moment in self.script if (moment.node, moment.change) == (station, "start"))
        return next((time_s + self.zero_s for time_s in starts_s), 0.0)

    def _listen(self, wait_s: float | None) -> None:
        """Take what comes from any process, or nothing within that time."""
        by_pipe = {place.node.pipe: place for place in self.places if place.goes}
        for pipe in wait(list(by_pipe), wait_s):
            place = by_pipe[pipe]  # type: ignore[index]
            place.node.take()
            self._hear(place)

    def _hear(self, place: Place) -> None:
        place.node.check()
        if not place.node.kept:
            return
        said = place.node.receive()
        if place.state == "starting":  # again: all began together
            place.node.send(self.zero_s)
            place.state = "serving"
        else:
            place.take_result(said)

    def _change(self, station: str, change: Change) -> None:
        """Do what the script says; nothing where it finds nothing to change: a dead process comes back by itself."""
        (place,) = [place for place in self.places if place.station == station]
        while place.goes and place.node.pipe.poll():  # it may be done
            place.node.take()
            self._hear(place)
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
        assert life.journal is not None
        left = read_journal(life.journal)
        time_s = max([time_s, *left.log[-len(SCHEMA) :][:1]])
        written = life.written + len(left.log) // len(SCHEMA)
        place.kept.log += [*left.log, *Row(time_s, place.station, written, "killed", place.origin)]
        place.kept.outputs |= left.outputs
        place.life = msgspec.structs.replace(
            life,
            number=life.number + 1,
            written=written + 1,
            finished=life.finished | left.outputs.keys(),
            journal=life.journal.with_name(f"{place.station}.{life.number + 2}.journal"),
            back_s=self._back_s(place.station),
        )
        place.state = "dead"
        if place.life.back_s:  # it is loaded by then
            place.begin()

    def _stop(self, place: Place) -> None:
        """End a process that serves others; of one that has not begun to serve again there is nothing to keep."""
        if place.state == "stalled":
            place.node.stall(stops=False)
        if place.state in ("serving", "stalled"):
            place.node.send("stop")
            place.take_result(place.node.receive())
