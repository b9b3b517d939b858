"""The answer to a question: the fleet, what it gives, what limits it, what else there is at equal cost."""

import math
from collections.abc import Iterable, Sequence

import msgspec

from experiments.plan.choose import Choice
from experiments.plan.doubt import BETTER, Range, helps_most
from experiments.plan.question import APART, COLOCATED, PLAIN, Question, Shape
from experiments.plan.race import Entrant, leader_of
from experiments.plan.screen import Screened
from experiments.plan.trial import Trial, offered_tokens_per_s
from fleet.policies.admit import N_max
from fleet.scenario.scenario import Scenario
from fleet.scenario.settle import settle
from sim.analytic import N_full
from sim.predict import star_inputs

BUSY = 0.85  # the load from which a station is called the bottleneck
TABLED = 12  # fleets of a table that is printed


class Reached(msgspec.Struct, frozen=True):
    """A goal, and what the chosen fleet makes of it.

    Keys:
        text: The goal.
        metric: The metric that it limits.
        limit (the metric's): Where it is met.
        range: The metric of the fleet.
        state: "met" or "missed" where the whole range is, "at its edge" where the range holds the limit.
    """

    text: str
    metric: str
    limit: float
    range: Range
    state: str


class Row(msgspec.Struct, frozen=True):
    """A fleet of the table.

    Keys:
        fleet: The fleet in words.
        kind: Drafters apart, co-located, or no speculation.
        drafters (drafters): `M`.
        targets (targets): `N`.
        levers: What else distinguishes it.
        known: How its numbers are known: "simulated" or "equations", which are approximate.
        seeds (seeds): How many simulations they are the mean of.
        tokens_per_s (tokens/s): All that it decodes.
        tokens_per_s_per_user (tokens/s): What one request gets: 1 / TPOT.
        tpot_p99_s (s): The 99th percentile of the time for a token; none where equations alone know it.
        cost_per_hour (the prices' unit): What an hour of it costs.
        cost_per_million (the prices' unit): What a million tokens cost.
        miss (share): By how much it misses the goal that it misses most, negative where it meets all; none without
            goals.
        standing: "chosen", "level" with it, "costs more", "misses a goal", or "cheaper, may miss a goal".
    """

    fleet: str
    kind: str
    drafters: int
    targets: int
    levers: dict[str, object]
    known: str
    seeds: int
    tokens_per_s: float
    tokens_per_s_per_user: float
    tpot_p99_s: float | None
    cost_per_hour: float
    cost_per_million: float
    miss: float | None
    standing: str


class Rule(msgspec.Struct, frozen=True):
    """What the paper's rule of thumb says, for one drafter at the chosen depth, beside the planner's N.

    Keys:
        S_s: `S(d)`.
        Z_s: `Z(d)`.
        N_full (targets): The fewest targets that keep the drafter fully loaded, equation (12).
        N_max (targets): The most that are each as fast as without it; 0 if none is.
        knee (targets): 1 + Z / S, where the asymptotes of R_q meet.
        planned (targets): Targets of each drafter in the plan.
    """

    S_s: float
    Z_s: float
    N_full: int
    N_max: int
    knee: float
    planned: float


class Plan(msgspec.Struct, frozen=True):
    """The answer to a question.

    Keys:
        question: What was asked, in a line.
        chosen: The fleet; None where none of those simulated meets the goals.
        scenario: The fleet as a scenario, ready to run; of targets that have nothing to do with each other, one.
        metrics: Its metrics, each with the range that chance and step times leave.
        goals: What it makes of the goals.
        lines: The answer in five lines.
        rows: All fleets that were simulated, the best first.
        level: Fleets that could not be told apart from the chosen one, or cost less than a hundredth more.
        rule: The rule of thumb beside it; None without drafters.
        unit: What costs are in.
        basis: What the step times rest on.
        step_error (share): By how much a role's step times are taken to be off, at 95 %.
        screened (fleets): How many fleets the equations looked at.
        simulations (runs): How many simulations were run.
    """

    question: str
    chosen: Shape | None
    scenario: Scenario | None
    metrics: dict[str, Range]
    goals: tuple[Reached, ...]
    lines: tuple[str, ...]
    rows: tuple[Row, ...]
    level: tuple[str, ...]
    rule: Rule | None
    unit: str
    basis: str
    step_error: float
    screened: int
    simulations: int


def rule_of(question: Question, shape: Shape) -> Rule | None:
    """Return the rule of thumb for a fleet with drafters apart."""
    if shape.kind != APART:
        return None
    inputs = star_inputs(settle(question.scenario(shape)))
    S, Z = inputs.service_s, inputs.return_s
    most = N_max(S, Z, inputs.accepted_per_round + 1, inputs.standalone_tokens_per_s)
    return Rule(S, Z, N_full(S, Z), most, 1 + Z / S, shape.targets / shape.drafters)


def reached(question: Question, ranges: dict[str, Range]) -> tuple[Reached, ...]:
    """Say of each goal whether it is met."""
    told = []
    for goal in question.goals:
        one = ranges[goal.metric]
        sides = [goal.miss(value) <= 0 for value in (one.low, one.high)]
        state = "met" if all(sides) else "at its edge" if any(sides) else "missed"
        told.append(Reached(goal.text, goal.metric, goal.limit, one, state))
    return tuple(told)


def rows_of(question: Question, choice: Choice, screened: Iterable[Screened]) -> tuple[Row, ...]:
    """Table all fleets: those simulated by how good they are, then those that equations alone know."""
    level = {one.title for one in choice.level}
    simulated = [_simulated(question, choice, one, level) for one in choice.entrants.values()]
    order = {"chosen": 0, "level": 1, "costs more": 2, "cheaper, may miss a goal": 3, "misses a goal": 4}
    simulated.sort(key=lambda row: (order[row.standing], row.cost_per_million, row.tpot_p99_s))
    others = [one for one in screened if one.shape.title not in choice.entrants and math.isfinite(one.tpot_s)]
    return (*simulated, *(_by_equations(one) for one in sorted(others, key=lambda one: one.per_million)))


def _simulated(question: Question, choice: Choice, entrant: Entrant, level: set[str]) -> Row:
    shape, miss = choice.shapes[entrant.title], entrant.worst_miss(question.goals)
    cost, leader = entrant.mean("cost_per_million"), choice.leader
    if leader is not None and entrant.title == leader.title:
        standing = "chosen"
    elif entrant.misses_clearly(question.goals):
        standing = "misses a goal"
    elif miss > 0:
        cheaper = leader is None or cost < leader.mean("cost_per_million")
        standing = "cheaper, may miss a goal" if cheaper else "costs more"
    else:
        standing = "level" if entrant.title in level else "costs more"
    tokens_per_s = offered_tokens_per_s(question) if question.arrivals_per_s else entrant.mean("throughput")
    known_miss = miss if math.isfinite(miss) else None
    user, p99_s = 1 / entrant.mean("tpot_mean_s"), entrant.mean("tpot_p99_s")
    return Row(
        entrant.title, shape.kind, shape.drafters, shape.targets, shape.levers, "simulated", len(entrant.trials),
        tokens_per_s, user, p99_s, entrant.cost_per_hour, cost, known_miss, standing,
    )  # fmt: skip


def _by_equations(one: Screened) -> Row:
    shape = one.shape
    return Row(
        shape.title, shape.kind, shape.drafters, shape.targets, shape.levers, "equations", 0, one.tokens_per_s,
        1 / one.tpot_s, None, one.cost_per_hour, one.per_million, None, "not simulated",
    )  # fmt: skip


def lines_of(
    question: Question, choice: Choice, ranges: dict[str, Range], goals: Sequence[Reached],
    tried: dict[tuple[str, float], Trial], counts: str,
) -> tuple[str, ...]:  # fmt: skip
    """Say the answer in five lines: the fleet, what it gives, what limits it, the rivals, what to change next."""
    leader, unit = choice.leader, question.prices.unit
    assert leader is not None
    shape = choice.shapes[leader.title]
    tokens, cost, tpot = (ranges[name] for name in ("throughput", "cost_per_million", "tpot_p99_s"))
    what = "cheapest that reaches the goals" if question.goals else "cheapest for a token"
    same = [one.title for one in choice.level]
    cheaper = min(choice.perhaps, key=lambda one: one.cost_per_hour, default=None)
    perhaps = f"; {cheaper.title} is cheaper, and misses a goal, but not beyond chance" if cheaper else ""
    told_apart = f"; not told apart from it: {', '.join(same[:3])}{' ...' * (len(same) > 3)}" if same else ""
    told_apart += perhaps
    gives = [
        f"{_range(tokens)} tokens/s",
        f"{1 / ranges['tpot_mean_s'].value:.3g} a user",
        f"P99 of TPOT {_range(tpot, 1e3)} ms",
        f"{leader.cost_per_hour:.4g} {unit} an hour, {_range(cost)} a million tokens",
    ]
    gives += [f"{goal.text}: {goal.state}" for goal in goals]
    role, effect = helps_most(leader, tried, "tpot_mean_s" if question.arrivals_per_s else "throughput")
    changed = "time for a token" if question.arrivals_per_s else "throughput"
    quicker = f"steps of the {role} {BETTER:.0%} quicker change the {changed} by {effect:+.1%}"
    return (
        f"fleet: {leader.title}: {what} ({counts}){told_apart}",
        f"gives: {'; '.join(gives)}",
        f"limit: {_bottleneck(leader, shape)}{_rule_text(rule_of(question, shape))}",
        f"instead: {_rivals(question, choice, leader)}",
        f"next: {quicker}{_one_more(choice, shape)}",
    )


def unmet_lines(question: Question, choice: Choice, counts: str) -> tuple[str, ...]:
    """Say that no fleet reaches the goals, and by how much the best of each kind misses them."""
    lines = [f"fleet: none of those looked at reaches the goals ({counts})"]
    for kind in (APART, COLOCATED, PLAIN):
        own = [one for title, one in choice.entrants.items() if choice.shapes[title].kind == kind]
        if own:
            best = min(own, key=lambda one: one.worst_miss(question.goals))
            miss = best.worst_miss(question.goals)
            how = "more is offered than it can carry" if math.isinf(miss) else f"misses by {miss:.1%}"
            worst = max(question.goals, key=lambda goal: goal.miss(best.mean(goal.metric)))
            lines.append(f"closest, {kind}: {best.title}: {how} ({worst.text})")
    if question.prices and not choice.entrants:
        lines.append("no fleet can carry the load; allow more targets")
    return tuple(lines)


def _range(one: Range, factor: float = 1.0) -> str:
    return f"{one.value * factor:.4g} ({one.low * factor:.4g} .. {one.high * factor:.4g})"


def _bottleneck(leader: Entrant, shape: Shape) -> str:
    """Which station has the least time left; where none is busy, the longest part of a round."""
    if shape.kind != APART:
        return "the targets, which do all the work"
    drafter, target = leader.mean("load"), leader.mean("target_load")
    if max(drafter, target) >= BUSY:
        name, load = ("drafters", drafter) if drafter >= target else ("targets", target)
        return f"the {name}, busy {load:.0%} of the time"
    parts = {"drafting": leader.mean("service_s"), "the link": leader.mean("communication_s"),
             "verification": leader.mean("verify_s"), "the wait for the drafter": leader.mean("wait_s")}  # fmt: skip
    known = {name: part for name, part in parts.items() if not math.isnan(part)}
    longest = max(known, key=lambda name: known[name])
    share = known[longest] / sum(known.values())
    return f"{longest}, {share:.0%} of a round; drafters are busy {drafter:.0%}, targets {target:.0%} of the time"


def _rule_text(rule: Rule | None) -> str:
    if rule is None:
        return ""
    text = f"; a drafter has {rule.planned:.3g} targets, where N_full = {rule.N_full}, the knee is at {rule.knee:.3g}"
    return f"{text} and N_max = {rule.N_max}"


def _rivals(question: Question, choice: Choice, leader: Entrant) -> str:
    """What the best of the other kinds cost, or that they miss the goals."""
    told = []
    for kind in (APART, COLOCATED, PLAIN):
        own = [one for title, one in choice.entrants.items() if choice.shapes[title].kind == kind]
        if not own or choice.shapes[leader.title].kind == kind:
            continue
        best = leader_of(own, question.goals, bool(question.arrivals_per_s))
        if best is None:
            least = min(own, key=lambda one: one.worst_miss(question.goals))
            told.append(f"{kind}: none simulated reaches the goals ({least.title} is closest)")
            continue
        more = best.mean("cost_per_million") / leader.mean("cost_per_million") - 1
        same_cost = f", or {1 / (1 + more) - 1:+.0%} tokens at equal cost" if not question.arrivals_per_s else ""
        told.append(f"{best.title}: {more:+.0%} cost for a token{same_cost}")
    if question.colocated is None:
        told.append("co-located is not known: nothing says what drafting takes on a target's device")
    return "; ".join(told)


def _one_more(choice: Choice, shape: Shape) -> str:
    """What one target more gives, where that was simulated."""
    more = [one for one in choice.shapes.values() if one.kind == shape.kind and one.drafters == shape.drafters
            and one.targets == shape.targets + 1 and one.levers == shape.levers]  # fmt: skip
    if not more:
        return ""
    ours, theirs = (choice.entrants[one.title] for one in (shape, more[0]))
    tokens, cost = (theirs.mean(name) / ours.mean(name) - 1 for name in ("throughput", "cost_per_million"))
    return f"; one target more: {tokens:+.1%} tokens/s at {cost:+.1%} cost for a token"
