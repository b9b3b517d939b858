"""How often `plan --devices` answers with the best fleet, of random questions against grids of other seeds.

A question draws models, devices, acceptance, a load, and goals. Its grid has every fleet of the budget that could be
best: none dearer than the answer, and by equations at most SLOWER times as slow as the fastest one (drafters elsewhere,
whose equations are optimistic and simulations slow, FASTER times). An answer holds if it is the grid's best, slower by
no more than 2 %, or not slower beyond chance, and if it meets the goals, or misses them by no more than chance.
"""

import argparse
import math
from collections.abc import Sequence

import numpy as np

from bench.harness import Aim, Options, Report, Row
from specfleet.experiments.console.printing import remark
from specfleet.experiments.plan.ask import about
from specfleet.experiments.plan.candidates import Asked, make_candidates
from specfleet.experiments.plan.deployments import MARGIN, Deployment, Load, Question, estimates
from specfleet.experiments.plan.goals import parse_slo
from specfleet.experiments.plan.search import SAME_COST, Simulations, find
from specfleet.experiments.plan.texts import read_budget
from specfleet.fleet.records.metrics.intervals import student_t_interval
from specfleet.fleet.scenario.scenario import Scenario, Workload

QUESTIONS, ALLOWED = 20, 1
FRESH = 1000  # seeds of the grid begin here
SEEDS, MORE_SEEDS = 1, 8  # of every fleet, and of those near the best
TWO_PERCENT, NEAR = 0.02, 0.08
SLOWER, FASTER = 2.0, 1.2
MODELS = (
    ("llama-3.1-8b", ("eagle3-llama-3.1-8b", "llama-3.2-1b", "lookup"), ("h100", "a100-80gb", "l40s")),
    ("llama-3.1-70b", ("eagle-llama-3-70b", "llama-3.2-1b", "lookup"), ("h100", "h200", "a100-80gb")),
    ("qwen3-32b", ("qwen3-0.6b", "lookup"), ("h100", "h200", "l40s")),
)

OPTIONS: Options = {
    "--questions": {"type": int, "default": QUESTIONS, "help": "how many, from number 0 on"},
}


def study(options: argparse.Namespace) -> Report:
    """Answer the questions and compare each with its grid."""
    rows: list[Row] = []
    for number in range(options.questions):
        rows.append(compared(number))
        remark(f"question {number}: {rows[-1]['verdict']}")
    misses = sum(row["verdict"] == "WORSE" for row in rows)
    return Report({"plans of random questions": rows}, [Aim("answers that are worse", misses, ALLOWED)])


def question_of(number: int) -> Question:
    """Return random question `number`: of three, one is a closed loop, one has arrivals, one has arrivals and goals."""
    rng = np.random.default_rng([19, number])
    model, drafts, kinds = MODELS[int(rng.integers(len(MODELS)))]
    kind = kinds[int(rng.integers(len(kinds)))]
    count = int(rng.choice((4, 8) if model == "llama-3.1-70b" else (2, 3, 4, 8)))
    accepted = [
        f"{draft}={','.join(f'{rate**place:.3f}' for place in range(1, 6))}"
        for draft, rate in zip(drafts, rng.uniform(0.35, 0.9, len(drafts)), strict=True)
    ]
    workload = Workload(prompt_tokens=int(rng.integers(50, 800)), new_tokens=about(int(rng.integers(40, 120))))
    devices = read_budget(f"{count}x{kind}")
    asked = Asked(
        Scenario(workload=workload), (model,), drafts, tuple(accepted), "25Gbit+20us", devices=devices,
        depths=tuple(range(1, 9)),
    )  # fmt: skip
    candidates = tuple(make_candidates(asked)[0])
    if number % 3 == 0:
        load = Load(in_flight=int(count * np.exp(rng.uniform(0, math.log(48)))))
        return Question(candidates, load, devices=devices)
    every, _ = estimates(Question(candidates, Load(in_flight=count), devices=devices))
    load = Load(per_s=float(f"{rng.uniform(0.15, 0.8) * (1 - MARGIN) * max(one.per_s for one in every):.3g}"))
    if number % 3 == 1:
        return Question(candidates, load, devices=devices)
    alone_s = min(one.curve.request_s[0] for one in every)
    tpot_s = float(rng.uniform(1.5, 6)) * alone_s / 80
    goals = tuple(parse_slo([f"tpot_p90={1e3 * tpot_s:.3g}ms,ttft_p90=1s"]))
    return Question(candidates, load, goals, devices)


def compared(number: int) -> Row:
    """Answer a question, simulate its grid, and return the verdict."""
    question = question_of(number)
    found = find(question, workers=1)
    answer = found.best[0]
    grid = Simulations(question, 1, lambda _what: None, first_seed=FRESH)
    fleets = [answer, *(one for one in _rivals(found) if one.title != answer.title)]
    grid.run(fleets, SEEDS)
    best_s = min((_time_s(grid, one) for one in fleets if grid.miss(one) <= 0), default=math.inf)
    near = [one for one in fleets if grid.miss(one) < NEAR and _time_s(grid, one) <= (1 + NEAR) * best_s]
    if question.aim == "hour":
        near += [one for one in fleets if grid.miss(one) < NEAR and one.cost_per_hour < answer.cost_per_hour]
    grid.run([answer, *{one.title: one for one in near}.values()], MORE_SEEDS)
    best = min(fleets, key=grid.rank)
    goals = ", ".join(goal.text for goal in question.goals)
    return {
        "question": number, "budget": str(question.devices), "target": answer.candidate.target,
        "load": question.load.text, "goals": goals, "grid": len(fleets), "answer": answer.title, "best": best.title,
        "slower, %": 100 * grid.gap(answer, best).value,
        "verdict": verdict_of(grid, answer, best, found.winner is None),
    }  # fmt: skip


def verdict_of(grid: Simulations, answer: Deployment, best: Deployment, unmet: bool) -> str:
    """Return "best", "level", "edge" where chance decides about a goal, or "WORSE"; `unmet`: as the plan says."""
    if answer.title == best.title or (unmet and grid.miss(best) > 0):
        return "best"
    if unsure(grid, answer) or unsure(grid, best):
        return "edge"
    if grid.rank(answer)[0] > grid.rank(best)[0] or grid.rank(answer)[1] > grid.rank(best)[1]:
        return "WORSE"
    gap = grid.gap(answer, best)
    return "level" if gap.value <= TWO_PERCENT or gap.low <= 0 else "WORSE"


def unsure(grid: Simulations, fleet: Deployment) -> bool:
    """Whether a goal's limit lies within the interval of the mean."""
    spans = [(goal, student_t_interval(grid.sample(fleet).values(goal.metric))) for goal in grid.question.goals]
    return any(goal.miss(low) * goal.miss(high) <= 0 for goal, (low, high) in spans)


def _rivals(found: Simulations) -> Sequence[Deployment]:
    """Return the fleets that could be better than the answer."""
    answer, question = found.estimates[found.best[0].title], found.question
    by_time = [one for one in found.estimates.values() if one.may_win]
    if question.aim == "hour" and found.winner is not None:
        by_time = [one for one in by_time if one.fleet.cost_per_hour <= answer.fleet.cost_per_hour * (1 + SAME_COST)]
    fastest_s = min(one.request_s for one in by_time)
    most = {True: FASTER, False: math.inf if question.aim == "hour" else SLOWER}
    return [one.fleet for one in by_time if one.request_s <= most[one.fleet.drafters > 0] * fastest_s]


def _time_s(grid: Simulations, fleet: Deployment) -> float:
    return float(np.mean(grid.scores(fleet)))
