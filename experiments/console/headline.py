"""The five lines that come first of a run: throughput, speed of a request, waiting, load, acceptance.

Goals (`[slo]`), prices (`[cost]`) and the powers of a profile add a line each.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from experiments.console.printing import interval, number
from fleet.records.metrics.window import Metric

MS = 1e3


class Headline(NamedTuple):
    """One of the lines: its subject in one word, and values with their units and intervals."""

    name: str
    text: str


def headline(metrics: Mapping[str, Metric]) -> tuple[Headline, ...]:
    """Return the lines that a run has metrics for, in their fixed order."""
    lines = (_throughput(metrics), _speed(metrics), _waiting(metrics), _load(metrics), _acceptance(metrics),
             _goals(metrics), _cost(metrics))  # fmt: skip
    return tuple(line for line in lines if line is not None)


def acceptance_text(with_bonus: float) -> str:
    """Say how long rounds are in both counts, in the words of the engines that one would compare it with."""
    return (
        f"mean acceptance length: {with_bonus:.2f} tokens a round with the bonus token, as vLLM (Mean acceptance "
        f"length) and SGLang (accept len) count; {with_bonus - 1:.2f} without"
    )


def _throughput(metrics: Mapping[str, Metric]) -> Headline | None:
    parts = [_of(metrics, "throughput", "tokens/s"), _of(metrics, "throughput_per_target", "a target", ranged=False)]
    return _line("throughput", parts)


def _speed(metrics: Mapping[str, Metric]) -> Headline | None:
    """Tokens per second of a request, at the median and the 99th percentile of the time per token."""
    speeds = [(percent, metric) for percent, metric in _percentiles(metrics, "tpot_s") if metric.value > 0]
    if not speeds:
        return None
    rates = ", ".join(f"{number(1 / metric.value)} at P{percent}" for percent, metric in speeds)
    times = ", ".join(f"{number(MS * metric.value)} ({_range(metric, MS)})" for _, metric in speeds)
    text = f"tokens/s a request: {rates}; ms a token: {times}"
    return _line("speed", [text])


def _waiting(metrics: Mapping[str, Metric]) -> Headline | None:
    parts = []
    for name, what in (("ttft_s", "first token after"), ("wait_s", "for the drafter")):
        values = [f"{number(MS * metric.value)} ms at P{percent}" for percent, metric in _percentiles(metrics, name)]
        if values:
            parts.append(f"{what} {', '.join(values)}")
    return _line("waiting", parts)


def _percentiles(metrics: Mapping[str, Metric], name: str) -> list[tuple[int, Metric]]:
    """Return the median and the 99th percentile of a time, where the run has them."""
    time = metrics.get(name)
    both = [] if time is None else [(50, time.p50), (99, time.p99)]
    return [(percent, metric) for percent, metric in both if metric is not None]


def _load(metrics: Mapping[str, Metric]) -> Headline | None:
    load = metrics.get("load")
    if load is None:
        return None
    return Headline("load", f"drafters work {number(100 * load.value)} % of the time ({_range(load, 100)})")


def _acceptance(metrics: Mapping[str, Metric]) -> Headline | None:
    length, rate = metrics.get("mean_acceptance_length"), metrics.get("acceptance_rate")
    if length is None:
        return None
    share = f", {number(100 * rate.value)} % of those drafted" if rate is not None else ""
    return Headline("acceptance", acceptance_text(length.value) + share)


def _goals(metrics: Mapping[str, Metric]) -> Headline | None:
    """How many requests meet all goals of `[slo]`."""
    share = metrics.get("slo_attainment")
    if share is None:
        return None
    met = f"{number(100 * share.value)} % of requests meet [slo] ({_range(share, 100)})"
    goodput = _of(metrics, "goodput_requests_per_s", "requests/s that do")
    return _line("goals", [met, goodput])


def _cost(metrics: Mapping[str, Metric]) -> Headline | None:
    """Cost of a million tokens, and energy of a token."""
    names = ("cost_per_million_tokens", "energy_j_per_token")
    costs = [metrics[name] for name in names if name in metrics]
    return _line("cost", [f"{number(one.value)} {one.unit} ({_range(one)})" for one in costs])


def _of(metrics: Mapping[str, Metric], name: str, unit: str, ranged: bool = True) -> str:
    metric = metrics.get(name)
    if metric is None:
        return ""
    return f"{number(metric.value)} {unit}" + (f" ({_range(metric)})" if ranged else "")


def _range(metric: Metric, factor: float = 1.0) -> str:
    """Return the interval in words: its ends, or why there is none."""
    ends = msgspec.structs.replace(metric, low=factor * metric.low, high=factor * metric.high)
    text = interval(ends)
    return "no interval" if text == "-" else text


def _line(name: str, parts: list[str]) -> Headline | None:
    text = "; ".join(filter(None, parts))
    return Headline(name, text) if text else None
