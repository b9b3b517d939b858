"""Users' view: requests that meet their goals, the speedup over plain decoding, and the utility of their goodputs."""

import math
from collections.abc import Mapping

import numpy as np

from specfleet.fleet.policies.allocate import SharedBudget
from specfleet.fleet.policies.goodspeed import best_goodput, utility
from specfleet.fleet.records.columns import Bools, Integers, Table
from specfleet.fleet.records.metrics.grouped import Floats, Groups
from specfleet.fleet.records.metrics.window import Metric, Window
from specfleet.fleet.scenario.facts import plain_step_s
from specfleet.fleet.scenario.resolved import Fleet
from specfleet.fleet.scenario.slo import Slo, miss


def meets(slo: Slo, times_s: Mapping[str, Floats]) -> Bools:
    """Return which requests meet all goals, from their times by name; a time that a request lacks meets its goal."""
    good = np.ones(len(next(iter(times_s.values()))), dtype=bool)
    for name, limit_s in slo.limits_s.items():
        good &= ~(miss(times_s[name], limit_s) > 0)
    return good


def speedup(fleet: Fleet, context: float, targets: Integers, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    """Speedup of a user's tokens over plain decoding: the plain step's time over the mean TPOT.

    The plain step is one at `context` tokens, the middle of the requests' texts, in the mean over `targets`. There is
    none where requests share steps: the same load without speculation takes another run (`sim/alone.py`).
    """
    if fleet.verifiers.batching.max_num_seqs > 1 and not 0 < fleet.streams <= fleet.verifiers.count:
        return {}
    tpot, firsts = metrics.get("tpot_s"), [times.first for times in fleet.verifiers.times]
    if tpot is None or not firsts:
        return {}
    steps_s = np.array([plain_step_s(fleet, context, first) for first in firsts])
    step_s = float(np.mean(steps_s[np.searchsorted(firsts, targets, side="right") - 1]))
    if not step_s > 0 or not tpot.value > 0:
        return {}
    low, high = (step_s / end if end > 0 else math.nan for end in (tpot.high, tpot.low))
    low, high = (math.nan, math.nan) if math.isnan(low + high) else (low, high)
    return {"speedup": Metric(step_s / tpot.value, low, high, "factor", tpot.times_longer, tpot.drifting)}


def fair_goodput(window: Window, fleet: Fleet, verified: Table) -> dict[str, Metric]:
    """Utility of the clients' mean goodputs, and what it lacks of the optimum at a constant acceptance of compared
    tokens (GoodSpeed, problem (1))."""
    rule, counted = fleet.verifiers.allocate, verified.where(window.inside(verified.verified_s))
    if not len(counted):
        return {}
    alpha = rule.alpha if isinstance(rule, SharedBudget) else 1.0
    clients, accepted = Groups(counted.tag), counted.acceptance_length
    unit = "sum of alpha-fair utilities"
    metrics = {"utility": Metric(utility(clients.means(accepted) + 1, alpha), unit=f"{unit}, alpha = {alpha:g}")}
    compared = clients.sums(accepted + (accepted < counted.draft_tokens))
    in_rounds = 0 < fleet.streams <= fleet.verifiers.batching.max_num_seqs * fleet.verifiers.count
    if not isinstance(rule, SharedBudget) or fleet.verifiers.late != "wait" or not in_rounds or not compared.all():
        return metrics
    acceptances, targets = clients.sums(accepted) / compared, counted.tag[clients.first] % fleet.verifiers.count
    best = sum(
        utility(best_goodput(acceptances[targets == target].tolist(), rule.budget, alpha), alpha)
        for target in np.unique(targets)
    )
    metrics["utility_optimum"] = Metric(best, unit=unit)
    return metrics | {"utility_gap": Metric(best - metrics["utility"].value, unit="U(x*) - U(x)")}
