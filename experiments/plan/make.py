"""From a question to its plan."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from experiments.jobs import side_by_side
from experiments.plan.answer import Plan, approximation_of, goals_reached, rows_of, rule_of
from experiments.plan.doubt import doubts_of, error_of, ranges_of
from experiments.plan.lines import lines_of, unmet_lines
from experiments.plan.question import FleetShape, Question, check
from experiments.plan.screen import screen
from experiments.plan.search import search
from experiments.plan.trials import Trial, try_out
from fleet.times.labels import basis_of
from fleet.times.profile import HardwareProfile


def make_plan(
    question: Question, jobs: int = 1, step_error: float | None = None, done: Callable[[str], None] = lambda _what: None
) -> Plan:
    """Answer a question, with `jobs` simulations at once; `done` is called with each simulated fleet.

    `step_error`: by which share a role's step times may be off, at 95 %; by default what profiles of that kind are.
    Raises InputError for a question that cannot be planned.
    """
    check(question)
    screened = screen(question)
    simulations = 0

    def simulated(arguments: Sequence[tuple[Any, ...]]) -> Iterable[Trial]:
        nonlocal simulations
        for trial in side_by_side(try_out, arguments, jobs if len(arguments) > 1 else 1):
            simulations += 1
            done(trial.shape.title)
            yield trial

    def tries(pairs: Sequence[tuple[FleetShape, int]]) -> Iterable[Trial]:
        return simulated([(question, shape, seed) for shape, seed in pairs])

    choice = search(question, screened, tries)
    leader = choice.leader
    shape = None if leader is None else leader.shape
    profile = (question.pairs[0] if shape is None else question.pair(shape)).base.profile
    assert isinstance(profile, HardwareProfile)
    error = error_of(profile) if step_error is None else step_error
    doubts = {} if shape is None else doubts_of(question, shape, error)
    tried = dict(zip(doubts, simulated([(question, shape, 0, doubt) for doubt in doubts.values()]), strict=True))
    counts = f"of {len(screened)} fleets by equations, {len(choice.entrants)} simulated in {simulations} runs"
    ranges = {} if leader is None else ranges_of(leader, tried)
    goals = () if leader is None else goals_reached(question, ranges)
    if leader is None:
        lines = unmet_lines(question, choice, counts)
    else:
        lines = lines_of(question, choice, leader, ranges, goals, tried, counts)
    return Plan(
        question=question.title,
        chosen=shape,
        scenario=None if shape is None else question.scenario(shape),
        metrics=ranges,
        goals=goals,
        lines=lines,
        rows=rows_of(question, choice, screened),
        level=tuple(one.title for one in choice.level),
        rule=None if shape is None else rule_of(question, shape),
        unit=question.unit,
        basis=basis_of(profile),
        step_error=error,
        screened=len(screened),
        simulations=simulations,
        approximation=approximation_of(question, choice, screened),
    )
