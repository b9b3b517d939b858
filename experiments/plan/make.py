"""From a question to its plan."""

from collections.abc import Callable, Iterable, Sequence

from experiments.jobs import side_by_side
from experiments.plan.answer import Plan, lines_of, reached, rows_of, rule_of, unmet_lines
from experiments.plan.cheapest import cheapest
from experiments.plan.doubt import doubt, doubts_of, error_of, ranges_of
from experiments.plan.fewest import fewest
from experiments.plan.question import Question, Shape, check
from experiments.plan.screen import screen
from experiments.plan.trial import Trial, try_out
from fleet.errors import InputError
from fleet.times.labels import basis_of
from fleet.times.profile import HardwareProfile


def make_plan(
    question: Question, jobs: int = 1, step_error: float | None = None, done: Callable[[str], None] = lambda _what: None
) -> Plan:
    """Answer a question, with `jobs` simulations at once; `done` is told each fleet that was simulated.

    `step_error`: by which share a role's step times may be off, at 95 %; by default what profiles of that kind are.
    Raises InputError for a question that cannot be planned.
    """
    check(question)
    profile = question.base.profile
    if not isinstance(profile, HardwareProfile):
        raise InputError(f"scenario {question.base.name!r}: a plan needs step times; name a profile")
    screened = screen(question)
    simulations = 0

    def tries(pairs: Sequence[tuple[Shape, int]]) -> Iterable[Trial]:
        nonlocal simulations
        for trial in side_by_side(try_out, [(question, shape, seed) for shape, seed in pairs], min(jobs, len(pairs))):
            simulations += 1
            done(trial.shape.title)
            yield trial

    choice = (fewest if question.arrivals_per_s else cheapest)(question, screened, tries)
    error, basis, leader = error_of(profile) if step_error is None else step_error, basis_of(profile), choice.leader
    rows = rows_of(question, choice, screened)

    def counts() -> str:
        return f"of {len(screened)} fleets by equations, {len(choice.entrants)} simulated in {simulations} runs"

    level = tuple(one.title for one in choice.level)
    if leader is None:
        return Plan(
            question.title, None, None, {}, (), unmet_lines(question, choice, counts()), rows, level, None,
            question.prices.unit, basis, error, len(screened), simulations,
        )  # fmt: skip
    shape = choice.shapes[leader.title]
    doubts = doubts_of(shape, error)
    arguments = [(question, shape, steps, factor) for _, steps, factor in doubts]
    tried = {}
    for (role, _, factor), trial in zip(doubts, side_by_side(doubt, arguments, jobs), strict=True):
        tried[role, factor] = trial
        simulations += 1
        done(shape.title)
    ranges = ranges_of(leader, tried)
    goals = reached(question, ranges)
    lines = lines_of(question, choice, ranges, goals, tried, counts())
    return Plan(
        question.title, shape, question.scenario(shape), ranges, goals, lines, rows, level,
        rule_of(question, shape), question.prices.unit, basis, error, len(screened), simulations,
    )  # fmt: skip
