"""A plan compared with its full grid: every fleet of its question, simulated with other seeds than the plan's."""

import math
from collections.abc import Collection, Sequence

from specfleet.experiments.plan.answer import Reached
from specfleet.experiments.plan.ask import make_plan
from specfleet.experiments.plan.doubt import Range
from specfleet.experiments.plan.goals import Goal
from specfleet.experiments.plan.question import FleetShape, Question
from specfleet.experiments.plan.screen import Screened, screen
from specfleet.experiments.plan.trials import (
    INDIFFERENT,
    Entrant,
    Trials,
    Values,
    fleet_values,
    leader_of,
    simulated,
    unsettled,
)

FRESH = 1000  # seeds of the grid begin here
GRID_SEEDS, MORE_SEEDS = 2, 12  # of every fleet, and of the candidates for the grid's best: a plan takes 8 at most


def entrant_of(shape: FleetShape, cost_per_hour: float, *values: dict[str, float]) -> Entrant:
    """A fleet with a trial of these metrics for each seed."""
    return Entrant(values, shape, cost_per_hour)


def try_out(question: Question, shape: FleetShape) -> Values:
    """Simulate a fleet once; return its metrics."""
    return fleet_values(question, shape, simulated(question.scenario(shape)))


def holds(question: Question) -> bool:
    """Whether a plan is as good as the best fleet of a simulation of every fleet that can carry the load."""
    found = make_plan(question, jobs=1)
    screened = [one for one in screen(question) if math.isfinite(one.tpot_s)]
    open_loop = bool(question.arrivals_per_s)
    trials = Trials(lambda _what: None, FRESH)

    def entrants_of(fleets: Sequence[Screened], seeds: int) -> dict[str, Entrant]:
        trials.run([question.scenario(one.shape) for one in fleets], seeds, 1)
        values = {
            one.shape.title: [fleet_values(question, one.shape, each) for each in trials.values[one.shape.title]]
            for one in screened
        }
        return {one.shape.title: entrant_of(one.shape, one.cost_per_hour, *values[one.shape.title]) for one in screened}

    entrants = entrants_of(screened, GRID_SEEDS)
    best = leader_of(entrants.values(), question.goals, open_loop)
    near = [] if best is None else [best, *unsettled(best, entrants.values(), question.goals, open_loop, True)]
    names = {one.title for one in near} | ({found.chosen.title} if found.chosen is not None else set())
    entrants = entrants_of([one for one in screened if one.shape.title in names], MORE_SEEDS)
    best = leader_of(entrants.values(), question.goals, open_loop)
    ours = entrants[found.chosen.title] if found.chosen is not None else None
    return not is_worse(ours, best, found.level, question.goals, found.goals)


def is_worse(
    ours: Entrant | None, best: Entrant | None, level: Collection[str], goals: Sequence[Goal],
    stated: Sequence[Reached] = (),
) -> bool:  # fmt: skip
    """Whether a plan's fleet is worse than the grid's best by more than a hundredth, and not by chance alone.

    - `ours`, `best`: the plan's fleet in the grid, and the grid's best that meets the goals; None if there is none.
    - `level`: titles of fleets that the plan calls equal to its own.
    - `stated`: the plan's values of the goals for its fleet. Chance decides at the edge of a goal, in the grid too, and
      where the fleet misses it within the plan's own interval.
    """
    if ours is None or best is None:
        one = ours or best
        return one is not None and not one.is_at_the_edge(goals)
    excess, miss = ours.mean("cost_per_million") / best.mean("cost_per_million") - 1, ours.worst_miss(goals)
    if ours.title == best.title or best.title in level or (excess <= INDIFFERENT and miss <= 0):
        return False
    by_chance = best.is_at_the_edge(goals) or (miss > 0 and not ours.misses_clearly(goals))
    as_stated = bool(stated) and all(_is_by_chance(one.range, ours, one.metric) for one in stated)
    return not (by_chance or (miss > 0 and as_stated))


def _is_by_chance(said: Range, ours: Entrant, metric: str) -> bool:
    """Whether the grid's value of a metric differs from the plan's by chance alone."""
    return abs(ours.mean(metric) - said.value) <= math.hypot(said.chance * said.value, ours.half_width(metric))
