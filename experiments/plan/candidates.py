"""Ways to draft for one target: nothing, prompt lookup, a head, a small model beside it, a drafter elsewhere."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from specfleet.experiments.plan.prices import FREE, prices_of
from specfleet.fleet.acceptance.models import AcceptanceModel, Geometric, PerPosition, deepest, survival
from specfleet.fleet.acceptance.places import ByPlace
from specfleet.fleet.errors import InputError
from specfleet.fleet.hardware.passes import Placed, precisions_of
from specfleet.fleet.hardware.profile import beside, check_tokenizer, devices_in, estimated_profile, placed_of
from specfleet.fleet.hardware.shape import ModelShape
from specfleet.fleet.hardware.shipped import shape_of
from specfleet.fleet.inputs.quantities import quantity
from specfleet.fleet.policies.group import AllWaiting
from specfleet.fleet.scenario.reading import read_scenario
from specfleet.fleet.scenario.scenario import Acceptance, Drafters, Scenario, Verifiers
from specfleet.fleet.times.profile import HardwareProfile, read_profile
from specfleet.fleet.times.step_time import LinkTime, StepTime

Method = Literal["none", "lookup", "head", "beside", "apart"]
DEPTHS = tuple(range(1, 9))
LOOKUP = "lookup"
DRAFTERS: dict[Method, Drafters] = {
    "none": Drafters(count=0),
    "lookup": Drafters(place="target", kind="lookup"),
    "head": Drafters(place="target", kind="eagle"),
    "beside": Drafters(place="target"),
    "apart": Drafters(group=AllWaiting()),
}
LARGE_BYTES = 70 * 2**30  # memory of a device from which vLLM's defaults are larger, but for an A100
LIMITS = {True: (1024, 8192), False: (256, 2048)}  # max_num_seqs, max_num_batched_tokens: vLLM's, by large memory


LINK_KEYS = ("latency_s", "bandwidth_bytes_per_s")


class Candidate(msgspec.Struct, frozen=True):
    """A way to draft for a target.

    - `base`: its fleet of one target. Requests in flight, depth and the number of targets of a drafter vary.
    - `depths`: depths to try: as far as its acceptance is known.
    - `target_per_hour`, `drafter_per_hour`: prices of their devices.
    - `target`, `drafter`: models and devices as the user names them.
    """

    name: str
    method: Method
    base: Scenario
    depths: tuple[int, ...]
    target_per_hour: float
    drafter_per_hour: float = 0.0
    target: str = ""
    drafter: str = ""

    def depths_to_try(self, asked: int) -> tuple[int, ...]:
        """Return the depth that is asked for, as far as acceptance is known; of 0, all of them; 0 without drafts."""
        known = int(min(asked, deepest(self.base.acceptance)))
        return (known,) if asked and self.depths else self.depths or (0,)


class Asked(msgspec.Struct, frozen=True):
    """What candidates are made of: a target's place, drafters, acceptance by drafter, link, prices, and the load."""

    target: str
    drafts: tuple[str, ...]
    acceptance: tuple[str, ...]
    load: Scenario
    link: str = ""
    cost: tuple[str, ...] = ()
    priced: tuple[str, ...] = ()  # further places that prices may name


def candidates_of(asked: Asked) -> tuple[list[Candidate], str]:
    """Return the candidates, plain decoding first, and the unit of their prices; InputError for what cannot be read."""
    target = placed_of(asked.target)
    accepted = acceptance_of(asked.acceptance)
    models = ["", *dict.fromkeys(draft.rpartition("@")[0] or draft for draft in asked.drafts)]
    for name in accepted.keys() - models:
        raise InputError(
            f"--acceptance {name}=...: no drafter is called so; allowed: {', '.join(models[1:]) or 'none'}"
        )
    devices = [asked.target, *(draft for draft in asked.drafts if "@" in draft), *asked.priced]
    prices, unit = prices_of(asked.cost, devices)
    if not prices[asked.target]:
        raise InputError(f"--cost {','.join(asked.cost)}: {FREE}")
    made = [_candidate(asked, "no speculation", "none", target, None, prices)]
    for text in asked.drafts:
        model, _, where = text.rpartition("@") if "@" in text else (text, "", "")
        is_beside = model == LOOKUP or bool(shape_of(model).head)
        if where and is_beside and (kind := devices_in(asked.target)[0]) != devices_in(text)[0]:
            raise InputError(f"--draft {text}: drafts on its target's device, {kind}; leave @{where} out")
        if model == LOOKUP:
            made.append(_candidate(asked, "prompt lookup", "lookup", target, None, prices, _known(LOOKUP, accepted)))
            continue
        of_model = _known(model, accepted)
        shape = shape_of(model)
        placed = beside(target, shape, _precision(text, target, shape))
        check_tokenizer(f"--draft {text}", shape, target.shape)
        method: Method = "head" if shape.head else "beside"
        if all(one.name != placed.named for one in made):  # the same model on several devices is once on the target's
            made.append(_candidate(asked, placed.named, method, target, placed, prices, of_model, model))
        if where and method == "beside":
            placed = placed_of(text)
            made.append(_candidate(asked, text, "apart", target, placed, prices, of_model, model))
    if asked.link and all(one.method != "apart" for one in made):
        raise InputError(f"--link {asked.link}: no drafter is elsewhere; give --draft MODEL@DEVICE, or leave it out")
    return made, unit


def _candidate(
    asked: Asked, name: str, method: Method, target: Placed, drafter: Placed | None, prices: Mapping[str, float],
    accepted: AcceptanceModel | None = None, model: str = "",
) -> Candidate:  # fmt: skip
    """Return a candidate with its times; InputError for places that do not fit."""
    replace = msgspec.structs.replace
    device = target.device
    seqs, tokens = LIMITS[device.memory_bytes.value >= LARGE_BYTES and "A100" not in device.title]
    profile = estimated_profile(target, drafter)
    if method == "lookup":  # on the host, while the device works
        profile = replace(profile, draft=StepTime(), draft_prefill=StepTime())
    base = replace(
        asked.load, name=name, profile=profile, acceptance=accepted, drafters=DRAFTERS[method], devices={}, faults=(),
        verifiers=Verifiers(max_num_seqs=seqs, max_num_batched_tokens=tokens),
        link=None if method != "apart" else link_of(asked.link) if asked.link else asked.load.link or LinkTime(),
    )  # fmt: skip
    depths = () if method == "none" else tuple(depth for depth in DEPTHS if depth <= deepest(accepted))
    of_drafter = prices[name] if method == "apart" else 0.0
    return Candidate(name, method, base, depths, prices[asked.target], of_drafter, asked.target, model)


def _precision(text: str, target: Placed, shape: ModelShape) -> str:
    """Return a drafter's precision on the target's device: its own, else that of its checkpoint, which is the target's
    for an MTP module, and in 16 bits for others.
    """
    asked = text.rpartition("@")[2].partition(":")[2].partition(":")[0] if "@" in text else ""
    usual = target.precision if shape.head == "mtp" else "bf16"
    return asked if asked in precisions_of(target.device) else usual


def acceptance_of(texts: Sequence[str]) -> dict[str, AcceptanceModel]:
    """Read `0.8`, `.82,.68,.57` or `MODEL=.82,.68`: one probability for every token, or the share of drafts that reach
    each position; or a file, `MODEL=FILE.toml`, a scenario or a profile. By drafter, "" for all others.
    """
    models: dict[str, AcceptanceModel] = {}
    for text in texts:
        name, _, values = text.rpartition("=")
        if name in models:
            raise InputError(f"--acceptance {text}: {name or 'all drafters'} got one before; leave one of them out")
        if Path(values).suffix in (".toml", ".json"):
            models[name] = acceptance_in(Path(values))
            continue
        try:
            numbers = [float(value) for value in values.split(",")]
            if not all(0 <= one <= 1 for one in numbers):
                raise ValueError
            models[name] = Geometric(numbers[0]) if len(numbers) == 1 else PerPosition(survival=tuple(numbers))
        except ValueError as error:
            raise InputError(
                f"--acceptance {text}: write a share, falling shares by position, or a file: 0.8, .8,.65,.5 or "
                "FILE.toml; with a name before it of one drafter alone, MODEL=.8,.65"
            ) from error
    return models


def acceptance_in(path: Path) -> AcceptanceModel:
    """Return the acceptance in a scenario (TOML), as `specfleet import` writes it, or in a profile (JSON).

    Acceptance by place becomes that by position: the shares of drafts at its depth that reach each one. Raises
    InputError for a file without acceptance of drafts.
    """
    if path.suffix == ".json":
        model: Acceptance | None = read_profile(str(path), Path()).acceptance
    else:
        scenario = read_scenario(path)
        profile = scenario.profile
        own = profile.acceptance if isinstance(profile, HardwareProfile) else None
        model = scenario.acceptance or own
    if isinstance(model, ByPlace):
        return PerPosition(survival=tuple(survival(model, model.depth).tolist()))
    if not isinstance(model, AcceptanceModel):
        raise InputError(f"--acceptance {path}: has no acceptance of drafts; `specfleet import` writes files that have")
    return model


def _known(model: str, accepted: Mapping[str, AcceptanceModel]) -> AcceptanceModel:
    found = accepted.get(model, accepted.get(""))
    if found is None:
        raise InputError(f"--acceptance {model}=...: missing; give the share of {model}'s draft tokens that pass")
    return found


def link_of(text: str) -> LinkTime:
    """Read a link; nothing is none. Raises InputError for anything else."""
    found: dict[str, float] = {}
    for part in filter(None, text.split("+")):
        for key in LINK_KEYS:
            try:
                number = quantity(part, key, False)
            except ValueError:
                continue
            if number is not None and key not in found and (number > 0 or (number == 0 and key == LINK_KEYS[0])):
                found[key] = number
                break
        else:
            raise InputError(f"--link {text}: {part!r} is neither; write a latency, a bandwidth, or both: 25Gbit+50us")
    return LinkTime(**found)
