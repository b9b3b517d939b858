"""The part of a run that counts, and how estimates with intervals come out of it."""

import math

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fleet.records.intervals import NO_INTERVAL, ratio_interval, student_t_interval

Floats = NDArray[np.float64]


class Metric(msgspec.Struct, frozen=True):
    """A measured value with its interval and its unit.

    Keys:
        value (the metric's): The estimate.
        low (the metric's): Lower end of its 95 % interval; NaN where there is none.
        high (the metric's): Upper end of its 95 % interval; NaN where there is none.
        unit: Its unit.
    """

    value: float
    low: float
    high: float
    unit: str


class Window(msgspec.Struct, frozen=True):
    """The part of a run that counts, in equal batches, and estimates from what falls into them.

    `edges_s`, shape (batches + 1,): ends of the batches in seconds since the run began. A batch includes its end, not
    its beginning.
    """

    edges_s: Floats

    @property
    def length_s(self) -> float:
        """Length of the window."""
        return float(self.edges_s[-1] - self.edges_s[0])

    @property
    def batch_s(self) -> float:
        """Length of one batch."""
        return self.length_s / (len(self.edges_s) - 1)

    def inside(self, time_s: ArrayLike) -> NDArray[np.bool_]:
        """Return whether each time falls into the window; NaN does not."""
        times_s = np.asarray(time_s, dtype=float)
        inside: NDArray[np.bool_] = (times_s > self.edges_s[0]) & (times_s <= self.edges_s[-1])
        return inside

    def sums(self, time_s: ArrayLike, values: ArrayLike = 1.0) -> Floats:
        """Sum `values` over each batch, by the times that they belong to: shape (batches,)."""
        times_s = np.asarray(time_s, dtype=float)
        inside = self.inside(times_s)
        batch = np.searchsorted(self.edges_s, times_s[inside]) - 1
        weights = np.broadcast_to(np.asarray(values, dtype=float), times_s.shape)[inside]
        return np.bincount(batch, weights, minlength=len(self.edges_s) - 1).astype(np.float64)

    def rate(self, sums: Floats, unit: str) -> Metric:
        """Build what there is a second from sums over batches; interval by batch means."""
        return Metric(float(sums.sum() / self.length_s), *student_t_interval(sums / self.batch_s), unit)

    def ratio(self, above: Floats, below: Floats, unit: str) -> Metric:
        """Build the ratio of two totals from sums over batches; interval by the delta method. NaN for x / 0."""
        value = above.sum() / below.sum() if below.sum() > 0 else math.nan
        return Metric(float(value), *ratio_interval(above, below), unit)

    def mean(self, time_s: ArrayLike, values: ArrayLike, unit: str) -> Metric:
        """Build the mean of the known values, by the times that they belong to; interval by the delta method."""
        times_s, known = np.asarray(time_s, dtype=float), ~np.isnan(np.asarray(values, dtype=float))
        return self.ratio(self.sums(times_s[known], np.asarray(values)[known]), self.sums(times_s[known]), unit)

    def count(self, time_s: ArrayLike, unit: str) -> Metric:
        """Count what happened; a count has no interval."""
        return Metric(float(self.inside(time_s).sum()), *NO_INTERVAL, unit)
