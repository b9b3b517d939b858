"""Where models may run, and what an hour of each device costs: each pair of places is a candidate.

Prices are in any currency, in watts, or in devices.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import UNSET

from specfleet.experiments.plan.prices import prices_of
from specfleet.experiments.plan.question import Place, PlannedPair, without_unused
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.passes import Placed
from specfleet.fleet.hardware.profile import beside, check_tokenizer, devices_in, estimated_profile, placed_of
from specfleet.fleet.scenario.cost import Cost
from specfleet.fleet.scenario.scenario import Drafters, Scenario


class Named(msgspec.Struct, frozen=True):
    """A place as the user wrote it, and its name, as short as distinguishes it from the others of its role."""

    text: str
    placed: Placed
    name: str


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
    return [Named(*named) for named in zip(texts, placed, names, strict=True)]


def pairs_of(
    base: Scenario, targets: Sequence[Named], drafts: Sequence[Named], costs: Sequence[str]
) -> tuple[PlannedPair, ...]:
    """Return every pair of a target's and a drafter's place, with its times and prices.

    Without places it is the scenario as it stands. Raises InputError for costs that leave a device without a
    price, and for a drafter with another tokenizer.
    """
    if not targets:
        if costs:
            raise InputError("--cost: no device has a name here; give the scenario [cost], or --target and --draft")
        return (PlannedPair(base, None, _named_unit(base)),)
    of_drafts = [(draft.placed.shape, draft.placed.precision) for draft in drafts]
    are_alike = all(one == of_drafts[0] for one in of_drafts)
    pairs = []
    for target, draft, price in _priced(base, targets, drafts, costs):
        check_tokenizer(f"--draft {draft.text}", draft.placed.shape, target.placed.shape)
        kind = "eagle" if draft.placed.shape.head else base.drafters.kind
        drafters = msgspec.structs.replace(base.drafters, kind=kind)
        profile = estimated_profile(target.placed, draft.placed)
        placed = msgspec.structs.replace(base, profile=profile, drafters=drafters)
        drafter = beside(target.placed, draft.placed.shape, draft.placed.precision)
        pair = PlannedPair(placed, _colocated(placed, target.placed, drafter), price)
        if len(targets) * len(drafts) > 1:
            model: Place = UNSET if are_alike else f"{drafter.shape.name}:{drafter.precision}"
            pair = msgspec.structs.replace(pair, target_place=target.name, draft_place=draft.name, beside=model)
        pairs.append(pair)
    return tuple(pairs)


def _priced(
    base: Scenario, targets: Sequence[Named], drafts: Sequence[Named], costs: Sequence[str]
) -> Iterator[tuple[Named, Named, Cost]]:
    """Yield every pair with what an hour of its devices costs: as `costs` say, else by the scenario's `[cost]`."""
    by_role = not costs and base.cost is not None
    for role, own in (("target", targets), ("drafter", drafts)):
        devices = dict.fromkeys(devices_in(one.text) for one in own)
        if by_role and len(devices) > 1:
            add = ",".join(f"{name}=COST" for name in dict.fromkeys(name for name, _ in devices))
            raise InputError(f"scenario {base.name!r}: [cost] has one price for every {role}; give --cost {add}")
    prices, unit = ({}, "") if by_role else prices_of(costs, [one.text for one in (*targets, *drafts)], by_count=True)
    for target, draft in itertools.product(targets, drafts):
        yield target, draft, _named_unit(base) if by_role else Cost(prices[target.text], prices[draft.text], unit)


def _named_unit(base: Scenario) -> Cost:
    cost = base.cost or Cost(1.0, 1.0, "device-hours")
    return msgspec.structs.replace(cost, unit=cost.unit or "cost")


def _colocated(base: Scenario, verifying: Placed, beside: Placed) -> Scenario:
    """Return the fleet of one target with its drafter on the target's own device."""
    replace, drafters = msgspec.structs.replace, base.drafters
    return without_unused(replace(
        base, profile=estimated_profile(verifying, beside), verifiers=replace(base.verifiers, count=1), link=None,
        drafters=Drafters(depth=drafters.depth, shape=drafters.shape, place="target", kind=drafters.kind),
    ))  # fmt: skip
