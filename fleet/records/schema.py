"""The event table's columns and their units: a row for everything that a station was told and everything it started."""

from typing import NamedTuple

import pyarrow as pa

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
