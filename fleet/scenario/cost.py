"""What devices cost and draw: the table `[cost]`, and what a million tokens cost."""

from typing import Annotated

import msgspec
from msgspec import Meta

from fleet.times.effects import Watts

HOUR_S = 3600.0
MILLION = 1e6
Price = Annotated[float, Meta(ge=0, le=1e9)]


class Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an hour of each device costs, and what each draws. A device that both sides share counts as a target's.

    With prices runs have the metric `cost_per_million_tokens`, with watts those of energy.

    Keys:
        target_per_hour (the unit): What an hour of one target costs, all devices that share its model together.
        drafter_per_hour (the unit): What an hour of one drafter costs.
        unit: What these costs are in, EUR for example; it is printed beside them.
        target_w: What a target's device draws, whatever it does, in place of the profile's `power`.
        drafter_w: What a drafter's device draws, in the same way.
    """

    target_per_hour: Price | None = None
    drafter_per_hour: Price | None = None
    unit: str = ""
    target_w: Watts | None = None
    drafter_w: Watts | None = None

    def per_hour(self, drafters: int, targets: int) -> float:
        """What an hour of a fleet costs, by its devices of each role; what has no price costs nothing."""
        return drafters * (self.drafter_per_hour or 0.0) + targets * (self.target_per_hour or 0.0)

    def watts(self, drafters: int, targets: int) -> float:
        """What a fleet draws, in the same way."""
        return drafters * (self.drafter_w or 0.0) + targets * (self.target_w or 0.0)

    @property
    def has_prices(self) -> bool:
        """Whether anything has a price."""
        return self.target_per_hour is not None or self.drafter_per_hour is not None

    @property
    def has_watts(self) -> bool:
        """Whether it says what devices draw."""
        return self.target_w is not None or self.drafter_w is not None


def per_million_tokens(cost_per_hour: float, tokens_per_s: float) -> float:
    """What a million tokens cost.

    >>> per_million_tokens(3.6, 1000.0)
    1.0
    """
    return cost_per_hour / HOUR_S / tokens_per_s * MILLION
