"""Arrivals that are neither Poisson nor a trace: burstier or more even ones, and rates that change over a day."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from fleet.times.step_time import Seconds

Rate = Annotated[float, Meta(gt=0, le=1e9)]
Burstiness = Annotated[float, Meta(gt=0, le=1e6)]


class Gamma(msgspec.Struct, frozen=True, tag="gamma", tag_field="process", forbid_unknown_fields=True):
    """Requests, or first turns of conversations, come by themselves; the gaps between them have a gamma distribution.

    Keys:
        per_s (requests/s): How many come in a second, on average.
        burstiness (factor): Shape of the gaps' distribution, as vLLM's `--burstiness`: 1 is Poisson, below 1 requests
            come in bursts, above 1 more evenly. The gaps' squared coefficient of variation is 1 / burstiness.
    """

    per_s: Rate
    burstiness: Burstiness = 1.0

    def openings_s(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield when requests come, without end."""
        for count in _counts(rng, self.burstiness):
            yield count / self.per_s


class Ramp(msgspec.Struct, frozen=True, tag="ramp", tag_field="process", forbid_unknown_fields=True):
    """Requests come by themselves at a rate that changes over time: a ramp, or the curve of a day.

    A run of it has no steady state, so its metrics have no intervals: compare seeds.

    Keys:
        at_s: Times from 0 on, rising, at which the rate is known; it changes evenly between them.
        per_s (requests/s): The rate at each of them.
        repeat: Whether the curve begins anew after the last time, day after day. If not, the last rate stays; where
            that is 0 nobody comes any more.
        burstiness (factor): How even the arrivals are at any rate: 1 is Poisson, below 1 they come in bursts.
    """

    at_s: Annotated[tuple[Seconds, ...], Meta(min_length=1)]
    per_s: Annotated[tuple[Annotated[float, Meta(ge=0, le=1e9)], ...], Meta(min_length=1)]
    repeat: bool = False
    burstiness: Burstiness = 1.0

    def __post_init__(self) -> None:
        if len(self.at_s) != len(self.per_s):
            raise ValueError(f"a ramp needs one of per_s for each of at_s: {len(self.per_s)} for {len(self.at_s)}")
        if self.at_s[0] != 0 or any(later <= before for before, later in pairwise(self.at_s)):
            raise ValueError("at_s of a ramp begins with 0 and rises")
        if self.repeat and len(self.at_s) == 1:
            raise ValueError("repeat of a ramp needs two times at least: the last one of at_s is when it begins anew")
        if not any(self.per_s):
            raise ValueError("per_s of a ramp is 0 all the time, and nobody comes; allowed: a rate above 0 somewhere")

    def openings_s(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield when requests come; without end, unless the last rate is 0 and the curve does not repeat."""
        for count in _counts(rng, self.burstiness):
            at_s = self.until_s(count)
            if math.isinf(at_s):
                return
            yield at_s

    def until_s(self, count: float) -> float:
        """Return when so many requests are expected to have come; infinite where they never do."""
        pieces = list(pairwise(zip(self.at_s, self.per_s, strict=True)))
        areas = [(later - at) * (rate + after) / 2 for (at, rate), (later, after) in pieces]
        rounds, count = divmod(count, sum(areas)) if self.repeat else (0.0, count)
        for ((at, rate), (later, after)), area in zip(pieces, areas, strict=True):
            if (
                count <= area
            ):  # rate x + (after - rate) / (2 length) x^2 = count, in a form that holds where rates agree
                root = math.sqrt(max(rate**2 + 2 * count * (after - rate) / (later - at), 0.0))
                return rounds * self.at_s[-1] + at + (2 * count / (rate + root) if rate + root else 0.0)
            count -= area
        return self.at_s[-1] + count / self.per_s[-1] if self.per_s[-1] else math.inf


def _counts(rng: np.random.Generator, burstiness: float) -> Iterator[float]:
    """Yield at which expected number of arrivals each comes: sums of gamma numbers of mean 1."""
    count = 0.0
    while True:
        count += float(rng.gamma(burstiness, 1 / burstiness))
        yield count
