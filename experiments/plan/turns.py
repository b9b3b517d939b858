"""What would turn the advice: other acceptance; for a drafter elsewhere the targets that share it, and the link."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import msgspec

from specfleet.experiments.plan.candidates import Candidate
from specfleet.experiments.plan.deployments import Deployment, Estimate, estimates, mean_request_s
from specfleet.experiments.plan.depths import options_of
from specfleet.experiments.plan.ranges import accepting
from specfleet.experiments.plan.search import SAME_COST, Simulations, able
from specfleet.experiments.plan.serving import load_curve
from specfleet.experiments.plan.trials import INDIFFERENT, simulated
from specfleet.fleet.errors import InputError
from specfleet.fleet.scenario.resolve import resolve
from specfleet.fleet.shown import number
from specfleet.fleet.times.profile import HardwareProfile

HALVINGS = 6  # of the span of acceptance
LATENCIES_S = (1e-5, 1.0)  # of links
LOOKS = {False: (4, 7, 2), True: (2, 4, 1)}
"""Fleets on each link, halvings of the decades of links, to 9 % or a factor of 2, digits; of slow ones the latter."""
Turn = tuple[str, str]  # what happens, and where: a number that differs by load


def turns(by_load: Sequence[Simulations]) -> Iterator[str]:
    """Say what would turn the advice for each load."""
    for head, say in {"turns": by_acceptance, "a drafter elsewhere pays": by_link}.items():
        said = [(turn, search.question.load.text.partition(" ")[0]) for search in by_load if (turn := say(search))]
        runs = [(text, list(run)) for text, run in groupby(said, key=lambda pair: pair[0][0])]
        texts = [
            ("" if len(by_load) == 1 else f"at {', '.join(load for _, load in run)}: ") + text
            + ", ".join(at for (_, at), _ in run)
            for text, run in runs
        ]  # fmt: skip
        yield from [f"{head}: {'; '.join(texts)}"] if texts else []


def by_acceptance(search: Simulations) -> Turn | None:
    """Return which other method wins, or that a goal is missed, and from which acceptance on; None where none does.

    The drafts of the best fleet's drafter pass less often, wherever it runs; without one, the next fleet's more often.
    They are as long as is best then. Slow fleets of that drafter are left out.
    """
    best, others = search.best[0], [fleet for fleet in search.best[1:] if search.miss(fleet) <= 0]
    changed = next((fleet for fleet in (best, *others) if fleet.depth), None)
    if changed is None or changed.is_slow or search.winner is None:
        return None
    drafter = changed.candidate.drafted_by
    fleets = [one for one in (best, *others) if not (one.is_slow and one.candidate.drafted_by == drafter)]

    def ranked(varied: Simulations, tried: Deployment) -> tuple[float, ...]:
        *goals, score = varied.rank(tried)
        return *goals, score * (1 + INDIFFERENT * (tried.depth > 0))  # no speculation is smaller

    def first(by: float) -> Deployment | None:
        varied, more = copy.copy(search), -by if best.depth else by
        varied.values = {fleet.title: search.values[fleet.title][:1] for fleet in fleets}
        pairs = [(fleet, fleet) for fleet in fleets]  # as it may be, and as it is
        for fleet in (one for one in fleets if one.candidate.drafted_by == drafter):
            other = _at_best_depth(search, fleet, more)
            for tried in [fleet, *[other] * (other != fleet)]:
                pairs.append((tried, fleet))
                varied.values[tried.title] = [simulated(accepting(search.scenario(tried), more))]
        tried, fleet = min(pairs, key=lambda pair: ranked(varied, pair[0]))
        return None if varied.miss(tried) > 0 else fleet

    if first(1.0) == best:
        return None
    by = _edge(lambda by: first(by) != best, 0.0, 1.0, HALVINGS)
    rival = first(by)
    elsewhere = f" at {rival.candidate.target}" if rival and rival.candidate.target != best.candidate.target else ""
    wins = f"{rival.candidate.name}{elsewhere} wins" if rival else "a goal is missed"
    said = changed.candidate.name.partition(" on ")[0].partition("@")[0]
    return f"{wins} if acceptance of {said} is {'lower' if best.depth else 'higher'} by ", f"{by:.2f}"


def _at_best_depth(search: Simulations, fleet: Deployment, more: float) -> Deployment:
    """Return a fleet with the depth that equations say is best when its drafts pass so much more often."""
    options = [one.fleet for depth, one in options_of(search, fleet).items() if depth]
    curves = [load_curve(resolve(accepting(search.scenario(one), more)), one.sharing) for one in options]
    times_s = [mean_request_s(curve, search.question.load, fleet.replicas) for curve in curves]
    return options[times_s.index(min(times_s))]


def by_link(search: Simulations) -> Turn | None:
    """Return from how many targets on, and up to which link, a drafter elsewhere pays; None where none was asked for.

    It pays where it is better by INDIFFERENT. On each link the first fleets by equations, of different depths, and
    the fleet planned are simulated. The number of targets holds on the link asked.
    """
    question, other = search.question, next((fleet for fleet in search.best if not fleet.drafters), None)
    asked = [one for one in question.candidates if one.method == "apart"]
    if not asked or other is None or search.winner is None:
        return None
    planned = [fleet for fleet in search.best if fleet.drafters][:1]
    links = [fleet.candidate.base.link for fleet in planned] or [asked[0].base.link]  # of several the best
    looked_at, halvings, digits = LOOKS[any(fleet.is_slow for fleet in planned)]
    against, most = copy.copy(search), other.cost_per_hour * (1 + SAME_COST)
    against.best, against.values = [other], {other.title: search.values[other.title][:1]}

    def score(one: Estimate) -> tuple[float, ...]:
        if question.aim == "token":
            return (one.per_million,)
        return question.aim == "hour" and one.fleet.cost_per_hour > most, one.request_s, -one.fleet.cost_per_hour

    def on_link(latency_s: float) -> tuple[float, str, str]:
        """Return by how much the best fleet is worse, its drafter, and what it is in words."""
        moved = tuple(_on_link(one, latency_s) for one in asked if one.base.link in links)
        try:
            made, _ = estimates(msgspec.structs.replace(question, candidates=moved))
        except InputError:  # none carries the load
            return math.inf, "", "cannot carry the load"
        ordered = [one.fleet for one in sorted(able(question, made) or made, key=score)]
        first = {fleet.depth: fleet for fleet in reversed(ordered)}
        fleets = sorted(ordered, key=lambda fleet: first[fleet.depth] is not fleet)[:looked_at]
        fleets += [msgspec.structs.replace(one, candidate=_on_link(one.candidate, latency_s)) for one in planned]
        against.values |= {fleet.title: [simulated(search.scenario(fleet))] for fleet in fleets}
        best = min(fleets, key=lambda fleet: (_excess(against, fleet, other), against.rank(fleet)))
        name = f" with {best.candidate.place}" if "@" in best.candidate.place else ""
        return _excess(against, best, other), name, against.standing(best)

    worse, name, standing = on_link(LATENCIES_S[0])
    text = f"against {other.candidate.name} by over {INDIFFERENT:.0%}:"
    if worse > -INDIFFERENT:
        return f"{text} never, even on a link of 0 ms{name}: ", standing
    low, high = map(math.log10, LATENCIES_S)
    edge = _edge(lambda decades: on_link(10**decades)[0] > -INDIFFERENT, low, high, halvings)
    edge -= (high - low) / 2**halvings  # the last that pays
    tried = [search.estimates[title].fleet for title, values in search.values.items() if values]
    paying = [fleet.sharing for fleet in tried if fleet.drafters and _excess(search, fleet, other) <= -INDIFFERENT]
    few = f" from {min(paying)} target{'s' * (min(paying) > 1)} a drafter on," if paying else ""
    return f"{text}{few if question.aim == 'token' else ''} up to a link of ", f"{number(1e3 * 10**edge, digits)} ms"


def _excess(search: Simulations, fleet: Deployment, other: Deployment) -> float:
    """By which share a fleet is dearer an hour, if that differs, or slower, or its tokens dearer; goals go first."""
    dearer = fleet.cost_per_hour / other.cost_per_hour - 1 if search.question.aim == "hour" else 0.0
    if search.miss(fleet) > 0 or search.miss(other) > 0:
        return math.inf if search.miss(fleet) > 0 else -math.inf
    return dearer if abs(dearer) > SAME_COST else search.gap(fleet, other).value


def _on_link(candidate: Candidate, latency_s: float) -> Candidate:
    base = candidate.base
    assert isinstance(base.profile, HardwareProfile)
    link = msgspec.structs.replace(base.link or base.profile.link, latency_s=latency_s)
    return msgspec.structs.replace(candidate, base=msgspec.structs.replace(base, link=link))


def _edge(holds: Callable[[float], bool], low: float, high: float, halvings: int) -> float:
    """Return the first number, by halving, from which on something holds, as it does at `high`."""
    for _ in range(halvings):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
