"""Times of steps and links: means by tokens and context, or by bytes, and their spread."""

from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from specfleet.fleet.times.roofline import Roofline

Seconds = Annotated[float, Meta(ge=0, le=1e9)]  # thirty years
Share = Annotated[float, Meta(ge=0, le=1)]
Factor = Annotated[float, Meta(gt=0, le=1e6)]


class Constant(msgspec.Struct, frozen=True, tag="constant", tag_field="spread", forbid_unknown_fields=True):
    """No spread: every draw is the mean."""

    def ratios(self, uniforms: np.ndarray) -> np.ndarray:
        """Multipliers of the mean for uniform numbers in [0, 1)."""
        return np.ones_like(uniforms)


class Exponential(msgspec.Struct, frozen=True, tag="exponential", tag_field="spread", forbid_unknown_fields=True):
    """Exponentially distributed times, as in queueing theory."""

    def ratios(self, uniforms: np.ndarray) -> np.ndarray:
        """Multipliers of the mean for uniform numbers in [0, 1)."""
        exponential: np.ndarray = -np.log1p(-uniforms)
        return exponential


class Quantiles(msgspec.Struct, frozen=True, tag="quantiles", tag_field="spread", forbid_unknown_fields=True):
    """The measured spread: quantiles of measured time over fitted time, interpolated between the levels.

    Keys:
        levels (share): Levels of the quantiles, rising from 0 to 1.
        ratios_at (factor): Measured time over fitted time at each level, rising.
    """

    levels: tuple[Share, ...]
    ratios_at: tuple[Annotated[float, Meta(ge=0, le=1e6)], ...]

    def __post_init__(self) -> None:
        rising = list(self.levels) == sorted(self.levels) and list(self.ratios_at) == sorted(self.ratios_at)
        if len(self.levels) != len(self.ratios_at) or len(self.levels) < 2 or not rising:
            raise ValueError("quantiles need equally many rising levels and ratios, two at least")

    def ratios(self, uniforms: np.ndarray) -> np.ndarray:
        """Multipliers of the mean for uniform numbers in [0, 1)."""
        interpolated: np.ndarray = np.interp(uniforms, self.levels, self.ratios_at)
        return interpolated


Spread = Constant | Exponential | Quantiles


class StepTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Time of a step over k tokens after n tokens of context: a + b k + c n + e k n, times the spread.

    StarSD's S(d) = d t_s (equation 5) is the case a = c = e = 0; `base_s` is a step's fixed time (kernel launches,
    Python). In a batch, tokens and context are those of the longest row, and further rows add their own terms. Tokens
    of further rows include their padding.

    Keys:
        base_s: `a`, the fixed time of a step.
        per_token_s (s/token): `b`, time of each token of the step (of its longest row).
        per_context_token_s (s/token): `c`, time of each token of context (of the longest row).
        per_token_context_s (s/token^2): `e`, time of each pair of a token and a context token: attention.
        per_row_s (s/row): Time of each row beyond the first.
        per_row_token_s (s/token): Time of each token of the rows beyond the longest.
        per_row_context_s (s/token): Time of each row beyond the first for every token of the longest row's context.
        several_s: Time added once if there are several rows: other kernels, and masks.
        several_per_token_s (s/token): Time added for each token of the longest row if there are several rows.
        spread: Spread of single times around this mean.
        roofline: Time of passes by a roofline, in addition to the terms above; estimated profiles have it.
    """

    base_s: Seconds = 0.0
    per_token_s: Seconds = 0.0
    per_context_token_s: Seconds = 0.0
    per_token_context_s: Seconds = 0.0
    per_row_s: Seconds = 0.0
    per_row_token_s: Seconds = 0.0
    per_row_context_s: Seconds = 0.0
    several_s: Seconds = 0.0
    several_per_token_s: Seconds = 0.0
    spread: Spread = Constant()
    roofline: Roofline | None = None

    def mean_s(self, tokens: float, context: float = 0.0, rows: int = 1, row_tokens: float = 0.0) -> float:
        """Mean time in seconds; `row_tokens`: tokens of all rows but the longest."""
        single_s = (
            self.base_s
            + self.per_token_s * tokens
            + self.per_context_token_s * context
            + self.per_token_context_s * tokens * context
        )
        if self.roofline is not None:
            single_s += self.roofline.mean_s(tokens, context)
        return single_s + self.rows_s(tokens, context, rows, row_tokens)

    def rows_s(self, tokens: float, context: float, rows: int, row_tokens: float) -> float:
        """Return the time of the rows beyond the first."""
        if rows == 1:
            return 0.0
        several_s = self.several_s + self.several_per_token_s * tokens
        rows_s = (self.per_row_s + self.per_row_context_s * context) * (rows - 1)
        added_s = several_s + rows_s + self.per_row_token_s * row_tokens
        if self.roofline is not None:
            added_s += self.roofline.mean_s(tokens, context, rows, row_tokens) - self.roofline.mean_s(tokens, context)
        return added_s

    def in_one_pass(self) -> "StepTime":
        """Return a chain's S(d) as that of a drafter of blocks: one pass whatever d, up to the ridge of a roofline."""
        return StepTime(
            base_s=self.base_s + self.per_token_s,
            per_context_token_s=self.per_context_token_s + self.per_token_context_s,
            per_row_s=self.per_row_s + self.per_row_token_s,
            per_row_context_s=self.per_row_context_s,
            several_s=self.several_s + self.several_per_token_s,
            spread=self.spread,
            roofline=self.roofline and self.roofline.in_one_pass(),
        )

    def slowed(self, factor: float) -> "StepTime":
        """Return the same step, `factor` times slower."""
        times_s = msgspec.structs.asdict(self)
        spread, roofline = times_s.pop("spread"), self.roofline.slowed(factor) if self.roofline is not None else None
        del times_s["roofline"]
        return StepTime(**{name: factor * time_s for name, time_s in times_s.items()}, spread=spread, roofline=roofline)


class LinkTime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One way over a link: latency (with jitter as its spread) plus payload over bandwidth.

    Keys:
        latency_s: Mean one-way latency.
        bandwidth_bytes_per_s (bytes/s): Bandwidth; left out, payload takes no time.
        spread: How single latencies spread around their mean.
    """

    latency_s: Seconds = 0.0
    bandwidth_bytes_per_s: Annotated[float, Meta(ge=1)] | None = None
    spread: Spread = Constant()

    def mean_s(self, payload_bytes: float) -> float:
        """Mean one-way time in seconds."""
        return self.latency_s + payload_bytes * self.s_per_byte

    @property
    def s_per_byte(self) -> float:
        """Time of each byte."""
        return 1 / self.bandwidth_bytes_per_s if self.bandwidth_bytes_per_s else 0.0
