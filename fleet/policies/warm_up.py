"""Warm-up: throw-away draft tokens after an idle gap, which restore the drafter's steady speed (StarSD, fig. 6c)."""

from typing import Annotated

import msgspec
from msgspec import Meta


class NoWarmUp(msgspec.Struct, frozen=True, tag="none", tag_field="policy", forbid_unknown_fields=True):
    """Draft at once."""

    def tokens_after(self, idle_gap_s: float) -> int:
        """Return the number of warm-up tokens before a step that follows `idle_gap_s` of idleness."""
        return 0


class AfterIdle(msgspec.Struct, frozen=True, tag="after-idle", tag_field="policy", forbid_unknown_fields=True):
    """Run throw-away tokens after a long idle gap.

    Keys:
        idle_gap_s: Minimum idle gap that triggers a warm-up.
        tokens (tokens): Number of warm-up tokens.
    """

    idle_gap_s: Annotated[float, Meta(ge=0, le=1e9)]
    tokens: Annotated[int, Meta(ge=1, le=4096)]

    def tokens_after(self, idle_gap_s: float) -> int:
        """Return the number of warm-up tokens before a step that follows `idle_gap_s` of idleness."""
        return self.tokens if idle_gap_s >= self.idle_gap_s else 0


WarmUp = NoWarmUp | AfterIdle
