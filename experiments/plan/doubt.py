"""How far an answer may be off: chance in the simulation, and step times that are not what the profile says.

The choice itself is made at the profile's times. Around the chosen fleet all steps of a drafter, then all of a target,
are simulated slower and faster by what profiles of that kind miss single steps by; the effects add in squares.
"""

import math
from collections.abc import Mapping, Sequence

import msgspec

from experiments.plan.question import PLAIN, Question, Shape
from experiments.plan.race import Entrant
from experiments.plan.trial import Trial, trial_of
from fleet.scenario.scenario import Scenario
from fleet.times.labels import basis_of
from fleet.times.profile import HardwareProfile

STEP_ERROR = {"measured": 0.17, "estimated": 0.26, "stated": 0.26, "assumed": 0.50}
"""By which share a role's step times are taken to be off, at 95 %, by what they rest on.

Measured: what blind predictions of a whole demo missed by at worst, on a quiet host. Estimated: of 107 step times
that others measured, `specfleet reproduce estimates` misses 95 % by less. Stated ones are taken for no better; for
those that are assumed, nobody knows.
"""

BETTER = 0.10  # by how much better hardware is tried, to say what would help most
DRAFTER_STEPS = ("draft", "draft_prefill")
TARGET_STEPS = ("verify", "verify_prefill", "decode")


class Range(msgspec.Struct, frozen=True):
    """A value and where it may lie, chance and step times considered.

    Keys:
        value (the metric's): The mean over the seeds.
        low (the metric's): Lower end of the 95 % interval.
        high (the metric's): Upper end of it.
        chance (share): Half of the interval that the simulation's chance alone gives.
    """

    value: float
    low: float
    high: float
    chance: float

    def holds_by_chance(self, value: float, half: float = 0.0) -> bool:
        """Whether a value, itself known to plus or minus `half` at 95 %, differs from this one by chance alone."""
        return abs(value - self.value) <= math.hypot(self.chance * self.value, half)


def error_of(profile: HardwareProfile) -> float:
    """By which share step times of a profile are taken to be off, at 95 %."""
    return STEP_ERROR[basis_of(profile)]


def slowed(scenario: Scenario, steps: Sequence[str], factor: float) -> Scenario:
    """Return the scenario with some steps of its profile, and what it says of verifiers, `factor` times slower."""
    replace, profile = msgspec.structs.replace, scenario.profile
    assert isinstance(profile, HardwareProfile)
    times = {name: getattr(profile, name).slowed(factor) for name in steps}
    verifiers = scenario.verifiers
    if verifiers.verify is not None and "verify" in steps:
        verifiers = replace(verifiers, verify=verifiers.verify.slowed(factor))
    return replace(scenario, profile=replace(profile, **times), verifiers=verifiers)


def doubts_of(shape: Shape, error: float) -> list[tuple[str, tuple[str, ...], float]]:
    """Name what is tried of a fleet: a label, the steps, and how many times slower they are."""
    roles = [] if shape.kind == PLAIN else [("drafters", DRAFTER_STEPS)]
    roles.append(("targets", TARGET_STEPS))
    factors = (1 / (1 + error), 1 + error, 1 - BETTER)
    return [(role, steps, factor) for role, steps in roles for factor in factors]


def doubt(question: Question, shape: Shape, steps: Sequence[str], factor: float) -> Trial:
    """Simulate a fleet, with the first seed, whose steps are `factor` times slower."""
    return trial_of(question, shape, 0, slowed(question.scenario(shape), steps, factor))


def ranges_of(best: Entrant, tried: Mapping[tuple[str, float], Trial]) -> dict[str, Range]:
    """Return every metric of a fleet with its range; `tried`: by role and factor, what slower and faster steps give."""
    base = best.trials[0].values
    ranges = {}
    for name in base:
        value, half = best.mean(name), best.half_width(name)
        chance = 0.0 if math.isnan(half) or not value else half / abs(value)
        low = high = chance**2
        if base[name]:
            by_role: dict[str, list[float]] = {}
            for (role, factor), trial in tried.items():
                if name in trial.values and abs(factor - (1 - BETTER)) > 1e-9:
                    by_role.setdefault(role, []).append(trial.values[name] / base[name] - 1)
            low += sum(min(0.0, *effects) ** 2 for effects in by_role.values())
            high += sum(max(0.0, *effects) ** 2 for effects in by_role.values())
        ranges[name] = Range(value, value * max(0.0, 1 - math.sqrt(low)), value * (1 + math.sqrt(high)), chance)
    return ranges


def helps_most(best: Entrant, tried: Mapping[tuple[str, float], Trial], metric: str) -> tuple[str, float]:
    """Return whose steps, BETTER quicker, change a metric most, and by which share."""
    base = best.trials[0].values[metric]
    effects = {
        role: trial.values[metric] / base - 1
        for (role, factor), trial in tried.items()
        if abs(factor - (1 - BETTER)) < 1e-9 and metric in trial.values
    }
    return max(effects.items(), key=lambda effect: abs(effect[1]))
