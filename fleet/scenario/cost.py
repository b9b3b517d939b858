"""Prices of devices: the table `[cost]`, and the cost of a million tokens."""

from typing import Annotated

import msgspec
from msgspec import Meta

Price = Annotated[float, Meta(ge=0, le=1e9)]


class Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hourly price of each device. A device that both sides share counts as a target's.

    Keys:
        target_per_hour (the unit): Price of an hour of one target, all devices of its model together.
        drafter_per_hour (the unit): Price of an hour of one drafter.
        unit: Unit of the prices, EUR for example; it is printed beside them.
    """

    target_per_hour: Price | None = None
    drafter_per_hour: Price | None = None
    unit: str = ""

    def per_hour(self, drafters: int, targets: int) -> float:
        """Price of a fleet's hour by its number of devices of each role; a missing price is 0."""
        return drafters * (self.drafter_per_hour or 0.0) + targets * (self.target_per_hour or 0.0)


def per_million_tokens(cost_per_hour: float, tokens_per_s: float) -> float:
    """Return the cost of a million tokens.

    >>> per_million_tokens(3.6, 1000.0)
    1.0
    """
    return cost_per_hour / 3600.0 / tokens_per_s * 1e6
