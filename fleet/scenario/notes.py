"""Notes: what a scenario or its host do that a reader may not expect, a line each; both worlds print them."""

from fleet.chance.acceptance import AcceptanceModel, Geometric, Recorded, expected_accepted
from fleet.chance.tokens import TokenModel
from fleet.errors import InputError
from fleet.scenario.scenario import Acceptance, Scenario, needs_of
from fleet.scenario.settled import Fleet
from fleet.times.profile import HardwareProfile

NEARLY = 0.01  # relative difference of two mean lengths that nobody needs to be told of


def notes_of(scenario: Scenario) -> list[str]:
    """Return what a run of the scenario should say before its results, in either world."""
    return overridden_acceptance(scenario)


def overridden_acceptance(scenario: Scenario) -> list[str]:
    """Say where the scenario's `[acceptance]` replaces that of its profile, with what both come to."""
    profile, given, depth = scenario.profile, scenario.acceptance, scenario.drafters.depth
    if not isinstance(profile, HardwareProfile) or profile.acceptance is None or given is None:
        return []
    if needs_of(scenario) != "lengths":  # no profile has what this rule looks at
        return []
    ours, measured = mean_accepted(given, depth), mean_accepted(profile.acceptance, depth)
    if ours is not None and measured is not None and abs(ours - measured) <= NEARLY * measured:
        return []
    kept = f"{accepts(given, depth)}, and replaces that of profile {profile.name}, {accepts(profile.acceptance, depth)}"
    return [f"[acceptance] is the scenario's, {kept}; leave the table out to simulate the profile's"]


def unused_acceptance(scenario: Scenario) -> list[str]:
    """Say of a run of the models that the scenario's `[acceptance]` has no part in it."""
    given = scenario.acceptance
    if given is None:
        return []
    simulated = f"a simulation of this scenario takes [acceptance], {accepts(given, scenario.drafters.depth)}"
    return [f"the models decide what is accepted in this run; {simulated}"]


def accepts(model: Acceptance, depth: int) -> str:
    """Name an acceptance model, with the mean accepted length at a depth, where it has one."""
    mean = mean_accepted(model, depth)
    name = str(model.__struct_config__.tag)
    if isinstance(model, Recorded):
        name = f"recorded in {len(model.sessions)} sessions"
    elif isinstance(model, Geometric):
        name = f"geometric with beta = {model.beta:g}"
    return name if mean is None else f"{name}: {mean:.2f} accepted tokens a round"


def mean_accepted(model: Acceptance, depth: int) -> float | None:
    """Return the mean accepted tokens of a round; None where the model knows single tokens, or less depth."""
    if isinstance(model, TokenModel):
        return None
    lengths: AcceptanceModel = model
    try:
        return expected_accepted(lengths, depth)
    except InputError:
        return None


def models_of(fleet: Fleet) -> int:
    """Return how many models run at a time, each in a process of its own."""
    return fleet.drafters.count + (fleet.verifiers.count if fleet.verifiers.kind == "real" else 0)


def crowds(fleet: Fleet, cores: int) -> bool:
    """Whether stations that have devices of their own would share the cores of one host without a GPU."""
    return fleet.batch is None and not fleet.devices and models_of(fleet) > cores
