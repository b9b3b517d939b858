"""Counters of a drafter, written by hand."""

import math
from collections import Counter

from fleet.records.metrics.counters import Counters, OpenText, TargetCounters
from fleet.scenario.resolved import Fleet

DRAFTED, ACCEPTED, COMMITTED = 5, 3, 4  # tokens of each round


def counters_of_drafter(fleet: Fleet, time_s: float, rounds: int, target: int = 0, load: float = 0.7) -> Counters:
    """Return a drafter's counters after so many rounds of one target, evenly spread over its time.

    Two sessions of that target are open, one of them waits.
    """
    counters = Counters(fleet)
    counters.time_s = time_s
    counters.drafting[target] = TargetCounters(
        rounds, rounds * DRAFTED, Counter({ACCEPTED: rounds}), rounds * COMMITTED, opened=2
    )
    drafter = counters.stations["drafter"]
    tags = [tag for tag in range(100 * fleet.verifiers.count) if fleet.target_of(tag) == target][:2]
    drafter.texts.update({tag: OpenText(1, 0.0, waits) for tag, waits in zip(tags, (math.nan, time_s), strict=True)})
    for number in range(1, rounds + 1):
        end_s, service_s = time_s * number / rounds, load * time_s / rounds
        counters.recent_learned.append((end_s, COMMITTED, DRAFTED, ACCEPTED))
        counters.recent_steps.append((end_s, end_s - service_s))
    return counters
