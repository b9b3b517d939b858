"""Prices and power of devices: the table `[cost]`, and the cost of a million tokens."""

from typing import Annotated

import msgspec
from msgspec import Meta

from fleet.times.effects import Watts

HOUR_S = 3600.0
MILLION = 1e6
Price = Annotated[float, Meta(ge=0, le=1e9)]


class Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hourly price and power of each device. A device that both sides share counts as a target's.

    With prices, runs have the metric `cost_per_million_tokens`; with watts, those of energy.

    Keys:
        target_per_hour (the unit): Price of an hour of one target, all devices of its model together.
        drafter_per_hour (the unit): Price of an hour of one drafter.
        unit: Unit of the prices, EUR for example; it is printed beside them.
        target_w: Power of a target's device at all times, in place of the profile's `power`.
        drafter_w: Power of a drafter's device, in the same way.
    """

    target_per_hour: Price | None = None
    drafter_per_hour: Price | None = None
    unit: str = ""
    target_w: Watts | None = None
    drafter_w: Watts | None = None

    def per_hour(self, drafters: int, targets: int) -> float:
        """Price of a fleet's hour by its number of devices of each role; a missing price is 0."""
        return drafters * (self.drafter_per_hour or 0.0) + targets * (self.target_per_hour or 0.0)

    def watts(self, drafters: int, targets: int) -> float:
        """Power of a fleet, in the same way."""
        return drafters * (self.drafter_w or 0.0) + targets * (self.target_w or 0.0)

    @property
    def has_prices(self) -> bool:
        """Whether any device has a price."""
        return self.target_per_hour is not None or self.drafter_per_hour is not None

    @property
    def has_watts(self) -> bool:
        """Whether any device has watts."""
        return self.target_w is not None or self.drafter_w is not None


def per_million_tokens(cost_per_hour: float, tokens_per_s: float) -> float:
    """Return the cost of a million tokens.

    >>> per_million_tokens(3.6, 1000.0)
    1.0
    """
    return cost_per_hour / HOUR_S / tokens_per_s * MILLION
