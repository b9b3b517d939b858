"""One event table for both worlds: a row for each event that a station received and each step it started.

Rows contain all that a fresh station needs to reach the same plans (`replay.py`) and all that metrics need
(`metrics/`). A run is one Parquet file: the rows, with the run header in the schema's metadata.
"""

from typing import Any, Literal, NamedTuple, get_args

from specfleet.fleet.records.schema import Row
from specfleet.fleet.stations.messages import Instruction, Join, StationEvent, StepDone
from specfleet.fleet.stations.station import Plan, Start, Station
from specfleet.fleet.times.step import Step

Origin = Literal["simulated", "real", "replayed"]


Log = list[Any]  # row values, one row after the other, len(SCHEMA) each


class ReportedRows(NamedTuple):
    """New records of a process since its last report.

    - `time_s`: seconds since the run began.
    - `rows`: the new rows of one of its logs.
    """

    time_s: float
    rows: Log


class RecordedStation:
    """Wraps a station and writes its events and plans into a log as they happen, in either world.

    Stations of one host may share a `log`; it is then in order of time. `written`: the station's earlier rows.
    """

    def __init__(self, station: Station, origin: Origin, log: Log | None = None, written: int = 0) -> None:
        self.station = station
        self.origin = origin
        self.log: Log = [] if log is None else log
        self.written = written

    def handle(self, event: StationEvent, now_s: float, payload_bytes: int = 0) -> list[Instruction]:
        """Record the event, then pass it to the station."""
        if type(event) is StepDone:
            step = self.station.running
            if step is not None:
                self._done(event, step, now_s)
        else:
            self._received(event, now_s, payload_bytes)
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
            step, rows = plan.step, list[Any]()
            for member in step.members:
                rows += (
                    now_s, self.station.name, self.written, "start", self.origin, step.number, step.kind_of(member),
                    member.tag, member.request, member.epoch, member.base, member.tokens, 0,
                    0, False, 0, 0.0, step.idle_gap_s, 0, "", False, 0.0, (), (), (),
                )  # fmt: skip
                self.written += 1
            self.log += rows  # at once: a process may be killed between two entries of its log
        return plan

    def _received(self, event: StationEvent, now_s: float, payload_bytes: int) -> None:
        name, places = _EVENTS[type(event)]
        row = [now_s, self.station.name, self.written, name, self.origin, *_DEFAULTS]
        for place, field in places:
            row[place] = getattr(event, field)
        if type(event) is Join:
            row[_GOAL] += event.prompt_tokens
        row[_PAYLOAD] = payload_bytes
        self.log += row
        self.written += 1

    def _done(self, event: StepDone, step: Step, now_s: float) -> None:
        rows = list[Any]()
        for member, outcome in zip(step.members, event.outcomes, strict=True):
            tokens = member.tokens if outcome.drafted < 0 else outcome.drafted
            rows += (
                now_s, self.station.name, self.written, "done", self.origin, event.step, step.kind_of(member),
                member.tag, member.request, member.epoch, member.base, tokens, 0,
                outcome.accepted, outcome.found, 0, event.duration_s, 0.0, 0, "",
                outcome.matches, outcome.ratio, outcome.klds, (), outcome.entropies,
            )  # fmt: skip
            self.written += 1
        self.log += rows


def event_of(row: Row) -> StationEvent:
    """Return the message of a row."""
    message, places = _MESSAGES[row.event]
    values: dict[str, Any] = {field: row[place] for place, field in places}
    if message is Join:
        values["new_tokens"] -= row.tokens
        values["identity"] = tuple(row.identity)
    event: StationEvent = message(**values)
    return event


_COLUMNS = {  # of fields that have another name in the table
    "prompt_tokens": "tokens", "new_tokens": "goal", "opening": "flag", "reason": "note", "incarnation": "request",
    "waiting": "tokens", "computed": "base", "drafted": "accepted", "queued": "goal",
}  # fmt: skip
_GOAL, _PAYLOAD = Row._fields.index("goal"), Row._fields.index("payload_bytes")
_DEFAULTS = tuple(Row._field_defaults.values())
_MESSAGES: dict[str, tuple[type[Any], tuple[tuple[int, str], ...]]] = {  # by event: fields by their place in a row
    str(message.__struct_config__.tag): (
        message,
        tuple((Row._fields.index(_COLUMNS.get(field, field)), field) for field in message.__struct_fields__),
    )
    for message in get_args(StationEvent)
    if message is not StepDone
}
_EVENTS = {message: (event, places) for event, (message, places) in _MESSAGES.items()}
