"""What a log says so far, as counts: of each target, as its drafters saw it and as it did itself, and of each station.

A `Tally` reads a log that grows, from where it stopped before, so nothing has to be counted where rows are written, and
what is counted is what was recorded. It belongs to one thread; its `counts` are frozen values for any.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fleet.records.counts import Counts, OfStation
from fleet.records.recorded import Log
from fleet.records.schema import SCHEMA, Row
from fleet.records.seen import Seen, Spread
from fleet.records.tables import COMMITTING
from fleet.scenario.names import DRAFTER, ROUTER, verifier_name
from fleet.scenario.settled import Fleet
from fleet.stations.station import Station

WIDTH = len(SCHEMA)
Values = list[Any]  # of a row
_COLUMNS = (
    "time_s", "station", "event", "step", "kind", "tag", "request", "epoch", "base", "tokens", "goal", "accepted",
    "flag", "duration_s", "payload_bytes",
)  # fmt: skip
(
    _TIME, _STATION, _EVENT, _STEP, _KIND, _TAG, _REQUEST, _EPOCH, _BASE, _TOKENS, _GOAL, _ACCEPTED, _FLAG, _DURATION,
    _BYTES,
) = (Row._fields.index(name) for name in _COLUMNS)  # fmt: skip


@dataclass(slots=True)
class _Open:
    """A target's request, or a session at a drafter. `asked_s`: since when it waits, NaN if it does not."""

    request: int
    epoch: int
    base: int
    goal: int = 0
    tail: int = 0
    asked_s: float = float("nan")


class Tally:
    """Reads the log of one process. `fleet`: whose targets its tags belong to."""

    def __init__(self, fleet: Fleet) -> None:
        self.target_of = fleet.target_of
        self.in_turn = fleet.in_turn
        self.place = 0  # in the log, of the next row
        self.drafting: dict[int, Seen] = {}
        self.verifying: dict[int, Seen] = {}
        self.drafted: dict[tuple[str, int], _Open] = {}  # sessions, by drafter and tag
        self.requests: dict[int, _Open] = {}  # under way at targets, by tag
        self.queued: set[int] = set()  # tags of requests whose prefill has not begun
        self.busy_s: dict[str, float] = defaultdict(float)
        self.steps: dict[str, dict[str, tuple[int, float]]] = defaultdict(dict)
        self.started: dict[str, tuple[int, float]] = {}  # running step of a station, and since when
        self.waits, self.first, self.latency = Spread(), Spread(), Spread()
        self.handlers: dict[str, dict[str, Callable[[Values], None]]] = {ROUTER: {}}  # by station and event
        self._at_drafter: dict[str, Callable[[Values], None]] = {
            "draft-request": self._asked, "start": self._begun, "done": self._drafted, "leave": self._left,
        }  # fmt: skip
        self._at_target: dict[str, Callable[[Values], None]] = {
            "join": self._joined, "start": self._starts, "done": self._verified, "draft": self._received,
            "refusal": self._received,
        }  # fmt: skip

    def take(self, log: Log, most: int = 1 << 60) -> bool:
        """Read at most so many rows; return whether there are more."""
        rows = len(log) // WIDTH
        for _ in range(min(most, rows - self.place)):
            begin = self.place * WIDTH
            self._row(log[begin : begin + WIDTH])
            self.place += 1
        return self.place < rows

    def counts(self, time_s: float, stations: Iterable[Station] = (), recent: bool = False) -> Counts:
        """Return what was read.

        `stations`: whose sessions and buffers are looked at, from whatever thread. `recent`: with the last waits.
        """
        now: dict[bool, dict[int, list[int]]] = {True: {}, False: {}}  # at drafters, and at targets: by target
        told = []
        for station in stations:
            sessions, waiting = list(station.sessions), [work.tag for work in list(station.waiting)]
            if station.name != ROUTER:
                self._add(now[station.name.startswith(DRAFTER)], sessions, waiting)
            _, since_s = self.started.get(station.name, (0, time_s))
            busy_s = self.busy_s[station.name] + max(time_s - since_s, 0.0)
            told.append(OfStation(station.name, busy_s, dict(self.steps[station.name]), len(sessions), len(waiting)))
        self._add(now[False], [], [], self.queued)
        drafting, verifying = (
            tuple(
                seen.get(target, Seen(target)).counts(of_now.get(target, (0, 0, 0)), recent)
                for target in sorted(seen.keys() | of_now.keys())
            )
            for seen, of_now in ((self.drafting, now[True]), (self.verifying, now[False]))
        )
        times = self.waits.times(), self.first.times(), self.latency.times()
        return Counts(time_s, tuple(told), drafting, verifying, *times)

    def _add(self, now: dict[int, list[int]], *parts: Iterable[int]) -> None:
        """Count tags by their target: in each part, in this order."""
        for place, tags in enumerate(parts):
            for tag in tags:
                now.setdefault(self.target_of(tag), [0, 0, 0])[place] += 1

    def _row(self, row: Values) -> None:
        station, event = row[_STATION], row[_EVENT]
        if event == "start":
            if self.started.get(station, (-1,))[0] != row[_STEP]:
                self.started[station] = row[_STEP], row[_TIME]
        elif event == "done":
            step, since_s = self.started.get(station, (-1, 0.0))
            if step == row[_STEP]:
                del self.started[station]
                self.busy_s[station] += row[_TIME] - since_s
                steps = self.steps[station]
                number, seconds = steps.get(row[_KIND], (0, 0.0))
                steps[row[_KIND]] = number + 1, seconds + row[_DURATION]
        elif event == "killed":
            self._killed(station)
        handlers = self.handlers.get(station)
        if handlers is None:
            at_drafter = station.startswith(DRAFTER)
            handlers = self.handlers[station] = self._at_drafter if at_drafter else self._at_target
        handler = handlers.get(event)
        if handler is not None:
            handler(row)

    def _of(self, side: dict[int, Seen], tag: int) -> Seen:
        target = self.target_of(tag)
        seen = side.get(target)
        if seen is None:
            seen = side[target] = Seen(target)
        return seen

    def _asked(self, row: Values) -> None:
        """A target asks for a draft, and so says what it has committed since it asked before."""
        key, seen = (row[_STATION], row[_TAG]), self._of(self.drafting, row[_TAG])
        seen.received_bytes += row[_BYTES]
        request, epoch, base = row[_REQUEST], row[_EPOCH], row[_BASE]
        session = self.drafted.get(key)
        if row[_FLAG] or session is None or session.request != request:
            if row[_FLAG]:
                seen.opened += session is None or session.request != request
                self.drafted[key] = _Open(request, epoch, base, asked_s=row[_TIME])
            return
        if epoch <= session.epoch or base <= session.base:  # stale
            return
        if self.in_turn:
            seen.verified(session.tail, base - session.base - 1)
        else:
            seen.rounds += 1
        seen.committed += base - session.base
        session.epoch, session.base, session.tail, session.asked_s = epoch, base, 0, row[_TIME]

    def _begun(self, row: Values) -> None:
        session = self.drafted.get((row[_STATION], row[_TAG]))
        if session is not None and session.asked_s == session.asked_s:  # it waits
            wait_s, session.asked_s = row[_TIME] - session.asked_s, float("nan")
            self.waits.add(wait_s)
            self._of(self.drafting, row[_TAG]).recent_s.append(wait_s)

    def _drafted(self, row: Values) -> None:
        session = self.drafted.get((row[_STATION], row[_TAG]))
        if row[_KIND] == "draft" and session is not None and session.epoch == row[_EPOCH]:
            session.tail += row[_TOKENS]

    def _left(self, row: Values) -> None:
        key = row[_STATION], row[_TAG]
        seen = self._of(self.drafting, row[_TAG])
        seen.received_bytes += row[_BYTES]
        session = self.drafted.get(key)
        if session is not None and session.request == row[_REQUEST] and not 0 < row[_EPOCH] < session.epoch:
            del self.drafted[key]
            seen.finished += not row[_EPOCH]

    def _joined(self, row: Values) -> None:
        seen = self._of(self.verifying, row[_TAG])
        seen.opened += 1
        seen.prompt_tokens += row[_TOKENS]
        self.queued.add(row[_TAG])
        self.requests[row[_TAG]] = _Open(row[_REQUEST], 0, 0, row[_GOAL], asked_s=row[_TIME])

    def _starts(self, row: Values) -> None:
        if row[_KIND] == "prefill":
            self.queued.discard(row[_TAG])

    def _received(self, row: Values) -> None:
        self._of(self.verifying, row[_TAG]).received_bytes += row[_BYTES]

    def _verified(self, row: Values) -> None:
        """A target's step is done: it commits what `commits_of` of tables.py says."""
        kind, tag = row[_KIND], row[_TAG]
        if kind not in COMMITTING:
            return
        seen, request = self._of(self.verifying, tag), self.requests.get(tag)
        if kind == "verify":
            seen.verified(row[_TOKENS], row[_ACCEPTED])
        if request is None or request.request != row[_REQUEST]:
            return
        before = row[_TOKENS] if kind == "prefill" else row[_BASE]
        committed = min(row[_ACCEPTED] + 1, request.goal - before)
        seen.committed += committed
        if kind == "prefill":
            self.first.add(row[_TIME] - request.asked_s)
        if before + committed >= request.goal:
            seen.finished += 1
            self.latency.add(row[_TIME] - request.asked_s)
            del self.requests[tag]

    def _killed(self, station: str) -> None:
        """Forget what a station was doing; what it had committed of open requests stays counted."""
        self.started.pop(station, None)
        self.drafted = {key: session for key, session in self.drafted.items() if key[0] != station}
        self.requests = {
            tag: request for tag, request in self.requests.items() if verifier_name(self.target_of(tag)) != station
        }
        self.queued &= self.requests.keys()
