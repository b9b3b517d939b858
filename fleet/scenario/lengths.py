"""Lengths of prompts and answers: ranges, a lognormal law, and published workloads.

The lognormal law is truncated at the bounds. One uniform number gives one length, so laws can be compared at equal
draws.
"""

from functools import cache
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from specfleet.fleet.data.shipped import shipped_files
from specfleet.fleet.inputs.text import read_toml

Floats = NDArray[np.float64]
Tokens = Annotated[int, Meta(ge=1, le=10**7)]  # tokens of a text: no model reads more
LEVELS = 4096  # points at which a law is evaluated for its mean


class Between(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lengths from `low` to `high`, inclusive, drawn for each request, uniform or lognormal.

    Keys:
        low (tokens): The smallest length.
        high (tokens): The largest length; at least `low`.
        mean (tokens): Mean of a lognormal law before truncation to `low` and `high`; values beyond are drawn again.
            It needs `cv`. Left out, all lengths are equally likely.
        cv (factor): Coefficient of variation of the law, its standard deviation over its mean, before truncation.
    """

    low: Tokens
    high: Tokens
    mean: Annotated[float, Meta(ge=1, le=1e7)] | None = None
    cv: Annotated[float, Meta(gt=0, le=10)] | None = None

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low = {self.low} is above high = {self.high}")
        if (self.mean is None) != (self.cv is None):
            raise ValueError("a lognormal law needs mean and cv; leave both out for equally likely lengths")
        if self.mean is not None and not self.low <= self.mean <= self.high:
            raise ValueError(f"mean = {self.mean:g} is not between low = {self.low} and high = {self.high}")

    def at(self, uniforms: Floats) -> NDArray[np.int64]:
        """Return the lengths in tokens of a lognormal law for uniform numbers in [0, 1): its rounded quantiles."""
        from scipy.special import ndtr, ndtri  # noqa: PLC0415 (without drawn lengths scipy is not needed)

        assert self.mean is not None
        assert self.cv is not None
        spread = np.sqrt(np.log1p(self.cv**2))  # of the logarithm
        middle = np.log(self.mean) - spread**2 / 2
        first, last = (float(ndtr((np.log(end) - middle) / spread)) for end in (self.low - 0.5, self.high + 0.5))
        lengths: Floats = np.rint(np.exp(middle + spread * ndtri(first + uniforms * (last - first))))
        return np.clip(lengths, self.low, self.high).astype(np.int64)


@cache
def mean_tokens(length: int | Between) -> float:
    """Return the mean of a length, after truncation."""
    if isinstance(length, int):
        return length
    if length.mean is None:
        return (length.low + length.high) / 2
    return float(length.at((np.arange(LEVELS) + 0.5) / LEVELS).mean())


class Lengths(msgspec.Struct, frozen=True):
    """Tokens of a workload's texts, for any seed: the longest prompt with its answer, the longest answer, the means."""

    longest_text: int
    longest_answer: int
    mean_prompt: float
    mean_answer: float

    @property
    def middle(self) -> float:
        """Tokens in the middle of a text: the mean prompt and half of the mean answer."""
        return self.mean_prompt + self.mean_answer / 2


class Texts(msgspec.Struct, frozen=True):
    """Lengths of a published workload. `source`: which numbers are published, and which assumed."""

    prompts: Between
    answers: Between
    source: str


def by_quantiles(median: float, p90: float, high: int) -> Between:
    """Return the lognormal law with that median and 90th percentile, up to `high`."""
    variance = (np.log(p90 / median) / 1.2815515655446004) ** 2  # of the logarithm; the normal law's 90th percentile
    return Between(1, high, float(median * np.exp(variance / 2)), float(np.sqrt(np.expm1(variance))))


def _read_texts(table: dict[str, Any]) -> Texts:
    prompts, answers = (
        by_quantiles(**law) if "median" in law else Between(**law) for law in (table["prompts"], table["answers"])
    )
    return Texts(prompts, answers, table["source"])


TEXTS = {name: _read_texts(table) for name, table in read_toml(shipped_files("published")["lengths"]).items()}
"""Published workloads, by the name that `workload.lengths` takes: fleet/data/published/lengths.toml."""
