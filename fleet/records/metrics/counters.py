"""Counters of a fleet since its start, from log rows as they are written, and its last minute."""

import math
import threading
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field

from specfleet.fleet.records.metrics.tables import COMMITTING, DRAFTING
from specfleet.fleet.records.recorder import ReportedRows
from specfleet.fleet.records.schema import WIDTH, PowerSample, Row
from specfleet.fleet.scenario.names import DRAFTER, ROUTER
from specfleet.fleet.scenario.resolved import Fleet

EDGES_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
SPAN_S = 60.0  # the last minute
MAX_EVENTS = 5000  # events kept of each kind

Events = deque[tuple[float, ...]]


@dataclass(slots=True)
class Histogram:
    """Histogram of times: `counts[i]` times were at most EDGES_S[i] and above the edge before; the last entry counts
    longer ones.
    """

    numbers: list[int] = field(default_factory=lambda: [0] * (len(EDGES_S) + 1))
    sum_s: float = 0.0

    def add(self, time_s: float, times: int = 1) -> None:
        """Count a time; -1 times to take it back."""
        self.numbers[bisect_left(EDGES_S, time_s)] += times
        self.sum_s += times * time_s


@dataclass(slots=True)
class TargetCounters:
    """Counters of one target.

    - `accepted[j]`: drafts with j accepted tokens. `drafted`: draft tokens in all.
    - `requests`: their numbers; one that moves, or begins again, counts once.
    """

    rounds: int = 0
    drafted: int = 0
    accepted: Counter[int] = field(default_factory=Counter)
    committed: int = 0
    requests: set[int] = field(default_factory=set)
    finished: int = 0
    prompt_tokens: int = 0
    received_bytes: int = 0

    @property
    def opened(self) -> int:
        """Requests that have come."""
        return len(self.requests)

    @property
    def drafts(self) -> int:
        """Verified drafts with at least one token."""
        return self.accepted.total()

    @property
    def accepted_tokens(self) -> int:
        """Accepted draft tokens."""
        return sum(length * number for length, number in self.accepted.items())

    def verified(self, drafted: int, accepted: int) -> None:
        """Count a round."""
        self.rounds += 1
        self.drafted += drafted
        if drafted:
            self.accepted[accepted] += 1


@dataclass(slots=True)
class StationCounters:
    """Counters of one station.

    - `busy_s`: time of its finished steps by its own clock; `steps`: their number and device seconds, by kind.
    - `step`, `since_s`: the running step and its start; -1 if none runs.
    - `texts`: its open requests by tag.
    - `held`: tokens of its last step that may leave later: their histogram, their time in it, and the step's end.
    """

    busy_s: float = 0.0
    steps: dict[str, tuple[int, float]] = field(default_factory=dict)
    step: int = -1
    since_s: float = 0.0
    texts: dict[int, "OpenText"] = field(default_factory=dict)
    held: list[tuple[Histogram, float, float]] = field(default_factory=list)

    def busy_until_s(self, time_s: float) -> float:
        """Return its busy time, the running step included."""
        return self.busy_s + (max(time_s - self.since_s, 0.0) if self.step >= 0 else 0.0)


@dataclass(slots=True)
class OpenText:
    """An open request of a station.

    - `waits_since_s`: start of its wait there; NaN if it does not wait.
    - `queued`: whether its prefill has not begun.
    - `tail`: tokens drafted for it since its last draft request.
    """

    request: int
    opened_s: float
    waits_since_s: float
    epoch: int = 0
    base: int = 0
    goal: int = 0
    tail: int = 0
    queued: bool = False

    @property
    def waits(self) -> bool:
        """Whether it waits at its station."""
        return not math.isnan(self.waits_since_s)


class Counters:
    """Counters of a fleet, from reports of its processes; readers in other threads hold `lock`.

    - `drafting`, `verifying`: counters by target, from drafters' logs and from targets' logs. A drafter learns a
      target's committed tokens from its next request. Its counts therefore lack the first and last tokens of a text
      and, if it drafts ahead, the accepted tokens.
    - `stations`: counters by station.
    - `waits`: wait of draft requests. `first`, `latency`: from a request's arrival to its first and last token.
    - `devices`: the newest sample of each measured device, by name.
    - `recent_rounds`: the last steps of targets: time_s, and the tokens that were committed, drafted and accepted.
    - `recent_learned`: the same, as drafters learn it from the targets' next requests.
    - `recent_steps`: the last steps of drafters: their ends and starts.
    """

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.lock = threading.Lock()
        self.time_s = 0.0
        self.drafting: defaultdict[int, TargetCounters] = defaultdict(TargetCounters)
        self.verifying: defaultdict[int, TargetCounters] = defaultdict(TargetCounters)
        self.stations: defaultdict[str, StationCounters] = defaultdict(StationCounters)
        self.refused: dict[int, int] = {}  # the last refused request, by tag
        self.waits, self.first, self.latency = Histogram(), Histogram(), Histogram()
        self.devices: dict[str, PowerSample] = {}
        self.recent_rounds, self.recent_learned, self.recent_steps = (Events(maxlen=MAX_EVENTS) for _ in range(3))

    @property
    def known(self) -> dict[int, TargetCounters]:
        """Counters by target: from the targets' logs if there are any, else from the drafters'."""
        return self.verifying or self.drafting

    @property
    def committed(self) -> int:
        """Tokens of all targets."""
        return sum(one.committed for one in self.known.values())

    @property
    def rounds(self) -> int:
        """Rounds of all targets."""
        return sum(one.rounds for one in self.known.values())

    @property
    def drafters(self) -> dict[str, StationCounters]:
        """Stations that draft for others."""
        return {name: station for name, station in self.stations.items() if name.startswith(DRAFTER)}

    def texts(self) -> dict[int, list[OpenText]]:
        """Return the open requests of each target, at the stations of `known`."""
        found: defaultdict[int, list[OpenText]] = defaultdict(list)
        for name, station in self.stations.items():
            if name != ROUTER and (name.startswith(DRAFTER) != bool(self.verifying)):
                for tag, text in station.texts.items():
                    found[self.fleet.target_of(tag)].append(text)
        return found

    def take(self, report: ReportedRows) -> None:
        """Count a report of new rows."""
        with self.lock:
            for begin in range(0, len(report.rows), WIDTH):
                self._row(Row._make(report.rows[begin : begin + WIDTH]))
            self.time_s = max(self.time_s, report.time_s)
            self.devices |= {sample.device: sample for sample in report.devices}

    def recent_metrics(self) -> dict[str, float]:
        """Return throughput, acceptance_rate and load of the last minute; NaN if unknown."""
        rounds, drafters = self.recent_rounds or self.recent_learned, self.drafters.values()
        reach_s = [events[0][0] for events in (rounds, self.recent_steps) if len(events) == MAX_EVENTS]
        begin_s = max(self.time_s - SPAN_S, 0.0, *reach_s)  # a full ring does not reach back further
        span_s = max(self.time_s - begin_s, 1e-9)
        inside = [counts for time_s, *counts in rounds if begin_s < time_s <= self.time_s]
        committed, drafted, accepted = map(sum, zip((0.0, 0.0, 0.0), *inside, strict=True))
        running = ((self.time_s, station.since_s) for station in drafters if station.step >= 0)
        busy_s = sum(
            max(min(ended_s, self.time_s) - max(begun_s, begin_s), 0.0)
            for ended_s, begun_s in (*self.recent_steps, *running)
        )
        return {
            "throughput": committed / span_s,
            "acceptance_rate": accepted / drafted if drafted else math.nan,
            "load": busy_s / span_s / len(drafters) if drafters else math.nan,
        }

    def _row(self, row: Row) -> None:
        station = self.stations[row.station]
        if row.event == "start":
            if station.step != row.step:
                station.step, station.since_s = row.step, row.time_s
        elif row.event == "done" and station.step == row.step:
            self._step(row, station)
        elif row.event in ("killed", "restart"):  # its state is lost
            station.step = -1
            station.texts.clear()
            station.held.clear()
            return
        text = station.texts.get(row.tag)
        if row.station.startswith(DRAFTER):
            self._at_drafter(row, station, text)
        elif row.station == ROUTER:
            _at_router(row, station, text)
        else:
            self._at_target(row, station, text)

    def _step(self, row: Row, station: StationCounters) -> None:
        """Count the end of a station's running step."""
        number, seconds = station.steps.get(row.kind, (0, 0.0))
        station.steps[row.kind] = number + 1, seconds + row.duration_s
        station.busy_s += row.time_s - station.since_s
        station.step = -1
        if row.station.startswith(DRAFTER):
            self.recent_steps.append((row.time_s, station.since_s))

    def _at_drafter(self, row: Row, station: StationCounters, text: OpenText | None) -> None:
        target = self.fleet.target_of(row.tag)
        if row.event == "draft-request":
            self._asked(row, station, text, target)
        elif row.event == "start" and text is not None and text.waits:
            self.waits.add(row.time_s - text.waits_since_s)
            text.waits_since_s = math.nan
        elif row.event == "done" and row.kind == "draft" and text is not None and text.epoch == row.epoch:
            text.tail += row.tokens
        elif row.event == "leave":
            self.drafting[target].received_bytes += row.payload_bytes
            if text is not None and text.request == row.request and not 0 < row.epoch < text.epoch:
                del station.texts[row.tag]
                self.drafting[target].finished += not row.epoch

    def _asked(self, row: Row, station: StationCounters, text: OpenText | None, target: int) -> None:
        """Count a draft request, which reports its target's commits since the last one."""
        counters = self.drafting[target]
        counters.received_bytes += row.payload_bytes
        waits_s = row.time_s if row.tokens else math.nan  # an empty grant is answered at once
        if row.flag or text is None or text.request != row.request:
            if row.flag:
                counters.requests.add(row.request)
                if self.refused.get(row.tag) != row.request:
                    station.texts[row.tag] = OpenText(row.request, row.time_s, waits_s, row.epoch, row.base)
            return
        committed = row.base - text.base
        if row.epoch <= text.epoch or committed <= 0:  # stale
            return
        drafted, accepted = (text.tail, committed - 1) if self.fleet.in_turn else (0, 0)
        counters.verified(drafted, accepted)
        counters.committed += committed
        self.recent_learned.append((row.time_s, committed, drafted, accepted))
        text.epoch, text.base, text.tail, text.waits_since_s = row.epoch, row.base, 0, waits_s

    def _at_target(self, row: Row, station: StationCounters, text: OpenText | None) -> None:
        counters = self.verifying[self.fleet.target_of(row.tag)]
        if station.held:
            self._released(row, station)
        if row.event == "join":
            counters.prompt_tokens += row.tokens * (row.request not in counters.requests)
            counters.requests.add(row.request)
            station.texts[row.tag] = OpenText(row.request, row.time_s, row.time_s, goal=row.goal, queued=True)
        elif row.event in ("draft", "refusal"):
            counters.received_bytes += row.payload_bytes
            if text is not None:
                text.waits_since_s = row.time_s
            if row.event == "refusal":
                self._refused(row, station)
        elif row.event == "start" and text is not None:
            text.waits_since_s = math.nan
            text.queued &= row.kind not in ("prefill", "chunk")
        elif row.event == "done" and row.kind in COMMITTING:
            self._committed(row, station, text, counters)

    def _refused(self, row: Row, target: StationCounters) -> None:
        """Drop the session of a refused request at its drafter and router; their reports may come later."""
        self.refused[row.tag] = row.request
        for station in self.stations.values():
            if station is not target and row.tag in station.texts and station.texts[row.tag].request == row.request:
                del station.texts[row.tag]

    def _committed(self, row: Row, station: StationCounters, text: OpenText | None, counters: TargetCounters) -> None:
        """Count the tokens of a target's step, as `commits_of` of tables.py does."""
        drafted, accepted = (row.tokens, row.accepted) if row.kind == "verify" else (0, 0)
        if row.kind == "verify":
            counters.verified(drafted, accepted)
        if text is None or text.request != row.request:
            return
        before = row.base + row.tokens * (row.kind == "prefill")
        committed = min(row.accepted + 1, text.goal - before)
        counters.committed += committed
        self.recent_rounds.append((row.time_s, committed, drafted, accepted))
        if row.kind == "prefill" and not text.base:
            self._left(station, self.first, row, text)
        text.base = before + committed
        if before + committed >= text.goal:
            counters.finished += 1
            self._left(station, self.latency, row, text)
            del station.texts[row.tag]

    def _left(self, station: StationCounters, histogram: Histogram, row: Row, text: OpenText) -> None:
        """Count a token that leaves, from its request's arrival; with a drafter on the device it may leave later."""
        histogram.add(row.time_s - text.opened_s)
        if self.fleet.verifiers.drafts is not None and self.fleet.verifiers.aligned is None:
            station.held.append((histogram, row.time_s - text.opened_s, row.time_s))

    @staticmethod
    def _released(row: Row, station: StationCounters) -> None:
        """Move the tokens that a step held back to the end of the draft that followed it."""
        drafted = row.kind in DRAFTING
        if row.event == "done" and drafted:
            for histogram, time_s, since_s in station.held:
                histogram.add(time_s, -1)
                histogram.add(time_s + row.time_s - since_s)
        if (row.event == "done" and drafted) or (row.event == "start" and not drafted):
            station.held.clear()


def _at_router(row: Row, station: StationCounters, text: OpenText | None) -> None:
    if row.event == "draft-request":
        station.texts[row.tag] = OpenText(row.request, row.time_s, row.time_s)
    elif row.event == "start" and text is not None:
        text.waits_since_s = math.nan
    elif row.event == "leave":
        station.texts.pop(row.tag, None)
