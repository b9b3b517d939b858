"""Prices of devices: those that are given, else assumed ones by name."""

from collections.abc import Sequence

from experiments.plan.places import read_prices
from fleet.errors import InputError

PER_HOUR = {  # assumed: rounded prices of cloud providers for an hour, in dollars, of autumn 2026
    "h100": 3.0, "h100-pcie": 2.5, "h200": 3.8, "a100-80gb": 1.8, "a100-40gb": 1.3, "l40s": 1.0, "l4": 0.6,
    "rtx-4090": 0.45, "rtx-5090": 0.8, "jetson-orin": 0.1, "b200": 5.0, "b300": 6.0, "gb200": 6.0, "gb300": 7.0,
    "h20": 2.0, "mi300x": 2.5, "mi355x": 4.0,
}  # fmt: skip
ASSUMED = "$ (assumed prices)"


def devices_of(place: str) -> tuple[str, int]:
    """Return the device of MODEL@DEVICE or MODEL@4xDEVICE, and how many of them share the model."""
    where = place.rpartition("@")[2].partition(":")[0]
    count, times, device = where.partition("x")
    return (device, int(count)) if times and count.isdecimal() else (where, 1)


def prices_of(costs: Sequence[str], places: Sequence[str]) -> tuple[dict[str, float], str]:
    """Return what an hour of each place costs, and the unit.

    - `costs`: `h100=3,l40s=1`, the price of an hour of one device; without them, assumed prices.
    - `places`: MODEL@DEVICE.

    Raises InputError for a device without a price.
    """
    devices = {place: devices_of(place) for place in places}
    names = list(dict.fromkeys(device for device, _ in devices.values()))
    given, unit = read_prices(costs, names)
    prices = given or PER_HOUR
    if missing := [name for name in names if name not in prices]:
        raise InputError(f"--cost: {missing[0]} has no price; add --cost {missing[0]}=COST, the cost of an hour")
    return {place: count * prices[device] for place, (device, count) in devices.items()}, unit if given else ASSUMED
