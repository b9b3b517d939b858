"""What is told to Prometheus of a running fleet: vLLM's names where the meaning is the same, else ours."""

from collections.abc import Callable

import msgspec

from fleet.records.counts import OfTarget

Value = Callable[[OfTarget], int]


class Told(msgspec.Struct, frozen=True):
    """A metric: its name as queries have it, whether it is a counter, a gauge or a histogram, and what it means."""

    name: str
    kind: str
    what: str


VLLM: tuple[tuple[Told, Value], ...] = (
    (
        Told("vllm:num_requests_running", "gauge", "Requests that are being decoded."),
        lambda one: one.sessions - one.queued,
    ),
    (Told("vllm:num_requests_waiting", "gauge", "Requests whose prefill has not begun."), lambda one: one.queued),
    (
        Told("vllm:prompt_tokens_total", "counter", "Tokens of the prompts of all requests."),
        lambda one: one.prompt_tokens,
    ),
    (Told("vllm:generation_tokens_total", "counter", "Tokens that were committed."), lambda one: one.committed),
)
SPECULATION: tuple[tuple[Told, Value], ...] = (
    (Told("vllm:spec_decode_num_drafts_total", "counter", "Drafts that were verified."), lambda one: one.drafts),
    (Told("vllm:spec_decode_num_draft_tokens_total", "counter", "Their tokens."), lambda one: one.drafted),
    (
        Told("vllm:spec_decode_num_accepted_tokens_total", "counter", "Those that were accepted."),
        lambda one: one.accepted_tokens,
    ),
)
PER_POSITION = Told(
    "vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter",
    "Drafts that were accepted up to and including a position, from 0.",
)  # fmt: skip
FIRST = Told("vllm:time_to_first_token_seconds", "histogram", "From a request's arrival to its first token.")
LATENCY = Told("vllm:e2e_request_latency_seconds", "histogram", "From a request's arrival to its last token.")
WAITS = Told(
    "specfleet_draft_wait_seconds", "histogram", "From a request for a draft at its drafter to its first step."
)
TARGETS: tuple[tuple[Told, Value], ...] = (
    (Told("specfleet_rounds_total", "counter", "Verifications that are known."), lambda one: one.rounds),
    (Told("specfleet_requests_total", "counter", "Requests that have come."), lambda one: one.opened),
    (Told("specfleet_requests_finished_total", "counter", "Requests that were finished."), lambda one: one.finished),
    (
        Told("specfleet_received_bytes_total", "counter", "Payload of messages that came in."),
        lambda one: one.received_bytes,
    ),
)
BUSY = Told("specfleet_station_busy_seconds_total", "counter", "Time in which a station worked; its rate is its load.")
STEPS = Told("specfleet_steps_total", "counter", "Steps of a station, by kind.")
STEP_TIME = Told("specfleet_step_seconds_total", "counter", "Their time on the station's device.")
SESSIONS = Told("specfleet_station_sessions", "gauge", "Sessions that a station has open.")
WAITING = Told("specfleet_station_waiting", "gauge", "Work in a station's buffer.")
UP = Told("specfleet_up_seconds", "gauge", "Time since the run, or the node, began.")
DEVICES: tuple[tuple[Told, str, float], ...] = (  # with their place in a sample, and ours in theirs
    (
        Told("specfleet_energy_joules_total", "counter", "A device's counter of energy, where --power measures."),
        "energy_j",
        1.0,
    ),
    (Told("specfleet_power_watts", "gauge", "What it draws."), "power_w", 1.0),
    (Told("specfleet_graphics_clock_hertz", "gauge", "Clock of its graphics units."), "graphics_clock_mhz", 1e6),
    (Told("specfleet_memory_used_bytes", "gauge", "Its memory that is in use."), "memory_bytes", 1.0),
)
ALL = (
    *(told for told, _ in (*VLLM, *SPECULATION, *TARGETS)), *(told for told, _, _ in DEVICES),
    PER_POSITION, FIRST, LATENCY, WAITS, BUSY, STEPS, STEP_TIME, SESSIONS, WAITING, UP,
)  # fmt: skip
