"""One event table for both worlds: a row for everything that a station was told and everything it started.

Rows hold all that a fresh station needs to come to the same plans again (`replay.py`) and all that the metrics need
(`metrics.py`). A run is one Parquet file: the rows, with the run header in the schema's metadata.
"""

import hashlib
import platform
import sys
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from specfleet.errors import InputError
from specfleet.messages import Draft, DraftRequest, Instruction, Join, Leave, Refusal, StationEvent, StepDone, View
from specfleet.scenario import Scenario
from specfleet.station import Plan, Start, Station, Step

Origin = Literal["simulated", "real", "replayed"]
World = Literal["sim", "engine"]

SCHEMA = pa.schema(
    [
        ("time_s", pa.float64()),  # since the run began, on the clock of the station's host
        ("station", pa.string()),
        ("seq", pa.int64()),  # order within the station
        ("event", pa.string()),  # a message's or event's name; "start" for a step that a plan began
        ("origin", pa.string()),  # simulated, real, or replayed (a target that stands for absent hardware)
        ("step", pa.int64()),  # number of the step, for start and done; 0 elsewhere
        ("kind", pa.string()),  # what the step does: prefill, draft, verify, decode, warm_up
        ("tag", pa.int64()),
        ("request", pa.int64()),
        ("epoch", pa.int64()),
        ("base", pa.int64()),  # committed length that the row refers to
        (
            "tokens",
            pa.int64(),
        ),  # prompt (join), granted (draft-request), drafted (draft, done), planned (start)
        ("goal", pa.int64()),  # final length (join); 0 elsewhere
        ("accepted", pa.int64()),  # accepted draft tokens (done of verify); 0 elsewhere
        ("flag", pa.bool_()),  # opening (draft-request), stopped (done)
        ("priority", pa.int64()),
        ("duration_s", pa.float64()),  # service time on the device's clock (done), expected work (view); 0 elsewhere
        ("idle_gap_s", pa.float64()),  # idleness before the step's group (start); 0 elsewhere
        ("payload_bytes", pa.int64()),  # size on the wire of a message that arrived
        ("note", pa.string()),  # the reason of a refusal
        ("matches", pa.bool_()),  # the target's own token is the tail's next one (done of verify)
        ("ratio", pa.float64()),  # mean of min(1, p/q) over the draft (done of verify); 0 where unknown
        ("kld", pa.float64()),  # mean of KL(p||q) over the draft, in nats
        ("kld_peak", pa.float64()),  # the largest of them
        ("control_s", pa.float64()),  # the control computation after the step (done, real steps on cpu); 0 elsewhere
    ]
)


class Row(NamedTuple):
    """One row of the event table; the columns and their units are in SCHEMA."""

    time_s: float
    station: str
    seq: int
    event: str
    origin: str
    step: int = 0
    kind: str = ""
    tag: int = 0
    request: int = 0
    epoch: int = 0
    base: int = 0
    tokens: int = 0
    goal: int = 0
    accepted: int = 0
    flag: bool = False
    priority: int = 0
    duration_s: float = 0.0
    idle_gap_s: float = 0.0
    payload_bytes: int = 0
    note: str = ""
    matches: bool = False
    ratio: float = 0.0
    kld: float = 0.0
    kld_peak: float = 0.0
    control_s: float = 0.0


class RunHeader(msgspec.Struct, frozen=True):
    """Where a run comes from. Host and start time are here, so that the rows of equal runs are equal.

    `rows`: how many each station wrote, so that a log that was cut short shows.
    """

    scenario: Scenario
    scenario_digest: str
    profile_digest: str
    world: World
    versions: dict[str, str]
    host: dict[str, str]
    started_unix_s: float
    rows: dict[str, int]


class Run(msgspec.Struct, frozen=True):
    """A finished run: its header and its event table (columns of SCHEMA)."""

    header: RunHeader
    table: pa.Table

    def digest(self) -> str:
        """Fingerprint of the rows alone."""
        digest = hashlib.sha256()
        for name in SCHEMA.names:
            column = self.table.column(name)
            if pa.types.is_string(column.type):
                digest.update("\n".join(column.to_pylist()).encode())
            else:
                digest.update(np.ascontiguousarray(column.to_numpy()).tobytes())
        return digest.hexdigest()[:16]

    def frame(self) -> pd.DataFrame:
        """Return the rows as a pandas frame."""
        return self.table.to_pandas()


Log = list[Any]  # rows as they are written: the values of one after those of another, len(SCHEMA) each


class RecordedStation:
    """A station whose events and plans are written down as they happen, in either world.

    Stations of one host may share a `log`; it is then in the order of time.
    """

    def __init__(self, station: Station, origin: Origin, log: Log | None = None) -> None:
        self.station = station
        self.origin = origin
        self.log: Log = [] if log is None else log
        self.written = 0

    def handle(self, event: StationEvent, now_s: float, payload_bytes: int = 0) -> list[Instruction]:
        """Record the event, then let the station take it."""
        if type(event) is StepDone:
            step = self.station.running
            if step is not None:
                self._done(event, step, now_s)
        else:
            self.log += _ROW_OF[type(event)](now_s, self.station.name, self.written, self.origin, event, payload_bytes)
            self.written += 1
        return self.station.handle(event, now_s)

    def plan(self, now_s: float) -> Plan:
        """Ask the station for its plan, and record what it starts."""
        plan = self.station.plan(now_s)
        if type(plan) is Start:
            step = plan.step
            for member in step.members:
                self.log += (
                    now_s, self.station.name, self.written, "start", self.origin, step.number, step.kind,
                    member.tag, member.request, member.epoch, member.base, member.tokens, 0,
                    0, False, 0, 0.0, step.idle_gap_s, 0, "", False, 0.0, 0.0, 0.0, 0.0,
                )  # fmt: skip
                self.written += 1
        return plan

    def _done(self, event: StepDone, step: Step, now_s: float) -> None:
        for member, outcome in zip(step.members, event.outcomes, strict=True):
            tokens = member.tokens if outcome.drafted < 0 else outcome.drafted
            self.log += (
                now_s, self.station.name, self.written, "done", self.origin, event.step, step.kind,
                member.tag, member.request, member.epoch, member.base, tokens, 0,
                outcome.accepted, outcome.stopped, 0, event.duration_s, 0.0, 0, "",
                outcome.matches, outcome.ratio, outcome.kld, outcome.kld_peak, event.control_s,
            )  # fmt: skip
            self.written += 1


# Values in the order of SCHEMA. The frequent ones are plain tuples: a simulation writes millions, and a Row costs more.


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
        event.tokens, 0, 0, event.opening, event.priority, 0.0, 0.0, payload_bytes, "", False, 0.0, 0.0, 0.0, 0.0,
    )  # fmt: skip


def _draft(now_s: float, station: str, seq: int, origin: str, event: Draft, payload_bytes: int) -> tuple[Any, ...]:
    return (
        now_s, station, seq, "draft", origin, 0, "", event.tag, event.request, event.epoch, event.base, event.tokens,
        0, 0, False, 0, 0.0, 0.0, payload_bytes, "", False, 0.0, 0.0, 0.0, 0.0,
    )  # fmt: skip


def _refusal(now_s: float, station: str, seq: int, origin: str, event: Refusal, payload_bytes: int) -> tuple[Any, ...]:
    return Row(
        now_s, station, seq, "refusal", origin, tag=event.tag, request=event.request,
        payload_bytes=payload_bytes, note=event.reason,
    )  # fmt: skip


def _leave(now_s: float, station: str, seq: int, origin: str, event: Leave, payload_bytes: int) -> tuple[Any, ...]:
    return Row(now_s, station, seq, "leave", origin, tag=event.tag, request=event.request, payload_bytes=payload_bytes)


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
    View: _view,
}

EVENT_OF: dict[str, Callable[[Row], StationEvent]] = {
    "join": lambda row: Join(row.tag, row.request, row.tokens, row.goal - row.tokens, row.priority),
    "draft-request": lambda row: DraftRequest(
        row.tag, row.request, row.epoch, row.base, row.flag, row.priority, row.tokens
    ),
    "draft": lambda row: Draft(row.tag, row.request, row.epoch, row.base, row.tokens),
    "refusal": lambda row: Refusal(row.tag, row.request, row.note),
    "leave": lambda row: Leave(row.tag, row.request),
    "view": lambda row: View(row.tag, row.request, row.tokens, row.duration_s),
}


def make_run(scenario: Scenario, world: World, log: Log) -> Run:
    """Assemble a run from the log of all stations: by time, and within a station as things happened."""
    width = len(SCHEMA)
    arrays = [pa.array(log[number::width], type=field.type) for number, field in enumerate(SCHEMA)]
    table = pa.table(arrays, schema=SCHEMA)
    time_s = table["time_s"].to_numpy()
    if np.any(time_s[1:] < time_s[:-1]):
        table = table.take(pa.array(np.lexsort((table["seq"].to_numpy(), time_s))))
    counts = {count["values"]: count["counts"] for count in pc.value_counts(table["station"]).to_pylist()}
    return Run(make_header(scenario, world, counts), table)


def log_of(rows: Iterable[Iterable[Any]]) -> Log:
    """Write rows, whose values are in the order of SCHEMA, one after another, as a station does."""
    return [value for row in rows for value in row]


def make_header(scenario: Scenario, world: World, rows: dict[str, int]) -> RunHeader:
    """Describe this host, these versions and this scenario; `rows` counts what each station wrote."""
    profile = scenario.profile
    packages = ("specfleet", "simpy", "numpy") if world == "sim" else ("specfleet", "torch", "transformers", "pyzmq")
    return RunHeader(
        scenario=scenario,
        scenario_digest=scenario.digest(),
        profile_digest="" if isinstance(profile, str) else profile.digest(),
        world=world,
        versions={"python": platform.python_version()} | {name: version(name) for name in packages},
        host={"machine": platform.machine(), "system": platform.system(), "byte_order": sys.byteorder},
        started_unix_s=time.time(),
        rows=rows,
    )


def write_run(run: Run, path: Path) -> None:
    """Write a run as one Parquet file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table = run.table.replace_schema_metadata({"specfleet": msgspec.json.encode(run.header)})
    pq.write_table(table, path, compression="zstd")


def read_run(path: Path) -> Run:
    """Read a run; InputError if the file is missing or is not one of ours."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise InputError(f"{path}: no run can be read from it ({str(error).splitlines()[0]})") from error
    metadata = table.schema.metadata or {}
    if b"specfleet" not in metadata:
        raise InputError(f"{path}: a Parquet file, but not a run of specfleet (no header)")
    try:
        header = msgspec.json.decode(metadata[b"specfleet"], type=RunHeader)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: written by another version of specfleet ({error}); run it again") from error
    return Run(header, table.replace_schema_metadata(None))
