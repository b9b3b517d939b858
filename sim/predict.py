"""Analytic prediction of a scenario, and which fleets the equations describe."""

from collections.abc import Callable

import msgspec

from specfleet.fleet.acceptance.tokens import TokenModel
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.readers import is_set, unread
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.stations.star import admission_of, star_inputs
from specfleet.sim.analytic import StarPrediction, predict_star


def _differ(fleet: Fleet) -> bool:
    """Whether targets differ in times or links."""
    targets = [msgspec.structs.replace(times, first=0) for times in fleet.verifiers.times]
    links = fleet.links[0] if fleet.links else ()
    return any(times != targets[0] for times in targets) or any(link != links[0] for link in links)


EFFECTS: dict[str, Callable[[Fleet], bool]] = {
    "drafters.admit": lambda fleet: admission_of(fleet).refusal(fleet.verifiers.count - 1) is not None,
    "verifiers.tiers": _differ,
    "workload.requests": lambda fleet: fleet.workload.requests < fleet.verifiers.count,
    "workload.streams": lambda fleet: fleet.streams != fleet.verifiers.count,
    "acceptance": lambda fleet: isinstance(fleet.acceptance, TokenModel),
}
"""Keys that make a fleet other than a star with some values only."""


def not_of_a_star(fleet: Fleet) -> str | None:
    """Return a key that makes the fleet other than one star of plain rounds; None if it is one.

    A limit that is never reached is no such key. Raises InputError if the scenario names no profile.
    """
    keys = (key for key in unread("equations") if (EFFECTS[key](fleet) if key in EFFECTS else is_set(fleet, key)))
    return next(keys, None)


def predict(scenario: Scenario) -> StarPrediction:
    """Return the analytic prediction of a scenario.

    Raises InputError if the scenario is no star, if its timeouts end rounds, or if its drafts take no time.
    """
    return predict_fleet(resolve(scenario))


def predict_fleet(fleet: Fleet) -> StarPrediction:
    """Return the analytic prediction of a resolved fleet. Raises InputError as `predict` does."""
    _refuse(fleet, not_of_a_star(fleet))
    inputs = star_inputs(fleet)
    if inputs.service_s == 0:
        raise InputError(f"scenario {fleet.name!r}: its profile's drafts take no time; the equations need S(d) > 0")
    star = predict_star(
        fleet.verifiers.count,
        inputs.service_s,
        inputs.return_s,
        inputs.accepted_per_round,
        inputs.standalone_tokens_per_s,
    )
    _refuse(fleet, _ends_rounds(fleet, star, inputs.verify_s))
    return star


def _ends_rounds(fleet: Fleet, star: StarPrediction, verify_s: float) -> str | None:
    """Return the key of a timeout that is over before a draft, T_wait + S + t_c, or its answer, Z; None if none is."""
    patience_s, lease_s = fleet.verifiers.patience.patience_s, fleet.drafters.lease_s
    if 0 < patience_s < star.wait_s + star.S_s + star.Z_s - verify_s:
        return "verifiers.patience_s"
    return "drafters.lease_s" if 0 < lease_s < star.Z_s else None


def _refuse(fleet: Fleet, key: str | None) -> None:
    """Raise InputError if a key makes the fleet another one."""
    if key is not None:
        raise InputError(
            f"scenario {fleet.name!r}: the equations hold for one star of plain rounds, and {key} makes this another "
            "fleet; simulate it"
        )
