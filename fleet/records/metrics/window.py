"""The measurement window of a run, and its estimates with intervals."""

import math
from collections.abc import Mapping

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from specfleet.fleet.records.columns import Series
from specfleet.fleet.records.metrics.glossary import percentile_name
from specfleet.fleet.records.metrics.intervals import Interval, batch_interval, drifts, quantile_levels
from specfleet.fleet.shown import ends

Floats = NDArray[np.float64]
MIN_RELAXATIONS = 50  # relaxation times that a run needs for an interval of a mean: coverage is then 92 % or more
LEVELS = (0.5, 0.9, 0.99)  # of the percentiles of a metric
MIN_BEYOND = 10  # relaxation times, and values, that must lie beyond a quantile


class Metric(msgspec.Struct, frozen=True):
    """A measured value with its interval, its unit and, for some times, its percentiles.

    Keys:
        value (the metric's): The estimate.
        low (the metric's): Lower end of its 95 % interval; NaN if there is none.
        high (the metric's): Upper end of its 95 % interval; NaN if there is none.
        unit: Its unit.
        times_longer (runs): Factor by which the run is too short for an interval: 1 if it is long enough, or if the
            quantity has no interval; infinite at overload.
        drifting: Whether it has no interval because it changed throughout the run; `times_longer` is then a guess.
        p50: Median of the values; `value` is their mean.
        p90: Its 90th percentile.
        p99: Its 99th percentile.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    unit: str = ""
    times_longer: float = 1.0
    drifting: bool = False
    p50: "Metric | None" = None
    p90: "Metric | None" = None
    p99: "Metric | None" = None

    @property
    def ends(self) -> Interval:
        """The ends of its interval as they are shown: NaN where it has no width."""
        return ends(self.value, self.low, self.high)

    @property
    def percentiles(self) -> dict[str, "Metric"]:
        """Its percentiles, by field name."""
        fields = {"p50": self.p50, "p90": self.p90, "p99": self.p99}
        return {field: metric for field, metric in fields.items() if metric is not None}


def percentile_values(metric: Metric) -> list[float | None]:
    """Return the values of the three percentiles; None for missing ones."""
    return [None if percentile is None else percentile.value for percentile in (metric.p50, metric.p90, metric.p99)]


def with_percentiles(metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Return metrics by name, and the percentiles of each after it: `tpot_p99_s` is `metrics["tpot_s"].p99`."""
    rows = {}
    for name, metric in metrics.items():
        rows[name] = msgspec.structs.replace(metric, p50=None, p90=None, p99=None)
        rows |= {percentile_name(name, field): percentile for field, percentile in metric.percentiles.items()}
    return rows


def without_intervals(metrics: Mapping[str, Metric], times_longer: float) -> dict[str, Metric]:
    """Return the metrics without intervals.

    - `times_longer`: set for metrics that can have an interval in this or a longer run; counts cannot.
    """
    bare = {}
    for name, metric in metrics.items():
        longer = times_longer if metric.times_longer > 1 or not math.isnan(metric.low) else 1.0
        percentiles = without_intervals(metric.percentiles, times_longer)
        bare[name] = msgspec.structs.replace(Metric(metric.value, unit=metric.unit, times_longer=longer), **percentiles)
    return bare


class Window(msgspec.Struct, frozen=True):
    """The measurement window of a run in equal batches, and estimates over them.

    - `edges_s`, shape (batches + 1,): batch boundaries in seconds since the run began. A batch includes its end, not
      its beginning.
    - `relaxations`: length of the window over the relaxation time of the slowest queue (`steady.py`).
    """

    edges_s: Floats
    relaxations: float = math.inf

    @property
    def length_s(self) -> float:
        """Length of the window."""
        return float(self.edges_s[-1] - self.edges_s[0])

    @property
    def batch_s(self) -> float:
        """Length of one batch."""
        return self.length_s / (len(self.edges_s) - 1)

    def inside(self, time_s: ArrayLike) -> NDArray[np.bool_]:
        """Return whether each time is in the window; NaN is not."""
        times_s = np.asarray(time_s, dtype=float)
        inside: NDArray[np.bool_] = (times_s > self.edges_s[0]) & (times_s <= self.edges_s[-1])
        return inside

    def counts(self, time_s: ArrayLike, values: ArrayLike | Series) -> Floats:
        """Count the values of each batch by their times: shape (batches,)."""
        return self.sums(time_s, values.counts if isinstance(values, Series) else None)

    def sums(self, time_s: ArrayLike, values: ArrayLike | Series | None = None) -> Floats:
        """Sum `values` over each batch by their times, or count the times: shape (batches,)."""
        times_s, batches = np.asarray(time_s, dtype=float), len(self.edges_s) - 1
        if isinstance(values, Series):
            values = values.sums
        if (times_s[1:] >= times_s[:-1]).all():  # the usual case, without NaN: a batch is then a slice
            ends = np.searchsorted(times_s, self.edges_s, side="right")
            sums = np.diff(ends).astype(np.float64)
            some = sums > 0
            if values is not None and some.any():
                sums[some] = np.add.reduceat(np.asarray(values)[: ends[-1]], ends[:-1][some], dtype=np.float64)
            return sums
        inside = self.inside(times_s)
        batch = np.searchsorted(self.edges_s, times_s[inside]) - 1
        weights = None if values is None else np.asarray(values, dtype=float)[inside]
        return np.bincount(batch, weights, minlength=batches).astype(np.float64)

    def within(self, begun_s: Floats, ended_s: Floats) -> Floats:
        """Total time of the intervals within each batch: shape (batches,).

        An interval counts at its end, and its part before a batch's beginning belongs to earlier batches.
        """
        across = ((begun_s < edge_s) & (ended_s > edge_s) for edge_s in self.edges_s)
        early_s = [float((edge_s - begun_s[those]).sum()) for edge_s, those in zip(self.edges_s, across, strict=True)]
        return self.sums(ended_s, ended_s - begun_s) + np.diff(early_s)

    def rate(self, sums: Floats, unit: str) -> Metric:
        """Return the rate of sums over batches; interval by batch means."""
        return self._estimate(float(sums.sum() / self.length_s), sums / self.batch_s, unit)

    def ratio(self, above: Floats, below: Floats, unit: str) -> Metric:
        """Return the ratio of two totals from sums over batches; interval by the delta method. NaN for x / 0.

        Batches with 0 / 0 are left out.
        """
        if below.sum() <= 0:
            return Metric(math.nan, unit=unit)
        value = float(above.sum() / below.sum())
        telling = (above != 0) | (below != 0)
        above, below = above[telling], below[telling]
        return self._estimate(value, value + (above - value * below) / below.mean(), unit)

    def mean(self, time_s: ArrayLike, values: ArrayLike | Series, unit: str) -> Metric:
        """Return the mean of the finite values, by their times; interval by the delta method."""
        if isinstance(values, Series):
            return self.ratio(self.sums(time_s, values), self.counts(time_s, values), unit)
        times_s, numbers = np.asarray(time_s, dtype=float), np.asarray(values)
        finite = numbers.dtype.kind != "f" or ~np.isnan(numbers)
        if not np.all(finite):
            times_s, numbers = times_s[finite], numbers[finite]
        return self.ratio(self.sums(times_s, numbers), self.sums(times_s), unit)

    def spread(self, time_s: ArrayLike, values: ArrayLike | Series, unit: str) -> Metric:
        """Return the mean, as `mean`, with its percentiles; the interval of one lies between two ordered values."""
        mean = self.mean(time_s, values, unit)
        if isinstance(values, Series):
            assert values.sample_s is not None
            assert values.sample is not None
            time_s, values = values.sample_s, values.sample
        times_s, sample = np.asarray(time_s, dtype=float), np.asarray(values, dtype=float)
        known = self.inside(times_s) & ~np.isnan(sample)
        times_s, sample = times_s[known], sample[known]
        if not len(sample):
            return msgspec.structs.replace(mean, p50=mean, p90=mean, p99=mean)
        ordered, counts = np.sort(sample), self.sums(times_s)

        def percentile(level: float, value: float) -> Metric:
            needed = round(MIN_BEYOND / min(level, 1 - level), 6)  # 1 - 0.9 is slightly less than 0.1
            times_longer = max(self._times_longer(needed), needed / len(sample))
            if times_longer > 1:
                return Metric(value, unit=unit, times_longer=times_longer)
            if mean.drifting:
                return _still_changing(value, unit)
            low, high = quantile_levels(self.sums(times_s, sample <= value), counts, level)
            first, last = math.floor(low * len(sample)) - 1, math.ceil(high * len(sample))
            return Metric(value, float(ordered[max(first, 0)]), float(ordered[min(last, len(sample) - 1)]), unit)

        p50, p90, p99 = map(percentile, LEVELS, np.quantile(ordered, LEVELS).tolist())
        return msgspec.structs.replace(mean, p50=p50, p90=p90, p99=p99)

    def count(self, time_s: ArrayLike, unit: str) -> Metric:
        """Return a count, which has no interval."""
        return Metric(float(self.inside(time_s).sum()), unit=unit)

    def _times_longer(self, needed: float = MIN_RELAXATIONS) -> float:
        """Factor by which the window is too short for that many relaxation times, and for MIN_RELAXATIONS."""
        return max(1.0, max(needed, MIN_RELAXATIONS) / self.relaxations) if self.relaxations > 0 else math.inf

    def _estimate(self, value: float, means: Floats, unit: str) -> Metric:
        """Add the interval to a value with these batch means, if the run is long enough and stationary."""
        times_longer = self._times_longer()
        if times_longer == 1 and drifts(means):
            return _still_changing(value, unit)
        if len(means) < 2:
            times_longer = max(times_longer, 2.0)
        if times_longer > 1:
            return Metric(value, unit=unit, times_longer=times_longer)
        return Metric(value, *possible(batch_interval(means), value, means, unit), unit)


def _still_changing(value: float, unit: str) -> Metric:
    return Metric(value, unit=unit, times_longer=2.0, drifting=True)  # the longer run is tested again


def possible(interval: Interval, value: float, means: ArrayLike, unit: str) -> Interval:
    """Clip an interval, widened to its value, to what can be: at least 0 if all `means` are, and 0 to 1 for a share.

    The truth can be, so the clipped interval covers it as often.
    """
    low, high = min(interval[0], value), max(interval[1], value)
    least = 0.0 if np.min(means) >= 0 else -math.inf
    most = 1.0 if unit.startswith("share") else math.inf
    return min(max(low, least), most), min(max(high, least), most)
