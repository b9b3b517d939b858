"""Prices of devices: those that are given, in any currency or in watts, else assumed ones."""

from collections.abc import Iterable, Sequence

import msgspec

from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.profile import devices_in
from specfleet.fleet.hardware.shipped import shipped_case
from specfleet.fleet.scenario.changes import parts_of
from specfleet.fleet.scenario.cost import Cost
from specfleet.fleet.scenario.scenario import Scenario

PER_HOUR = {  # assumed: rounded prices of cloud providers for an hour, in dollars, of autumn 2026
    "h100": 3.0, "h100-pcie": 2.5, "h200": 3.8, "a100-80gb": 1.8, "a100-40gb": 1.3, "l40s": 1.0, "l4": 0.6,
    "rtx-4090": 0.45, "rtx-5090": 0.8, "rtx-pro-6000": 1.6, "jetson-orin": 0.1, "b200": 5.0, "b300": 6.0, "gb200": 6.0,
    "gb300": 7.0, "h20": 2.0, "mi300x": 2.5, "mi355x": 4.0,
}  # fmt: skip
FREE = "an hour of a target costs 0, and then fleets without drafters are free; give it a price above 0"
ASSUMED, OF_COST, WATTS = "$ (assumed prices)", "units (as in --cost)", "Wh"


def read_prices(costs: Sequence[str], places: Sequence[str], decide: bool = True) -> tuple[dict[str, float], str]:
    """Return what an hour of each place costs, and the unit.

    - `costs`: `h100=3,l40s=1`, the price of an hour of one device; in watts, `h100=700W`, an hour costs as many Wh.
      Prices that it does not state are assumed, in dollars.
    - `places`: MODEL@DEVICE.
    - `decide`: whether costs choose among fleets; else, and of one kind of device, a missing price is a device-hour.

    Raises InputError for names that no place has, and for a device without a price.
    """
    names = list(dict.fromkeys(devices_in(place)[0] for place in places))
    prices, unit = _stated_prices(costs, names)
    if unit != WATTS and (usual := [name for name in names if name not in prices and name in PER_HOUR]):
        prices, unit = PER_HOUR | prices, f"$ (assumed for {', '.join(usual)})" if prices else ASSUMED
    missing = [name for name in names if name not in prices]
    if missing and not costs and not (decide and len(names) > 1):
        prices, unit = dict.fromkeys(names, 1.0), f"device-hours ({missing[0]} has no price)"
    elif missing:
        add = ",".join(f"{name}=COST" for name in missing)
        raise InputError(f"--cost: {missing[0]} has no price; add --cost {add}, the cost of an hour")
    devices = [(place, *devices_in(place)) for place in places]
    return {place: count * prices[device] for place, device, count in devices}, unit


def _stated_prices(texts: Iterable[str], allowed: Sequence[str]) -> tuple[dict[str, float], str]:
    """Return prices by known name, and their unit; InputError for what is none."""
    prices: dict[str, float] = {}
    in_watts: set[bool] = set()
    for text in (part for whole in texts for part in parts_of(whole)):
        name, separator, value = (part.strip() for part in text.partition("="))
        name = shipped_case(name)
        in_watts.add(value.endswith("W"))
        try:
            price = float(value.removesuffix("W")) if separator else -1.0
        except ValueError:
            price = -1.0
        if not 0 <= price < 1e9:
            raise InputError(f"--cost {text}: write DEVICE=COST, the cost of an hour, for example {allowed[-1]}=1.8")
        if name not in allowed:
            raise InputError(f"--cost {text}: no device here is called {name!r}; allowed: {', '.join(allowed)}")
        if name in prices:
            raise InputError(f"--cost {text}: {name} stands twice; give it once")
        prices[name] = price
    if len(in_watts) > 1:
        raise InputError("--cost: some prices are in watts and some are not; give all of them in one unit")
    return prices, WATTS if in_watts == {True} else OF_COST


def scenario_cost(scenario: Scenario) -> Cost:
    """Return the scenario's prices; without any, each station is a device, and costs a device-hour."""
    cost = scenario.cost or Cost(1.0, 1.0, "device-hours")
    return msgspec.structs.replace(cost, unit=cost.unit or "units (as in [cost])")


def prices_by_role(scenario: Scenario, targets: Sequence[str], drafters: Sequence[str]) -> tuple[dict[str, float], str]:
    """Return what an hour of each place costs by the scenario's `[cost]`, which has one price for each role."""
    cost = scenario_cost(scenario)
    prices: dict[str, float] = {}
    for role, places, price in (
        ("target", targets, cost.target_per_hour), ("drafter", drafters, cost.drafter_per_hour)
    ):  # fmt: skip
        devices = dict.fromkeys(map(devices_in, places))
        if len(devices) > 1:
            add = ",".join(f"{name}=COST" for name in dict.fromkeys(name for name, _ in devices))
            raise InputError(f"scenario {scenario.name!r}: [cost] has one price for every {role}; give --cost {add}")
        prices |= dict.fromkeys(places, price or 0.0)
    return prices, cost.unit
