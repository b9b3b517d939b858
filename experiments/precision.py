"""Runs as long as it takes: until the intervals of named metrics are as narrow as was asked, or it is said that not."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from fleet.errors import InputError
from fleet.records.metrics import assess
from fleet.records.overload import Overload
from fleet.records.run import Run
from fleet.records.window import Metric
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from fleet.scenario.workload import streams_of
from fleet.times.pace import Pace
from sim.run import simulate

Precision = Mapping[str, float]
"""The largest half width of a metric's 95 % interval, as a share of its value, by the metric's name."""

MOST_TIMES = 100  # as many requests as the scenario has
MOST_STEP = 10.0  # times longer than the run before it: how much is needed is an estimate
SPARE = 1.2  # more than was estimated: half of all estimates are too low


class Precise(NamedTuple):
    """The last run, its metrics and verdict; `unmet` says what was not reached, a line for each metric."""

    run: Run
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
    """Return the asked half widths by metric; one number is the throughput's. InputError for what is no share."""
    aims = precision if isinstance(precision, Mapping) else {} if precision is None else {"throughput": precision}
    for name, aim in aims.items():
        if isinstance(aim, bool) or not isinstance(aim, (int, float)) or not _is_share(aim):
            raise InputError(f"precision of {name} = {aim!r}: needs a share between 0 and 1, such as 0.02")
    return dict(aims)


def _is_share(aim: float) -> bool:
    """Whether a half width can be asked for: more than nothing, and less than the value itself."""
    return 0 < aim < 1


def simulate_to(
    scenario: Scenario,
    precision: Precision,
    paces: Mapping[str, Pace] | None = None,
    report: Callable[[str], None] = lambda _line: None,
) -> Precise:
    """Simulate the scenario, with more and more requests, until every named metric is as precise as asked.

    The runs have one seed, so each begins like the one before it. It ends at MOST_TIMES the scenario's requests, where
    a trace or a file of conversations has no more, or where more is offered than is carried. `report` is told before
    each longer run. Raises InputError for a metric that the run does not have, or that has no interval.
    """
    requests = scenario.workload.requests
    while True:
        workload = msgspec.structs.replace(scenario.workload, requests=requests)
        longer = msgspec.structs.replace(scenario, workload=workload)
        run = simulate(longer, paces)
        metrics, overload = assess(run)
        lacking = {name: factor for name in precision if (factor := times_longer(metrics, name, precision[name])) > 1}
        ended = "" if lacking else "reached"
        there = sum(len(stream) for stream in streams_of(settle(longer)).values()) if lacking else requests
        most = MOST_TIMES * scenario.workload.requests
        if lacking and math.isinf(max(lacking.values())):
            ended = "more is offered than is carried, or all of it at once, so no run is long enough"
        elif there < requests:
            ended = f"the workload's file has {there} requests"
        elif lacking and requests >= most:
            ended = f"{requests} requests are {MOST_TIMES} times as many as the scenario has; raise workload.requests"
        if ended:
            known = [f"{name} is known to {_share(metrics[name])}, not {precision[name]:.2g}" for name in lacking]
            return Precise(run, metrics, overload, tuple(f"{text}: {ended}" for text in known))
        factor = min(max(lacking.values()) * SPARE, MOST_STEP)
        requests = min(math.ceil(requests * factor), most)
        told = ", ".join(f"{name} to {_share(metrics[name])}" for name in lacking)
        report(f"{there} requests tell {told}; next {requests}")


def times_longer(metrics: Mapping[str, Metric], name: str, aim: float) -> float:
    """How many times as long a run would have to be for a metric's half width; 1 or less where it is reached."""
    if name not in metrics:
        raise InputError(f"precision: this run has no metric {name!r}; it has {', '.join(metrics)}")
    metric = metrics[name]
    if metric.times_longer > 1:
        return metric.times_longer
    if math.isnan(metric.low):
        raise InputError(f"precision: {name} has no interval; name another metric, such as throughput")
    half = (metric.high - metric.low) / 2
    return (half / (aim * abs(metric.value))) ** 2 if half else 1.0


def _share(metric: Metric) -> str:
    if math.isnan(metric.low) or not metric.value:
        return "no interval yet"
    return f"{(metric.high - metric.low) / 2 / abs(metric.value):.2g}"
