"""Counters of a running fleet for Prometheus, under vLLM's names if the meaning is the same; needs prometheus_client.

The label `engine` is a target's number from 0, as it is that of an engine's core in vLLM; `target` counts from 1.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from math import isnan
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from fleet.errors import InputError
from fleet.records.counters import EDGES_S, Counters, Histogram, TargetCounters
from fleet.scenario.settled import Fleet

ENGINE, TARGET, STATION, DEVICE = ("engine", "model_name"), ("target",), ("station",), ("device",)
Samples = Iterable[tuple[tuple[str, ...], float]]  # values of the labels, and of the metric


class Family(NamedTuple):
    """A metric as Prometheus knows it: a counter, a gauge or a histogram."""

    name: str
    kind: str
    labels: tuple[str, ...]
    what: str

    def of(self, samples: Samples) -> Any:
        """Return the family with these samples, as prometheus_client has it."""
        made = (CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily)(
            self.name, self.what, labels=self.labels
        )
        for labels, number in samples:
            made.add_metric(labels, number)
        return made

    def of_times(self, times: Histogram, labels: tuple[str, ...]) -> Any:
        """Return the family of a histogram."""
        made = HistogramMetricFamily(self.name, self.what, labels=self.labels)
        edges = [*(f"{edge:g}" for edge in EDGES_S), "+Inf"]
        made.add_metric(labels, list(zip(edges, accumulate(times.numbers), strict=True)), times.sum_s)
        return made


RUNNING = Family("vllm:num_requests_running", "gauge", ENGINE, "Requests that are being decoded.")
WAITING = Family("vllm:num_requests_waiting", "gauge", ENGINE, "Requests whose prefill has not begun.")
PER_POSITION = Family(
    "vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter", (*ENGINE, "position"),
    "Drafts that were accepted up to and including a position, from 0.",
)  # fmt: skip
FIRST = Family(
    "vllm:time_to_first_token_seconds", "histogram", ENGINE[1:], "From a request's arrival to its first token."
)
LATENCY = Family(
    "vllm:e2e_request_latency_seconds", "histogram", ENGINE[1:], "From a request's arrival to its last token."
)
WAITS = Family(
    "specfleet_draft_wait_seconds", "histogram", (), "From a request for a draft at its drafter to its first step."
)
BUSY = Family("specfleet_station_busy_seconds_total", "counter", STATION, "Time in which a station worked.")
STEPS = Family("specfleet_steps_total", "counter", (*STATION, "kind"), "Steps of a station, by kind.")
STEP_TIME = Family("specfleet_step_seconds_total", "counter", (*STATION, "kind"), "Their time on the station's device.")
SESSIONS = Family("specfleet_station_sessions", "gauge", STATION, "Sessions that a station has open.")
STATION_WAITING = Family("specfleet_station_waiting", "gauge", STATION, "Sessions that wait at a station.")
UP = Family("specfleet_up_seconds", "gauge", (), "Time since the run, or the node, began.")
REQUESTS = {  # counters of targets that record requests themselves, by their fields
    "prompt_tokens": Family(
        "vllm:prompt_tokens_total", "counter", ENGINE, "Tokens of the prompts of all requests."
    ),
    "committed": Family("vllm:generation_tokens_total", "counter", ENGINE, "Tokens that were committed."),
}  # fmt: skip
DRAFTS = {  # of targets whose acceptance is known
    "drafts": Family("vllm:spec_decode_num_drafts_total", "counter", ENGINE, "Drafts that were verified."),
    "drafted": Family("vllm:spec_decode_num_draft_tokens_total", "counter", ENGINE, "Their tokens."),
    "accepted_tokens": Family(
        "vllm:spec_decode_num_accepted_tokens_total", "counter", ENGINE, "Those that were accepted."
    ),
}  # fmt: skip
TARGETS = {  # of all targets
    "rounds": Family("specfleet_rounds_total", "counter", TARGET, "Verifications that are known."),
    "opened": Family("specfleet_requests_total", "counter", TARGET, "Requests that have come."),
    "finished": Family("specfleet_requests_finished_total", "counter", TARGET, "Requests that were finished."),
    "received_bytes": Family(
        "specfleet_received_bytes_total", "counter", TARGET, "Payload of messages that came in."
    ),
}  # fmt: skip
DEVICES = (  # with their field of a sample, and our unit in theirs
    (
        Family(
            "specfleet_energy_joules_total", "counter", DEVICE, "A device's counter of energy, where --power measures."
        ),
        "energy_j", 1.0,
    ),
    (Family("specfleet_power_watts", "gauge", DEVICE, "What it draws."), "power_w", 1.0),
    (
        Family("specfleet_graphics_clock_hertz", "gauge", DEVICE, "Clock of its graphics units."),
        "graphics_clock_mhz", 1e6,
    ),
    (Family("specfleet_memory_used_bytes", "gauge", DEVICE, "Its memory that is in use."), "memory_bytes", 1.0),
)  # fmt: skip
FAMILIES = (
    RUNNING, WAITING, PER_POSITION, FIRST, LATENCY, WAITS, BUSY, STEPS, STEP_TIME, SESSIONS, STATION_WAITING, UP,
    *REQUESTS.values(), *DRAFTS.values(), *TARGETS.values(), *(family for family, _, _ in DEVICES),
)  # fmt: skip


class Page:
    """What Prometheus collects: the counters that were put last. `model_name` is the label of vLLM's metrics."""

    def __init__(self, fleet: Fleet) -> None:
        self.model_name = fleet.verifiers.model if fleet.verifiers.kind == "real" else "replayed"
        self.positions = fleet.drafters.shape.nodes(fleet.room.longest_draft) if fleet.drafters.count else 0
        self.counters = Counters(fleet)

    def put(self, counters: Counters) -> None:
        """Collect these counters from now on."""
        self.counters = counters

    def collect(self) -> Iterator[Any]:
        """Yield the families of metrics, as prometheus_client asks for them."""
        with self.counters.lock:
            families = [*self._of_targets(), *self._of_stations(), *self._of_devices()]
            families.append(UP.of([((), self.counters.time_s)]))
        yield from families

    def _of_targets(self) -> Iterator[Any]:
        counters, model = self.counters, self.model_name
        known = sorted(counters.known.items())
        # A drafter alone knows nothing of users; nor, if it drafts ahead, what was accepted.
        speculates = self.positions > 0 and bool(counters.verifying or counters.fleet.in_turn)
        for field, family in ((REQUESTS if counters.verifying else {}) | (DRAFTS if speculates else {})).items():
            yield family.of(((str(target), model), getattr(one, field)) for target, one in known)
        for field, family in TARGETS.items():
            yield family.of(((str(target + 1),), getattr(one, field)) for target, one in known)
        if speculates:
            yield PER_POSITION.of(self._per_position(known))
        if counters.verifying:
            texts = counters.texts()
            queued = {target: sum(text.queued for text in texts.get(target, [])) for target, _ in known}
            yield WAITING.of(((str(target), model), number) for target, number in queued.items())
            yield RUNNING.of(
                ((str(target), model), len(texts.get(target, [])) - number) for target, number in queued.items()
            )
            yield FIRST.of_times(counters.first, (model,))
            yield LATENCY.of_times(counters.latency, (model,))
        if counters.drafting:
            yield WAITS.of_times(counters.waits, ())

    def _per_position(self, known: Iterable[tuple[int, TargetCounters]]) -> Samples:
        for target, one in known:
            for position in range(max(self.positions, *one.accepted, 0)):
                reached = sum(number for length, number in one.accepted.items() if length > position)
                yield (str(target), self.model_name, str(position)), reached

    def _of_stations(self) -> Iterator[Any]:
        stations, time_s = self.counters.stations, self.counters.time_s
        yield BUSY.of(((name,), one.busy_until_s(time_s)) for name, one in stations.items())
        for part, family in enumerate((STEPS, STEP_TIME)):
            yield family.of(
                ((name, kind), step[part]) for name, one in stations.items() for kind, step in one.steps.items()
            )
        yield SESSIONS.of(((name,), len(one.texts)) for name, one in stations.items())
        yield STATION_WAITING.of(
            ((name,), sum(text.waits for text in one.texts.values())) for name, one in stations.items()
        )

    def _of_devices(self) -> Iterator[Any]:
        """What devices tell; nothing of what they do not."""
        for family, field, factor in DEVICES:
            values = {name: getattr(sample, field) * factor for name, sample in self.counters.devices.items()}
            known = {name: value for name, value in values.items() if not isnan(value)}
            if known:
                yield family.of(((name,), value) for name, value in known.items())


@contextmanager
def metrics_page(fleet: Fleet, port: int, host: str) -> Iterator[Callable[[Counters], None]]:
    """Serve the page at http://HOST:PORT/metrics until the block ends; yield the function that takes counters.

    InputError if the port cannot be bound.
    """
    page, registry = Page(fleet), CollectorRegistry(auto_describe=False)
    registry.register(page)  # type: ignore[arg-type]
    try:
        server, thread = start_http_server(port, host, registry)
    except (OSError, OverflowError) as error:
        raise InputError(f"--metrics-port {port} at {host}: {error}; give another port, or --metrics-host") from None
    try:
        yield page.put
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
