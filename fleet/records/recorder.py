"""One event table for both worlds: a row for each event that a station received and each step it started.

Rows contain all that a fresh station needs to reach the same plans (`replay.py`) and all that metrics need
(`metrics/`). A run is one Parquet file: the rows, with the run header in the schema's metadata.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from fleet.records.samples import PowerSample
from fleet.records.schema import Row
from fleet.stations.messages import (
    Draft,
    DraftRequest,
    Instruction,
    Join,
    Leave,
    Overdue,
    Refusal,
    Restarted,
    Retry,
    StationEvent,
    StepDone,
    View,
)
from fleet.stations.station import Plan, Start, Station
from fleet.times.step import Step

Origin = Literal["simulated", "real", "replayed"]


Log = list[Any]  # row values, one row after the other, len(SCHEMA) each


class ReportedRows(NamedTuple):
    """New records of a process since its last report.

    - `time_s`: seconds since the run began.
    - `rows`: the new rows of one of its logs.
    - `devices`: the newest samples of its measured devices.
    """

    time_s: float
    rows: Log
    devices: tuple[PowerSample, ...] = ()


class RecordedStation:
    """Wraps a station and writes its events and plans into a log as they happen, in either world.

    Stations of one host may share a `log`; it is then in order of time.
    """

    def __init__(self, station: Station, origin: Origin, log: Log | None = None) -> None:
        self.station = station
        self.origin = origin
        self.log: Log = [] if log is None else log
        self.written = 0

    def handle(self, event: StationEvent, now_s: float, payload_bytes: int = 0) -> list[Instruction]:
        """Record the event, then pass it to the station."""
        if type(event) is StepDone:
            step = self.station.running
            if step is not None:
                self._done(event, step, now_s)
        else:
            self.log += _ROW_OF[type(event)](now_s, self.station.name, self.written, self.origin, event, payload_bytes)
            self.written += 1
        return self.station.handle(event, now_s)

    def killed(self, fresh: Station, now_s: float) -> None:
        """Record that the station's state is lost, and continue with a fresh one."""
        self.log += Row(now_s, self.station.name, self.written, "killed", self.origin)
        self.written += 1
        self.station = fresh

    def plan(self, now_s: float) -> Plan:
        """Return the station's plan, and record the step it starts."""
        plan = self.station.plan(now_s)
        if type(plan) is Start:
            step = plan.step
            for member in step.members:
                self.log += (
                    now_s, self.station.name, self.written, "start", self.origin, step.number, step.kind,
                    member.tag, member.request, member.epoch, member.base, member.tokens, 0,
                    0, False, 0, 0.0, step.idle_gap_s, 0, "", False, 0.0, 0.0, 0.0,
                )  # fmt: skip
                self.written += 1
        return plan

    def _done(self, event: StepDone, step: Step, now_s: float) -> None:
        for member, outcome in zip(step.members, event.outcomes, strict=True):
            tokens = member.tokens if outcome.drafted < 0 else outcome.drafted
            self.log += (
                now_s, self.station.name, self.written, "done", self.origin, event.step, step.kind,
                member.tag, member.request, member.epoch, member.base, tokens, 0,
                outcome.accepted, False, 0, event.duration_s, 0.0, 0, "",
                outcome.matches, outcome.ratio, outcome.kld, outcome.kld_peak,
            )  # fmt: skip
            self.written += 1


# Values in the order of SCHEMA. Frequent rows are plain tuples: a simulation writes millions, and a Row is slower.


def _join(now_s: float, station: str, seq: int, origin: str, event: Join, payload_bytes: int) -> tuple[Any, ...]:
    goal = event.prompt_tokens + event.new_tokens
    return Row(
        now_s, station, seq, "join", origin, tag=event.tag, request=event.request, tokens=event.prompt_tokens,
        goal=goal, priority=event.priority, payload_bytes=payload_bytes,
    )  # fmt: skip


def _request(
    now_s: float, station: str, seq: int, origin: str, event: DraftRequest, payload_bytes: int
) -> tuple[Any, ...]:
    return (
        now_s, station, seq, "draft-request", origin, 0, "", event.tag, event.request, event.epoch, event.base,
        event.tokens, 0, 0, event.opening, event.priority, 0.0, 0.0, payload_bytes, "", False, 0.0, 0.0, 0.0,
    )  # fmt: skip


def _draft(now_s: float, station: str, seq: int, origin: str, event: Draft, payload_bytes: int) -> tuple[Any, ...]:
    return (
        now_s, station, seq, "draft", origin, 0, "", event.tag, event.request, event.epoch, event.base, event.tokens,
        0, 0, False, 0, 0.0, 0.0, payload_bytes, "", False, 0.0, 0.0, 0.0,
    )  # fmt: skip


def _refusal(now_s: float, station: str, seq: int, origin: str, event: Refusal, payload_bytes: int) -> tuple[Any, ...]:
    return Row(
        now_s, station, seq, "refusal", origin, tag=event.tag, request=event.request,
        epoch=event.epoch, payload_bytes=payload_bytes, note=event.reason,
    )  # fmt: skip


def _leave(now_s: float, station: str, seq: int, origin: str, event: Leave, payload_bytes: int) -> tuple[Any, ...]:
    return Row(
        now_s, station, seq, "leave", origin, tag=event.tag, request=event.request, epoch=event.epoch,
        payload_bytes=payload_bytes,
    )  # fmt: skip


def _overdue(now_s: float, station: str, seq: int, origin: str, event: Overdue, _payload_bytes: int) -> tuple[Any, ...]:
    return Row(now_s, station, seq, "overdue", origin, tag=event.tag, request=event.request, epoch=event.epoch)


def _retry(now_s: float, station: str, seq: int, origin: str, event: Retry, _payload_bytes: int) -> tuple[Any, ...]:
    return Row(now_s, station, seq, "retry", origin, tag=event.tag, request=event.request)


def _restarted(
    now_s: float, station: str, seq: int, origin: str, event: Restarted, _payload_bytes: int
) -> tuple[Any, ...]:
    return Row(now_s, station, seq, "restart", origin, request=event.incarnation)


def _view(now_s: float, station: str, seq: int, origin: str, event: View, payload_bytes: int) -> tuple[Any, ...]:
    return Row(
        now_s, station, seq, "view", origin, tag=event.tag, request=event.request, tokens=event.waiting,
        duration_s=event.work_s, payload_bytes=payload_bytes,
    )  # fmt: skip


_ROW_OF: dict[type, Callable[[float, str, int, str, Any, int], tuple[Any, ...]]] = {
    Join: _join,
    DraftRequest: _request,
    Draft: _draft,
    Refusal: _refusal,
    Leave: _leave,
    Overdue: _overdue,
    Retry: _retry,
    Restarted: _restarted,
    View: _view,
}

EVENT_OF: dict[str, Callable[[Row], StationEvent]] = {
    "join": lambda row: Join(row.tag, row.request, row.tokens, row.goal - row.tokens, row.priority),
    "draft-request": lambda row: DraftRequest(
        row.tag, row.request, row.epoch, row.base, row.flag, row.priority, row.tokens
    ),
    "draft": lambda row: Draft(row.tag, row.request, row.epoch, row.base, row.tokens),
    "refusal": lambda row: Refusal(row.tag, row.request, row.note, row.epoch),
    "leave": lambda row: Leave(row.tag, row.request, row.epoch),
    "overdue": lambda row: Overdue(row.tag, row.request, row.epoch),
    "retry": lambda row: Retry(row.tag, row.request),
    "restart": lambda row: Restarted(row.request),
    "view": lambda row: View(row.tag, row.request, row.tokens, row.duration_s),
}
