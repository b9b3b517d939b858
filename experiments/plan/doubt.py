"""How far an answer may be off: chance in the simulation, and step times that are not what the profile says.

The choice itself is made at the profile's times. Around the chosen fleet all steps of a drafter, then all of a target,
are simulated slower and faster by what profiles of that kind miss single steps by; the effects add in squares.
"""

import math
from collections.abc import Mapping, Sequence

import msgspec

from specfleet.experiments.plan.goals import ATTAINMENT
from specfleet.experiments.plan.question import PLAIN, FleetShape, Question
from specfleet.experiments.plan.screen import screen
from specfleet.experiments.plan.trials import TIMES, Entrant, Interval, Values
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.times.profile import HardwareProfile

STEP_ERROR = {"measured": 0.17, "estimated": 0.26, "stated": 0.26, "assumed": 0.50}
"""By which share a role's step times are taken to be off, at 95 %, by what they rest on.

Measured: what blind predictions of a whole demo missed by at worst, on a quiet host. Estimated: of 107 step times
that others measured, `specfleet reproduce estimates` misses 95 % by less. Stated ones are taken for no better; for
those that are assumed, the error is a guess.
"""

BETTER = 0.10  # by how much better hardware is tried, to say what would help most
STEPS = {"drafters": ("draft", "draft_prefill"), "targets": ("verify", "verify_prefill", "decode")}

Doubts = Mapping[str, Sequence[Values]]
"""What a fleet does where the steps of a role are quicker and slower by their error, and where they are better."""


class Range(Interval, frozen=True):
    """A mean over the seeds and its 95 % interval, chance and step times considered.

    - `chance`: half of the interval that the simulation's chance alone gives, as a share.
    """

    chance: float


def slowed(scenario: Scenario, role: str, factor: float) -> Scenario:
    """Return the scenario with a role's steps in its profile, and what it says of verifiers, `factor` times slower."""
    replace, profile = msgspec.structs.replace, scenario.profile
    assert isinstance(profile, HardwareProfile)
    times = {name: getattr(profile, name).slowed(factor) for name in STEPS[role]}
    verifiers = scenario.verifiers
    if verifiers.verify is not None and role == "targets":
        verifiers = replace(verifiers, verify=verifiers.verify.slowed(factor))
    return replace(scenario, profile=replace(profile, **times), verifiers=verifiers)


def doubts_of(question: Question, shape: FleetShape, error: float) -> dict[str, list[Scenario]]:
    """Return the fleet with quicker, slower and better steps, by role."""
    scenario = question.scenario(shape)
    factors = {"quicker": 1 / (1 + error), "slower": 1 + error, "better": 1 - BETTER}
    return {
        role: [
            msgspec.structs.replace(slowed(scenario, role, factor), name=f"{shape.title}, {role} {how}")
            for how, factor in factors.items()
        ]
        for role in (["targets"] if shape.kind == PLAIN else STEPS)
    }


def carries(question: Question, shape: FleetShape, role: str, factor: float) -> bool:
    """Whether a fleet with a role's steps `factor` times slower carries the arrivals, by equations.

    Simulations find an overload in full steps alone, and have too few requests to fill them.
    """
    replace, pair = msgspec.structs.replace, question.pair(shape)
    colocated = pair.colocated and slowed(pair.colocated, role, factor)
    slower = replace(pair, base=slowed(pair.base, role, factor), colocated=colocated)
    levers = {key: (value,) for key, value in shape.levers.items()}
    fleets = screen(replace(question, pairs=(slower,), targets=(shape.targets,), vary=levers))
    return any(one.shape == shape and one.tpot_s < math.inf for one in fleets)


def ranges_of(best: Entrant, tried: Doubts) -> dict[str, Range]:
    """Return every metric of a fleet with its range, from what slower and quicker steps give.

    Times have no upper end where a fleet with slower steps does not carry its load.
    """
    ranges = {}
    for name, base in best.trials[0].items():
        if name == "overload":  # a chosen fleet carries its load
            continue
        value, half = best.mean(name), best.half_width(name)
        chance = 0.0 if math.isnan(half) or not value else half / abs(value)
        low = high = chance**2
        for quicker, slower, _ in tried.values() if base else ():
            effects = [trial[name] / base - 1 for trial in (quicker, slower) if name in trial]
            if slower.get("overload"):  # waits grow without end
                effects.append(math.inf if name.startswith(TIMES) else -1.0 if name == ATTAINMENT else 0.0)
            low += min(0.0, *effects, 0.0) ** 2
            high += max(0.0, *effects, 0.0) ** 2
        ranges[name] = Range(value, value * max(0.0, 1 - math.sqrt(low)), value * (1 + math.sqrt(high)), chance)
    return ranges


def helps_most(best: Entrant, tried: Doubts, metric: str) -> tuple[str, float]:
    """Return the role with the largest effect on a metric when its steps are BETTER quicker, and the change (share)."""
    base = best.trials[0][metric]
    effects = {role: better[metric] / base - 1 for role, (_, _, better) in tried.items() if metric in better}
    return max(effects.items(), key=lambda effect: abs(effect[1]))
