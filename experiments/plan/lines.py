"""The answer in five lines, or what is missing where no fleet reaches the goals."""

import math
from collections import defaultdict
from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from specfleet.experiments.plan.answer import Reached, RuleOfThumb, rule_of
from specfleet.experiments.plan.doubt import BETTER, Doubts, Range, helps_most
from specfleet.experiments.plan.question import APART, COLOCATED, PLAIN, Family, Question
from specfleet.experiments.plan.search import Contest
from specfleet.experiments.plan.trials import SAME_COST, Entrant, leader_of

ELSEWHERE = 3  # other pairs of places that the lines name
BUSY = 0.85  # the load from which a station is called the bottleneck


def lines_of(
    question: Question, choice: Contest, leader: Entrant | None, ranges: dict[str, Range], goals: Sequence[Reached],
    tried: Doubts, counts: str,
) -> tuple[str, ...]:  # fmt: skip
    """Say the answer in five lines: the fleet, what it gives, what limits it, the rivals, what to change next."""
    if leader is None:
        return _unmet_lines(question, choice, counts)
    unit = question.unit
    tokens, cost, tpot = (ranges[name] for name in ("throughput", "cost_per_million", "tpot_p99_s"))
    what = "cheapest that reaches the goals" if question.goals else "cheapest for a token"
    same = [one.title for one in choice.level]
    level = f"; level with it within chance: {', '.join(same[:3])}{' ...' * (len(same) > 3)}" if same else ""
    carried = f"all of {question.offered_tokens_per_s:.4g}" if question.arrivals_per_s else _range(tokens)
    gives = [
        f"{carried} tokens/s",
        f"{1 / ranges['tpot_s'].value:.3g} a user",
        f"P99 of TPOT {_range(tpot, 1e3)} ms",
        f"{leader.cost_per_hour:.4g} {unit} an hour, {_range(cost)} a million tokens",
    ]
    gives += [f"{goal.text}: {goal.state}" for goal in goals]
    overloaded = [role for role, (_, slower, _) in tried.items() if slower.get("overload")]
    gives += [f"slower {role} do not carry the load" for role in overloaded]
    role, effect = helps_most(leader, tried, "tpot_s" if question.arrivals_per_s else "throughput")
    changed = "time for a token" if question.arrivals_per_s else "throughput"
    quicker = f"steps of the {role} {BETTER:.0%} quicker change the {changed} by {effect:+.1%}"
    if choice.perhaps:
        cheaper = min(choice.perhaps, key=lambda one: one.cost_per_hour)
        price = "is cheaper" if cheaper.cost_per_hour < (1 - SAME_COST) * leader.cost_per_hour else "costs as much"
        level += f"; {cheaper.title} {price}, and misses a goal, but not beyond chance"
    return (
        f"fleet: {leader.title}: {what} ({counts}){level}",
        f"gives: {'; '.join(gives)}",
        f"limit: {_bottleneck(leader)}{_rule_text(rule_of(question, leader.shape))}",
        f"instead: {_rivals(question, choice, leader)}",
        f"next: {quicker}{_one_more(question, choice, leader)}",
    )


def _unmet_lines(question: Question, choice: Contest, counts: str) -> tuple[str, ...]:
    """Say that no fleet reaches the goals, and by how much the best of each kind misses them."""
    lines = [f"fleet: none of those looked at reaches the goals ({counts})"]
    for kind in (APART, COLOCATED, PLAIN):
        if own := choice.of_kind(kind):
            best = min(own, key=lambda one: one.worst_miss(question.goals))
            miss = best.worst_miss(question.goals)
            how = "more is offered than it can carry" if math.isinf(miss) else f"misses by {miss:.1%}"
            worst = max(question.goals, key=lambda goal: goal.miss(best.mean(goal.metric)))
            lines.append(f"closest, {kind}: {best.title}: {how} ({worst.text})")
    if not choice.entrants:
        lines.append("no fleet can carry the load; allow more targets")
    return tuple(lines)


def _range(one: Range, factor: float = 1.0) -> str:
    return f"{one.value * factor:.4g} ({one.low * factor:.4g} .. {one.high * factor:.4g})"


def _bottleneck(leader: Entrant) -> str:
    """Which station has the least time left; where none is busy, the longest part of a round."""
    if leader.shape.kind != APART:
        return "the targets, which do all the work"
    drafter, target = leader.mean("load"), leader.mean("target_load")
    if max(drafter, target) >= BUSY:
        name, load = ("drafters", drafter) if drafter >= target else ("targets", target)
        return f"the {name}, busy {load:.0%} of the time"
    parts = {"drafting": leader.mean("service_s"), "the link": leader.mean("communication_s"),
             "verification": leader.mean("verify_s"), "the wait for the drafter": leader.mean("wait_s")}  # fmt: skip
    finite = {name: part for name, part in parts.items() if not math.isnan(part)}
    longest = max(finite, key=lambda name: finite[name])
    share = finite[longest] / sum(finite.values())
    return f"{longest}, {share:.0%} of a round; drafters are busy {drafter:.0%}, targets {target:.0%} of the time"


def _rule_text(rule: RuleOfThumb | None) -> str:
    if rule is None:
        return ""
    text = f"; a drafter has {rule.planned:.3g} targets, where N_full = {rule.N_full}, the knee is at {rule.knee:.3g}"
    return f"{text} and N_max = {rule.N_max}"


def _rivals(question: Question, choice: Contest, leader: Entrant) -> str:
    """What the best of the other kinds, and of the chosen kind on other devices, cost, or that they miss the goals."""
    rivals = []
    for kind in (APART, COLOCATED, PLAIN):
        own = choice.of_kind(kind)
        if own and leader.shape.kind != kind:
            rivals.append(_rival(question, leader, kind, _best(question, own)))
    rivals += _elsewhere(question, choice, leader)
    if all(pair.colocated is None for pair in question.pairs):
        rivals.append("co-located is not known: nothing says what drafting takes on a target's device")
    for pair in question.pairs:
        if pair.colocated is not None and next(pair.levers(COLOCATED, question.vary), None) is None:
            where = "" if pair.target_place is UNSET else f" on {pair.target_place}"
            rivals.append(f"co-located{where}: the drafter and its cache have no room beside the target")
    return "; ".join(dict.fromkeys(rivals))


def _best(question: Question, own: Sequence[Entrant]) -> Entrant:
    """The best of some fleets, or the one that misses the goals by least."""
    best = leader_of(own, question.goals, bool(question.arrivals_per_s))
    return min(own, key=lambda one: one.worst_miss(question.goals)) if best is None else best


def _rival(question: Question, leader: Entrant, called: str, best: Entrant) -> str:
    """What the best of some fleets costs, or that none of them reaches the goals."""
    if best.worst_miss(question.goals) > 0:
        return f"{called}: none simulated reaches the goals ({best.title} is closest)"
    more = best.mean("cost_per_million") / leader.mean("cost_per_million") - 1
    same_cost = f", or {1 / (1 + more) - 1:+.0%} tokens at equal cost" if not question.arrivals_per_s else ""
    return f"{best.title}: {more:+.0%} cost for a token{same_cost}"


def _elsewhere(question: Question, choice: Contest, leader: Entrant) -> list[str]:
    """The same of the chosen kind on the other devices, the best few of them."""
    families: dict[Family, list[Entrant]] = defaultdict(list)
    for one in choice.of_kind(leader.shape.kind):
        families[one.shape.family].append(one)
    best = [_best(question, own) for family, own in families.items() if family != leader.shape.family]

    def rank(one: Entrant) -> tuple[bool, float]:
        miss = one.worst_miss(question.goals)
        return miss > 0, miss if miss > 0 else one.mean("cost_per_million")

    named = sorted(best, key=rank)[:ELSEWHERE]
    rivals = [_rival(question, leader, _places(one.shape.family), one) for one in named]
    left = len(best) - len(named)
    return [*rivals, f"{left} more pair{'s' * (left > 1)} of devices in the table"] if left else rivals


def _places(family: Family) -> str:
    _, target_place, draft_place = family
    return f"on {target_place}" if draft_place is UNSET else f"{draft_place} for {target_place}"


def _one_more(question: Question, choice: Contest, leader: Entrant) -> str:
    """What one target more gives, where that was simulated."""
    more = msgspec.structs.replace(leader.shape, targets=leader.shape.targets + 1)
    larger = choice.entrants.get(more.title)
    if larger is None:
        return ""
    what, name = ("time for a token", "tpot_s") if question.arrivals_per_s else ("tokens/s", "throughput")
    change, cost = (larger.mean(metric) / leader.mean(metric) - 1 for metric in (name, "cost_per_million"))
    return f"; one target more: {change:+.1%} {what} at {cost:+.1%} cost for a token"
