"""One plan held against its full grid."""

import math
from collections.abc import Iterable

import msgspec

from experiments.jobs import side_by_side
from experiments.plan.make import make_plan
from experiments.plan.question import Question, Shape
from experiments.plan.race import INDIFFERENT, Entrant, entrants_of, leader_of, unsettled
from experiments.plan.screen import screen
from experiments.plan.trial import Trial, try_out

FRESH = 1000  # seeds of the grid begin here: none that the plan has seen
GRID_SEEDS, MORE_SEEDS = 3, 12  # of every fleet, and of those among which the grid's best is: a plan takes 8 at most


class Held(msgspec.Struct, frozen=True):
    """What a plan chose, and what the full grid says.

    Keys:
        question: The question.
        chosen: The plan's fleet; "none" where it says that none meets the goals.
        best: The grid's best fleet.
        excess (share): How much more a token of the chosen fleet costs than of the grid's best, in the grid's trials.
        miss (share): By how much the chosen fleet misses its worst goal there; negative where it meets all.
        fleets (fleets): How many fleets the grid has.
        simulated (fleets): How many of them the plan simulated.
        verdict: "best", "as good" (within a hundredth, or named by the plan as not told apart), "edge" where the
            grid's best meets its goal by less than chance, or "WORSE".
    """

    question: str
    chosen: str
    best: str
    excess: float
    miss: float
    fleets: int
    simulated: int
    verdict: str


def held(question: Question, jobs: int) -> Held:
    """Answer a question by a plan, and by simulating every fleet of it that can carry its load."""
    found = make_plan(question, jobs)
    screened = [one for one in screen(question) if math.isfinite(one.tpot_s)]
    costs = {one.shape.title: one.cost_per_hour for one in screened}
    open_loop = bool(question.arrivals_per_s)

    def simulated(shapes: Iterable[Shape], seeds: range) -> list[Trial]:
        pairs = [(question, shape, FRESH + seed) for shape in shapes for seed in seeds]
        return list(side_by_side(try_out, pairs, jobs))

    trials = simulated([one.shape for one in screened], range(GRID_SEEDS))
    entrants = entrants_of(trials, costs)
    best = leader_of(entrants.values(), question.goals, open_loop)
    near = [] if best is None else [best, *unsettled(best, entrants.values(), question.goals, open_loop, True)]
    names = {one.title for one in near} | ({found.chosen.title} if found.chosen is not None else set())
    trials += simulated([one.shape for one in screened if one.shape.title in names], range(GRID_SEEDS, MORE_SEEDS))
    entrants = entrants_of(trials, costs)
    best = leader_of(entrants.values(), question.goals, open_loop)
    simulated = sum(row.known == "simulated" for row in found.rows)
    if found.chosen is None or best is None:
        chosen, name = "none" if found.chosen is None else found.chosen.title, "none" if best is None else best.title
        edge = _near(entrants, question)
        verdict = "best" if chosen == name else "edge" if edge else "WORSE"
        return Held(question.title, chosen, name, 0.0, 0.0, len(costs), simulated, verdict)
    ours = entrants[found.chosen.title]
    excess = ours.mean("cost_per_million") / best.mean("cost_per_million") - 1
    miss = ours.worst_miss(question.goals)
    if ours.title == best.title:
        verdict = "best"
    elif (excess <= INDIFFERENT and miss <= 0) or best.title in found.level:
        verdict = "as good"
    elif question.goals and (_unsure(best, question) or (miss > 0 and not ours.misses_clearly(question.goals))):
        verdict = "edge"
    else:
        verdict = "WORSE"
    return Held(question.title, ours.title, best.title, excess, miss, len(costs), simulated, verdict)


def _unsure(entrant: Entrant, question: Question) -> bool:
    """Whether a fleet's worst goal is met or missed by less than chance."""
    for goal in question.goals:
        half, value = entrant.half_width(goal.metric), entrant.mean(goal.metric)
        if goal.miss(value - half) * goal.miss(value + half) <= 0:
            return True
    return False


def _near(entrants: dict[str, Entrant], question: Question) -> bool:
    return any(_unsure(one, question) for one in entrants.values())
