"""Users' view: requests that meet their goals, and the speedup over plain decoding."""

import math
from collections.abc import Mapping

import numpy as np

from specfleet.fleet.records.columns import Bools, Integers
from specfleet.fleet.records.metrics.grouped import Floats
from specfleet.fleet.records.metrics.window import Metric
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
