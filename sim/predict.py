"""Analytic prediction of a scenario, and which fleets the equations describe."""

import msgspec

from specfleet.fleet.acceptance.tokens import TokenModel
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.group import One
from specfleet.fleet.policies.overlap import Ahead
from specfleet.fleet.policies.warm_up import NoWarmUp
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.stations.star import admission_of, star_inputs
from specfleet.sim.analytic import StarPrediction, predict_star


def not_of_a_star(fleet: Fleet) -> str | None:
    """Return a key that makes the fleet other than one star of plain rounds; None if it is one.

    A limit that is never reached is no such key. Raises InputError if the scenario names no profile.
    """
    drafters, verifiers, workload = fleet.drafters, fleet.verifiers, fleet.workload
    other_fleets = {
        "verifiers.aligned": verifiers.aligned is not None,
        "drafters.place": verifiers.drafts is not None,
        "drafters.count": drafters.count != 1,
        "drafters.overlap": isinstance(drafters.overlap, Ahead),
        "drafters.group": not isinstance(drafters.group, One),
        "drafters.admit": admission_of(fleet).refusal(verifiers.count - 1) is not None,
        "drafters.warm_up": not isinstance(drafters.warm_up, NoWarmUp),
        "drafters.limits_per_s": any(drafters.limits_per_s),
        "drafters.device": bool(drafters.device),
        "verifiers.device": bool(verifiers.device),
        "verifiers.late": verifiers.late != "skip",
        "verifiers.allocate": verifiers.allocate is not None,
        "verifiers.tiers": _differ(fleet),
        "workload.arrivals": workload.arrivals is not None,
        "workload.requests": workload.requests < verifiers.count,
        "workload.streams": fleet.streams != verifiers.count,
        "acceptance.model": isinstance(fleet.acceptance, TokenModel),
        "faults": bool(fleet.faults),
    }
    return next((key for key, applies in other_fleets.items() if applies), None)


def _differ(fleet: Fleet) -> bool:
    """Whether targets differ in times or links."""
    targets = [msgspec.structs.replace(times, first=0) for times in fleet.verifiers.times]
    links = fleet.links[0] if fleet.links else ()
    return any(one != targets[0] for one in targets) or any(one != links[0] for one in links)


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
