"""Random questions of planning: times over two decades, closed loops and arrivals, goals that bind."""

import numpy as np
from msgspec.structs import replace

from specfleet.experiments.plan.doubt import slowed
from specfleet.experiments.plan.goals import Goal
from specfleet.experiments.plan.question import DEPTH, PlannedPair, Question
from specfleet.fleet.scenario.cost import Cost
from specfleet.fleet.scenario.reading import make_scenario
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.stations.star import star_inputs

TARGETS = tuple(range(1, 6))
DEPTHS = (1, 2, 4, 6)


def question_of(number: int, pairs: int = 1) -> Question:
    """Return random question number `number`: even ones are closed loops, odd ones have arrivals and a goal.

    Each of several pairs of places has times and prices of its own; the first has those of the question with one.
    """
    rng = np.random.default_rng([17, number])
    shortest_s, longest_s = (0.5e-3, 8e-3, 0.2e-3), (4e-3, 60e-3, 20e-3)
    token_s, verify_s, link_s = np.exp(rng.uniform(np.log(shortest_s), np.log(longest_s))).tolist()
    row_s = float(rng.uniform(0.02, 0.2))  # of each further row of a step
    profile = {
        "name": "random",
        "draft": {"base_s": 0.2e-3, "per_token_s": token_s, "per_row_s": row_s * token_s},
        "verify": {"base_s": verify_s, "per_token_s": 0.01 * verify_s, "per_row_s": row_s * verify_s},
        "decode": {"base_s": verify_s, "per_row_s": row_s * verify_s},
        "link": {"latency_s": link_s},
        "sources": {"draft": "assumed: random", "verify": "assumed: random"},
    }
    content = {
        "name": f"question {number}",
        "seed": number,
        "profile": profile,
        "acceptance": {"model": "geometric", "beta": float(rng.uniform(0.5, 0.9))},
        "workload": {"prompt_tokens": 64, "new_tokens": 48},
    }
    prices = Cost(float(rng.uniform(0.5, 3.0)), float(rng.uniform(0.1, 1.5)), "cost")
    drafters: tuple[int, ...] = (1,)
    goals: tuple[Goal, ...] = ()
    if number % 2:
        drafters = (1, 2)
        plain_s = star_inputs(resolve(make_scenario(content))).verify_s
        per_s = float(rng.uniform(0.8, 2.5)) / (48 * plain_s)
        content |= {"drafters": {"group": "batch"}}
        content["workload"] |= {"arrivals": {"process": "poisson", "per_s": per_s}}
        limit_s = plain_s * float(rng.uniform(0.7, 1.3))
        goals = (Goal(f"tpot_p99 <= {1e3 * limit_s:.3g}ms", "tpot_p99_s", limit_s, "at most"),)
    base, name = make_scenario(content), str(content["name"])
    first = PlannedPair(base, None, prices)
    candidates = (first,) if pairs == 1 else tuple(_elsewhere(first, number, place) for place in range(pairs))
    return Question(candidates, drafters, TARGETS, {DEPTH: DEPTHS}, goals, name)


def small_question(number: int, pairs: int = 1) -> Question:
    """Return random question number `number` with fewer targets and depths."""
    question = question_of(number, pairs)
    return replace(question, targets=question.targets[:3], vary={DEPTH: (2, 4)})


def _elsewhere(first: PlannedPair, number: int, place: int) -> PlannedPair:
    """Return a candidate with devices that are faster or slower than the first one's, and priced accordingly."""
    places = {"target_place": f"device {place}", "draft_place": f"device {place}"}
    if place == 0:
        return replace(first, **places)
    rng = np.random.default_rng([17, number, place])
    drafting, verifying, dearer, dearer_target = np.exp(rng.uniform(np.log(0.5), np.log(2.0), 4)).tolist()
    base = slowed(slowed(first.base, "drafters", drafting), "targets", verifying)
    of_target, of_drafter = first.prices.target_per_hour or 0.0, first.prices.drafter_per_hour or 0.0
    prices = Cost(of_target * dearer_target**0.5 / verifying, of_drafter * dearer**0.5 / drafting, first.prices.unit)
    return PlannedPair(base, None, prices, **places)
