"""One plan held against its full grid."""

import math

import msgspec

from experiments.jobs import side_by_side
from experiments.plan.make import make_plan
from experiments.plan.question import Question
from experiments.plan.race import INDIFFERENT, Entrant, entrants_of, leader_of
from experiments.plan.screen import screen
from experiments.plan.trial import try_out

FRESH = 1000  # seeds of the grid begin here: none that the plan has seen
GRID_SEEDS = 3


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
    trials = side_by_side(
        try_out, [(question, one.shape, FRESH + seed) for one in screened for seed in range(GRID_SEEDS)], jobs
    )
    entrants = entrants_of(trials, costs)
    open_loop = bool(question.arrivals_per_s)
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
