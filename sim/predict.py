"""Analytic prediction of a scenario: the inputs of the equations, and which fleets they describe."""

import msgspec

from fleet.acceptance.models import survival
from fleet.acceptance.tokens import TokenModel
from fleet.errors import InputError
from fleet.policies.group import One
from fleet.policies.overlap import Ahead
from fleet.policies.warm_up import NoWarmUp
from fleet.scenario.facts import middle_context, plain_step_s
from fleet.scenario.resolve import resolve
from fleet.scenario.resolved import Fleet
from fleet.scenario.scenario import Scenario
from fleet.stations.messages import Draft, DraftRequest
from fleet.stations.payload import sizes_of
from sim.analytic import StarPrediction, predict_star


class StarInputs(msgspec.Struct, frozen=True):
    """Inputs of the equations: means at the middle context of the workload.

    S is that of a drafter with queued work. Prefills are left out.

    Keys:
        service_s: `S`, time of the drafter per round, its overhead and catching up included.
        return_s: `Z`, both ways over the link, the verification, and the overhead of the target.
        verify_s: `t_v`, time of a verification.
        accepted_per_round (tokens/round): `E[l]`, accepted draft tokens a round, by the acceptance model.
        standalone_tokens_per_s (tokens/s): Decoding rate of a target without a drafter.
    """

    service_s: float
    return_s: float
    verify_s: float
    accepted_per_round: float
    standalone_tokens_per_s: float

    @property
    def colocated_tokens_per_s(self) -> float:
        """Rate of speculation on one device without a link: a round takes S + t_v."""
        return (self.accepted_per_round + 1) / (self.service_s + self.verify_s)


def star_inputs(fleet: Fleet, target: int = 0) -> StarInputs:
    """Return the inputs for one target: equations (5) and (6), with the overhead."""
    depth, shape = fleet.drafters.depth, fleet.drafters.shape
    times, of_target, link = fleet.drafter_times(0), fleet.verifier_times(target), fleet.link(target).time
    context = middle_context(fleet)
    reached = survival(fleet.length_model(), depth)
    accepted = float(reached.sum())
    size_of = sizes_of(fleet)
    up, down = size_of(DraftRequest(0, 0, 0, 0), accepted + 1), size_of(Draft(0, 0, 0, 0, depth), 0)
    verify_s = of_target.verify.mean_s(shape.nodes(depth) + 1, context)
    decode_s = plain_step_s(fleet, context)
    draft_s = times.idle.slowdown(0.0) * times.draft.mean_s(depth, context)
    drafting, verifying = times.overhead, of_target.overhead
    return StarInputs(
        service_s=draft_s + times.catch_up_s * float(reached[-1]) + drafting.queued.mean_s + drafting.after.mean_s,
        return_s=link.mean_s(up) + link.mean_s(down) + verify_s + verifying.woken.mean_s + verifying.after.mean_s,
        verify_s=verify_s,
        accepted_per_round=accepted,
        standalone_tokens_per_s=1 / decode_s if decode_s > 0 else float("inf"),
    )


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
        "drafters.admit": drafters.admit.refusal(verifiers.count - 1) is not None,
        "drafters.warm_up": not isinstance(drafters.warm_up, NoWarmUp),
        "drafters.limits_per_s": any(drafters.limits_per_s),
        "drafters.device": bool(drafters.device),
        "verifiers.device": bool(verifiers.device),
        "verifiers.late": verifiers.late != "skip",
        "verifiers.allocate": verifiers.allocate is not None,
        "verifiers.tiers": _differ(fleet),
        "workload.arrivals": workload.arrivals is not None,
        "workload.streams": fleet.streams != verifiers.count,
        "acceptance.model": isinstance(fleet.acceptance, TokenModel),
    }
    return next((key for key, applies in other_fleets.items() if applies), None)


def _differ(fleet: Fleet) -> bool:
    """Whether targets differ in times or links."""
    targets = [msgspec.structs.replace(times, first=0) for times in fleet.verifiers.times]
    links = fleet.links[0] if fleet.links else ()
    return any(one != targets[0] for one in targets) or any(one != links[0] for one in links)


def predict(scenario: Scenario) -> StarPrediction:
    """Return the analytic prediction of a scenario.

    Raises InputError if the scenario is no star, or if its drafts take no time.
    """
    return predict_fleet(resolve(scenario))


def predict_fleet(fleet: Fleet) -> StarPrediction:
    """Return the analytic prediction of a resolved fleet. Raises InputError as `predict` does."""
    key = not_of_a_star(fleet)
    if key is not None:
        raise InputError(
            f"scenario {fleet.name!r}: the equations hold for one star of plain rounds, and {key} makes this another "
            "fleet; simulate it"
        )
    inputs = star_inputs(fleet)
    if inputs.service_s == 0:
        raise InputError(f"scenario {fleet.name!r}: its profile's drafts take no time; the equations need S(d) > 0")
    return predict_star(
        fleet.verifiers.count,
        inputs.service_s,
        inputs.return_s,
        inputs.accepted_per_round,
        inputs.standalone_tokens_per_s,
    )
