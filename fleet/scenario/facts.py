"""Facts of a scenario that several rooms print: acceptance, models, devices, plain step time."""

from specfleet.fleet.acceptance.models import BetaGeometric, Geometric, Recorded, expected_accepted, needs_fit
from specfleet.fleet.acceptance.tokens import TokenModel
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Acceptance, Scenario, needs_of
from specfleet.fleet.times.profile import HardwareProfile


def accepts(model: Acceptance, depth: int) -> str:
    """Return the name of an acceptance model, with its mean accepted length at a depth if it has one."""
    mean = mean_accepted(model, depth)
    name = str(model.__struct_config__.tag)
    if isinstance(model, Recorded):
        name = f"recorded in {len(model.sessions)} sessions"
    elif isinstance(model, Geometric):
        name = f"geometric with beta = {model.beta:g}"
    elif isinstance(model, BetaGeometric):
        name = f"beta-geometric with a = {model.a:.3g}, b = {model.b:.3g}"
    return name if mean is None else f"{name}: {mean:.2f} accepted tokens a verification"


def mean_accepted(model: Acceptance, depth: int) -> float | None:
    """Return the mean accepted tokens of a round; None for token-level models and for smaller recorded depths."""
    if isinstance(model, TokenModel):
        return None
    try:
        return expected_accepted(model, depth)
    except InputError:
        return None


def is_stated(model: Acceptance | None) -> bool:
    """Return whether a scenario's acceptance is its own: not its profile's, nor a fit to that."""
    return model is not None and not needs_fit(model)


def replaced_acceptance(scenario: Scenario) -> Recorded | None:
    """Return the profile's measured lengths if the scenario's own `[acceptance]` replaces them.

    None if nothing was measured or replaced, fitted, or if a rule needs signals, which no profile has.
    """
    profile = scenario.profile
    measured = profile.acceptance if isinstance(profile, HardwareProfile) else None
    replaces = is_stated(scenario.acceptance) and needs_of(scenario) == "lengths"
    return measured if replaces and isinstance(measured, Recorded) else None


def crowds(fleet: Fleet, cores: int) -> bool:
    """Return whether stations with devices of their own would share the cores of one host without a GPU."""
    return not fleet.devices and fleet.models > cores


def devices_of(fleet: Fleet) -> tuple[int, int]:
    """Return the number of devices of drafters and of targets; a shared device counts as the targets'."""
    of_drafters, of_targets = fleet.drafters.device, fleet.verifiers.device
    drafters = fleet.drafters.stations if not of_drafters else int(of_drafters != of_targets)
    return drafters, 1 if of_targets else fleet.verifiers.servers


def plain_step_s(fleet: Fleet, context: float, target: int = 0) -> float:
    """Return the mean time of a target's plain decoding step after so many tokens; 0 if unknown."""
    return fleet.verifier_times(target).decode.mean_s(1, context) if fleet.verifiers.times else 0.0
