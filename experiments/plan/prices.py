"""What an hour of a device costs, and what a fleet does: in any currency, in watts, or in devices."""

from collections.abc import Iterable, Sequence

from fleet.errors import InputError
from fleet.scenario.changes import parts_of
from fleet.scenario.cost import Cost as Prices
from fleet.scenario.cost import per_million_tokens

__all__ = ["Prices", "parse_costs", "per_million_tokens"]

ROLES = ("target", "drafter")

Devices = tuple[str, int]
"""What a role runs on: the name of the device, empty if unknown, and how many of them share its model."""


def parse_costs(texts: Iterable[str], pairs: Sequence[tuple[Devices, Devices]]) -> list[Prices]:
    """Read `a100-80gb=1.8,rtx-4090=0.4`, or by role: `target=1.8,drafter=0.4`; each for an hour of one device.

    In watts, `a100-80gb=400W,rtx-4090=450W`, an hour costs as many Wh, and all prices are in watts, or none.
    `pairs`: what the target and the drafter of each candidate run on; returned are the prices of each. Without texts
    every device costs one device-hour. Raises InputError for names that no device of the question has, and where one of
    them has no price.
    """
    names = {role: list(dict.fromkeys(pair[place][0] for pair in pairs)) for place, role in enumerate(ROLES)}
    prices, unit = _read(texts, [*ROLES, *dict.fromkeys(name for own in names.values() for name in own if name)])
    if not prices:
        return [Prices(float(target), float(drafter), "device-hours") for (_, target), (_, drafter) in pairs]
    for role, own in names.items():
        missing = [name or role for name in own if role not in prices and name not in prices]
        if missing:
            add = ",".join(f"{name}=COST" for name in missing)
            raise InputError(f"--cost: the {role} has no price; add {add}, the cost of an hour")

    def price(role: str, devices: Devices) -> float:
        name, count = devices
        return count * prices.get(role, prices.get(name, 0.0))

    prices = [Prices(price("target", target), price("drafter", drafter), unit) for target, drafter in pairs]
    if not all(one.target_per_hour or one.drafter_per_hour for one in prices):
        raise InputError("--cost: every price is 0, and then every fleet costs the same; give one above 0")
    return prices


def _read(texts: Iterable[str], allowed: Sequence[str]) -> tuple[dict[str, float], str]:
    """Return prices by known name, and their unit; InputError for what is none."""
    prices: dict[str, float] = {}
    in_watts: set[bool] = set()
    for text in (part for whole in texts for part in parts_of(whole)):
        name, separator, value = (part.strip() for part in text.partition("="))
        in_watts.add(value.endswith("W"))
        try:
            price = float(value.removesuffix("W")) if separator else -1.0
        except ValueError:
            price = -1.0
        if not 0 <= price < 1e9:
            raise InputError(f"--cost {text}: write DEVICE=COST, the cost of an hour, for example {allowed[-1]}=1.8")
        if name not in allowed:
            raise InputError(f"--cost {text}: no device here is called {name!r}; allowed: {', '.join(allowed)}")
        prices[name] = price
    if len(in_watts) > 1:
        raise InputError("--cost: some prices are in watts and some are not; give all of them in one unit")
    return prices, "Wh" if in_watts == {True} else "cost"
