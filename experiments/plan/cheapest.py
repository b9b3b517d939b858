"""Targets that decode all the time: fleets are simulated from the cheapest on, until the rest is too expensive."""

import math
from collections.abc import Iterable, Sequence

from experiments.plan.choose import Choice, Contest, Tries
from experiments.plan.goals import Goal
from experiments.plan.question import APART, COLOCATED, PLAIN, Family, Question
from experiments.plan.race import Entrant
from experiments.plan.screen import Screened

WAVE = 8  # fleets simulated before the next look
MARGIN = 0.12  # what equations may take for more expensive than it is, as a share
SLACK = 0.10  # and how much slower
MOST_FLEETS = 64  # simulated in all, for each pair of places
OF_A_RIVAL = 8  # fleets of another kind simulated until one meets the goals


def cheapest(question: Question, screened: Sequence[Screened], tries: Tries) -> Choice:
    """Choose the fleet whose tokens cost least."""
    contest = Contest(question, screened, tries)
    hopeful = in_order(screened, question.goals)
    waiting = [one for one in hopeful if contest.may_win(one)]
    while waiting and len(contest.entrants()) < MOST_FLEETS * len(question.pairs):
        if _too_expensive(waiting[0], contest.leader()):
            break
        wave, waiting = waiting[:WAVE], waiting[WAVE:]
        contest.simulate(wave)
    contest.race()
    families = dict.fromkeys(one.shape.family for one in hopeful)
    for family in sorted(families, key=lambda family: (APART, COLOCATED, PLAIN).index(family[0])):
        # Rivals that equations say are not worth a look are looked at, on each of the devices.
        for one in [one for one in hopeful if one.shape.family == family][:OF_A_RIVAL]:
            if any(e.worst_miss(question.goals) <= 0 for e in _of_family(contest, family)):
                break
            contest.simulate([one])
    return contest.choice()


def _of_family(contest: Contest, family: Family) -> list[Entrant]:
    return [one for title, one in contest.entrants().items() if contest.estimates[title].shape.family == family]


def in_order(screened: Iterable[Screened], goals: Sequence[Goal]) -> list[Screened]:
    """Return the fleets that could meet the goals, the cheapest first; where none could, those that miss least."""
    able = [one for one in screened if estimated_miss(one, goals) <= SLACK]
    if not able:
        able = sorted(screened, key=lambda one: estimated_miss(one, goals))[:WAVE]
    return sorted(able, key=lambda one: (one.per_million, one.tpot_s))


def estimated_miss(one: Screened, goals: Iterable[Goal]) -> float:
    """By how much the equations say that a goal is missed; they know mean times of tokens, and throughput."""
    misses = [-math.inf]
    for goal in goals:
        if goal.metric == "throughput":
            misses.append(goal.miss(one.tokens_per_s))
        elif goal.metric.startswith("tpot_"):
            misses.append(goal.miss(one.tpot_s))
    return max(misses)


def _too_expensive(next_one: Screened, leader: Entrant | None) -> bool:
    """Whether what is left in order costs too much, the equations' error allowed for."""
    return leader is not None and next_one.per_million > (1 + MARGIN) * leader.mean("cost_per_million")
