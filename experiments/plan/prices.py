"""Prices of devices: those that are given, else assumed ones by name."""

from collections.abc import Sequence

from fleet.errors import InputError
from fleet.scenario.changes import parts_of

PER_HOUR = {  # assumed: rounded prices of cloud providers for an hour, in dollars, of autumn 2026
    "h100": 3.0, "h100-pcie": 2.5, "h200": 3.8, "a100-80gb": 1.8, "a100-40gb": 1.3, "l40s": 1.0, "l4": 0.6,
    "rtx-4090": 0.45, "rtx-5090": 0.8, "jetson-orin": 0.1,
}  # fmt: skip
ASSUMED = "$ (assumed prices)"


def prices_of(costs: Sequence[str], places: Sequence[str]) -> tuple[dict[str, float], str]:
    """Return what an hour of each place costs, and the unit.

    - `costs`: `h100=3,l40s=1`, the price of an hour of one device; without them, assumed prices.
    - `places`: MODEL@DEVICE.

    Raises InputError for a device without a price.
    """
    given: dict[str, float] = {}
    for text in (part for whole in costs for part in parts_of(whole)):
        name, _, value = text.partition("=")
        try:
            given[name.strip()] = float(value)
        except ValueError as error:
            raise InputError(f"--cost {text}: write DEVICE=COST, the cost of an hour, for example h100=3") from error
    prices, found = given or PER_HOUR, {}
    for place in places:
        where = place.rpartition("@")[2].partition(":")[0]
        count, times, device = where.partition("x")
        number, device = (int(count), device) if times and count.isdecimal() else (1, where)
        if device not in prices:
            raise InputError(f"--cost: {device} has no price; add --cost {device}=COST, the cost of an hour")
        found[place] = number * prices[device]
    return found, "cost" if given else ASSUMED
