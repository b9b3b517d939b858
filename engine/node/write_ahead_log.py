"""A log that is kept outside of its process, event by event: of a process that is killed by script nothing is lost."""

import os
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from engine.net.clock import now_s
from fleet.records.recorded import Log, Origin, RecordedStation
from fleet.scenario.workload import Request
from fleet.stations.messages import Instruction, StationEvent
from fleet.stations.station import Plan, Station

_encoder = msgspec.msgpack.Encoder(enc_hook=lambda number: number.item())  # of numpy
_SIZE = struct.Struct("<I")  # of an entry, which stands before it


class Life(msgspec.Struct, frozen=True):
    """One life of a node's process. `number`: how often it was killed before; `written`: rows of its lives until then.

    `port`: of its door, 0 for any. `finished`: requests whose texts its users have. `journal`: the file that is to hold
    what it writes, for a process that may be killed. `back_s`: when it is to be reached again, by the engine's clock.
    """

    number: int = 0
    written: int = 0
    port: int = 0
    finished: frozenset[int] = frozenset()
    journal: Path | None = None
    back_s: float = 0.0

    def wait_until_back(self) -> None:
        """Wait, before the node has any connection: its process was started, and has loaded its model, beforehand."""
        time.sleep(max(self.back_s - now_s(), 0.0))


FIRST = Life()


class Kept(msgspec.Struct):
    """What a process has left: rows, and the new tokens of each request that it finished (none without a model)."""

    log: Log = []
    outputs: dict[int, list[int]] = {}


class Journal:
    """The file of one life. What `rows` and `finished` were given is in it when they return."""

    def __init__(self, path: Path) -> None:
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def rows(self, values: Log) -> None:
        """Keep the values of some rows."""
        self._write(["rows", values])

    def finished(self, request: int, tokens: Sequence[int] = ()) -> None:
        """Keep the text of a request, whose user has it now."""
        self._write(["finished", request, list(tokens)])

    def _write(self, entry: list[object]) -> None:
        packed = _encoder.encode(entry)
        os.write(self.file, _SIZE.pack(len(packed)) + packed)


class JournaledStation(RecordedStation):
    """A recorded station that keeps each row in a journal before anybody acts by it."""

    def __init__(
        self, station: Station, origin: Origin, journal: Journal, log: Log | None = None, written: int = 0
    ) -> None:
        super().__init__(station, origin, log)
        self.journal = journal
        self.written = written

    def handle(self, event: StationEvent, now_s: float, payload_bytes: int = 0) -> list[Instruction]:
        """As `RecordedStation.handle`."""
        known = len(self.log)
        instructions = super().handle(event, now_s, payload_bytes)
        self._keep(known)
        return instructions

    def plan(self, now_s: float) -> Plan:
        """As `RecordedStation.plan`."""
        known = len(self.log)
        plan = super().plan(now_s)
        self._keep(known)
        return plan

    def _keep(self, known: int) -> None:
        if len(self.log) > known:
            self.journal.rows(self.log[known:])


def recorded_in(
    life: Life, station: Station, origin: Origin, journal: Journal | None = None, log: Log | None = None
) -> RecordedStation:
    """Return a station whose events are recorded, and kept in a journal where there is one."""
    if journal is not None:
        return JournaledStation(station, origin, journal, log, life.written)
    recorded = RecordedStation(station, origin, log)
    recorded.written = life.written
    return recorded


def unfinished(streams: Mapping[int, Sequence[Request]], life: Life) -> dict[int, list[Request]]:
    """Return the requests of each stream whose texts its user does not have; streams that have none are left out."""
    left = {tag: [request for request in own if request.number not in life.finished] for tag, own in streams.items()}
    return {tag: own for tag, own in left.items() if own}


def journal_of(life: Life) -> Journal | None:
    """Open the journal of a life, if it is to have one."""
    return None if life.journal is None else Journal(life.journal)


def read_journal(path: Path) -> Kept:
    """Return what a life has left; an entry that was being written when it ended is left out."""
    kept = Kept([], {})
    content = path.read_bytes() if path.exists() else b""
    place = 0
    while place + _SIZE.size <= len(content):
        (size,) = _SIZE.unpack_from(content, place)
        place += _SIZE.size + size
        if place > len(content):
            break
        what, *values = msgspec.msgpack.decode(content[place - size : place])
        if what == "rows":
            kept.log += values[0]
        else:
            kept.outputs[values[0]] = values[1]
    return kept
