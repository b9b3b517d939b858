"""Inputs of StarSD's equations for a fleet, and its rules that need them: admission by N_max, predicted routes."""

from collections.abc import Sequence

import msgspec

from specfleet.fleet.acceptance.models import survival
from specfleet.fleet.acceptance.tokens import TokenModel
from specfleet.fleet.errors import InputError
from specfleet.fleet.policies.admit import Admission, AtMost, N_max, WithinMemory
from specfleet.fleet.policies.route import Predicted, Routing
from specfleet.fleet.scenario.facts import plain_step_s
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.stations.messages import Draft, DraftRequest
from specfleet.fleet.stations.payload import sizes_of


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


def star_inputs(fleet: Fleet, target: int = 0) -> StarInputs:
    """Return the inputs for one target: equations (5) and (6), with the overhead."""
    depth, shape = fleet.drafters.depth, fleet.drafters.shape
    times, of_target, link = fleet.drafter_times(0), fleet.verifier_times(target), fleet.link(target).time
    context = fleet.lengths.middle
    reached = survival(fleet.length_model(), depth)
    accepted = float(reached.sum())
    size_of = sizes_of(fleet)
    up, down = size_of(DraftRequest(0, 0, 0, 0), accepted + 1), size_of(Draft(0, 0, 0, 0, depth), 0)
    verify_s = of_target.verify.mean_s(shape.nodes(depth) + 1, context)
    decode_s = plain_step_s(fleet, context, target)
    verifying = of_target.overhead
    return StarInputs(
        service_s=draft_s(fleet) + times.catch_up_s * float(reached[-1]),
        return_s=link.mean_s(up) + link.mean_s(down) + verify_s + verifying.woken.mean_s + verifying.after.mean_s,
        verify_s=verify_s,
        accepted_per_round=accepted,
        standalone_tokens_per_s=1 / decode_s if decode_s > 0 else float("inf"),
    )


def star_inputs_of_all(fleet: Fleet) -> list[StarInputs]:
    """Return the inputs of each target; those of a range of equal targets are one object."""
    starts = sorted({*(times.first for times in fleet.verifiers.times), *fleet.link_ranges[1]})
    ends = [*starts[1:], fleet.verifiers.count]
    return [inputs for low, end in zip(starts, ends, strict=True) for inputs in [star_inputs(fleet, low)] * (end - low)]


def draft_s(fleet: Fleet, drafter: int = 0) -> float:
    """Return the mean time of a draft at a drafter with queued work, its overhead included."""
    times = fleet.drafter_times(drafter)
    step_s = times.idle.slowdown(0.0) * times.draft.mean_s(fleet.drafters.depth, fleet.lengths.middle)
    return step_s + times.overhead.queued.mean_s + times.overhead.after.mean_s


def route_of(fleet: Fleet) -> Routing | None:
    """Return the routing rule, with the fleet's times if it predicts; InputError if they are unknown."""
    rule = fleet.drafters.route
    if not isinstance(rule, Predicted) or (rule.service_s and rule.prefill_s):
        return rule
    if not fleet.drafters.times:
        raise InputError(
            f"scenario {fleet.name!r}: drafters.route: 'predicted' needs times of drafts and prefills; name a profile "
            "(allowed without: both `service_s` and `prefill_s`)"
        )
    drafters = range(fleet.drafters.times[-1].first + 1)
    prefills = (fleet.drafter_times(drafter).prefill for drafter in drafters)
    return msgspec.structs.replace(
        rule,
        service_s=rule.service_s or tuple(draft_s(fleet, drafter) for drafter in drafters),
        prefill_s=rule.prefill_s or tuple(prefill.mean_s(fleet.lengths.middle) for prefill in prefills),
    )


def admission_of(fleet: Fleet) -> Admission:
    """Return a drafter's admission rule, with the fleet's numbers where none are stated.

    Each target has its own N_max. A session takes the room of the longest row.

    Raises InputError where the equations lack a time.
    """
    rule = fleet.drafters.admit
    if isinstance(rule, WithinMemory):
        return msgspec.structs.replace(rule, row_tokens=rule.row_tokens or fleet.room.longest_row)
    if not isinstance(rule, AtMost) or rule.sessions is not None:
        return rule
    of_rounds = not isinstance(fleet.acceptance_model(), TokenModel)
    targets = star_inputs_of_all(fleet) if of_rounds else []
    if not targets or not all(0 < star.standalone_tokens_per_s < float("inf") and star.service_s for star in targets):
        raise InputError(
            f"scenario {fleet.name!r}: drafters.admit: N_max needs times of drafts and of plain decoding steps, and an "
            "acceptance model of whole rounds; state `sessions`"
        )
    most = N_max_of_all(targets)
    return AtMost(tuple(most) if len(set(most)) > 1 else most[0])


def N_max_of_all(targets: Sequence[StarInputs]) -> list[int]:
    """Return N_max of each target of one drafter."""
    returns_s = [star.return_s for star in targets]
    most = {
        star: N_max(
            star.service_s, star.return_s, star.accepted_per_round + 1, star.standalone_tokens_per_s,
            among=returns_s if len(set(returns_s)) > 1 else (),
        )
        for star in dict.fromkeys(targets)
    }  # fmt: skip
    return [most[star] for star in targets]
