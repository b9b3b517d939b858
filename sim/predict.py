"""Analytic prediction of a scenario, and which fleets the equations describe."""

from collections.abc import Callable, Iterator, Sequence
from operator import mul

import msgspec

from specfleet.fleet.acceptance.tokens import TokenModel
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.admit import refusal_of
from specfleet.fleet.scenario.readers import is_set, unread
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.stations.star import N_max_of_all, StarInputs, admission_of, star_inputs_of_all
from specfleet.sim.analytic import N_full_of, StarPrediction, TargetPrediction, play, predict_star

EFFECTS: dict[str, Callable[[Fleet], bool]] = {
    "drafters.admit": lambda fleet: any(_refused(fleet)),
    "workload.requests": lambda fleet: fleet.workload.requests < fleet.verifiers.count,
    "workload.streams": lambda fleet: fleet.streams != fleet.verifiers.count,
    "acceptance": lambda fleet: isinstance(fleet.acceptance, TokenModel),
}
"""Keys that make a fleet other than a star with some values only."""
OF_A_STAR = {"drafters.group": "one", "verifiers.late": "skip", "workload.streams": "0"}  # what a plan sets for servers


def _refused(fleet: Fleet) -> Iterator[bool]:
    """Yield for each target whether a drafter that serves all others would refuse it."""
    rule, N = admission_of(fleet), fleet.verifiers.count
    return (refusal_of(rule, N - 1, target) is not None for target in range(N))


def not_of_a_star(fleet: Fleet) -> list[str]:
    """Return the keys that make the fleet other than one star of plain rounds.

    A limit that is never reached is no such key. Raises InputError if the scenario names no profile.
    """
    return [key for key in unread("equations") if (EFFECTS[key](fleet) if key in EFFECTS else is_set(fleet, key))]


def predict(scenario: Scenario) -> StarPrediction:
    """Return the analytic prediction of a scenario.

    Raises InputError if the scenario is no star, if its timeouts end rounds, or if its drafts take no time.
    """
    return predict_fleet(resolve(scenario))


def predict_fleet(fleet: Fleet) -> StarPrediction:
    """Return the analytic prediction of a resolved fleet. Raises InputError as `predict` does."""
    _refuse(fleet, not_of_a_star(fleet))
    targets = star_inputs_of_all(fleet)
    if targets[0].service_s == 0:
        raise InputError(f"scenario {fleet.name!r}: its profile's drafts take no time; the equations need S(d) > 0")
    star = _star_of(targets)
    _refuse(fleet, [key for key in [_ends_rounds(fleet, star, targets)] if key])
    return star


def _star_of(targets: Sequence[StarInputs]) -> StarPrediction:
    """Evaluate the equations for the targets of one drafter, like or unlike."""
    one, returns_s = targets[0], [target.return_s for target in targets]
    S_s, Z_s = one.service_s, one.return_s
    if len(set(targets)) == 1:
        return predict_star(len(targets), S_s, Z_s, one.accepted_per_round, one.standalone_tokens_per_s)
    (R_q, rates), most = play(S_s, returns_s), N_max_of_all(targets)
    Z_s = sum(map(mul, rates, returns_s)) / sum(rates)
    star = predict_star(len(targets), S_s, Z_s, one.accepted_per_round, one.standalone_tokens_per_s, R_q)
    rows = tuple(
        TargetPrediction(
            number + 1, target.return_s, most[number], rate, star.mean_acceptance_length * rate,
            target.standalone_tokens_per_s,
        )
        for number, (target, rate) in enumerate(zip(targets, rates, strict=True))
        if number == 0 or target != targets[number - 1]
    )  # fmt: skip
    return msgspec.structs.replace(star, N_full=N_full_of(S_s, returns_s), N_max=min(most), targets=rows)


def _ends_rounds(fleet: Fleet, star: StarPrediction, targets: Sequence[StarInputs]) -> str | None:
    """Return the key of a timeout that is over before a draft, T_wait + S + t_c, or its answer, Z; None if none is."""
    patience_s, lease_s = fleet.verifiers.patience.patience_s, fleet.drafters.lease_s
    if any(0 < patience_s < star.wait_s + star.S_s + target.return_s - target.verify_s for target in targets):
        return "verifiers.patience_s"
    return "drafters.lease_s" if any(0 < lease_s < target.return_s for target in targets) else None


def _refuse(fleet: Fleet, keys: Sequence[str]) -> None:
    """Raise InputError if keys make the fleet another one; with a star's values if they are those that plans set."""
    if keys:
        star = ", or for one request at a time" * (OF_A_STAR.keys() >= {*keys})
        named = keys if star else keys[:1]
        star += "".join(f" --set {key}={OF_A_STAR[key]}" for key in named if star)
        raise InputError(
            f"scenario {fleet.name!r}: the equations hold for one star of plain rounds, and {', '.join(named)} make"
            f"{'s' * (len(named) == 1)} this another fleet; simulate it{star}"
        )
