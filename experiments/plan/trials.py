"""Simulations of fleets, seed by seed, and what they say: means, intervals, differences of equal seeds."""

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from specfleet.fleet.errors import InputError
from specfleet.fleet.records.metrics.glossary import meanings
from specfleet.fleet.records.metrics.intervals import student_t_interval
from specfleet.fleet.records.metrics.measure import assess
from specfleet.fleet.records.metrics.window import possible, with_percentiles
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.sim.run import observe

INDIFFERENT = 0.01  # what is worse by less, as a share, is as good

Values = dict[str, float]
"""Metrics by name."""


def simulated(scenario: Scenario, seed: int = 0) -> Values:
    """Return the metrics of one simulation; `overload` is 1 for more load than the fleet carries."""
    try:
        metrics, overload = assess(observe(msgspec.structs.replace(scenario, seed=scenario.seed + seed)))
    except InputError as error:
        raise InputError(f"{scenario.name}: {error}") from error
    values = {name: metric.value for name, metric in with_percentiles(metrics).items()}
    return values | {"overload": float(overload is not None), "token_s": 1 / values["throughput"]}


class Interval(msgspec.Struct, frozen=True):
    """A mean over seeds and its 95 % interval."""

    value: float
    low: float
    high: float


class Sample(msgspec.Struct, frozen=True):
    """A fleet's simulations: metrics by name, seed by seed."""

    trials: tuple[Values, ...]

    def values(self, metric: str) -> list[float]:
        """The values of a metric, seed by seed."""
        return [trial[metric] for trial in self.trials if metric in trial]

    def mean(self, metric: str) -> float:
        """The mean of a metric over the seeds; NaN where it was not measured."""
        values = self.values(metric)
        return float(np.mean(values)) if values else math.nan

    def interval(self, metric: str) -> Interval:
        """Return a metric's mean, and the 95 % interval of one more run; of a single run, nothing around it."""
        mean, runs = self.mean(metric), len(self.trials)
        low, high = student_t_interval(self.values(metric))
        half = (high - low) / 2 * math.sqrt(runs + 1) if runs > 1 else 0.0
        meaning = meanings().get(metric)
        unit = "" if meaning is None else meaning.unit
        return Interval(mean, *possible((mean - half, mean + half), mean, self.values(metric), unit))


def gap_between(theirs: Sequence[float], ours: Sequence[float]) -> Interval:
    """Return by which share values are larger than those of the same seeds."""
    shares = [value / base - 1 for value, base in zip(theirs, ours, strict=False)]
    return Interval(float(np.mean(shares)), *student_t_interval(shares))
