"""Slowdown after idle gaps, memory of the KV cache, and electrical power."""

import bisect
from typing import Annotated

import msgspec
from msgspec import Meta

from specfleet.fleet.times.step_time import Factor, Seconds, Share

Bytes = Annotated[float, Meta(ge=0, le=1e18)]
USED = 0.92  # share of a device's memory that a server uses: vLLM's gpu_memory_utilization
NO_CACHE = "weights leave no memory for a KV cache; more devices (MODEL@2xDEVICE) or a smaller precision (:int4) help"
Watts = Annotated[float, Meta(ge=0, le=1e9)]


class IdleEffect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Slowdown of a drafter after an idle gap: flat, rising, flat or falling (StarSD, section 5.3 and figure 6b).

    Keys:
        gaps_s: Idle gaps, rising.
        slowdowns (factor): `slowdowns[i]` multiplies the draft time after a gap of `gaps_s[i]`, linear in between,
            flat outside. A single one holds after any gap: 1 is no slowdown.
        recoveries (share): `recoveries[w]` is the share of the excess that is left after w warm-up tokens (figure
            6c), flat beyond the last.
    """

    gaps_s: Annotated[tuple[Seconds, ...], Meta(min_length=1)] = (0.0,)
    slowdowns: Annotated[tuple[Factor, ...], Meta(min_length=1)] = (1.0,)
    recoveries: Annotated[tuple[Share, ...], Meta(min_length=1)] = (1.0,)

    def __post_init__(self) -> None:
        if len(self.slowdowns) == 1:
            msgspec.structs.force_setattr(self, "slowdowns", self.slowdowns * len(self.gaps_s))
        if len(self.gaps_s) != len(self.slowdowns) or list(self.gaps_s) != sorted(self.gaps_s):
            raise ValueError("idle effect needs rising gaps_s and one slowdown for each")

    def slowdown(self, idle_gap_s: float, warm_tokens: int = 0) -> float:
        """Multiplier of the draft time after `idle_gap_s` of idleness and `warm_tokens` warm-up tokens."""
        slowdown = interpolated(idle_gap_s, self.gaps_s, self.slowdowns)
        if not warm_tokens:
            return slowdown
        return 1 + (slowdown - 1) * self.recoveries[min(warm_tokens, len(self.recoveries) - 1)]


NEVER_IDLE = IdleEffect()
"""No slowdown after idle gaps."""


def interpolated(x: float, xs: tuple[float, ...], ys: tuple[float, ...]) -> float:
    """Piecewise linear interpolation, flat outside; for one number, `numpy.interp` is ten times slower."""
    right = bisect.bisect_right(xs, x)
    if right == 0:
        return ys[0]
    if right == len(xs):
        return ys[-1]
    share = (x - xs[right - 1]) / (xs[right] - xs[right - 1])
    return ys[right - 1] + share * (ys[right] - ys[right - 1])


class KvMemory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Memory of one device of a target for its KV cache, and what a token takes of it.

    Keys:
        free_bytes (bytes): Memory beside the target's weights and activations, of the 92 % of a device that a server
            uses; below 0 where that is not enough.
        memory_bytes (bytes): Memory of the device, for other shares of it (`verifiers.gpu_memory_utilization`). 0 is
            unknown.
        token_bytes (bytes/token): Keys and values of a token of the target.
        drafter_bytes (bytes): Weights of the drafter, if it is on the target's device.
        drafter_token_bytes (bytes/token): Keys and values of a token of that drafter.
    """

    free_bytes: Annotated[float, Meta(ge=-1e18, le=1e18)]
    token_bytes: Annotated[float, Meta(gt=0, le=1e18)]
    memory_bytes: Bytes = 0.0
    drafter_bytes: Bytes = 0.0
    drafter_token_bytes: Bytes = 0.0

    def tokens(self, beside: bool = False, used: float = USED) -> int:
        """Return how many tokens fit into a `used` share of the memory. `beside`: whether the drafter is there, too."""
        free_bytes, token_bytes = self.free_bytes + (used - USED) * self.memory_bytes, self.token_bytes
        if beside:
            free_bytes, token_bytes = free_bytes - self.drafter_bytes, token_bytes + self.drafter_token_bytes
        return max(int(free_bytes / token_bytes), 0)


class Power(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Electrical power of a device by activity.

    Keys:
        idle_w: While idle.
        draft_w: While it drafts, or prefills a drafter's cache.
        verify_w: In all other steps: verification, decoding, or prefill of a target's cache.
    """

    idle_w: Watts
    draft_w: Watts
    verify_w: Watts
