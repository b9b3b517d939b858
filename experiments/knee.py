"""N_full and N_max as measured, over cells that differ in the number of targets alone."""

import math
from collections.abc import Sequence

from specfleet.fleet.records.metrics.window import Metric

FULL = 0.98  # share of a plateau from which a drafter counts as full; its load stays below 1 by pauses between drafts


def level_of(counts: Sequence[int], values: Sequence[float]) -> int:
    """Return N_full: the first count whose value is level with the last; counts rise."""
    return next(N for N, value in zip(counts, values, strict=True) if value >= FULL * values[-1])


def level_between(counts: Sequence[int], metrics: Sequence[Metric]) -> tuple[int, int]:
    """Return the least and the largest N_full that the metrics' 95 % intervals allow; all counts without intervals."""
    low = next(N for N, metric in zip(counts, metrics, strict=True) if not metric.high < FULL * metrics[-1].low)
    certain = (N for N, metric in zip(counts, metrics, strict=True) if metric.low >= FULL * metrics[-1].high)
    return low, next(certain, counts[-1])


def most_that_gain(counts: Sequence[int], metrics: Sequence[Metric], standalone: float) -> tuple[int, int, int]:
    """Return N_max, and the least and the largest that the intervals allow: the last count at which targets gain.

    - `metrics`: throughput of a target; `standalone`: the same without the drafter.
    """

    least = standalone * (1 - 1e-12)

    def last(bound: str) -> int:
        return max((N for N, metric in zip(counts, metrics, strict=True) if getattr(metric, bound) >= least), default=0)

    has_intervals = not any(math.isnan(metric.low) for metric in metrics)
    value = last("value")
    return (value, last("low"), last("high")) if has_intervals else (value, 0, counts[-1])
