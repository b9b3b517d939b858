"""Where models may run, and what an hour of each device costs: each pair of places is a candidate.

Prices are in any currency, in watts, or in devices.
"""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET

from experiments.plan.question import Place, PlannedPair
from fleet.errors import InputError
from fleet.hardware.passes import Placed, precisions_of
from fleet.hardware.profile import estimated_profile, placed_of
from fleet.scenario.changes import parts_of
from fleet.scenario.cost import Cost
from fleet.scenario.scenario import Drafters, Scenario

ROLES = ("target", "drafter")

Devices = tuple[str, int]
"""What a role runs on: the name of the device, and how many of them share its model."""


class Named(msgspec.Struct, frozen=True):
    """A place and its name, as short as distinguishes it from the others of its role."""

    placed: Placed
    name: str
    devices: Devices


def places_of(values: str | Iterable[str] | None, what: str) -> list[Named]:
    """Read MODEL@DEVICE, or several, in an order that does not depend on that of the texts; `what` names the role.

    Raises InputError for what is no place, and for one that is named twice.
    """
    if values is None:
        return []
    texts = sorted([values] if isinstance(values, str) else values)
    if not texts:
        raise InputError(f"{what} = []: needs one MODEL@DEVICE or more")
    placed = [placed_of(text) for text in texts]
    for place, text in enumerate(texts):
        if placed[place] in placed[:place]:
            raise InputError(f"{what} = {text!r}: the same as {texts[placed.index(placed[place])]!r}; name it once")
    wheres = [text.rpartition("@")[2] for text in texts]
    devices = [where.partition(":")[0] for where in wheres]
    is_one_model = all(one.shape == placed[0].shape for one in placed)
    forms = [devices, wheres, texts] if is_one_model else [texts]
    names = next(form for form in forms if len(set(form)) == len(form))
    bare = [device.removeprefix(f"{one.parallel}x") for device, one in zip(devices, placed, strict=True)]
    return [Named(one, name, (own, one.parallel)) for one, name, own in zip(placed, names, bare, strict=True)]


def pairs_of(
    base: Scenario, targets: Sequence[Named], drafts: Sequence[Named], costs: Sequence[str]
) -> tuple[PlannedPair, ...]:
    """Return every pair of a target's and a drafter's place, with its times and prices.

    Without places it is the scenario as it stands. Raises InputError for costs that leave a device without a price.
    """
    if not targets:
        if costs:
            raise InputError("--cost: no device has a name here; give the scenario [cost], or --target and --draft")
        return (PlannedPair(base, None, _named_unit(base.cost) if base.cost else Cost(1.0, 1.0, "device-hours")),)
    both = [(target, draft) for target in targets for draft in drafts]
    prices = _prices(base, costs, [(target.devices, draft.devices) for target, draft in both])
    of_drafts = [(draft.placed.shape, draft.placed.precision) for draft in drafts]
    are_alike = all(one == of_drafts[0] for one in of_drafts)
    pairs = []
    for (target, draft), price in zip(both, prices, strict=True):
        profile = estimated_profile(target.placed, draft.placed)
        placed = msgspec.structs.replace(base, profile=profile)
        beside = _beside(target.placed, draft.placed)
        pair = PlannedPair(placed, _colocated(placed, target.placed, beside), price)
        if len(both) > 1:
            model: Place = UNSET if are_alike else f"{beside.shape.name}:{beside.precision}"
            pair = msgspec.structs.replace(pair, target_place=target.name, draft_place=draft.name, beside=model)
        pairs.append(pair)
    return tuple(pairs)


def _prices(base: Scenario, costs: Sequence[str], devices: Sequence[tuple[Devices, Devices]]) -> list[Cost]:
    """Return what an hour of each pair's devices costs: as the question says, else by the scenario's `[cost]`."""
    own_cost = base.cost
    if costs or own_cost is None:
        return parse_costs(costs, devices)
    for role, own in zip(ROLES, zip(*devices, strict=True), strict=True):
        if len(set(own)) > 1:
            add = ",".join(f"{name}=COST" for name in dict.fromkeys(name for name, _ in own))
            raise InputError(f"scenario {base.name!r}: [cost] has one price for every {role}; give --cost {add}")
    return [_named_unit(own_cost)] * len(devices)


def _named_unit(cost: Cost) -> Cost:
    return msgspec.structs.replace(cost, unit=cost.unit or "cost")


def _beside(verifying: Placed, drafting: Placed) -> Placed:
    """Return the drafter on a target's device; in the target's precision where that device does not know its own.

    One engine serves both, with one precision of the KV cache.
    """
    precision = drafting.precision if drafting.precision in precisions_of(verifying.device) else verifying.precision
    named = f"{drafting.shape.name} beside the target"
    own = {"device": verifying.device, "precision": precision, "cache": verifying.cache, "parallel": 1, "named": named}
    return msgspec.structs.replace(drafting, **own)


def _colocated(base: Scenario, verifying: Placed, beside: Placed) -> Scenario:
    """Return the fleet of one target with its drafter on the target's own device."""
    replace, kind = msgspec.structs.replace, base.drafters.kind
    if beside.shape.head:
        kind = "eagle"
    drafters = Drafters(depth=base.drafters.depth, shape=base.drafters.shape, place="target", kind=kind)
    verifiers = replace(base.verifiers, count=1)
    return replace(
        base, profile=estimated_profile(verifying, beside), drafters=drafters, verifiers=verifiers, link=None
    )


def parse_costs(texts: Iterable[str], pairs: Sequence[tuple[Devices, Devices]]) -> list[Cost]:
    """Read `a100-80gb=1.8,rtx-4090=0.4`, each for an hour of one device, and return the prices of each pair.

    In watts, `a100-80gb=400W,rtx-4090=450W`, an hour costs as many Wh, and all prices are in watts, or none.
    `pairs`: what the target and the drafter of each candidate run on. Without texts every device costs one device-hour.
    Raises InputError for names that no device of the question has, and where one of them has no price.
    """
    names = {role: list(dict.fromkeys(pair[place][0] for pair in pairs)) for place, role in enumerate(ROLES)}
    every = list(dict.fromkeys(name for own in names.values() for name in own))
    prices, unit = read_prices(texts, every)
    if not prices:
        prices, unit = dict.fromkeys(every, 1.0), "device-hours"
    for role, own in names.items():
        if missing := [name for name in own if name not in prices]:
            add = ",".join(f"{name}=COST" for name in missing)
            raise InputError(f"--cost: the {role} has no price; add {add}, the cost of an hour")
    by_role = [[count * prices[name] for name, count in pair] for pair in pairs]
    return [Cost(target, drafter, unit) for target, drafter in by_role]


def read_prices(texts: Iterable[str], allowed: Sequence[str]) -> tuple[dict[str, float], str]:
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
