"""Throw-away draft tokens after an idle gap, which bring the drafter back to its steady speed (StarSD, fig. 6c)."""

from typing import Annotated

import msgspec
from msgspec import Meta


class NoWarmUp(msgspec.Struct, frozen=True, tag="none", tag_field="policy", forbid_unknown_fields=True):
    """Draft at once."""

    def tokens_after(self, idle_gap_s: float) -> int:
        """Warm-up tokens to run before a step that follows `idle_gap_s` of idleness."""
        return 0


class AfterIdle(msgspec.Struct, frozen=True, tag="after-idle", tag_field="policy", forbid_unknown_fields=True):
    """Run throw-away tokens whenever the drafter was idle for long enough.

    Keys:
        idle_gap_s: How long it must have been idle, at least.
        tokens (tokens): How many tokens it runs then.
    """

    idle_gap_s: Annotated[float, Meta(ge=0, le=1e9)]
    tokens: Annotated[int, Meta(ge=1, le=4096)]

    def tokens_after(self, idle_gap_s: float) -> int:
        """Warm-up tokens to run before a step that follows `idle_gap_s` of idleness."""
        return self.tokens if idle_gap_s >= self.idle_gap_s else 0


WarmUp = NoWarmUp | AfterIdle
