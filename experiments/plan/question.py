"""What is asked: which fleets may be built, for which load, goals and prices; and a fleet as a scenario."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from experiments.plan.goals import Goal
from experiments.plan.prices import Prices
from fleet.errors import InputError
from fleet.scenario.reading import change_scenario
from fleet.scenario.scenario import Poisson, Scenario

Kind = Literal["drafters apart", "co-located", "no speculation"]
APART, COLOCATED, PLAIN = "drafters apart", "co-located", "no speculation"
DEPTH = "drafters.depth"

FEWEST_REQUESTS, REQUESTS_PER_TARGET = 48, 12
ARRIVALS = 240
"""How many requests a simulation has: in a closed loop, and where they come by themselves."""


class Shape(msgspec.Struct, frozen=True):
    """A fleet that could be built: how many devices in which roles, and what else varies.

    Keys:
        kind: Drafters on devices of their own, drafters beside targets on theirs, or none.
        drafters (drafters): `M`; 0 without speculation, and where each target drafts for itself.
        targets (targets): `N`.
        levers: Values of the other varied keys, by dotted key; the depth is one.
    """

    kind: Kind
    drafters: int
    targets: int
    levers: dict[str, Any] = {}

    @property
    def title(self) -> str:
        """The fleet in words."""
        levers = ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in self.levers.items())
        targets = "1 target" if self.targets == 1 else f"{self.targets} targets"
        if self.kind == PLAIN:
            return f"{targets}, no speculation"
        if self.kind == APART:
            return f"{self.drafters} drafter{'s' * (self.drafters > 1)} for {targets}, {levers}"
        each = "that drafts for itself" if self.targets == 1 else "that draft for themselves"
        return f"{targets} {each}, {levers}"


class Question(msgspec.Struct, frozen=True):
    """What a plan is to answer.

    Keys:
        base: A fleet with drafters apart, whose counts and depth are varied; load, link, acceptance and times are its.
        colocated: The same with both models on a target's device, one target; None where nobody knows the times there.
        drafters (drafters): The numbers `M` to try.
        targets (targets): The numbers `N` to try.
        vary: Further keys, and values of each to try; the depth is one.
        goals: What is to be reached.
        prices: What devices cost.
        title: The question in a line.
        apart: Whether only fleets with drafters apart are to be chosen; the others stand beside them.
    """

    base: Scenario
    colocated: Scenario | None
    drafters: tuple[int, ...]
    targets: tuple[int, ...]
    vary: dict[str, tuple[Any, ...]]
    goals: tuple[Goal, ...]
    prices: Prices
    title: str = ""
    apart: bool = False

    @property
    def arrivals_per_s(self) -> float:
        """Requests that come in a second; 0 where the targets decode all the time."""
        arrivals = self.base.workload.arrivals
        return arrivals.per_s if isinstance(arrivals, Poisson) else 0.0

    def cost_per_hour(self, shape: Shape) -> float:
        """What an hour of a fleet costs."""
        return self.prices.per_hour(shape.drafters, shape.targets)

    def copies(self, shape: Shape) -> int:
        """How many times the fleet holds what is simulated of it: targets that have nothing to do with each other."""
        alone = shape.kind == COLOCATED or (shape.kind == PLAIN and not self.arrivals_per_s)
        return shape.targets if alone else 1

    def scenario(self, shape: Shape) -> Scenario:
        """The fleet, or the part of it that `copies` stands for, as a scenario; InputError for unfit levers."""
        replace = msgspec.structs.replace
        copies = self.copies(shape)
        base = self.colocated if shape.kind == COLOCATED else self.base
        assert base is not None
        workload, targets = base.workload, shape.targets // copies
        if isinstance(workload.arrivals, Poisson):
            per_s = workload.arrivals.per_s / copies
            workload = replace(workload, arrivals=Poisson(per_s), requests=max(ARRIVALS // copies, FEWEST_REQUESTS))
        else:
            workload = replace(workload, requests=max(REQUESTS_PER_TARGET * targets, FEWEST_REQUESTS))
        verifiers = replace(base.verifiers, count=targets)
        named = replace(base, name=shape.title, workload=workload, verifiers=verifiers)
        if shape.kind == PLAIN:
            return replace(named, drafters=type(base.drafters)(count=0))
        drafters = replace(base.drafters, count=1 if shape.kind == COLOCATED else shape.drafters)
        return with_levers(replace(named, drafters=drafters), shape.levers)


def with_levers(scenario: Scenario, levers: Mapping[str, Any]) -> Scenario:
    """Return the scenario with other values of the varied keys."""
    if set(levers) == {DEPTH}:  # the usual case, many times: nothing to read again
        drafters = msgspec.structs.replace(scenario.drafters, depth=levers[DEPTH])
        return msgspec.structs.replace(scenario, drafters=drafters)
    return change_scenario(scenario, levers)


def check(question: Question) -> None:
    """Raise InputError for a base that no plan can be made of."""
    base = question.base
    if base.batch is not None or not base.drafters.count:
        raise InputError(f"scenario {base.name!r}: a plan begins with a fleet of drafters and targets, without [batch]")
    if base.workload.arrivals is not None and not question.arrivals_per_s:
        raise InputError(f"scenario {base.name!r}: workload.arrivals: a plan knows poisson arrivals, or none")
    if base.drafters.device or base.verifiers.device:
        raise InputError(f"scenario {base.name!r}: a plan places drafters and targets itself; leave their devices out")
    if base.drafters.profile or base.verifiers.profile:
        raise InputError(
            f"scenario {base.name!r}: a plan knows one profile; leave drafters.profile, verifiers.profile out"
        )
    if base.drafters.tiers or base.verifiers.tiers or base.faults:
        raise InputError(f"scenario {base.name!r}: a plan knows like devices without faults; leave tiers, faults out")
