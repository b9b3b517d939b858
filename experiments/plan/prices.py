"""What an hour of a device costs, and what a fleet does: in any currency, in watts, or in devices."""

from collections.abc import Iterable

from fleet.errors import InputError
from fleet.scenario.changes import parts_of
from fleet.scenario.cost import Cost as Prices
from fleet.scenario.cost import per_million_tokens

__all__ = ["Prices", "parse_costs", "per_million_tokens"]

ROLES = ("target", "drafter")


def parse_costs(texts: Iterable[str], target: tuple[str, int], drafter: tuple[str, int]) -> Prices:
    """Read `a100-80gb=1.8,rtx-4090=0.4`, or by role: `target=1.8,drafter=0.4`; each for an hour of one device.

    In watts, `a100-80gb=400W,rtx-4090=450W`, an hour costs as many Wh, and all prices are in watts, or none.
    `target`, `drafter`: the name of the device that each runs on, empty if unknown, and how many of them share its
    model. Without texts every device costs one device-hour. Raises InputError for names that no device of the question
    has, and where one of them has no price.
    """
    told: dict[str, float] = {}
    in_watts: set[bool] = set()
    devices = {"target": target, "drafter": drafter}
    known = [*ROLES, *dict.fromkeys(name for name, _ in devices.values() if name)]
    for text in (part for given in texts for part in parts_of(given)):
        name, separator, value = (part.strip() for part in text.partition("="))
        in_watts.add(value.endswith("W"))
        try:
            price = float(value.removesuffix("W")) if separator else -1.0
        except ValueError:
            price = -1.0
        if not 0 <= price < 1e9:
            raise InputError(f"--cost {text}: write DEVICE=COST, the cost of an hour, for example {known[-1]}=1.8")
        if name not in known:
            raise InputError(f"--cost {text}: no device here is called {name!r}; allowed: {', '.join(known)}")
        told[name] = price
    if len(in_watts) > 1:
        raise InputError("--cost: some prices are in watts and some are not; give all of them in one unit")
    if not told:
        return Prices(float(target[1]), float(drafter[1]), "device-hours")
    prices = {}
    for role, (name, count) in devices.items():
        if role not in told and name not in told:
            raise InputError(f"--cost: the {role} has no price; add {name or role}=COST, the cost of an hour")
        prices[role] = count * told.get(role, told.get(name, 0.0))
    if not any(prices.values()):
        raise InputError("--cost: every price is 0, and then every fleet costs the same; give one above 0")
    return Prices(prices["target"], prices["drafter"], "Wh" if in_watts == {True} else "cost")
