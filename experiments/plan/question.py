"""The question of a plan: allowed fleets, devices, load, goals and prices; and a fleet as a scenario."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from specfleet.experiments.plan.goals import Goal
from specfleet.experiments.plan.prices import FREE
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.arrivals import Poisson
from specfleet.fleet.scenario.conflicts import unused_keys
from specfleet.fleet.scenario.cost import Cost
from specfleet.fleet.scenario.reading import change_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Drafters, Scenario, Verifiers, Workload
from specfleet.fleet.scenario.workload import mean_lengths
from specfleet.fleet.times.profile import HardwareProfile

Kind = Literal["drafters apart", "co-located", "no speculation"]
APART: Kind = "drafters apart"
COLOCATED: Kind = "co-located"
PLAIN: Kind = "no speculation"
Place = str | UnsetType
"""Where models run, named as far as candidates differ in it; unset where there is one candidate."""

Family = tuple[Kind, Place, Place]
"""What fleets have in common that differ in counts and levers alone: kind, place of targets, place of drafters."""

DEPTH = "drafters.depth"

MIN_REQUESTS, REQUESTS_PER_TARGET = 48, 12
ARRIVALS = 240
"""How many requests a simulation has: in a closed loop, and where they come by themselves."""


class FleetShape(msgspec.Struct, frozen=True):
    """A fleet that could be built: how many devices in which roles, and what else varies.

    - `drafters`: 0 without speculation, and where each target drafts for itself.
    - `levers`: values of the other varied keys, by dotted key; the depth is one.
    - `target_place`: only where a question has several pairs of places.
    - `draft_place`: in the same way; of drafters beside targets, which model it is, where pairs differ in that.
    """

    kind: Kind
    drafters: int
    targets: int
    levers: dict[str, Any] = {}
    target_place: Place = UNSET
    draft_place: Place = UNSET

    @property
    def family(self) -> Family:
        """What it has in common with fleets of other counts and levers."""
        return self.kind, self.target_place, self.draft_place

    @property
    def title(self) -> str:
        """The fleet in words."""
        levers = "".join(f", {key.rpartition('.')[2]} {value}" for key, value in self.levers.items())
        targets = ("1 target" if self.targets == 1 else f"{self.targets} targets") + _named(" on ", self.target_place)
        if self.kind == PLAIN:
            return f"{targets}, no speculation"
        if self.kind == APART:
            drafters = f"{self.drafters} drafter{'s' * (self.drafters > 1)}{_named(' on ', self.draft_place)}"
            return f"{drafters} for {targets}{levers}"
        each = "that drafts for itself" if self.targets == 1 else "that draft for themselves"
        return f"{targets} {each}{_named(' with ', self.draft_place)}{levers}"


def _named(before: str, place: Place) -> str:
    return "" if place is UNSET else f"{before}{place}"


class PlannedPair(msgspec.Struct, frozen=True):
    """A candidate: where targets and drafters run, with the times and the prices there; the only one has no places.

    - `base`: a fleet with drafters apart. Counts and depth vary; load, link, acceptance and times come from it.
    - `colocated`: the same with both models on a target's device, one target; None where the times there are unknown.
    - `beside`: which model drafts beside a target; left out where that is the same for all pairs.
    """

    base: Scenario
    colocated: Scenario | None
    prices: Cost
    target_place: Place = UNSET
    draft_place: Place = UNSET
    beside: Place = UNSET

    def fleet(self, kind: Kind, levers: Mapping[str, Any]) -> Scenario:
        """The fleet of a kind here that all others of it are made of, with other values of the varied keys."""
        base = self.colocated if kind == COLOCATED else self.base
        assert base is not None
        return change_scenario(base, levers) if levers else base

    def levers(self, kind: Kind, vary: Mapping[str, tuple[Any, ...]]) -> Iterator[dict[str, Any]]:
        """Yield every choice of values of the varied keys that fleets of a kind here know, and have room for."""
        keys = [key for key in vary if kind == APART or (kind == COLOCATED and self._takes(key, vary[key]))]
        choices = (dict(zip(keys, values, strict=True)) for values in product(*(vary[key] for key in keys)))
        yield from (levers for levers in choices if kind != COLOCATED or self._fits(levers))

    def _takes(self, key: str, values: tuple[Any, ...]) -> bool:
        """Whether fleets without drafters apart know a key."""
        try:
            return all(self.fleet(COLOCATED, {key: value}) for value in values)
        except InputError:
            return False

    def _fits(self, levers: Mapping[str, Any]) -> bool:
        """Whether requests have room on a device that holds the target and its drafter."""
        try:
            return bool(resolve(self.fleet(COLOCATED, levers)))
        except InputError:
            return False

    def family(self, kind: Kind) -> Family:
        """What all fleets of a kind here have in common; pairs with the same target's place share those of a kind."""
        return kind, self.target_place, {APART: self.draft_place, COLOCATED: self.beside, PLAIN: UNSET}[kind]


class Question(msgspec.Struct, frozen=True):
    """What a plan is to answer.

    - `pairs`: the candidates, one or more; load, link and acceptance are the same for all.
    - `drafters`, `targets`: the numbers to try. `vary`: further keys, and values of each to try; the depth is one.
    - `apart`: whether only fleets with drafters apart are to be chosen; the others stand beside them.
    """

    pairs: tuple[PlannedPair, ...]
    drafters: tuple[int, ...]
    targets: tuple[int, ...]
    vary: dict[str, tuple[Any, ...]]
    goals: tuple[Goal, ...]
    title: str = ""
    apart: bool = False

    @property
    def workload(self) -> Workload:
        """What is to be served."""
        return self.pairs[0].base.workload

    @property
    def unit(self) -> str:
        """What costs are in."""
        return self.pairs[0].prices.unit

    @property
    def arrivals_per_s(self) -> float:
        """Requests that come in a second; 0 where the targets decode all the time."""
        arrivals = self.workload.arrivals
        return arrivals.per_s if isinstance(arrivals, Poisson) else 0.0

    @property
    def offered_tokens_per_s(self) -> float:
        """Tokens that the arrivals ask for in a second; 0 without arrivals."""
        return self.arrivals_per_s * mean_lengths(self.workload)[1]

    def pair(self, shape: FleetShape) -> PlannedPair:
        """The pair of places that a fleet runs at: the first one, where pairs share such fleets."""
        return next(pair for pair in self.pairs if pair.family(shape.kind) == shape.family)

    def cost_per_hour(self, shape: FleetShape) -> float:
        """What an hour of a fleet costs."""
        return self.pair(shape).prices.per_hour(shape.drafters, shape.targets)

    def copies(self, shape: FleetShape) -> int:
        """How many times the fleet holds what is simulated of it: targets that have nothing to do with each other."""
        alone = shape.kind == COLOCATED or (shape.kind == PLAIN and not self.arrivals_per_s)
        return shape.targets if alone else 1

    def scenario(self, shape: FleetShape) -> Scenario:
        """The fleet, or the part of it that `copies` stands for, as a scenario; InputError for unfit levers."""
        replace = msgspec.structs.replace
        copies, base = self.copies(shape), self.pair(shape).fleet(shape.kind, {})
        workload, targets = base.workload, shape.targets // copies
        if isinstance(workload.arrivals, Poisson):
            arrivals = Poisson(1 / copies * workload.arrivals.per_s)
            workload = replace(workload, arrivals=arrivals, requests=max(ARRIVALS // copies, MIN_REQUESTS))
        else:
            workload = replace(workload, requests=max(REQUESTS_PER_TARGET * targets, MIN_REQUESTS))
        verifiers = replace(base.verifiers, count=targets)
        named = replace(base, name=shape.title, workload=workload, verifiers=verifiers)
        if shape.kind == PLAIN:
            return without_unused(replace(named, drafters=Drafters(count=0, depth=base.drafters.depth)))
        drafters = replace(base.drafters, count=1 if shape.kind == COLOCATED else shape.drafters)
        named = replace(named, drafters=drafters)
        return change_scenario(named, shape.levers) if shape.levers else named


def without_unused(scenario: Scenario) -> Scenario:
    """Return a scenario with those keys of its targets at their defaults that have no effect in it."""
    replace, usual = msgspec.structs.replace, msgspec.structs.asdict(Verifiers())
    names = [key.removeprefix("verifiers.") for key, _ in unused_keys(scenario)]
    unused = {name: usual[name] for name in names if name in usual}
    return replace(scenario, verifiers=replace(scenario.verifiers, **unused))


def fitting(question: Question) -> tuple[Question, list[str]]:
    """Return the question without the pairs of places at which no request fits into a KV cache, and a note on each."""
    pairs, notes = list[PlannedPair](), list[str]()
    for pair in question.pairs:
        try:
            resolve(pair.base)
            pairs.append(pair)
        except InputError as error:
            notes.append(f"left out, {pair.target_place}: {error}")
    return (msgspec.structs.replace(question, pairs=tuple(pairs)), notes) if pairs else (question, [])


def check(question: Question) -> None:
    """Raise InputError for a base that no plan can be made of."""
    for pair in question.pairs:
        base, arrivals = pair.base, pair.base.workload.arrivals
        drafters, verifiers = base.drafters, base.verifiers
        for refused, why in (
            (not drafters.count or drafters.place == "target",
             "a plan begins with a fleet of drafters and targets; leave drafters.count = 0 or drafters.place out"),
            (arrivals is not None and not isinstance(arrivals, Poisson),
             "workload.arrivals: a plan knows poisson arrivals, or none"),
            (base.workload.streams,
             "workload.streams: a plan has one request a target, or arrivals; leave it out, or give --in-flight"),
            (verifiers.verify is not None and pair.colocated is not None,
             "verifiers.verify would replace the times of --target; leave one of them out"),
            (drafters.device or verifiers.device,
             "a plan places drafters and targets itself; leave their devices out"),
            (drafters.profile or verifiers.profile,
             "a plan knows one profile; leave drafters.profile, verifiers.profile out"),
            (drafters.tiers or verifiers.tiers or base.faults,
             "a plan knows like devices without faults; leave tiers, faults out"),
            (not isinstance(base.profile, HardwareProfile), "a plan needs step times; name a profile"),
        ):  # fmt: skip
            if refused:
                raise InputError(f"scenario {base.name!r}: {why}")
        if not pair.prices.target_per_hour:
            raise InputError(f"plan: {FREE} (--cost, [cost] target_per_hour)")
