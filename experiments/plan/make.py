"""From a question to its plan."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from experiments.jobs import side_by_side
from experiments.plan.answer import Plan, approximation_of, reached, rows_of, rule_of
from experiments.plan.cheapest import cheapest
from experiments.plan.doubt import doubt, doubts_of, error_of, ranges_of
from experiments.plan.fewest import fewest
from experiments.plan.lines import lines_of, unmet_lines
from experiments.plan.question import Question, Shape, check
from experiments.plan.screen import screen
from experiments.plan.trial import Trial, try_out
from fleet.errors import InputError
from fleet.times.labels import basis_of
from fleet.times.profile import HardwareProfile

WORTH_PROCESSES_S = 3.0  # processor time after which a plan starts processes; one takes about two seconds to begin with


def make_plan(
    question: Question, jobs: int = 1, step_error: float | None = None, done: Callable[[str], None] = lambda _what: None
) -> Plan:
    """Answer a question, with `jobs` simulations at once; `done` is told each fleet that was simulated.

    `step_error`: by which share a role's step times may be off, at 95 %; by default what profiles of that kind are.
    Raises InputError for a question that cannot be planned.
    """
    check(question)
    for pair in question.pairs:
        if not isinstance(pair.base.profile, HardwareProfile):
            raise InputError(f"scenario {pair.base.name!r}: a plan needs step times; name a profile")
    screened = screen(question)
    simulations, begun_s = 0, time.process_time()

    def simulated(call: Callable[..., Trial], arguments: Sequence[tuple[Any, ...]]) -> Iterable[Trial]:
        """Simulate in this process, and in several once it has worked for as long as they take to begin."""
        nonlocal simulations
        left = list(arguments)
        while left:
            alone = jobs == 1 or len(left) == 1 or time.process_time() - begun_s < WORTH_PROCESSES_S
            now, left = (left[:1], left[1:]) if alone else (left, [])
            for trial in side_by_side(call, now, 1 if alone else jobs):
                simulations += 1
                done(trial.shape.title)
                yield trial

    def tries(pairs: Sequence[tuple[Shape, int]]) -> Iterable[Trial]:
        return simulated(try_out, [(question, shape, seed) for shape, seed in pairs])

    choice = (fewest if question.arrivals_per_s else cheapest)(question, screened, tries)
    leader = choice.leader
    profile = (question.pairs[0] if leader is None else question.pair(choice.shapes[leader.title])).base.profile
    assert isinstance(profile, HardwareProfile)
    error, basis = error_of(profile) if step_error is None else step_error, basis_of(profile)
    rows, approximation = rows_of(question, choice, screened), approximation_of(question, choice, screened)

    def counts() -> str:
        return f"of {len(screened)} fleets by equations, {len(choice.entrants)} simulated in {simulations} runs"

    level = tuple(one.title for one in choice.level)
    if leader is None:
        return Plan(
            question.title, None, None, {}, (), unmet_lines(question, choice, counts()), rows, level, None,
            question.unit, basis, error, len(screened), simulations, approximation,
        )  # fmt: skip
    shape = choice.shapes[leader.title]
    doubts = doubts_of(shape, error)
    trials = simulated(doubt, [(question, shape, steps, factor) for _, steps, factor in doubts])
    tried = {(role, factor): trial for (role, _, factor), trial in zip(doubts, trials, strict=True)}
    ranges = ranges_of(leader, tried)
    goals = reached(question, ranges)
    lines = lines_of(question, choice, ranges, goals, tried, counts())
    return Plan(
        question.title, shape, question.scenario(shape), ranges, goals, lines, rows, level,
        rule_of(question, shape), question.unit, basis, error, len(screened), simulations, approximation,
    )  # fmt: skip
