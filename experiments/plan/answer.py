"""The answer to a question: the fleet, what it gives, what it makes of the goals, all fleets, the rule of thumb."""

import math
from collections.abc import Iterable

import msgspec

from specfleet.experiments.plan.doubt import Range
from specfleet.experiments.plan.question import APART, FleetShape, Question
from specfleet.experiments.plan.screen import Screened
from specfleet.experiments.plan.search import Contest
from specfleet.experiments.plan.trials import SAME_COST, Entrant
from specfleet.fleet.policies.admit import N_max
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.scenario.scenario import Scenario
from specfleet.fleet.stations.star import star_inputs
from specfleet.sim.analytic import N_full


class Reached(msgspec.Struct, frozen=True):
    """A goal, and what the chosen fleet makes of it.

    - `range`: the goal's metric of the fleet.
    - `state`: "met" or "missed" where the whole range is, "at its edge" where the range holds the limit.
    """

    text: str
    metric: str
    limit: float
    range: Range
    state: str


STANDINGS = (
    "chosen", "level", "not apart", "slower", "costs more", "may miss a goal", "misses a goal", "not simulated"
)  # fmt: skip
"""What a fleet is beside the chosen one. A slower one costs the same. One that is not apart is cheaper, but not asked
for. One that may miss a goal is cheaper or as cheap."""


class PlannedFleet(FleetShape, frozen=True, kw_only=True):
    """A fleet of the table.

    - `fleet`: in words.
    - `method`: source of its numbers: "simulated", the mean over `seeds`, or "equations", which are approximate.
    - `tokens_per_s_per_user`: what one request gets: 1 / TPOT.
    - `tpot_p99_s`: none where equations alone know it.
    - `miss`: share by which it misses the goal that it misses most, negative where it meets all; none without goals.
    - `standing`: one of STANDINGS.
    """

    fleet: str
    method: str
    seeds: int
    tokens_per_s: float
    tokens_per_s_per_user: float
    tpot_p99_s: float | None
    cost_per_hour: float
    cost_per_million: float
    miss: float | None
    standing: str


class RuleOfThumb(msgspec.Struct, frozen=True):
    """What the paper's rule of thumb says, for one drafter at the chosen depth, beside the planner's N.

    - `N_full`: the fewest targets that keep the drafter fully loaded, equation (12).
    - `N_max`: the most that are each as fast as without it; 0 if none is.
    - `knee`: 1 + Z / S, where the asymptotes of R_q meet.
    - `planned`: targets of each drafter in the plan.
    """

    S_s: float
    Z_s: float
    N_full: int
    N_max: int
    knee: float
    planned: float


class Approximation(msgspec.Struct, frozen=True):
    """By how much the equations missed the simulations of so many fleets, as shares.

    - `metric`: what is compared: tokens_per_s, or of arrivals tpot_s.
    """

    metric: str
    fleets: int
    mean: float
    worst: float


class Plan(msgspec.Struct, frozen=True):
    """The answer to a question.

    - `question`, `lines`: the question in a line, and the answer in five.
    - `chosen`: the fleet; None where none of those simulated meets the goals.
    - `scenario`: the fleet as a scenario, ready to run; of targets that have nothing to do with each other, one.
    - `metrics`: of the fleet, each with the range that chance and step times leave.
    - `rows`: all fleets, those that were simulated first, the best of them first.
    - `level`: fleets within chance of the chosen one, or less than a hundredth dearer.
    - `rule`: the rule of thumb beside it; None without drafters.
    - `unit`, `basis`: what costs are in, and what the step times rest on.
    - `step_error`: share by which a role's step times are taken to be off, at 95 %.
    - `screened`, `simulations`: how many fleets the equations looked at, and how many simulations were run.
    - `approximation`: what the equations missed simulated fleets by; None where none was.
    - `notes`: on the scenario that was asked and on the chosen one, a line each.
    """

    question: str
    chosen: FleetShape | None
    scenario: Scenario | None
    metrics: dict[str, Range]
    goals: tuple[Reached, ...]
    lines: tuple[str, ...]
    rows: tuple[PlannedFleet, ...]
    level: tuple[str, ...]
    rule: RuleOfThumb | None
    unit: str
    basis: str
    step_error: float
    screened: int
    simulations: int
    approximation: Approximation | None = None
    notes: tuple[str, ...] = ()


def rule_of(question: Question, shape: FleetShape) -> RuleOfThumb | None:
    """Return the rule of thumb for a fleet with drafters apart."""
    if shape.kind != APART:
        return None
    inputs = star_inputs(resolve(question.scenario(shape)))
    S, Z = inputs.service_s, inputs.return_s
    most = N_max(S, Z, inputs.accepted_per_round + 1, inputs.standalone_tokens_per_s)
    return RuleOfThumb(S, Z, N_full(S, Z), most, 1 + Z / S, shape.targets / shape.drafters)


def approximation_of(question: Question, choice: Contest, screened: Iterable[Screened]) -> Approximation | None:
    """Hold the equations against the fleets that were simulated, those aside that were offered more than they carry."""
    metric, simulated = ("tpot_s", "tpot_s") if question.arrivals_per_s else ("tokens_per_s", "throughput")
    said = {one.shape.title: getattr(one, metric) for one in screened}
    carried = [one for one in choice.entrants.values() if one.worst_miss(()) < 0]
    missed = [abs(said[one.title] / one.mean(simulated) - 1) for one in carried]
    return Approximation(metric, len(missed), sum(missed) / len(missed), max(missed)) if missed else None


def goals_reached(question: Question, ranges: dict[str, Range]) -> tuple[Reached, ...]:
    """Say of each goal whether it is met."""
    both = [(goal, ranges[goal.metric]) for goal in question.goals]
    return tuple(Reached(goal.text, goal.metric, goal.limit, one, goal.state(one.low, one.high)) for goal, one in both)


def rows_of(question: Question, choice: Contest, screened: Iterable[Screened]) -> tuple[PlannedFleet, ...]:
    """Table all fleets: those simulated by how good they are, then those that equations alone know."""
    leader, level = choice.leader, {one.title for one in choice.level}
    simulated = [_simulated(question, leader, level, one) for one in choice.entrants.values()]
    simulated.sort(key=lambda row: (STANDINGS.index(row.standing), row.cost_per_million, row.tpot_p99_s))
    others = [one for one in screened if one.shape.title not in choice.entrants and math.isfinite(one.tpot_s)]
    return (*simulated, *(_by_equations(one) for one in sorted(others, key=lambda one: one.per_million)))


def _simulated(question: Question, leader: Entrant | None, level: set[str], entrant: Entrant) -> PlannedFleet:
    shape, miss = entrant.shape, entrant.worst_miss(question.goals)
    cost = entrant.mean("cost_per_million")
    dearer = -1.0 if leader is None else cost / leader.mean("cost_per_million") - 1
    if leader is not None and entrant.title == leader.title:
        standing = "chosen"
    elif entrant.misses_clearly(question.goals):
        standing = "misses a goal"
    elif dearer > SAME_COST:
        standing = "level" if entrant.title in level else "costs more"
    elif miss > 0:
        standing = "may miss a goal"
    elif entrant.title in level:
        standing = "level"
    else:
        standing = "not apart" if question.apart and shape.kind != APART else "slower"
    return PlannedFleet(
        **msgspec.structs.asdict(shape), fleet=entrant.title, method="simulated", seeds=len(entrant.trials),
        tokens_per_s=question.offered_tokens_per_s or entrant.mean("throughput"),
        tokens_per_s_per_user=1 / entrant.mean("tpot_s"),
        tpot_p99_s=entrant.mean("tpot_p99_s"), cost_per_hour=entrant.cost_per_hour, cost_per_million=cost,
        miss=miss if math.isfinite(miss) else None, standing=standing,
    )  # fmt: skip


def _by_equations(one: Screened) -> PlannedFleet:
    return PlannedFleet(
        **msgspec.structs.asdict(one.shape), fleet=one.shape.title, method="equations", seeds=0,
        tokens_per_s=one.tokens_per_s, tokens_per_s_per_user=1 / one.tpot_s, tpot_p99_s=None,
        cost_per_hour=one.cost_per_hour, cost_per_million=one.per_million, miss=None, standing="not simulated",
    )  # fmt: skip
