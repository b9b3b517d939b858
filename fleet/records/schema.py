"""The event table's columns and units: a row for each received event and each started step; samples of devices."""

from typing import NamedTuple

from specfleet.fleet.inputs.parquet import schema_of

UNKNOWN = float("nan")


class Row(NamedTuple):
    """One row of the event table: an event that a station received, or a step that it started.

    A column that does not apply has its default. A step over several sessions writes a row for each.

    Keys:
        time_s: Time since the run began, on the clock of the station's host.
        station: Name of the station that wrote the row.
        seq (number): Order within the station, from 0.
        event: Name of the message that arrived, or "start" for a step that the station began, or "done" for a step
            that its device finished; "overdue" for a draft that timed out, "retry" for the time of the next retry,
            "killed" for a station that loses its state, "restart" for a fresh one in its place.
        origin: Origin of the row: "simulated", "real", or "replayed" (a station in place of absent hardware).
        step (number): Number of the step (start, done).
        kind: Kind of this session's part of the step (start, done): prefill, chunk (a part of a prompt before the
            last), draft_prefill, warm_up, draft, verify, decode, realign, route.
        tag (number): The decoding stream, from 0; of a view, the drafter.
        request (number): The request within the workload, from 0; of a view, the number of the view; of a restart,
            how often the station was started again.
        epoch (number): Number of the session's round, which identifies stale messages.
        base (tokens): Committed length that the row refers to; of a join, tokens that came with their KV cache.
        tokens (tokens): Of the prompt (join), granted (draft-request; negative: the drafter's own), drafted (draft,
            done), planned (start); of a view, the sessions that wait.
        goal (tokens): Final length of the text (join); of a draft, requests that wait behind it, if a rule sees it.
        accepted (tokens): Accepted draft tokens (done of verify), drafted ones that came with a join.
        flag: Whether it is the request's first round (draft-request), or was found by `drafters.first` (done of draft).
        priority (priority): Priority of the request (join, draft-request); a larger number is more urgent.
        duration_s: Service time on the device's clock (done).
        idle_gap_s: Idleness of the station before the step's group (start).
        payload_bytes: Size on the wire of a message that arrived.
        note: The reason of a refusal.
        matches: Whether the target's own token is the next one of the tail (done of verify).
        ratio (share): Mean of min(1, p/q) over the draft (done of verify); 0 where unknown.
        klds (nats): KL(p||q) of each token of the draft, in order (done of verify); empty where unknown.
        identity (number): Of texts that share tokens (join): pairs of a source and the tokens of text at which it ends.
            What follows is the request's own.
        entropies (nats): Of each token of a draft, that of the distribution it was drawn from (done of draft); empty
            where no rule chooses by them.
    """

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
    klds: tuple[float, ...] = ()
    identity: tuple[int, ...] = ()
    entropies: tuple[float, ...] = ()


class PowerSample(NamedTuple):
    """One sample of a device; NaN where the device has no reading. Meters read the fields from `device` on.

    Keys:
        time_s: Time since the run began.
        station: The station whose step follows; empty for a sample between steps.
        step (number): Number of that step, as in the records; 0 between steps.
        device: Name of the device, with the source of its readings.
        graphics_clock_mhz: Clock of its graphics units.
        power_w: Present power; on a Jetson that of the whole module.
        memory_bytes: Device memory in use, by all processes.
        energy_j: Its energy counter, which starts anywhere and only grows.
        utilisation (share): Share of the time in which it worked, lately, by its own count.
    """

    time_s: float = 0.0
    station: str = ""
    step: int = 0
    device: str = ""
    graphics_clock_mhz: float = UNKNOWN
    power_w: float = UNKNOWN
    memory_bytes: float = UNKNOWN
    energy_j: float = UNKNOWN
    utilisation: float = UNKNOWN


SCHEMA, SAMPLES = schema_of(Row), schema_of(PowerSample)
LATER = ("identity", "entropies")  # columns that earlier versions lack, and digests leave out where they are empty
WIDTH = len(SCHEMA)  # values of a row
