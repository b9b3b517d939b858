"""The five lines that come first of a run: throughput, speed of a request, waiting, load, acceptance.

Shared budgets, goals (`[slo]`), prices (`[cost]`) and the powers of a profile add a line each.
"""

from collections.abc import Mapping

import msgspec

from specfleet.experiments.console.printing import interval, number
from specfleet.fleet.records.metrics.window import Metric

MS = 1e3
UTILITIES = {"utility": "U(x)", "utility_optimum": "optimum U(x*)", "utility_gap": "gap"}


def headline(metrics: Mapping[str, Metric]) -> dict[str, str]:
    """Return the lines that a run has metrics for, in their fixed order: values with units, by a word for each."""
    priced = ("cost_per_million_tokens", "energy_j_per_token")
    utilities = [f"{what} {number(metrics[name].value)}" for name, what in UTILITIES.items() if name in metrics]
    of_target = _of(metrics, "throughput_per_target", "a target", ranged=False)
    parts = {
        "throughput": [_of(metrics, "throughput", "tokens/s"), of_target],
        "speed": _speed(metrics),
        "waiting": _waiting(metrics),
        "load": [_load(metrics)],
        "acceptance": _acceptance(metrics),
        "utility": [", ".join(utilities) if "utility_gap" in metrics else ""],
        "goals": [
            _of(metrics, "slo_attainment", "% of requests meet [slo]", factor=100),
            _of(metrics, "goodput_requests_per_s", "requests/s that do"),
        ],
        "cost": [_of(metrics, name, metrics[name].unit) for name in priced if name in metrics],
    }
    texts = {name: "; ".join(filter(None, said)) for name, said in parts.items()}
    return {name: text for name, text in texts.items() if text}


def acceptance_text(with_bonus: float) -> str:
    """Say what verifications give in both counts, in the words of the engines that one would compare it with."""
    return (
        f"mean acceptance length: {with_bonus:.2f} tokens a verification with the bonus token, as vLLM (Mean "
        f"acceptance length) and SGLang (accept len) count; {with_bonus - 1:.2f} without"
    )


def _load(metrics: Mapping[str, Metric]) -> str:
    """How busy drafters are; drafts on the host, or within an inferred round, take no time of their own."""
    if "load" in metrics and not metrics["load"].value:
        return "drafts take no time of their own: they are within the target's rounds"
    return _of(metrics, "load", "% of the time", "drafters work ", factor=100)


def _speed(metrics: Mapping[str, Metric]) -> list[str]:
    """Tokens per second of a request, at the median and the 99th percentile of the time per token."""
    speeds = [(percent, metric) for percent, metric in _percentiles(metrics, "tpot_s") if metric.value > 0]
    if not speeds:
        return []
    rates = ", ".join(f"{number(1 / metric.value)} at P{percent}" for percent, metric in speeds)
    times = ", ".join(f"{number(MS * metric.value)}{_range(metric, MS)}" for _, metric in speeds)
    return [f"tokens/s a request: {rates}", f"ms a token: {times}"]


def _waiting(metrics: Mapping[str, Metric]) -> list[str]:
    parts = []
    for name, what in (("ttft_s", "first token after"), ("wait_s", "for the drafter")):
        values = [f"{number(MS * metric.value)} ms at P{percent}" for percent, metric in _percentiles(metrics, name)]
        if values:
            parts.append(f"{what} {', '.join(values)}")
    return parts


def _percentiles(metrics: Mapping[str, Metric], name: str) -> list[tuple[int, Metric]]:
    """Return the median and the 99th percentile of a time, where the run has them."""
    time = metrics.get(name)
    both = [] if time is None else [(50, time.p50), (99, time.p99)]
    return [(percent, metric) for percent, metric in both if metric is not None]


def _acceptance(metrics: Mapping[str, Metric]) -> list[str]:
    length, rate = metrics.get("mean_acceptance_length"), metrics.get("acceptance_rate")
    if length is None:
        return []
    share = f", {number(100 * rate.value)} % of those drafted" if rate is not None else ""
    return [acceptance_text(length.value) + share]


def _of(
    metrics: Mapping[str, Metric], name: str, unit: str, before: str = "", factor: float = 1.0, ranged: bool = True
) -> str:
    metric = metrics.get(name)
    if metric is None:
        return ""
    return f"{before}{number(factor * metric.value)} {unit}" + (_range(metric, factor) if ranged else "")


def _range(metric: Metric, factor: float) -> str:
    """Return the interval behind a value: its ends, or why there is none yet; nothing where a value has none."""
    ends = msgspec.structs.replace(metric, low=factor * metric.low, high=factor * metric.high)
    text = interval(ends)
    return "" if text == "-" else f" ({text})"
