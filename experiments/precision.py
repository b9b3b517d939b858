"""Runs that grow until the intervals of named metrics are narrow enough, or report why they cannot be."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from fleet.errors import InputError
from fleet.records.metrics.glossary import meanings
from fleet.records.metrics.measure import assess
from fleet.records.metrics.overload import Overload
from fleet.records.metrics.window import Metric, with_percentiles
from fleet.records.run import Run
from fleet.scenario.names import SimPath
from fleet.scenario.resolve import resolve
from fleet.scenario.scenario import Scenario
from fleet.scenario.workload import streams_of
from sim.run import observe, simulate

Precision = Mapping[str, float]
"""The largest half width of a metric's 95 % interval, as a share of its value, by the metric's name."""

MOST_TIMES = 100  # as many requests as the scenario has
MOST_STEP = 10.0  # times longer than the run before it: how much is needed is an estimate
SPARE = 1.2  # more than was estimated: half of all estimates are too low


class Precise(NamedTuple):
    """The last run, if it was wanted, its metrics and verdict; `unmet`: what was not reached, a line each metric."""

    run: Run | None
    metrics: dict[str, Metric]
    overload: Overload | None
    unmet: tuple[str, ...]


def parse_precision(texts: Sequence[str]) -> dict[str, float]:
    """Read `2%` or `0.02` (of the throughput), and `METRIC=2%`; InputError for anything else."""
    aims = {}
    for text in texts:
        name, separator, share = text.rpartition("=")
        number = share.strip()
        try:
            aim = float(number.removesuffix("%")) / (100 if number.endswith("%") else 1)
        except ValueError:
            aim = math.nan
        if not _is_share(aim) or (separator and not name.strip()):
            raise InputError(f"--precision {text}: write a share below 1, such as 2%, or METRIC=2% (tpot_p90_s=5%)")
        aims[name.strip() or "throughput"] = aim
    return aims


def precision_of(precision: float | Precision | None) -> dict[str, float]:
    """Return the requested half widths by metric, as shares of the values; one number is the throughput's.

    Raises InputError for what is no such share, and for a name that no metric has.
    """
    aims = precision if isinstance(precision, Mapping) else {} if precision is None else {"throughput": precision}
    for name, aim in aims.items():
        if not _is_share(aim):
            raise InputError(f"precision of {name} = {aim!r}: needs a share between 0 and 1, such as 0.02")
    check_names(aims)
    return dict(aims)


def _is_share(aim: float) -> bool:
    """Whether a half width is allowed: more than nothing, and less than the value itself."""
    return 0 < aim < 1


def check_names(precision: Precision) -> None:
    """Raise InputError for a name that no metric has, before anything runs."""
    allowed = meanings()
    for name in precision:
        if name not in allowed:
            raise InputError(f"precision: no metric is called {name!r}; allowed: {', '.join(allowed)}")


def simulate_to(
    scenario: Scenario,
    precision: Precision,
    report: Callable[[str], None] = lambda _line: None,
    path: SimPath = "auto",
    records: bool = True,
) -> Precise:
    """Simulate the scenario, with more and more requests, until every named metric is precise enough.

    The runs have one seed, so each begins like the one before it. It ends at MOST_TIMES the scenario's requests, where
    a trace or a file of conversations has no more, or where more is offered than is carried. `report` is called before
    each longer run. `path`: how to simulate. `records`: whether the last run is wanted, beside its metrics.
    """
    requests = scenario.workload.requests
    while True:
        workload = msgspec.structs.replace(scenario.workload, requests=requests)
        longer = msgspec.structs.replace(scenario, workload=workload)
        run = simulate(longer, path=path) if records else None
        metrics, overload = assess(run or observe(longer, path))
        found = with_percentiles(metrics)
        never = {name: reason for name in precision if (reason := _why_never(found, name))}
        factors = {name: times_longer(found[name], precision[name]) for name in precision if name not in never}
        lacking = {name: factor for name, factor in factors.items() if factor > 1}
        states = {name: _state(name, found[name], precision[name]) for name in lacking}
        ended = _why_ended(scenario, longer, max(lacking.values(), default=0.0))
        if ended:
            unmet = [f"{name}: {reason}" for name, reason in never.items()]
            unmet += [f"{text}: {ended}" for text in states.values()]
            return Precise(run, metrics, overload, tuple(unmet))
        factor = min(max(lacking.values()) * SPARE, MOST_STEP)
        more = min(math.ceil(requests * factor), MOST_TIMES * scenario.workload.requests)
        report(f"{requests} requests: {', '.join(states.values())}; next {more}")
        requests = more


def times_longer(metric: Metric, aim: float) -> float:
    """How many times as long a run would have to be for a metric's half width; 1 or less where it is reached."""
    if metric.times_longer > 1:
        return metric.times_longer
    half = (metric.high - metric.low) / 2
    return (half / (aim * abs(metric.value))) ** 2 if half else 1.0


def _why_never(metrics: Mapping[str, Metric], name: str) -> str:
    """Say why no run of this scenario, however long, has an interval of a metric; empty if one can."""
    if name not in metrics:
        return f"this run has no such metric; it has {', '.join(metrics)}"
    metric = metrics[name]
    without = math.isnan(metric.low) and metric.times_longer == 1
    return "it has no interval, however long a run is; name another metric, such as throughput" if without else ""


def _why_ended(scenario: Scenario, longer: Scenario, factor: float) -> str:
    """Say why no run follows on `longer`, which would have to be `factor` times as long; empty where one does."""
    if factor <= 1:
        return "reached"
    if math.isinf(factor):
        return "more is offered than is carried, or all of it at once, so no run is long enough"
    requests, there = longer.workload.requests, sum(len(stream) for stream in streams_of(resolve(longer)).values())
    if there < requests:
        return f"the workload's file has {there} requests"
    if requests >= MOST_TIMES * scenario.workload.requests:
        return f"{requests} requests are {MOST_TIMES} times as many as the scenario has; raise workload.requests"
    return ""


def _state(name: str, metric: Metric, aim: float) -> str:
    """Return a metric's reached and requested half width, as shares of its value, in words."""
    if math.isnan(metric.low):
        return f"{name} has no interval yet (aim: {aim:.2g})"
    reached = (metric.high - metric.low) / 2 / abs(metric.value)
    return f"{name} is known to {reached:.2g} (aim: {aim:.2g})"
