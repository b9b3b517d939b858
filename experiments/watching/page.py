"""Counts of a running fleet as Prometheus reads them, under the names of `names.py`; it needs prometheus_client.

`engine` is the number of the target, from 0, as it is that of an engine's core in vLLM.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from math import isnan
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from experiments.watching.names import (
    BUSY,
    DEVICES,
    FIRST,
    LATENCY,
    PER_POSITION,
    SESSIONS,
    SPECULATION,
    STEP_TIME,
    STEPS,
    TARGETS,
    UP,
    VLLM,
    WAITING,
    WAITS,
    Told,
)
from fleet.errors import InputError
from fleet.records.counts import EDGES_S, Counts, OfStation, OfTarget, Times
from fleet.records.samples import PowerSample
from fleet.scenario.settled import Fleet


class Page:
    """What Prometheus collects: the newest counts that were put. `model_name` is the label of vLLM's metrics."""

    def __init__(self, fleet: Fleet) -> None:
        self.model_name = fleet.verifiers.model if fleet.verifiers.kind == "real" else "replayed"
        self.positions = fleet.drafters.shape.nodes(fleet.room.longest_draft) if fleet.drafters.count else 0
        self.in_turn = fleet.in_turn
        self.newest = Counts(0.0)

    def put(self, counts: Counts) -> None:
        """Put newer counts up."""
        self.newest = counts

    def collect(self) -> Iterator[Any]:
        """Yield the families of metrics, as prometheus_client asks for them."""
        counts = self.newest
        requests = counts.verifying  # drafters know nothing of users
        speculates = self.positions > 0 and bool(counts.verifying or self.in_turn)  # else drafters do not know
        known = (*SPECULATION, *TARGETS) if speculates else TARGETS
        asked = [*((each, requests) for each in VLLM if requests), *((each, counts.known) for each in known)]
        for (told, value), targets in asked:
            own = told.name.startswith("specfleet_")
            yield _family(told, ("target",) if own else ("engine", "model_name"), (
                ((str(one.target + own),) if own else (str(one.target), self.model_name), value(one)) for one in targets
            ))  # fmt: skip
        if speculates:
            yield _family(PER_POSITION, ("engine", "model_name", "position"), self._per_position(counts.known))
        if requests:
            yield _histogram(FIRST, counts.first, self.model_name)
            yield _histogram(LATENCY, counts.latency, self.model_name)
        if counts.drafting:
            yield _histogram(WAITS, counts.waits, self.model_name)
        yield from _of_stations(counts.stations)
        yield from _of_devices(counts.devices)
        yield _family(UP, (), [((), counts.time_s)])

    def _per_position(self, targets: Iterable[OfTarget]) -> Iterator[tuple[tuple[str, ...], int]]:
        for one in targets:
            reached = list(accumulate(reversed(one.accepted)))[::-1][1:]  # drafts that accepted 1, 2, ... or more
            for position in range(max(self.positions, len(reached))):
                number = reached[position] if position < len(reached) else 0
                yield (str(one.target), self.model_name, str(position)), number


def _of_stations(stations: Iterable[OfStation]) -> Iterator[Any]:
    told = list(stations)
    label = ("station",)
    yield _family(BUSY, label, (((one.name,), one.busy_s) for one in told))
    for metric, part in ((STEPS, 0), (STEP_TIME, 1)):
        yield _family(
            metric,
            ("station", "kind"),
            (((one.name, kind), step[part]) for one in told for kind, step in one.steps.items()),
        )
    yield _family(SESSIONS, label, (((one.name,), one.sessions) for one in told))
    yield _family(WAITING, label, (((one.name,), one.waiting) for one in told))


def _of_devices(samples: Iterable[PowerSample]) -> Iterator[Any]:
    """What devices tell; nothing of what they do not."""
    devices = list(samples)
    for told, place, factor in DEVICES:
        known = [((one.device,), getattr(one, place) * factor) for one in devices if not isnan(getattr(one, place))]
        if known:
            yield _family(told, ("device",), known)


def _family(told: Told, labels: tuple[str, ...], samples: Iterable[tuple[tuple[str, ...], float]]) -> Any:
    kind = CounterMetricFamily if told.kind == "counter" else GaugeMetricFamily
    family = kind(told.name, told.what, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family


def _histogram(told: Told, times: Times, model_name: str) -> Any:
    ours = told.name.startswith("specfleet_")
    family = HistogramMetricFamily(told.name, told.what, labels=() if ours else ("model_name",))
    edges = [*(f"{edge:g}" for edge in EDGES_S), "+Inf"]
    buckets = list(zip(edges, accumulate(times.numbers), strict=True))
    family.add_metric(() if ours else (model_name,), buckets, times.sum_s)
    return family


@contextmanager
def metrics_page(fleet: Fleet, port: int, host: str) -> Iterator[Callable[[Counts], None]]:
    """Serve the page at http://HOST:PORT/metrics until the block ends; the yielded function takes newer counts.

    InputError where nothing can be bound.
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
