"""What a watched fleet has done so far, from log rows as they are written; for the line of a run."""

import math
from collections import deque

from specfleet.fleet.records.metrics.tables import COMMITTING
from specfleet.fleet.records.recorder import ReportedRows
from specfleet.fleet.records.schema import WIDTH, Row
from specfleet.fleet.scenario.names import DRAFTER, ROUTER

SPAN_S = 60.0  # rates are those of the last minute

Place = tuple[str, int]  # a station and a tag


class Progress:
    """Counts of reported rows, of all stations together.

    - `time_s`: time of the newest report. `rounds`, `tokens`: verified, and committed, by targets.
    - `drafts`: finished by drafters.
    - `goals`: lengths of the texts of open requests at targets.
    - `sessions`: at drafters. `waiting`: those of them that wait for a step.
    - `commits`: of targets in the last minute: time_s, and the tokens that were committed, drafted and accepted.
    - `steps`: of drafters in the last minute: their ends and starts. `running`: starts of running ones, by station.
    """

    def __init__(self) -> None:
        self.time_s = 0.0
        self.rounds = self.tokens = self.drafts = 0
        self.goals: dict[Place, int] = {}
        self.sessions: set[Place] = set()
        self.waiting: set[Place] = set()
        self.commits: deque[tuple[float, int, int, int]] = deque()
        self.steps: deque[tuple[float, float]] = deque()
        self.running: dict[str, float] = {}
        self.drafters: set[str] = set()

    def take(self, report: ReportedRows) -> None:
        """Count the rows of a report."""
        for begin in range(0, len(report.rows), WIDTH):
            row = Row._make(report.rows[begin : begin + WIDTH])
            if row.event in ("killed", "restart"):  # the state of its station is lost
                self._forget(row.station)
            elif row.station.startswith(DRAFTER):
                self._at_drafter(row)
            elif row.station != ROUTER:
                self._at_target(row)
        self.time_s = max(self.time_s, report.time_s)
        while self.commits and self.commits[0][0] < self.time_s - SPAN_S:
            self.commits.popleft()
        while self.steps and self.steps[0][0] < self.time_s - SPAN_S:
            self.steps.popleft()

    def recent(self) -> tuple[float, float, float]:
        """Return tokens a second, the share of accepted tokens, and the drafters' load; NaN if unknown."""
        begin_s = max(self.time_s - SPAN_S, 0.0)
        span_s = max(self.time_s - begin_s, 1e-9)
        committed, drafted, accepted = (sum(commit[place] for commit in self.commits) for place in (1, 2, 3))
        steps = [*self.steps, *((self.time_s, since_s) for since_s in self.running.values())]
        busy_s = sum(max(ended_s - max(began_s, begin_s), 0.0) for ended_s, began_s in steps)
        return (
            committed / span_s,
            accepted / drafted if drafted else math.nan,
            busy_s / span_s / len(self.drafters) if self.drafters else math.nan,
        )

    def _forget(self, station: str) -> None:
        self.running.pop(station, None)
        self.goals = {place: goal for place, goal in self.goals.items() if place[0] != station}
        self.sessions = {place for place in self.sessions if place[0] != station}
        self.waiting &= self.sessions

    def _at_drafter(self, row: Row) -> None:
        place = row.station, row.tag
        self.drafters.add(row.station)
        if row.event == "draft-request":
            self.sessions.add(place)
            if row.tokens:  # an empty grant is answered at once
                self.waiting.add(place)
        elif row.event == "leave":
            self.sessions.discard(place)
            self.waiting.discard(place)
        elif row.event == "start":
            self.running.setdefault(row.station, row.time_s)
            self.waiting.discard(place)
        elif row.event == "done":
            self.drafts += row.kind == "draft"
            if row.station in self.running:  # a step has a row for each session
                self.steps.append((row.time_s, self.running.pop(row.station)))

    def _at_target(self, row: Row) -> None:
        place = row.station, row.tag
        if row.event == "join":
            self.goals[place] = row.goal
        elif row.event == "refusal":
            gone = {session for session in self.sessions if session[1] == row.tag}
            self.sessions -= gone
            self.waiting -= gone
        elif row.event == "done" and row.kind in COMMITTING:
            committed = min(row.accepted + 1, self.goals.get(place, row.base + 1) - row.base)
            verified = row.kind == "verify"
            self.rounds += verified
            self.tokens += committed
            self.commits.append((row.time_s, committed, row.tokens * verified, row.accepted * verified))
            if row.base + row.tokens * (row.kind == "prefill") + committed >= self.goals.get(place, math.inf):
                del self.goals[place]
