"""Where models may run: the places of a plan's targets and drafters, and each pair of them as a candidate."""

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET

from experiments.plan.prices import ROLES, Devices, Prices, parse_costs
from experiments.plan.question import Place, PlannedPair
from fleet.errors import InputError
from fleet.hardware.passes import Placed, precisions_of
from fleet.hardware.profile import estimated_profile, placed_of
from fleet.scenario.scenario import Scenario, SharedDevice

NAMELESS: Devices = ("", 1)  # what a scenario's profile runs on
OWN = "own"  # name of the device on which a co-located pair runs


class Named(msgspec.Struct, frozen=True):
    """A place and its name, as short as distinguishes it from the others of its role.

    `device`: the name of its devices alone, and how many of them share the model.
    """

    placed: Placed
    name: str
    device: Devices


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
    return [
        Named(one, name, (_device_name(device), one.parallel))
        for one, name, device in zip(placed, names, devices, strict=True)
    ]


def _device_name(device: str) -> str:
    """Return the device's own name: 4xh100 is four of h100."""
    count, times, name = device.partition("x")
    return name if times and count.isdecimal() else device


def pairs_of(
    base: Scenario, targets: Sequence[Named], drafts: Sequence[Named], costs: Sequence[str]
) -> tuple[PlannedPair, ...]:
    """Return every pair of a target's and a drafter's place, with its times and prices.

    Without places it is the scenario as it stands. Raises InputError for costs that leave a device without a price.
    """
    if not targets:
        return (PlannedPair(base, None, _prices(base, costs, [(NAMELESS, NAMELESS)])[0]),)
    both = [(target, draft) for target in targets for draft in drafts]
    prices = _prices(base, costs, [(target.device, draft.device) for target, draft in both])
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


def _prices(base: Scenario, costs: Sequence[str], devices: Sequence[tuple[Devices, Devices]]) -> list[Prices]:
    """Return what an hour of each pair's devices costs: as the question says, else by the scenario's `[cost]`."""
    own_cost = base.cost
    if costs or own_cost is None or not own_cost.has_prices:
        return parse_costs(costs, devices)
    for role, own in zip(ROLES, zip(*devices, strict=True), strict=True):
        if len(set(own)) > 1:
            add = ",".join(f"{name}=COST" for name in dict.fromkeys(name for name, _ in own))
            raise InputError(f"scenario {base.name!r}: [cost] has one price for every {role}; give --cost {add}")
    return [msgspec.structs.replace(own_cost, unit=own_cost.unit or "cost")] * len(devices)


def _beside(verifying: Placed, drafting: Placed) -> Placed:
    """Return the drafter on a target's device; in the target's precision where that device does not know its own."""
    precision = drafting.precision if drafting.precision in precisions_of(verifying.device) else verifying.precision
    named = f"{drafting.shape.name} beside the target"
    return msgspec.structs.replace(drafting, device=verifying.device, precision=precision, parallel=1, named=named)


def _colocated(base: Scenario, verifying: Placed, beside: Placed) -> Scenario:
    """Return the fleet of one target with its drafter on the target's own device."""
    replace = msgspec.structs.replace
    return replace(
        base,
        profile=estimated_profile(verifying, beside),
        devices={OWN: SharedDevice("one-process")},
        drafters=replace(base.drafters, count=1, device=OWN),
        verifiers=replace(base.verifiers, count=1, device=OWN),
        link=None,
    )
