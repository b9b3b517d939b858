"""Ways to draft for a target: nothing, what texts repeat, a head, a small model beside it, a drafter elsewhere.

A candidate is a scenario of one target and its drafter; numbers of both, and the depth, vary later. Load, lengths and
policies are those of the scenario that is planned for; places, kinds and counts of stations are the plan's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from specfleet.experiments.plan import texts
from specfleet.experiments.plan.places import PRECISIONS, draft_places, on_target, succeeds, target_places
from specfleet.experiments.plan.prices import FREE, prices_by_role, read_prices, scenario_cost
from specfleet.fleet.acceptance.models import deepest
from specfleet.fleet.acceptance.published import Stated, Wanted
from specfleet.fleet.errors import InputError, MisfitError
from specfleet.fleet.hardware.one_pass import LONGEST
from specfleet.fleet.hardware.passes import LIMITS, Placed
from specfleet.fleet.hardware.positions import drafting_on
from specfleet.fleet.hardware.profile import estimated_profile, placed_of
from specfleet.fleet.hardware.words import FOUND, drafter_named
from specfleet.fleet.policies.group import AllWaiting, One
from specfleet.fleet.policies.order import Fifo
from specfleet.fleet.scenario.conflicts import unused_keys
from specfleet.fleet.scenario.facts import plain_step_s
from specfleet.fleet.scenario.prefill import Prefill
from specfleet.fleet.scenario.reading import change_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Drafters, Scenario, Verifiers
from specfleet.fleet.scenario.workload import read_lengths
from specfleet.fleet.times.profile import HardwareProfile, Server
from specfleet.fleet.times.step_time import LinkTime, StepTime

Method = Literal["none", "lookup", "suffix", "head", "block", "beside", "apart"]
KINDS: dict[str, Method] = {"eagle": "head", "block": "block", "lookup": "lookup", "suffix": "suffix"}
KV_KEYS = {f"verifiers.{name}" for name in ("kv_tokens", "kv_block_size", "gpu_memory_utilization")}
SPLIT = ", prefill apart"  # after the name of a method
PLACED = ("count", "depth", "place", "kind", "model")  # keys of a side that candidates vary
DEPTHS = tuple(range(1, 13))
LONGER = (15,)  # of blocks, whose tokens cost little: those of a DFlash block of 16


class Candidate(msgspec.Struct, frozen=True):
    """A way to draft for a target.

    - `base`: its fleet of one target.
    - `depths`: depths to try; 0 alone without drafts.
    - `target_per_hour`, `drafter_per_hour`: prices of their devices.
    - `target`, `place`: MODEL@DEVICE of target and drafter elsewhere; of a scenario's own stations their role alone.
    - `drafter`: the model that drafts; `placed`: where.
    - `stated`: limits of a server that the user states.
    - `server`: that runs there now; commands leave its options alone.
    - `accepted`: what a published acceptance is, and its source; and that texts leave the drafter's positions.
    - `shared_with`: of an acceptance that was stated without a name, its first drafter, a model if there is one.
    """

    name: str
    method: Method
    base: Scenario
    depths: tuple[int, ...]
    target_per_hour: float
    drafter_per_hour: float = 0.0
    target: str = "target"
    place: str = ""
    drafter: str = ""
    placed: Placed | None = None
    stated: frozenset[str] = frozenset()
    server: Server | None = None
    accepted: tuple[str, ...] = ()
    shared_with: str = ""

    @property
    def drafted_by(self) -> str:
        """The model that drafts, or the method without one."""
        return self.drafter or self.method

    @property
    def present(self) -> int:
        """The depth of its running server; 0 where that drafts in another way, or not at all, or a depth is set."""
        is_so = self.server and self.drafted_by == self.server.draft and "drafters.depth" not in self.stated
        return self.base.drafters.depth if is_so else 0


class Asked(msgspec.Struct, frozen=True):
    """What candidates are made of.

    - `scenario`: lengths and policies. `given`: its keys that a user set.
    - `targets`, `drafts`: places, as options name them; without targets the scenario's stations are planned.
    - `devices`: the budget, of which targets and drafters take devices; None for as many as it takes.
    - `serving`: whether targets are servers, with vLLM's limits, and not StarSD's, which have one request each.
    - `costs_decide`: whether costs choose among fleets.
    - `depths`: to try, () for all; `vary`: values of further keys.
    - `server`: that the scenario's times are of; `settings`: keys that a user sets beside its scenario.
    """

    scenario: Scenario
    targets: tuple[str, ...] = ()
    drafts: tuple[str, ...] = ()
    acceptance: tuple[str, ...] = ()
    link: str = ""
    cost: tuple[str, ...] = ()
    devices: Mapping[str, int] | None = None
    serving: bool = True
    costs_decide: bool = True
    given: frozenset[str] = frozenset()
    depths: tuple[int, ...] = ()
    vary: Mapping[str, Sequence[Any]] = {}
    server: Server | None = None
    settings: frozenset[str] = frozenset()


def make_candidates(asked: Asked) -> tuple[list[Candidate], str, list[str]]:
    """Return the candidates, plain decoding first at each target's place, the unit of their prices, and notes.

    Notes say what is assumed, and what is left out. Raises InputError for what cannot be read, and where no target fits
    on its devices.
    """
    parts = [draft.partition("@") for draft in asked.drafts]
    named = ("".join((drafter_named(model, asked.targets), *place)) for model, *place in parts)
    drafts = tuple(dict.fromkeys(named))
    asked = msgspec.structs.replace(asked, drafts=drafts)
    accepted = texts.acceptance_by_drafter(asked.acceptance, drafts)
    is_shared = "" in accepted and not isinstance(accepted[""], Wanted)
    shared = [model for model in dict.fromkeys(draft.partition("@")[0] for draft in drafts) if model not in accepted]
    if asked.targets:
        placed, unit, left_out = _placed(asked, accepted)
    else:
        placed, unit, left_out = _of_scenario(asked, accepted.get("")), scenario_cost(asked.scenario).unit, []
    if is_shared and shared:
        first = next((model for model in shared if model not in FOUND), shared[0])
        placed = [msgspec.structs.replace(one, shared_with=first * (one.drafted_by in shared)) for one in placed]
    made = [linked for candidate in placed for linked in _linked(asked.link, candidate)]
    made = [role for candidate in made for role in _roles(asked, candidate)]
    notes = list(texts.acceptance_notes(asked.acceptance))
    notes += dict.fromkeys(note for candidate in made for note in candidate.accepted)
    apart = [candidate for candidate in made if candidate.method == "apart"]
    if asked.link and not apart:
        raise InputError(f"--link {asked.link}: no drafter is elsewhere; give --draft MODEL@DEVICE, or leave it out")
    if apart and not asked.link:
        notes.append(_link_note(asked, apart[0]))
    notes += [*left_out, *_without_effect(asked, made)]
    if not all(candidate.target_per_hour for candidate in made):
        raise InputError(f"plan: {FREE} (--cost, [cost] target_per_hour)")
    return [varied for candidate in made for varied in _varied(candidate, asked.vary)], unit, notes


def unstated(candidates: Iterable[Candidate]) -> str:
    """Say which methods have the acceptance of a model because no other was stated; "" if none has."""
    said = {
        one.method: f"; BUT {one.name} has the acceptance of {one.shared_with}, for none was stated"
        for one in candidates
        if one.method in FOUND and one.shared_with not in ("", *FOUND)
    }
    return "".join(f"{text}: --acceptance {method}=SHARE states it" for method, text in said.items())


def _without_effect(asked: Asked, made: Sequence[Candidate]) -> Iterator[str]:
    """Note each key of a side that a user sets, and no candidate has."""
    for side, name in sorted({tuple(key.split(".")[:2]) for key in asked.given if "." in key}):
        if side in ("drafters", "verifiers") and name not in PLACED:
            stated = getattr(getattr(asked.scenario, side), name)
            if all(getattr(getattr(candidate.base, side), name) != stated for candidate in made):
                yield f"{side}.{name}: has no effect on any of the candidates"


def _linked(links: str, candidate: Candidate) -> Iterator[Candidate]:
    """Yield a candidate with each of the links that a user states, if its drafter is elsewhere."""
    listed = links.split(",") if links and candidate.method == "apart" else []
    stated = {text: texts.read_link(text) for text in map(str.strip, listed)}
    for said, link in stated.items():
        name = f"{candidate.name}, link {said}" if len(stated) > 1 else candidate.name
        base = msgspec.structs.replace(candidate.base, link=link)
        yield msgspec.structs.replace(candidate, name=name, base=base)
    if not stated:
        yield candidate


def _roles(asked: Asked, candidate: Candidate) -> Iterator[Candidate]:
    """Yield a candidate with targets that do all, and with prefill servers apart, where the scenario has some."""
    replace, base = msgspec.structs.replace, candidate.base
    prefill, together = base.verifiers.prefill, replace(base.verifiers, prefill=UNSET)
    yield replace(candidate, base=replace(base, verifiers=together))
    if prefill:
        if asked.devices is None:
            raise InputError("verifiers.prefill: prefill servers and targets divide a budget; give --devices")
        if candidate.method not in ("head", "beside"):
            prefill = Prefill(link=prefill.link, layers=prefill.layers)
        apart = replace(base.verifiers, prefill=prefill)
        yield replace(candidate, name=candidate.name + SPLIT, base=replace(base, verifiers=apart))


def _link_note(asked: Asked, apart: Candidate) -> str:
    """Say which link a plan takes that `--link` does not state."""
    link, profile = apart.base.link, apart.base.profile
    source = "the scenario's" if asked.scenario.link is not None else "assumed"
    if link is None and isinstance(profile, HardwareProfile):
        link, source = profile.link, f"that of profile {profile.name}"
    latency_ms, rate = (1e3 * link.latency_s, link.bandwidth_bytes_per_s) if link else (0.0, None)
    said = f"{latency_ms:g} ms one way{f', {rate / 125e6:g} Gbit/s' if rate else ''}"
    return f"link: {said} to drafters elsewhere, {source}; --link states another"


def _placed(asked: Asked, accepted: Mapping[str, Stated]) -> tuple[list[Candidate], str, list[str]]:
    """Return the candidates on named devices, the unit of their prices, and notes on places that are left out."""
    drafts = tuple(draft_places(asked.drafts, asked.devices))
    targets, reasons = dict[str, Placed](), dict[str, InputError]()
    for place in target_places(asked.targets, asked.devices):
        try:
            targets[place] = placed_of(place)
        except InputError as error:
            reasons[place] = error
    if not targets:
        raise list(reasons.values())[-1]
    elsewhere = [draft for draft in drafts if "@" in draft]
    kinds = [f"@{kind}" for kind in asked.devices or ()]
    if asked.cost or asked.scenario.cost is None:
        prices, unit = read_prices(asked.cost, [*targets, *elsewhere, *kinds], asked.costs_decide)
    else:
        prices, unit = prices_by_role(asked.scenario, list(targets), elsewhere)
    at_places = (_at(asked, place, target, drafts, prices, accepted) for place, target in targets.items())
    found = list(chain.from_iterable(at_places))
    made, misfits = ([one for one in found if isinstance(one, kind)] for kind in (Candidate, MisfitError))
    if misfits and all(one.method == "none" for one in made):
        raise misfits[0]
    usual = [] if any(PRECISIONS[0] in place for place in targets) else [one for one in reasons if PRECISIONS[0] in one]
    left_out = [f"left out: {one}: {error}" for one, error in reasons.items() if one in {*asked.targets, *usual[-1:]}]
    return made, unit, [*left_out, *dict.fromkeys(f"left out: {error}" for error in misfits)]


def _at(
    asked: Asked, place: str, target: Placed, drafts: Sequence[str], prices: Mapping[str, float],
    accepted: Mapping[str, Stated],
) -> Iterator[Candidate | MisfitError]:  # fmt: skip
    """Yield the candidates for a target at its place, and why drafters do not fit there."""
    server = asked.server if asked.server and asked.server.target == place else None
    target, lengths = placed_of(place, server.engine) if server else target, read_lengths(asked.scenario.workload)
    mean_text = lengths.mean_prompt + lengths.mean_answer

    def made(name: str, method: Method, drafter: Placed | None = None, model: str = "", where: str = "") -> Candidate:
        drafted_by = "" if method == "none" else model or method
        profile, known = estimated_profile(target, drafter), asked.scenario.profile
        if method in FOUND:  # on the host, while the device works
            profile = msgspec.structs.replace(profile, draft=StepTime(), draft_prefill=StepTime())
        if server and isinstance(known, HardwareProfile):  # of other ways to draft, the estimate by the same factors
            slower = {name: getattr(profile, name).slowed(factor) for name, factor in server.slower.items()}
            profile = msgspec.structs.replace(profile, request_s=known.request_s, **slower)
            profile = known if drafted_by == server.draft else profile
        usual = None if asked.server and drafted_by != asked.server.draft else asked.scenario.acceptance
        of_drafts, source = texts.acceptance_at(drafted_by, accepted, usual, target, drafter)
        profile, past = (profile, []) if where else drafting_on(profile, mean_text, lengths.longest_text)
        base, block = _base(asked, method, profile, target, of_drafts), drafter.shape.block if drafter else 0
        if not (asked.serving or base.verifiers.prefix_cache or KV_KEYS & asked.given) and succeeds(resolve, base):
            # For one request, which is all: the loop of stars knows no cache.
            base = msgspec.structs.replace(base, profile=msgspec.structs.replace(profile, kv=None))
        depths = _depths(asked, method, of_drafts, block)
        stated = frozenset(key.removeprefix("verifiers.") for key in (asked.settings if asked.server else asked.given))
        costs = prices[place], prices.get(where, 0.0)
        said = (*filter(None, (source,)), *past)
        is_counted = of_drafts is usual and not any(key.startswith("acceptance") for key in asked.settings)
        kept = server if is_counted or not server else msgspec.structs.replace(server, requests=0)
        return Candidate(name, method, base, depths, *costs, place, where, model, drafter, stated, kept, said)

    yield made("no speculation", "none")
    seen = set[str]()
    for text in drafts:
        model, _, where = text.rpartition("@") if "@" in text else (text, "", "")
        try:
            placed = on_target(text, place, target)
            if placed is None:
                yield made(FOUND[model], KINDS[model])
                continue
            if placed.named not in seen:  # the same model on several devices is once on the target's
                seen.add(placed.named)
                method: Method = "block" if placed.shape.block else "head" if placed.shape.head else "beside"
                yield made(placed.named, method, placed, model)
            if where and not placed.shape.head:
                yield made(text, "apart", placed_of(text), model, text)
        except MisfitError as error:
            yield error


def _of_scenario(asked: Asked, accepted: Stated | None) -> list[Candidate]:
    """Return the candidates of a scenario's own stations: its fleet, and the same without speculation."""
    scenario, cost = asked.scenario, scenario_cost(asked.scenario)
    if isinstance(accepted, Wanted):
        raise InputError(f"{accepted.said}: rows are of models, and no station has a name here; give --target")
    if asked.cost:
        raise InputError("--cost: no device has a name here; give the scenario [cost], or --target")
    if not isinstance(scenario.profile, HardwareProfile):
        raise InputError(f"scenario {scenario.name!r}: a plan needs step times; name a profile, or give --target")
    drafters, made = scenario.drafters, list[Candidate]()
    if drafters.first:
        raise InputError(f"scenario {scenario.name!r}: drafters.first: no plan compares it; sweep it, or leave it out")
    plain = _base(asked, "none", scenario.profile, None, None)
    if plain_step_s(fleet := resolve(plain), 1.0) > 0 and fleet.verifiers.times:
        made.append(Candidate("no speculation", "none", plain, (0,), cost.target_per_hour or 0.0))
    if drafters.count:
        method: Method = "apart" if drafters.place == "own" else KINDS.get(drafters.kind, "beside")
        model = accepted or scenario.acceptance
        base = _base(asked, method, scenario.profile, None, model)
        name = "a drafter apart" if method == "apart" else f"drafts on the target's device ({drafters.kind})"
        place, price = ("drafter", cost.drafter_per_hour or 0.0) if method == "apart" else ("", 0.0)
        depths = _depths(asked, method, model or scenario.profile.acceptance, drafters.kind == "block" and LONGEST)
        made.append(Candidate(name, method, base, depths, cost.target_per_hour or 0.0, price, place=place))
    return made


def _base(asked: Asked, method: Method, profile: HardwareProfile, target: Placed | None, accepted: Any) -> Scenario:
    """Return the fleet of one target: the scenario's policies as far as they have an effect."""
    replace, scenario = msgspec.structs.replace, asked.scenario
    stated = scenario.drafters
    kept = Drafters(depth=stated.depth, shape=stated.shape)
    placed: dict[Method, Drafters] = {
        "none": Drafters(count=0),
        **{named: replace(kept, place="target", kind=kind) for kind, named in KINDS.items()},
        "beside": replace(kept, place="target"),
        "apart": replace(stated, count=1, place="own", kind="block" if profile.one_pass else stated.kind),
    }
    drafters = placed[method]
    in_turn = isinstance(drafters.group, One) and isinstance(drafters.order, Fifo) and method == "apart"
    if asked.serving and in_turn and "drafters.group" not in asked.given:
        drafters = replace(drafters, group=AllWaiting())  # requests share steps, as in every server
    link = scenario.link
    if method == "apart":
        link = link or (LinkTime() if target is not None else None)
    elif target is not None or method == "none":
        link = None
    made = replace(
        scenario, profile=profile, acceptance=accepted, drafters=drafters, link=link, cost=None,
        verifiers=_verifiers(asked, target),
    )  # fmt: skip
    usual = msgspec.structs.asdict(Verifiers())
    names = [key.removeprefix("verifiers.") for key, _ in unused_keys(made)]
    unused = {name: usual[name] for name in names if name in usual}
    return replace(made, verifiers=replace(made.verifiers, **unused))


def _verifiers(asked: Asked, target: Placed | None) -> Verifiers:
    """Return the rules of targets: of servers vLLM's limits, where the scenario states no others."""
    rules, usual = asked.scenario.verifiers, Verifiers()
    limits = LIMITS[False] if target is None else target.limits
    stated = {name for name in limits if f"verifiers.{name}" in asked.given}
    stated |= {name for name in limits if getattr(rules, name) not in (1, getattr(usual, name))}
    changed = {name: value for name, value in limits.items() if asked.serving and name not in stated}
    return msgspec.structs.replace(rules, count=1, **changed)


def _depths(asked: Asked, method: Method, accepted: Any, block: int) -> tuple[int, ...]:
    """Return the depths to try, as far as the acceptance of drafts is known; of a block as far as it goes."""
    if method == "none":
        return (0,)
    known = min(deepest(accepted), block or LONGEST)
    tried = asked.depths or (*DEPTHS, *(LONGER if block else ()))
    return tuple(dict.fromkeys(int(min(depth, known)) for depth in tried))


def _varied(candidate: Candidate, vary: Mapping[str, Sequence[Any]]) -> Iterator[Candidate]:
    """Yield a candidate for every choice of values of further keys; without drafters apart, of those that it knows.

    A rule of lengths has its own depths, of which the longest stands for all.
    """
    base, apart = candidate.base, candidate.method == "apart"
    keys = [key for key in vary if apart or all(succeeds(change_scenario, base, {key: value}) for value in vary[key])]
    for values in product(*(vary[key] for key in keys)):
        levers = dict(zip(keys, values, strict=True))
        said = [candidate.name, *(f"{key.rpartition('.')[2]} {value}" for key, value in levers.items())]
        base = change_scenario(candidate.base, levers) if levers else candidate.base
        rule = base.verifiers.allocate
        depths = candidate.depths if rule is None else (rule.longest,)
        stated = candidate.stated | {key.removeprefix("verifiers.") for key in levers}
        yield msgspec.structs.replace(candidate, base=base, name=", ".join(said), depths=depths, stated=stated)
