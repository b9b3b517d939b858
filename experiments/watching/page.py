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

from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.counters import EDGES_S, Counters, Histogram, TargetCounters
from specfleet.fleet.scenario.resolved import Fleet

MODEL, TARGET, STATION, DEVICE = ("model_name",), ("target",), ("station",), ("device",)
ENGINE = ("engine", *MODEL)
Samples = Iterable[tuple[tuple[str, ...], float]]  # values of the labels, and of the metric


class Family(NamedTuple):
    """A metric as Prometheus knows it: a counter, a gauge or a histogram.

    - `field`: that of a target's counters, or of a device's sample, that it shows.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    what: str
    field: str = ""

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


FAMILIES = (
    Family("vllm:num_requests_running", "gauge", ENGINE, "Requests that are being decoded."),
    Family("vllm:num_requests_waiting", "gauge", ENGINE, "Requests whose prefill has not begun."),
    Family("vllm:prompt_tokens_total", "counter", ENGINE, "Tokens of the prompts of all requests.", "prompt_tokens"),
    Family("vllm:generation_tokens_total", "counter", ENGINE, "Tokens that were committed.", "committed"),
    Family("vllm:time_to_first_token_seconds", "histogram", MODEL, "From a request's arrival to its first token."),
    Family("vllm:e2e_request_latency_seconds", "histogram", MODEL, "From a request's arrival to its last token."),
    Family("vllm:spec_decode_num_drafts_total", "counter", ENGINE, "Drafts that were verified.", "drafts"),
    Family("vllm:spec_decode_num_draft_tokens_total", "counter", ENGINE, "Their tokens.", "drafted"),
    Family("vllm:spec_decode_num_accepted_tokens_total", "counter", ENGINE, "Those that were accepted.",
           "accepted_tokens"),
    Family("vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter", (*ENGINE, "position"),
           "Drafts that were accepted up to and including a position, from 0; of trees, a level."),
    Family("specfleet_draft_wait_seconds", "histogram", (), "From a request for a draft to its first step."),
    Family("specfleet_rounds_total", "counter", TARGET, "Verifications that are known.", "rounds"),
    Family("specfleet_requests_total", "counter", TARGET, "Requests that have come.", "opened"),
    Family("specfleet_requests_finished_total", "counter", TARGET, "Requests that were finished.", "finished"),
    Family("specfleet_received_bytes_total", "counter", TARGET, "Payload of messages that came in.", "received_bytes"),
    Family("specfleet_station_busy_seconds_total", "counter", STATION, "Time in which a station worked."),
    Family("specfleet_steps_total", "counter", (*STATION, "kind"), "Steps of a station, by kind."),
    Family("specfleet_step_seconds_total", "counter", (*STATION, "kind"), "Their time on the station's device."),
    Family("specfleet_station_sessions", "gauge", STATION, "Sessions that a station has open."),
    Family("specfleet_station_waiting", "gauge", STATION, "Sessions that wait at a station."),
    Family("specfleet_energy_joules_total", "counter", DEVICE, "A device's energy counter, if --power measures it.",
           "energy_j"),
    Family("specfleet_power_watts", "gauge", DEVICE, "What it draws.", "power_w"),
    Family("specfleet_graphics_clock_hertz", "gauge", DEVICE, "Clock of its graphics units.", "graphics_clock_mhz"),
    Family("specfleet_memory_used_bytes", "gauge", DEVICE, "Its memory that is in use.", "memory_bytes"),
    Family("specfleet_up_seconds", "gauge", (), "Time since the run, or the node, began."),
)  # fmt: skip
OF = {family.name: family for family in FAMILIES}
OF_USERS = ("prompt_tokens", "committed")  # fields that only targets record
OF_DRAFTS = ("drafts", "drafted", "accepted_tokens")  # fields that are known if acceptance is


class PrometheusPage:
    """Prometheus collector of the latest counters. `model_name` is the label of vLLM's metrics."""

    def __init__(self, fleet: Fleet) -> None:
        self.model_name = fleet.verifiers.model if fleet.verifiers.kind == "real" else "replayed"
        self.positions = fleet.room.longest_draft if fleet.drafters.count else 0
        self.counters = Counters(fleet)

    def put(self, counters: Counters) -> None:
        """Collect these counters from now on."""
        self.counters = counters

    def collect(self) -> Iterator[Any]:
        """Yield the families of metrics, as prometheus_client asks for them."""
        with self.counters.lock:
            families = [*self._of_targets(), *self._of_stations(), *self._of_devices()]
            families.append(OF["specfleet_up_seconds"].of([((), self.counters.time_s)]))
        yield from families

    def _of_targets(self) -> Iterator[Any]:
        counters, model = self.counters, self.model_name
        targets = sorted(counters.known.items())
        # A drafter alone knows nothing of users; nor, if it drafts ahead, what was accepted.
        speculates = self.positions > 0 and bool(counters.verifying or counters.fleet.in_turn)
        unknown = (() if counters.verifying else OF_USERS) + (() if speculates else OF_DRAFTS)
        for family in FAMILIES:
            if family.field and family.labels == ENGINE and family.field not in unknown:
                yield family.of(((str(target), model), getattr(one, family.field)) for target, one in targets)
            elif family.labels == TARGET:
                yield family.of(((str(target + 1),), getattr(one, family.field)) for target, one in targets)
        if speculates:
            yield OF["vllm:spec_decode_num_accepted_tokens_per_pos_total"].of(self._per_position(targets))
        if counters.verifying:
            texts = counters.texts()
            for name, queued in (("vllm:num_requests_waiting", True), ("vllm:num_requests_running", False)):
                yield OF[name].of(
                    ((str(target), model), sum(text.queued == queued for text in texts.get(target, [])))
                    for target, _ in targets
                )
            yield OF["vllm:time_to_first_token_seconds"].of_times(counters.first, (model,))
            yield OF["vllm:e2e_request_latency_seconds"].of_times(counters.latency, (model,))
        if counters.drafting:
            yield OF["specfleet_draft_wait_seconds"].of_times(counters.waits, ())

    def _per_position(self, targets: Iterable[tuple[int, TargetCounters]]) -> Samples:
        for target, one in targets:
            for position in range(max(self.positions, *one.accepted, 0)):
                reached = sum(number for length, number in one.accepted.items() if length > position)
                yield (str(target), self.model_name, str(position)), reached

    def _of_stations(self) -> Iterator[Any]:
        stations, time_s = self.counters.stations, self.counters.time_s
        yield OF["specfleet_station_busy_seconds_total"].of(
            ((name,), one.busy_until_s(time_s)) for name, one in stations.items()
        )
        for part, name_of_part in enumerate(("specfleet_steps_total", "specfleet_step_seconds_total")):
            yield OF[name_of_part].of(
                ((name, kind), step[part]) for name, one in stations.items() for kind, step in one.steps.items()
            )
        yield OF["specfleet_station_sessions"].of(((name,), len(one.texts)) for name, one in stations.items())
        yield OF["specfleet_station_waiting"].of(
            ((name,), sum(text.waits for text in one.texts.values())) for name, one in stations.items()
        )

    def _of_devices(self) -> Iterator[Any]:
        for family in FAMILIES:
            if family.labels == DEVICE:
                unit = 1e6 if family.field.endswith("_mhz") else 1.0
                values = {name: getattr(one, family.field) * unit for name, one in self.counters.devices.items()}
                finite = {name: value for name, value in values.items() if not isnan(value)}
                if finite:
                    yield family.of(((name,), value) for name, value in finite.items())


@contextmanager
def metrics_page(fleet: Fleet, port: int, host: str) -> Iterator[Callable[[Counters], None]]:
    """Serve the page at http://HOST:PORT/metrics until the block ends; yield the function that takes counters.

    InputError if the port cannot be bound.
    """
    page, registry = PrometheusPage(fleet), CollectorRegistry(auto_describe=False)
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
